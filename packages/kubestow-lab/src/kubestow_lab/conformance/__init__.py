"""Conformance: recorded cases of kube-scheduler, cluster-capacity and descheduler, replayed and compared.

:mod:`.recorded_cases` reads a file of cases, :mod:`.replay` replays each as its kind requires:
:mod:`.scheduling_replay`, :mod:`.observed_decisions` for cases of which only the outcome is known,
:mod:`.capacity_replay` or :mod:`.descheduling_replay`.
"""
