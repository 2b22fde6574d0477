"""Capacity: how many more pods of a template fit into a cluster, as cluster-capacity reports it."""
