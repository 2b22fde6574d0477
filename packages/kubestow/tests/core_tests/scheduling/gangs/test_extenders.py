"""Gangs with extenders: the cluster changes during the calls."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from core_tests.scheduling.extenders.scripted_extender import ScriptedExtender
from core_tests.scheduling.gangs.groups import composite, gang_scheduling, group, member, members, together
from kubestow.rules.minors import Minor
from kubestow.testing import node, pod
from kubestow.testing.scheduler_harness import SchedulerHarness, in_virtual_time

GANG_SCHEDULING = gang_scheduling()
WITH_TOPOLOGY: dict[str, Any] = {
    "minor": Minor(37),
    "gates": {"GenericWorkload": True, "CompositePodGroup": True, "TopologyAwareWorkloadScheduling": True},
}
#: Nodes of three racks, each of the rack that its name begins with.
RACKS = [node(name, cpu="1", labels={"rack": name[0]}) for name in ("x0", "y0", "y1", "z0")]


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


def test_a_member_that_is_deleted_during_an_extender_call_is_forgotten_and_the_others_are_bound() -> None:
    gang = members(3, "train", cpu="1")

    async def scenario(harness: SchedulerHarness) -> None:
        async def during_call(verb: str) -> None:
            extender.during_call = None
            harness.cluster.remove(gang[2])
            await harness.advance(1)

        extender.during_call = during_call
        for each in gang:
            harness.cluster.put(each)
        await harness.advance(30)
        assert sorted(name for _, name, _ in extender.calls) == ["train-0", "train-1"]
        assert bound_pod_count(harness) == 2
        assert not list(harness.scheduler.queue.in_flight.uids())
        assert not harness.scheduler.queue.pods

    extender = ScriptedExtender("filter")
    in_virtual_time(scenario, node("a", cpu="4"), group("train", 2), extenders=[extender], **GANG_SCHEDULING)


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


@pytest.mark.parametrize(
    "groups",
    [
        [together("a", 2, "rack")],
        [
            composite("all", 1, schedulingConstraints={"topology": [{"key": "rack"}]}),
            group("a", 2, parentCompositePodGroupName="all"),
        ],
    ],
    ids=["a group with a nomination", "a tree of groups"],
)
def test_a_rack_has_the_same_nodes_after_others_are_replaced_during_an_extender_call(groups: Sequence[Any]) -> None:
    async def scenario(harness: SchedulerHarness) -> None:
        async def during_call(verb: str) -> None:
            if len(extender.calls) == 1:  # the node of rack z comes to the place of y0 in the cluster's table of nodes
                harness.cluster.remove(node("y0"))
                harness.cluster.put(node("late", cpu="1"))
                await harness.advance(1)

        extender.during_call = during_call
        for each in (member("a-0", "a", cpu="1", nominated="x0"), member("a-1", "a", cpu="1")):
            harness.cluster.put(each)
        await harness.advance(30)
        assert extender.calls[0][1:] == ("a-0", ["x0"])
        assert not harness.scheduler.queue.in_flight.counts()
        assert bound_pod_count(harness) == 0

    extender = ScriptedExtender("filter")
    in_virtual_time(scenario, *RACKS, *groups, extenders=[extender], **WITH_TOPOLOGY)


@pytest.mark.parametrize(("removed", "minimum", "expected"), [(["a-0"], 2, 0), (["a-0"], 1, 1), (["a-0", "a-1"], 0, 0)])
def test_pods_and_the_only_node_of_a_rack_may_go_during_an_extender_call(
    removed: Sequence[str], minimum: int, expected: int
) -> None:
    async def scenario(harness: SchedulerHarness) -> None:
        async def during_call(verb: str) -> None:
            if len(extender.calls) == 1:
                for each in (node("z0"), node("x0"), *(member(name, "a") for name in removed)):
                    harness.cluster.remove(each)
                await harness.advance(1)

        extender.during_call = during_call
        for each in (member("a-0", "a", cpu="1", nominated="x0"), member("a-1", "a", cpu="1")):
            harness.cluster.put(each)
        await harness.advance(30)
        assert not harness.scheduler.queue.in_flight.counts()
        assert bound_pod_count(harness) == expected

    extender = ScriptedExtender("filter")
    in_virtual_time(scenario, *RACKS, together("a", minimum, "rack"), extenders=[extender], **WITH_TOPOLOGY)


def test_no_part_of_a_group_is_bound_if_an_extender_rejects_in_the_end_what_it_accepted_before() -> None:
    async def scenario(harness: SchedulerHarness) -> None:
        async def during_call(verb: str) -> None:
            names = [name for _, name, _ in extender.calls]
            extender.passes = set() if names[-1] == "a-1" and names.count("a-1") > len("xy") else None

        extender.during_call = during_call
        for each in (*members(2, "a", cpu="1"), *members(2, "b", cpu="1")):
            harness.cluster.put(each)
        await harness.advance(1)
        assert {each.metadata.name for each in harness.cluster.pods() if each.spec.node_name} in (set(), {"b-0", "b-1"})

    extender = ScriptedExtender("filter")
    nodes = [node(name, cpu="4", labels={"rack": name}) for name in "xy"]
    groups = [
        composite("all", 1, schedulingConstraints={"topology": [{"key": "rack"}]}),
        *(group(name, 2, parentCompositePodGroupName="all") for name in "ab"),
    ]
    in_virtual_time(scenario, *nodes, *groups, extenders=[extender], **WITH_TOPOLOGY)
