"""Measured load of nodes, as load-aware plugins use it.

usage            the latest usable samples by node, as columns
collector        collects samples in the background, from one of the sources
metrics_api      source: the resource metrics API (metrics.k8s.io)
prometheus       source: a Prometheus server
load_watcher     source: the load-watcher service
changed_nodes    node objects that are to be read again
recent_pods      pods that were placed so recently that the samples do not show them
"""
