"""Preemption (semantics 11.4): whom it evicts, how, and who gets the room.

TestAsyncPreemption has a file of its own, test_async_preemption. Not here: TestPodGroupPreemption, whose workload-aware
kind is not offered (gangs preempt as a whole: test_pod_groups, and tests/scheduling).
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from kubestow.api.core import Node, Pod
from kubestow.cluster.pods.shapes import PodInfo
from kubestow.errors import APIError
from kubestow.framework.cycle_state import CycleState
from kubestow.framework.interface import NodeFilterPlugin, Permission
from kubestow.framework.status import SUCCESS, Status
from kubestow.scheduling.queued_pod import Place
from kubestow.testing import node, pod
from tests.integration.fixture import Object, Stage
from tests.integration.objects import claim, using, volume
from tests.integration.scripted_plugins import FAIL, profile, puppet

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


def disrupted(stage: Stage, name: str) -> bool:
    conditions = stage.pod(name).status.conditions
    return any(c.type == "DisruptionTarget" and c.reason == "PreemptionByScheduler" for c in conditions)


async def let_go(stage: Stage, leaving: Pod) -> None:
    """A pod that is being deleted, and held by a finalizer, is gone."""
    await stage.delete(leaving)
    await stage.change(leaving, {"metadata": {"finalizers": None}})


async def test_a_pod_of_lower_priority_makes_room_and_is_told(live_stage: Stage) -> None:
    stage = live_stage
    await stage.create(FULL, low())
    async with stage.scheduler():
        await stage.create(high())
        await stage.until(lambda: disrupted(stage, "low") or not stage.node_of("low"))
        assert await stage.bound("high") == ["n"]
        await stage.gone("low")
        await stage.until(lambda: stage.events("Preempted"))
        uid = stage.pod("high").metadata.uid
        assert stage.events("Preempted")[0].note == f"Preempted by pod {uid} on node n"


async def test_the_victim_is_patched_before_it_is_deleted(stage: Stage) -> None:
    """Nobody lets the victim go, so it can be looked at."""
    await stage.create(FULL, low(metadata={"finalizers": ["example.org/keep"]}))
    async with stage.scheduler():
        await stage.create(high())
        await stage.until(lambda: stage.pod("low").metadata.deletion_timestamp)
        assert disrupted(stage, "low")
        assert stage.nomination("high") == "n"


@pytest.mark.parametrize("priority", [1, 100], ids=["equal", "higher"])
async def test_nobody_is_evicted_for_a_pod_that_is_no_more_important(stage: Stage, priority: int) -> None:
    await stage.create(FULL, low(priority=priority))
    async with stage.scheduler():
        await stage.create(high("new", priority=1))
        (why,) = await stage.refused("new")
        assert "1 No preemption victims found for incoming pod" in why


async def test_a_class_may_forbid_its_pods_to_preempt(stage: Stage) -> None:
    polite = {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": "polite"},
        "value": 100,
        "preemptionPolicy": "Never",
    }
    await stage.create(FULL, low(), polite, pod("new", cpu="1", spec={"priorityClassName": "polite"}))
    async with stage.scheduler():
        (why,) = await stage.refused("new")
        assert "not eligible due to preemptionPolicy=Never." in why
        assert stage.pod("new").spec.priority == 100


async def test_without_postfilter_plugins_nobody_is_evicted(stage: Stage) -> None:
    await stage.create(FULL, low(), high())
    off = {"plugins": {"postFilter": {"disabled": [{"name": "*"}]}}}
    async with stage.scheduler(profiles=[off]):
        assert await stage.refused("high") == ["0/1 nodes are available: 1 Insufficient cpu."]


@pytest.mark.parametrize("point", ["pre_filter", "filter"])
async def test_an_unresolvable_refusal_evicts_nobody(stage: Stage, point: str) -> None:
    never = Status.unresolvable("never")
    await stage.create(FULL, low())
    async with stage.scheduler(**profile(puppet(at={point: lambda i: never if i.name == "high" else SUCCESS}))):
        await stage.create(high())
        (why,) = await stage.refused("high")
        assert "1 Preemption is not helpful for scheduling" in why or "1 never" in why
        assert not stage.pod("low").metadata.deletion_timestamp


def shy(of: str) -> Object:
    term = {"labelSelector": {"matchLabels": {"app": of}}, "topologyKey": "kubernetes.io/hostname"}
    return {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}


async def test_evicting_satisfies_anti_affinity(live_stage: Stage) -> None:
    await live_stage.create(node("n"), low(cpu=None, labels={"app": "x"}), low("other", cpu=None))
    async with live_stage.scheduler():
        await live_stage.create(high(cpu=None, affinity=shy("x")))
        await live_stage.bound("high")
        await live_stage.gone("low")
        assert live_stage.node_of("other") == "n"


async def test_nobody_is_evicted_whose_company_is_needed(stage: Stage) -> None:
    term = {"labelSelector": {"matchLabels": {"app": "x"}}, "topologyKey": "kubernetes.io/hostname"}
    needed = {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    await stage.create(FULL, low(labels={"app": "x"}))
    async with stage.scheduler():
        await stage.create(high(affinity=needed))
        await stage.refused("high")
        assert not stage.pod("low").metadata.deletion_timestamp


# -- who gets the room -------------------------------------------------------------------------------------------


async def test_the_room_is_kept_from_lower_priorities_but_not_from_higher_ones(stage: Stage) -> None:
    await stage.create(FULL, low(metadata={"finalizers": ["example.org/keep"]}))
    async with stage.scheduler():
        await stage.create(high())
        await stage.until(lambda: stage.nomination("high") == "n")
        await stage.create(high("middle", priority=50), high("highest", priority=1000))
        await stage.refused("middle", "highest")
        await let_go(stage, low())
        assert await stage.bound("highest") == ["n"]
        assert not stage.node_of("middle")


async def test_a_preemptor_is_not_starved_by_a_flood_of_lower_priorities(live_stage: Stage) -> None:
    stage = live_stage
    await stage.create(node("n", cpu="2"), low("low-a"), low("low-b"))
    async with stage.scheduler():
        await stage.create(high(cpu="2"), *(pod(f"flood-{n}", cpu="1", priority=1) for n in range(20)))
        assert await stage.bound("high") == ["n"]


async def test_who_loses_its_nomination_to_a_higher_priority_is_told(stage: Stage) -> None:
    await stage.create(FULL, low(metadata={"finalizers": ["example.org/keep"]}))
    async with stage.scheduler():
        await stage.create(high("first", priority=50))
        await stage.until(lambda: stage.nomination("first") == "n")
        await stage.create(high("second", priority=100))
        await stage.until(lambda: stage.nomination("second") == "n" or stage.message("second"))
        await let_go(stage, low())
        assert await stage.bound("second") == ["n"]


async def test_a_promised_node_that_goes_is_replaced_by_another(stage: Stage) -> None:
    await stage.create(FULL, low(metadata={"finalizers": ["example.org/keep"]}))
    async with stage.scheduler():
        await stage.create(high())
        await stage.until(lambda: stage.nomination("high") == "n")
        await stage.delete(FULL)
        await stage.create(node("m", cpu="1"))
        assert await stage.bound("high") == ["m"]


@pytest.mark.parametrize("elsewhere", [False, True])
async def test_a_pod_goes_to_the_promised_node_or_to_another_one_that_fits(stage: Stage, elsewhere: bool) -> None:
    # The other node has more room, so it would be preferred.
    there: list[Any] = [node("n", cpu="100"), node("m", cpu="1")]
    if elsewhere:
        there.append(pod("full", cpu="1", node="m", priority=1000))
    await stage.create(*there, pod("a", cpu="1", priority=10, nominated="m"))
    async with stage.scheduler():
        assert await stage.bound("a") == ["n" if elsewhere else "m"]


async def test_a_prebind_failure_after_preemption_leaves_the_order_as_it_was(live_stage: Stage) -> None:
    failures = [FAIL]

    def pre_bind(info: PodInfo) -> Status:
        return failures.pop() if info.name == "high" and failures else SUCCESS

    await live_stage.create(FULL, low())
    async with live_stage.scheduler(**profile(puppet(pre_bind=pre_bind))):
        await live_stage.create(high())
        await live_stage.until(lambda: not failures)
        await live_stage.create(pod("late", cpu="1", priority=50))
        assert await live_stage.bound("high") == ["n"]


async def test_a_victim_on_its_way_to_be_bound_is_not_deleted_while_it_waits(stage: Stage) -> None:
    def permit(info: PodInfo) -> Permission:
        return Permission.wait(600) if info.name == "low" else Permission()

    await stage.create(node("n", cpu="1"), node("m", cpu="1", unschedulable=True), pod("low", cpu="1", priority=1))
    async with stage.scheduler(**profile(puppet(permit=permit))) as troupe:
        await stage.until(lambda: stage.nomination("low") == "n")
        await stage.create(high())
        await stage.bound("high")
        await troupe.until(lambda: troupe.place("low") is not None)
        await stage.change(node("m"), {"spec": {"unschedulable": None}})
        await stage.until(lambda: "m" in stage.nominations("low"))
        assert [each.info.name for each in troupe.scheduler.waiting_pods.all()] == ["low"]


async def test_a_victim_that_is_made_ready_is_tried_again_and_not_deleted(stage: Stage) -> None:
    is_over = asyncio.Event()

    async def get_ready() -> Status:
        await is_over.wait()
        return SUCCESS

    def pre_bind(info: PodInfo) -> Any:
        return get_ready() if info.name == "low" else SUCCESS

    await stage.create(FULL, pod("low", cpu="1", priority=1))
    async with stage.scheduler(**profile(puppet(pre_bind=pre_bind))) as troupe:
        await stage.until(lambda: stage.nomination("low") == "n")
        await stage.create(high())
        assert await stage.bound("high") == ["n"]
        await troupe.until(lambda: troupe.place("low") is not None)
        assert not stage.pod("low").metadata.deletion_timestamp
        await stage.create(node("m", cpu="1"))
        await stage.until(lambda: "m" in stage.nominations("low"))
        is_over.set()
        assert await stage.bound("low") == ["m"]


class Hermit(NodeFilterPlugin):
    """No pod shares its node."""

    name = "Hermit"

    def filter_node(self, state: CycleState, pod: PodInfo, node: Node, pods: Sequence[PodInfo]) -> Status | None:
        return Status.unschedulable("somebody is there") if pods else None


async def test_room_is_made_for_what_a_plugin_wants(live_stage: Stage) -> None:
    await live_stage.create(node("n"), low(cpu="100m"))
    async with live_stage.scheduler(**profile(Hermit)):
        await live_stage.create(high(cpu="100m"))
        assert await live_stage.bound("high") == ["n"]
        await live_stage.gone("low")


async def test_a_promise_is_replaced_by_what_preemption_finds(stage: Stage) -> None:
    """The promised node would have to be cleared of a pod that is more important than the other's."""
    await stage.create(FULL, low("dear", priority=50, metadata={"finalizers": ["example.org/keep"]}))
    await stage.create(node("m", cpu="1"), low("cheap", node="m", metadata={"finalizers": ["example.org/keep"]}))
    async with stage.scheduler():
        await stage.create(high(nominated="n"))
        await stage.until(lambda: stage.nomination("high") == "m")
        await stage.until(lambda: stage.pod("cheap").metadata.deletion_timestamp)
        assert not stage.pod("dear").metadata.deletion_timestamp


