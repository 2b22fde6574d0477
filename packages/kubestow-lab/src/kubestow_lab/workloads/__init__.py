"""Clusters and workloads as plain Kubernetes objects, and reports about scheduled workloads.

Sources: :mod:`~kubestow_lab.traces.openb` reads the trace of a GPU cluster, :mod:`~kubestow_lab.workloads.synthetic`
generates a similar one. Reports: :mod:`~kubestow_lab.workloads.report` summarises the final state, with the reasons of
pending pods. Nothing here does I/O with a server or reads a clock.
"""
