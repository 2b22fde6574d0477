"""A cluster to try things on: an API server, controllers and simulated kubelets, without containers or a network."""
