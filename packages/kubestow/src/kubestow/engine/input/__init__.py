"""Clusters and workloads read from files: kubectl dumps, manifests and traces.

:mod:`.documents` parses files into objects with their positions, of which :mod:`.cluster_objects` makes a cluster. New
pods are completed by :mod:`.admission` as the API server would. What cannot be used is a
:class:`~.documents.InputProblem`.
"""
