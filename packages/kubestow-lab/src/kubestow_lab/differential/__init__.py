"""Differential fuzzing: decisions of a kube-scheduler beside those made here, about scenarios that none has seen.

:mod:`.scenarios` makes scenarios from recorded cases: parts of them are left out, changed and exchanged.
:mod:`.reference_cluster` plays a scenario on a cluster with a kube-scheduler and observes what that decides.
:mod:`.fuzzing` compares (:mod:`kubestow_lab.conformance.observed_decisions`), shrinks what differs, and keeps it as a
recorded case. ``python -m kubestow_lab.differential --kubeconfig K --minutes 60`` does so for an hour.
"""
