"""The in-tree plugins, one module each, named as in Kubernetes."""
