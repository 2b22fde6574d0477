"""Clusters and workloads to schedule, as plain Kubernetes objects, and what came of them.

Where workloads come from: :mod:`~kubestow.workloads.openb` reads the trace of a GPU cluster,
:mod:`~kubestow.workloads.synthetic` draws one after it. What came of them: :mod:`~kubestow.workloads.report` sums up a
run, :mod:`~kubestow.workloads.placeability` judges, independently of the scheduler, whether a pending pod could have
run, and :mod:`~kubestow.workloads.explanation` says why not. Nothing here talks to a server or knows the time.
"""
