"""A development cluster in one process: API server, controllers and simulated kubelets, without containers or etcd."""
