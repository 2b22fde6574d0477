"""Preemption (semantics 11.4): which pods are evicted, how, and which pods get the capacity.

TestAsyncPreemption is in test_async_preemption. Not here: TestPodGroupPreemption; gangs preempt as a whole
(test_pod_groups, test_pod_group_preemption and tests/scheduling/gangs).
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from kubestow.api.core import Pod
from kubestow.cluster.nodes.node_info import NodeInfo
from kubestow.cluster.pods.shapes import PodInfo
from kubestow.errors import APIError
from kubestow.framework.cycle_state import CycleState
from kubestow.framework.interface import NodeFilterPlugin, Permission
from kubestow.framework.status import SUCCESS, Status
from kubestow.scheduling.queued_pod import Place
from kubestow.testing import node, pod
from tests.integration.fixture import ClusterFixture, Object
from tests.integration.objects import claim, using, volume
from tests.integration.scripted_plugins import FAIL, profile, scripted_plugin

FULL = node("n", cpu="1")


def low(name: str = "low", **more: Any) -> Pod:
    return pod(name, **{"cpu": "1", "priority": 1, "node": "n", **more})


def high(name: str = "high", **more: Any) -> Pod:
    return pod(name, **{"cpu": "1", "priority": 100, **more})


def budget(name: str, allowed: int, **matching: str) -> Object:
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": name},
        "spec": {"selector": {"matchLabels": matching}, "minAvailable": 1},
        "status": {
            "disruptionsAllowed": allowed,
            "currentHealthy": 1,
            "desiredHealthy": 1,
            "expectedPods": 1,
            "observedGeneration": 1,
        },
    }


def disrupted(cluster: ClusterFixture, name: str) -> bool:
    conditions = cluster.pod(name).status.conditions
    return any(c.type == "DisruptionTarget" and c.reason == "PreemptionByScheduler" for c in conditions)


async def finish_termination(cluster: ClusterFixture, terminating: Pod) -> None:
    """Delete a pod and remove its finalizer."""
    await cluster.delete(terminating)
    await cluster.patch(terminating, {"metadata": {"finalizers": None}})


async def test_a_pod_of_lower_priority_is_evicted_with_a_condition_and_an_event(
    cluster_with_kubelets: ClusterFixture,
) -> None:
    cluster = cluster_with_kubelets
    await cluster.create(FULL, low())
    async with cluster.scheduler():
        await cluster.create(high())
        await cluster.until(lambda: disrupted(cluster, "low") or not cluster.node_of("low"))
        assert await cluster.bound("high") == ["n"]
        await cluster.deleted("low")
        await cluster.until(lambda: cluster.events("Preempted"))
        uid = cluster.pod("high").metadata.uid
        assert cluster.events("Preempted")[0].note == f"Preempted by pod {uid} on node n"


async def test_the_victim_is_patched_before_it_is_deleted(cluster: ClusterFixture) -> None:
    """The finalizer keeps the victim, so that it can be inspected."""
    await cluster.create(FULL, low(metadata={"finalizers": ["example.org/keep"]}))
    async with cluster.scheduler():
        await cluster.create(high())
        await cluster.until(lambda: cluster.pod("low").metadata.deletion_timestamp)
        assert disrupted(cluster, "low")
        assert cluster.nomination("high") == "n"


@pytest.mark.parametrize("priority", [1, 100], ids=["equal", "higher"])
async def test_a_pod_does_not_preempt_pods_of_equal_or_higher_priority(cluster: ClusterFixture, priority: int) -> None:
    await cluster.create(FULL, low(priority=priority))
    async with cluster.scheduler():
        await cluster.create(high("new", priority=1))
        (message,) = await cluster.pending_messages("new")
        assert "1 No preemption victims found for incoming pod" in message


async def test_a_priority_class_can_disable_preemption(cluster: ClusterFixture) -> None:
    never_preempts = {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": "never-preempts"},
        "value": 100,
        "preemptionPolicy": "Never",
    }
    await cluster.create(FULL, low(), never_preempts, pod("new", cpu="1", spec={"priorityClassName": "never-preempts"}))
    async with cluster.scheduler():
        (message,) = await cluster.pending_messages("new")
        assert "not eligible due to preemptionPolicy=Never." in message
        assert cluster.pod("new").spec.priority == 100


async def test_no_pod_is_evicted_without_post_filter_plugins(cluster: ClusterFixture) -> None:
    await cluster.create(FULL, low(), high())
    off = {"plugins": {"postFilter": {"disabled": [{"name": "*"}]}}}
    async with cluster.scheduler(profiles=[off]):
        assert await cluster.pending_messages("high") == ["0/1 nodes are available: 1 Insufficient cpu."]


@pytest.mark.parametrize("point", ["pre_filter", "filter"])
async def test_an_unresolvable_rejection_evicts_no_pod(cluster: ClusterFixture, point: str) -> None:
    never = Status.unresolvable("never")
    await cluster.create(FULL, low())
    async with cluster.scheduler(
        **profile(scripted_plugin(at={point: lambda i: never if i.name == "high" else SUCCESS}))
    ):
        await cluster.create(high())
        (message,) = await cluster.pending_messages("high")
        assert "1 Preemption is not helpful for scheduling" in message or "1 never" in message
        assert not cluster.pod("low").metadata.deletion_timestamp


def anti_affinity(of: str) -> Object:
    term = {"labelSelector": {"matchLabels": {"app": of}}, "topologyKey": "kubernetes.io/hostname"}
    return {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}


async def test_preemption_can_satisfy_anti_affinity(cluster_with_kubelets: ClusterFixture) -> None:
    await cluster_with_kubelets.create(node("n"), low(cpu=None, labels={"app": "x"}), low("other", cpu=None))
    async with cluster_with_kubelets.scheduler():
        await cluster_with_kubelets.create(high(cpu=None, affinity=anti_affinity("x")))
        await cluster_with_kubelets.bound("high")
        await cluster_with_kubelets.deleted("low")
        assert cluster_with_kubelets.node_of("other") == "n"


async def test_a_pod_required_by_affinity_is_not_evicted(cluster: ClusterFixture) -> None:
    term = {"labelSelector": {"matchLabels": {"app": "x"}}, "topologyKey": "kubernetes.io/hostname"}
    required = {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    await cluster.create(FULL, low(labels={"app": "x"}))
    async with cluster.scheduler():
        await cluster.create(high(affinity=required))
        await cluster.pending_messages("high")
        assert not cluster.pod("low").metadata.deletion_timestamp


# -- which pod gets the capacity ---------------------------------------------------------------------------------


async def test_nominated_capacity_is_reserved_against_lower_priorities_only(cluster: ClusterFixture) -> None:
    await cluster.create(FULL, low(metadata={"finalizers": ["example.org/keep"]}))
    async with cluster.scheduler():
        await cluster.create(high())
        await cluster.until(lambda: cluster.nomination("high") == "n")
        await cluster.create(high("middle", priority=50), high("highest", priority=1000))
        await cluster.pending_messages("middle", "highest")
        await finish_termination(cluster, low())
        assert await cluster.bound("highest") == ["n"]
        assert not cluster.node_of("middle")


async def test_a_preemptor_is_not_starved_by_many_pods_of_lower_priority(cluster_with_kubelets: ClusterFixture) -> None:
    cluster = cluster_with_kubelets
    await cluster.create(node("n", cpu="2"), low("low-a"), low("low-b"))
    async with cluster.scheduler():
        await cluster.create(high(cpu="2"), *(pod(f"flood-{n}", cpu="1", priority=1) for n in range(20)))
        assert await cluster.bound("high") == ["n"]


async def test_a_pod_of_higher_priority_takes_over_a_nominated_node(cluster: ClusterFixture) -> None:
    await cluster.create(FULL, low(metadata={"finalizers": ["example.org/keep"]}))
    async with cluster.scheduler():
        await cluster.create(high("first", priority=50))
        await cluster.until(lambda: cluster.nomination("first") == "n")
        await cluster.create(high("second", priority=100))
        await cluster.until(lambda: cluster.nomination("second") == "n" or cluster.message("second"))
        await finish_termination(cluster, low())
        assert await cluster.bound("second") == ["n"]


async def test_a_pod_whose_nominated_node_is_deleted_is_placed_elsewhere(cluster: ClusterFixture) -> None:
    await cluster.create(FULL, low(metadata={"finalizers": ["example.org/keep"]}))
    async with cluster.scheduler():
        await cluster.create(high())
        await cluster.until(lambda: cluster.nomination("high") == "n")
        await cluster.delete(FULL)
        await cluster.create(node("m", cpu="1"))
        assert await cluster.bound("high") == ["m"]


@pytest.mark.parametrize("elsewhere", [False, True])
async def test_a_pod_is_bound_to_its_nominated_node_or_to_another_feasible_one(
    cluster: ClusterFixture, elsewhere: bool
) -> None:
    # The other node has more free capacity, so it has the higher score.
    existing: list[Any] = [node("n", cpu="100"), node("m", cpu="1")]
    if elsewhere:
        existing.append(pod("full", cpu="1", node="m", priority=1000))
    await cluster.create(*existing, pod("a", cpu="1", priority=10, nominated="m"))
    async with cluster.scheduler():
        assert await cluster.bound("a") == ["n" if elsewhere else "m"]


async def test_a_pre_bind_failure_after_preemption_keeps_the_nomination(cluster_with_kubelets: ClusterFixture) -> None:
    failures = [FAIL]

    def pre_bind(info: PodInfo) -> Status:
        return failures.pop() if info.name == "high" and failures else SUCCESS

    await cluster_with_kubelets.create(FULL, low())
    async with cluster_with_kubelets.scheduler(**profile(scripted_plugin(pre_bind=pre_bind))):
        await cluster_with_kubelets.create(high())
        await cluster_with_kubelets.until(lambda: not failures)
        await cluster_with_kubelets.create(pod("late", cpu="1", priority=50))
        assert await cluster_with_kubelets.bound("high") == ["n"]


async def test_a_victim_waiting_at_permit_is_requeued_instead_of_deleted(cluster: ClusterFixture) -> None:
    def permit(info: PodInfo) -> Permission:
        return Permission.wait(600) if info.name == "low" else Permission()

    await cluster.create(node("n", cpu="1"), node("m", cpu="1", unschedulable=True), pod("low", cpu="1", priority=1))
    async with cluster.scheduler(**profile(scripted_plugin(permit=permit))) as probe:
        await cluster.until(lambda: cluster.nomination("low") == "n")
        await cluster.create(high())
        await cluster.bound("high")
        await probe.until(lambda: probe.place("low") is not None)
        await cluster.patch(node("m"), {"spec": {"unschedulable": None}})
        await cluster.until(lambda: "m" in cluster.nominations("low"))
        assert [each.info.name for each in probe.scheduler.waiting_pods.all()] == ["low"]


async def test_a_victim_at_pre_bind_is_requeued_instead_of_deleted(cluster: ClusterFixture) -> None:
    ready = asyncio.Event()

    async def wait_until_ready() -> Status:
        await ready.wait()
        return SUCCESS

    def pre_bind(info: PodInfo) -> Any:
        return wait_until_ready() if info.name == "low" else SUCCESS

    await cluster.create(FULL, pod("low", cpu="1", priority=1))
    async with cluster.scheduler(**profile(scripted_plugin(pre_bind=pre_bind))) as probe:
        await cluster.until(lambda: cluster.nomination("low") == "n")
        await cluster.create(high())
        assert await cluster.bound("high") == ["n"]
        await probe.until(lambda: probe.place("low") is not None)
        assert not cluster.pod("low").metadata.deletion_timestamp
        await cluster.create(node("m", cpu="1"))
        await cluster.until(lambda: "m" in cluster.nominations("low"))
        ready.set()
        assert await cluster.bound("low") == ["m"]


class ExclusiveNode(NodeFilterPlugin):
    """Rejects nodes that run any pod."""

    name = "ExclusiveNode"

    def filter_node(self, state: CycleState, pod: PodInfo, node_info: NodeInfo) -> Status | None:
        return Status.unschedulable("the node is not empty") if node_info.pods else None


async def test_preemption_resolves_the_rejection_of_a_custom_filter(cluster_with_kubelets: ClusterFixture) -> None:
    await cluster_with_kubelets.create(node("n"), low(cpu="100m"))
    async with cluster_with_kubelets.scheduler(**profile(ExclusiveNode)):
        await cluster_with_kubelets.create(high(cpu="100m"))
        assert await cluster_with_kubelets.bound("high") == ["n"]
        await cluster_with_kubelets.deleted("low")


async def test_preemption_replaces_an_existing_nomination(cluster: ClusterFixture) -> None:
    """The victim on the nominated node has a higher priority than the one on the other node."""
    await cluster.create(FULL, low("higher", priority=50, metadata={"finalizers": ["example.org/keep"]}))
    await cluster.create(node("m", cpu="1"), low("lower", node="m", metadata={"finalizers": ["example.org/keep"]}))
    async with cluster.scheduler():
        await cluster.create(high(nominated="n"))
        await cluster.until(lambda: cluster.nomination("high") == "m")
        await cluster.until(lambda: cluster.pod("lower").metadata.deletion_timestamp)
        assert not cluster.pod("higher").metadata.deletion_timestamp


CLASSES: dict[str, tuple[Object, int]] = {
    "named class": ({"priorityClassName": "important"}, 100),
    "system class": ({"priorityClassName": "system-node-critical"}, 2000001000),
    "global default": ({}, 7),
}


@pytest.mark.parametrize(("spec", "priority"), CLASSES.values(), ids=CLASSES.keys())
async def test_a_priority_class_is_resolved_to_its_value(cluster: ClusterFixture, spec: Object, priority: int) -> None:
    kind = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass"}
    await cluster.create(node("n"), kind | {"metadata": {"name": "important"}, "value": 100})
    await cluster.create(kind | {"metadata": {"name": "usual"}, "value": 7, "globalDefault": True})
    async with cluster.scheduler():
        await cluster.create(pod("a", spec=spec))
        await cluster.bound("a")
        assert cluster.pod("a").spec.priority == priority


async def test_an_unknown_priority_class_is_rejected(cluster: ClusterFixture) -> None:
    with pytest.raises(APIError, match="no PriorityClass with name unknown was found"):
        await cluster.create(pod("a", spec={"priorityClassName": "unknown"}))


async def test_a_preemptor_is_not_scheduled_until_its_victims_are_deleted(cluster: ClusterFixture) -> None:
    await cluster.create(FULL, low(metadata={"finalizers": ["example.org/keep"]}))
    async with cluster.scheduler() as probe:
        await cluster.create(high())
        await cluster.until(lambda: cluster.pod("low").metadata.deletion_timestamp)
        await probe.until(lambda: probe.place("high") in (Place.UNSCHEDULABLE, Place.GATED))
        assert not cluster.node_of("high")
        await finish_termination(cluster, low())
        assert await cluster.bound("high") == ["n"]


# -- budgets -----------------------------------------------------------------------------------------------------

BUDGETS: dict[str, tuple[list[Any], str]] = {
    "a victim without a budget, even of higher priority": (
        [
            node("n", cpu="1"),
            node("m", cpu="1"),
            low("protected", node="n", labels={"app": "x"}),
            low("free", node="m", priority=50),
            budget("b", 0, app="x"),
        ],
        "free",
    ),
    "a victim whose budget allows a disruption": (
        [
            node("n", cpu="1"),
            node("m", cpu="1"),
            low("allowed", node="n", labels={"app": "x"}),
            low("free", node="m", priority=50),
            budget("b", 1, app="x"),
        ],
        "allowed",
    ),
    "the fewest violations": (
        [
            node("n", cpu="2"),
            node("m", cpu="2"),
            low("two-a", node="n", labels={"app": "x"}),
            low("two-b", node="n", labels={"app": "x"}),
            low("one-a", node="m", labels={"app": "x"}),
            low("one-b", node="m"),
            budget("b", 0, app="x"),
        ],
        "one-a",
    ),
}


@pytest.mark.parametrize(("existing", "victim"), BUDGETS.values(), ids=BUDGETS.keys())
async def test_preemption_minimizes_disruption_budget_violations(
    cluster_with_kubelets: ClusterFixture, existing: list[Any], victim: str
) -> None:
    cluster = cluster_with_kubelets
    size = "2" if victim == "one-a" else "1"
    await cluster.create(*existing)
    async with cluster.scheduler():
        await cluster.create(high(cpu=size))
        await cluster.bound("high")
        await cluster.deleted(victim)


@pytest.mark.parametrize("claims", [("a",), ("a", "b")], ids=["one volume", "two volumes"])
async def test_the_user_of_a_read_write_once_pod_volume_is_evicted(
    cluster_with_kubelets: ClusterFixture, claims: tuple[str, ...]
) -> None:
    cluster = cluster_with_kubelets
    for name in claims:
        await cluster.create(volume(name), claim(name))
    users = [low(f"user-{name}", cpu=None, spec=using(name)) for name in claims]
    await cluster.create(node("n"), *users)
    async with cluster.scheduler():
        await cluster.create(high(cpu=None, spec=using(*claims)))
        await cluster.bound("high")
        await cluster.deleted(*(user.metadata.name for user in users))
