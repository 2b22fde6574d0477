"""Limits, budgets and protections across strategies; the strategies themselves are compared with recorded loops."""

from __future__ import annotations

from typing import Any

import pytest

from core_tests.descheduling.objects import NOW, evicted, loop, node, pod, policy
from kubestow.api.meta import convert
from kubestow.descheduling.descheduler_policy import load_policy, with_priority_thresholds
from kubestow.descheduling.eviction import DryRunEvictions
from kubestow.descheduling.loop import Descheduler
from kubestow.descheduling.snapshot import Node, Pod, PodDisruptionBudget, Snapshot
from kubestow.descheduling.strategies.plugin_registry import find_plugins

NODES = [node("n1"), node("n2")]
OLD = {"maxPodLifeTimeSeconds": 60}


@pytest.mark.parametrize(
    ("limits", "names"),
    [
        ({"maxNoOfPodsToEvictTotal": 3}, ["a0", "a1", "a2"]),
        ({"maxNoOfPodsToEvictPerNode": 1}, ["a0", "b0"]),
        ({"maxNoOfPodsToEvictPerNamespace": 2}, ["a0", "a1"]),
        ({"maxNoOfPodsToEvictTotal": 0}, []),
        ({}, ["a0", "a1", "a2", "b0", "b1", "b2"]),
    ],
)
def test_limits_hold_over_a_loop(limits: dict[str, Any], names: list[str]) -> None:
    pods = [pod(f"{prefix}{i}", name) for prefix, name in (("a", "n1"), ("b", "n2")) for i in range(3)]
    assert evicted(loop(policy("PodLifeTime", OLD, **limits), NODES, pods)) == names


def budget(**status: Any) -> PodDisruptionBudget:
    spec = {"selector": {"matchLabels": {"app": "web"}}}
    manifest = {"metadata": {"name": "web", "namespace": "default"}, "spec": spec, "status": status}
    return convert(PodDisruptionBudget, manifest)


READY = {"conditions": [{"type": "Ready", "status": "True"}]}


def test_a_budget_is_used_up() -> None:
    pods = [pod(f"p{i}", "n1", status=READY) for i in range(3)]
    result = loop(policy("PodLifeTime", OLD), NODES, pods, budget(disruptionsAllowed=2))
    assert evicted(result) == ["p0", "p1"]
    assert [eviction.pod.name for eviction in result.refused] == ["p2"]


def test_a_budget_that_the_controller_has_not_seen_allows_nothing() -> None:
    stale = convert(
        PodDisruptionBudget,
        {
            "metadata": {"name": "web", "namespace": "default", "generation": 2},
            "spec": {"selector": {}},
            "status": {"disruptionsAllowed": 5, "observedGeneration": 1},
        },
    )
    assert evicted(loop(policy("PodLifeTime", OLD), NODES, [pod("p", "n1", status=READY)], stale)) == []


def test_a_creation_time_in_the_future_evicts_nobody() -> None:
    future = {"creationTimestamp": "2027-01-01T00:00:00Z"}
    failed = pod("f", "n1", metadata=future, status={"phase": "Failed"})
    assert evicted(loop(policy("PodLifeTime", OLD), NODES, [pod("p", "n1", metadata=future), failed])) == []
    assert evicted(loop(policy("RemoveFailedPods", {"minPodLifetimeSeconds": 0}), NODES, [failed])) == []


def test_one_node_has_nowhere_to_go_to() -> None:
    result = loop(policy("PodLifeTime", OLD), [node("n1")], [pod("p", "n1")])
    assert result.too_few_nodes
    assert evicted(result) == []


def test_a_loop_starts_from_its_own_snapshot() -> None:
    """Nothing that filters kept for one loop is used in the next."""
    document = policy("PodLifeTime", OLD, evictor={"nodeFit": True, "ignorePodsWithoutPDB": True})
    registry = find_plugins()
    descheduler = Descheduler(with_priority_thresholds(load_policy(document, registry=registry), ()), registry)
    pods, nodes = [convert(Pod, pod("p", "n1"))], [convert(Node, n) for n in NODES]
    full = [convert(Node, node("n1")), convert(Node, node("n2", cpu="0"))]
    names = []
    for snapshot in (
        Snapshot(nodes=nodes, pods=pods),
        Snapshot(nodes=nodes, pods=pods, budgets=[budget(disruptionsAllowed=1)]),
        Snapshot(nodes=full, pods=pods, budgets=[budget(disruptionsAllowed=1)]),
    ):
        backend = DryRunEvictions(snapshot.budgets)
        names.append(evicted(descheduler.run(snapshot, now=NOW, backend=backend)))
    assert names == [[], ["p"], []]