CLASSES: dict[str, tuple[Object, int]] = {
    "named": ({"priorityClassName": "important"}, 100),
    "of the system": ({"priorityClassName": "system-node-critical"}, 2000001000),
    "by default": ({}, 7),
}


@pytest.mark.parametrize(("spec", "priority"), CLASSES.values(), ids=CLASSES.keys())
async def test_a_class_of_priority_becomes_a_number(stage: Stage, spec: Object, priority: int) -> None:
    head = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass"}
    await stage.create(node("n"), head | {"metadata": {"name": "important"}, "value": 100})
    await stage.create(head | {"metadata": {"name": "usual"}, "value": 7, "globalDefault": True})
    async with stage.scheduler():
        await stage.create(pod("a", spec=spec))
        await stage.bound("a")
        assert stage.pod("a").spec.priority == priority


async def test_a_class_of_priority_that_nobody_knows_is_refused(stage: Stage) -> None:
    with pytest.raises(APIError, match="no PriorityClass with name unknown was found"):
        await stage.create(pod("a", spec={"priorityClassName": "unknown"}))


async def test_a_preemptor_is_gated_until_its_victims_are_gone_from_the_api(stage: Stage) -> None:
    await stage.create(FULL, low(metadata={"finalizers": ["example.org/keep"]}))
    async with stage.scheduler() as troupe:
        await stage.create(high())
        await stage.until(lambda: stage.pod("low").metadata.deletion_timestamp)
        await troupe.until(lambda: troupe.place("high") in (Place.UNSCHEDULABLE, Place.GATED))
        assert not stage.node_of("high")
        await let_go(stage, low())
        assert await stage.bound("high") == ["n"]


