"""A development cluster in one process: API server, controllers and simulated kubelets. No containers, no etcd."""
