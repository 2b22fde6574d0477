"""Gangs with extenders: the cluster changes during the calls."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable

import pytest

from core_tests.scheduling.extenders.scripted_extender import ScriptedExtender
from core_tests.scheduling.gangs.groups import gang_scheduling, group, member, members
from kubestow.testing import node, pod
from kubestow.testing.scheduler_harness import SchedulerHarness, in_virtual_time

GANG_SCHEDULING = gang_scheduling()


def bound_pod_count(harness: SchedulerHarness) -> int:
    return sum(bool(each.spec.node_name) for each in harness.cluster.pods())


@pytest.mark.parametrize(("cpu", "expected"), [("1", 3), ("2", 0)])
def test_a_gang_is_placed_as_a_whole_on_nodes_that_extenders_accept(cpu: str, expected: int) -> None:
    async def scenario(harness: SchedulerHarness) -> None:
        for each in members(3, "train", cpu=cpu):
            harness.cluster.put(each)
        await harness.advance(5)
        assert bound_pod_count(harness) == expected

    extender = ScriptedExtender("filter", passes={"a"})
    in_virtual_time(
        scenario, node("a", cpu="4"), node("b", cpu="4"), group("train", 3), extenders=[extender], **GANG_SCHEDULING
    )


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (lambda harness: harness.cluster.remove(member("train-0", "train")), 0),
        (lambda harness: harness.cluster.remove(node("a")), 0),
        (lambda harness: harness.cluster.put(pod("other", node="a", cpu="3")), 0),
        (lambda harness: harness.cluster.put(member("late", "train", cpu="1")), 4),
        (lambda harness: harness.cluster.put(member("train-0", "train", cpu="1", node="a")), 3),
        (lambda harness: harness.cluster.put(member("train-1", "train", cpu="1", node="a")), 3),
        (lambda harness: harness.cluster.put(member("train-2", "train", cpu="1", node="a")), 3),
    ],
    ids=[
        "a pod is deleted",
        "the node is deleted",
        "the node fills up",
        "a pod is created",
        *(f"{n} is bound" for n in range(3)),
    ],
)
def test_changes_during_an_extender_call_are_considered(
    change: Callable[[SchedulerHarness], None], expected: int
) -> None:
    async def scenario(harness: SchedulerHarness) -> None:
        calls: list[str] = []

        async def during_call(verb: str) -> None:
            calls.append(verb)
            if len(calls) == 2:
                change(harness)
                await harness.advance(1)

        extender.during_call = during_call
        for each in members(3, "train", cpu="1"):
            harness.cluster.put(each)
        await harness.advance(30)
        ours = [each for each in harness.cluster.pods() if each.spec.scheduling_group is not None]
        assert sum(bool(each.spec.node_name) for each in ours) == expected
        assert not harness.scheduler.queue.in_flight.counts()

    extender = ScriptedExtender("filter")
    in_virtual_time(scenario, node("a", cpu="4"), group("train", 3), extenders=[extender], **GANG_SCHEDULING)


def test_a_member_whose_extender_call_outlasts_the_binding_of_its_siblings_is_bound() -> None:
    unhandled: list[object] = []

    async def scenario(harness: SchedulerHarness) -> None:
        asyncio.get_running_loop().set_exception_handler(lambda loop, context: unhandled.append(context))

        async def during_call(verb: str) -> None:
            calls = [name for _, name, _ in extender.calls].count("train-2")
            extender.passes = set() if calls == 1 else {"a"}
            if calls == 2:
                await harness.advance(5)
                assert bound_pod_count(harness) == 2

        extender.during_call = during_call
        for each in members(3, "train", cpu="1"):
            harness.cluster.put(each)
        await harness.advance(30)
        assert bound_pod_count(harness) == 3

    extender = ScriptedExtender("filter")
    in_virtual_time(scenario, node("a", cpu="4"), group("train", 2), extenders=[extender], **GANG_SCHEDULING)
    gc.collect()
    assert unhandled == []
