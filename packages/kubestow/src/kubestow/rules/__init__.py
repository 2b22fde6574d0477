"""The rules of Kubernetes about its own objects, each once, as pure functions on plain objects."""
