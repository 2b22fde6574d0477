"""Conformance: recorded cases of kube-scheduler, cluster-capacity and descheduler, replayed and compared.

:mod:`.recorded_cases` reads a file of cases, :mod:`.replay` replays each as its kind requires: :mod:`.scheduling`,
:mod:`.capacity` or :mod:`.descheduling`.
"""
