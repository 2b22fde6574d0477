"""Flags as Kubernetes' components have them: their types, their catalogs, and the configuration that they make."""
