"""Clusters and workloads as plain Kubernetes objects, and reports about scheduled workloads.

Sources: :mod:`~kubestow.workloads.openb` reads the trace of a GPU cluster, :mod:`~kubestow.workloads.synthetic`
generates a similar one. Reports: :mod:`~kubestow.workloads.report` summarises the final state, with
:mod:`~kubestow.workloads.feasibility` as an independent check of pending pods and
:mod:`~kubestow.workloads.explanation` for their reasons. Nothing here does I/O with a server or reads a clock.
"""
