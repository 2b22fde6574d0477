"""Measured load of nodes, as load-aware plugins use it.

usage            the latest usable samples by node, as columns, and the node objects that are to be read again
collector        collects samples in the background, from one of the sources
sources          the resource metrics API (metrics.k8s.io), load-watcher, a Prometheus server
recent_pods      pods that were placed so recently that the samples do not show them
"""
