"""Clusters and workloads to schedule, as plain Kubernetes objects."""
