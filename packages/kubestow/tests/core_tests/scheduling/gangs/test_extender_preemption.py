"""Gang preemption with extenders: victims are searched without them, and the result is submitted to them."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from core_tests.scheduling.extenders.scripted_extender import ScriptedExtender
from core_tests.scheduling.fixture import SlowlyTerminatingCluster
from core_tests.scheduling.gangs.groups import GATES, composite, gang_scheduling, group, members
from core_tests.scheduling.gangs.scenarios import bound_count, create_pods, remaining
from kubestow.rules.minors import Minor
from kubestow.scheduling.extenders.stages import ExtenderVictims
from kubestow.testing import node, pod, pods
from kubestow.testing.scheduler_harness import SchedulerHarness, in_virtual_time

LOW = pods(4, prefix="low", cpu="1", priority=1, node="n")
GANG = members(3, "train", cpu="1", priority=100)


def outcome(extender: ScriptedExtender) -> tuple[int, int]:
    """How many members of a gang are bound on a full node, and how many pods of lower priority remain."""
    found: list[tuple[int, int]] = []

    async def scenario(harness: SchedulerHarness) -> None:
        create_pods(harness, GANG)
        await harness.advance(60)
        found.append((bound_count(harness, GANG), len(remaining(harness, LOW))))
        assert not harness.scheduler.queue.in_flight.counts()

    objects = (node("n", cpu="4"), *LOW, group("train", 3))
    in_virtual_time(scenario, *objects, extenders=[extender], **gang_scheduling())
    return found[0]


@pytest.mark.parametrize("verbs", [("prioritize",), ("filter",), ("filter", "preempt")], ids=" ".join)
def test_a_gang_preempts_when_extenders_accept(verbs: tuple[str, ...]) -> None:
    assert outcome(ScriptedExtender(*verbs)) == (3, 1)


@pytest.mark.parametrize(
    "extender",
    [
        ScriptedExtender("preempt", victims={}),
        ScriptedExtender("preempt", fails="out of order"),
        ScriptedExtender("preempt", victims={"n": ExtenderVictims(["uid-default-low-0"])}),
    ],
    ids=["it drops the node", "it fails", "it changes the victims"],
)
def test_a_gang_evicts_no_pod_that_an_extender_rejects(extender: ScriptedExtender) -> None:
    assert outcome(extender) == (0, 4)
    assert extender.calls


def test_an_extender_is_called_before_any_victim_is_removed() -> None:
    pod_counts: list[int] = []

    async def scenario(harness: SchedulerHarness) -> None:
        async def during_call(verb: str) -> None:
            pod_counts.append(harness.scheduler.cluster.pod_count)

        extender.during_call = during_call
        create_pods(harness, GANG)
        await harness.advance(0.05)
        assert pod_counts and set(pod_counts) == {4}

    extender = ScriptedExtender("preempt", victims={})
    objects = (node("n", cpu="4"), *LOW, group("train", 3))
    in_virtual_time(scenario, *objects, extenders=[extender], **gang_scheduling())


@pytest.mark.parametrize(
    "groups",
    [
        (group("train", 3, priority=100),),
        (composite("all", 1, priority=100), group("train", 3, parentCompositePodGroupName="all")),
    ],
    ids=["group", "tree"],
)
def test_a_group_of_1_37_preempts_where_extenders_filter(groups: Sequence[Any]) -> None:
    async def scenario(harness: SchedulerHarness) -> None:
        create_pods(harness, GANG)
        await harness.advance(60)
        assert (bound_count(harness, GANG), len(remaining(harness, LOW))) == (3, 1)
        assert extender.calls

    async def during_call(verb: str) -> None:
        await asyncio.sleep(0.1)

    extender = ScriptedExtender("filter", during_call=during_call)
    gates = {"GenericWorkload": True, "CompositePodGroup": True, "TopologyAwareWorkloadScheduling": True}
    objects = (node("n", cpu="4"), *LOW, *groups)
    in_virtual_time(scenario, *objects, extenders=[extender], minor=Minor(37), gates=gates)


@pytest.mark.parametrize("workload_aware", [False, True])
def test_a_gang_evicts_no_pod_on_a_node_that_an_extender_rejects(workload_aware: bool) -> None:
    low = [pod("low-a", cpu="1", priority=1, node="a"), pod("low-b", cpu="2", priority=2, node="b")]
    gang = members(2, "train", cpu="1", priority=100)

    async def scenario(harness: SchedulerHarness) -> None:
        create_pods(harness, gang)
        await harness.advance(60)
        assert (bound_count(harness, gang), remaining(harness, low)) == (2, ["low-a"])

    extender = ScriptedExtender("filter", passes={"b"})
    settings = gang_scheduling()
    if workload_aware:
        settings["gates"] = GATES | {"WorkloadAwarePreemption": True}
    objects = (node("a", cpu="2"), node("b", cpu="2"), *low, group("train", 2, priority=100))
    in_virtual_time(scenario, *objects, extenders=[extender], **settings)


def test_a_gang_requeued_before_its_first_eviction_does_not_preempt_again() -> None:
    """An event during an extender call requeues it before the first victim is evicted."""
    elsewhere = pod("elsewhere", node="c", cpu="1", priority=0)
    low = [elsewhere, *(pod(f"low-{name}", node=name, cpu="3", priority=0) for name in "ab")]
    extender = ScriptedExtender("preempt")

    async def scenario(harness: SchedulerHarness) -> None:
        async def during_call(verb: str) -> None:
            harness.cluster.remove(elsewhere)

        extender.during_call = during_call
        for each in members(2, "train", cpu="3", priority=100):
            harness.cluster.put(each)
        await harness.advance(60)
        assert len(extender.calls) == 3  # one call without a feasible node, and one per pod with victims
        assert len(harness.cluster.bindings) == 2

    in_virtual_time(
        scenario,
        *(node(name, cpu="4") for name in "ab"),
        *low,
        group("train", 2),
        extenders=[extender],
        cluster=SlowlyTerminatingCluster(),
        **gang_scheduling(),
    )
