"""Traces of clusters that are published, each in its own format, as clusters and workloads for simulations.

:mod:`~kubestow_lab.traces.trace` is what all formats have in common: nodes, tasks, and what is assumed where a trace
says nothing. The readers are by publisher: :mod:`~kubestow_lab.traces.google`, :mod:`~kubestow_lab.traces.alibaba` and
:mod:`~kubestow_lab.traces.openb`, :mod:`~kubestow_lab.traces.azure`, :mod:`~kubestow_lab.traces.training_clusters`
(Philly, Helios, Acme, Supercloud), :mod:`~kubestow_lab.traces.swf` and :mod:`~kubestow_lab.traces.mapped_csv`.
:mod:`~kubestow_lab.traces.formats` names them, and :mod:`~kubestow_lab.traces.loading` makes Kubernetes objects.
"""
