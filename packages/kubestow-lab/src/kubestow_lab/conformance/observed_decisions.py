"""Decisions of which only the outcome was observed at an API server, compared as the shadow compares.

Such a case has one pod and the cluster in which it was decided about. Its expectation is ``{"observed": …}`` with what
the API showed: the ``node``, or the ``message`` of the condition PodScheduled, or the ``nominatedNodeName`` and the
``victims`` (namespace/name). Nodes of equal score and victims that are rated equal agree.
"""

from __future__ import annotations

from kubestow.api.core import Pod
from kubestow.api.meta import convert
from kubestow.framework.profile import Registry
from kubestow.shadow.comparison import Comparison, DecisionComparer, ObservedDecision
from kubestow_lab.conformance.recorded_cases import Case, Object
from kubestow_lab.conformance.scheduling_replay import ReplayMismatch, cluster_of, configuration_of, gates_of


def is_observed(case: Case) -> bool:
    """Whether only the outcome of a case was observed."""
    return any("observed" in recorded for recorded in case.expect)


def observed_decision(case: Case) -> ObservedDecision:
    """What was observed of the only pod of a case."""
    observed: Object = case.expect[0]["observed"]
    uids = {
        f"{pod['metadata']['namespace']}/{pod['metadata']['name']}": pod["metadata"]["uid"]
        for pod in case.cluster.get("pods", ())
    }
    return ObservedDecision(
        node=observed.get("node", ""),
        message=observed.get("message", ""),
        nominated=observed.get("nominatedNodeName", ""),
        victims={uids.get(name, name): name for name in observed.get("victims", ())},
    )


def compare_observed(case: Case, registry: Registry) -> Comparison:
    """Decide about the pod of a case, and compare. Raises ConfigurationError and PluginError."""
    gates = gates_of(case)
    cluster = cluster_of(case, gates)
    comparer = DecisionComparer(cluster, configuration_of(case, registry, gates), registry, gates)
    pod = cluster.shapes.info(convert(Pod, case.pods[0]))
    return comparer.compare(pod, observed_decision(case))


def replay_observed(case: Case, registry: Registry) -> list[ReplayMismatch]:
    """The outcome of a case if the scheduler here cannot have decided so."""
    comparison = compare_observed(case, registry)
    if comparison.verdict.agrees:
        return []
    metadata = case.pods[0]["metadata"]
    key = f"{metadata['namespace']}/{metadata['name']}"
    return [ReplayMismatch(case.name, key, str(comparison.verdict), observed_decision(case).text, comparison.here)]