# -- budgets -----------------------------------------------------------------------------------------------------

BUDGETS: dict[str, tuple[list[Any], str]] = {
    "a victim that no budget protects, even if it is more important": (
        [
            node("n", cpu="1"),
            node("m", cpu="1"),
            low("protected", node="n", labels={"app": "x"}),
            low("free", node="m", priority=50),
            budget("b", 0, app="x"),
        ],
        "free",
    ),
    "a budget that allows it": (
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


@pytest.mark.parametrize(("there", "victim"), BUDGETS.values(), ids=BUDGETS.keys())
async def test_budgets_steer_preemption(live_stage: Stage, there: list[Any], victim: str) -> None:
    stage = live_stage
    size = "2" if victim == "one-a" else "1"
    await stage.create(*there)
    async with stage.scheduler():
        await stage.create(high(cpu=size))
        await stage.bound("high")
        await stage.gone(victim)


@pytest.mark.parametrize("claims", [("a",), ("a", "b")], ids=["one volume", "two volumes"])
async def test_the_user_of_a_volume_for_one_pod_is_evicted(live_stage: Stage, claims: tuple[str, ...]) -> None:
    stage = live_stage
    for name in claims:
        await stage.create(volume(name), claim(name))
    users = [low(f"user-{name}", cpu=None, spec=using(name)) for name in claims]
    await stage.create(node("n"), *users)
    async with stage.scheduler():
        await stage.create(high(cpu=None, spec=using(*claims)))
        await stage.bound("high")
        await stage.gone(*(user.metadata.name for user in users))
