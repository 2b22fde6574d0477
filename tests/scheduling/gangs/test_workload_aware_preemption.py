"""Gangs that preempt as a whole: as few as possible of the least important are evicted, wherever they are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from kubestow.api.core import Pod
from kubestow.api.scheduling import PodGroup
from kubestow.testing import node, pod, pods
from tests.scheduling.gangs.groups import GATES, group, member, members
from tests.scheduling.gangs.test_preemption import LeavingSlowly, put, running, there
from tests.scheduling.running import Living, in_virtual_time

ON: dict[str, Any] = {"gates": GATES | {"WorkloadAwarePreemption": True}}


def preempting(name: str, minimum: int, *, priority: int = 100, **spec: Any) -> PodGroup:
    made = group(name, minimum, priority=priority, **spec)
    assert isinstance(made, PodGroup)
    return made


def why(world: Living, name: str) -> str:
    condition = world.cluster.condition(name)
    return "" if condition is None else condition.message


def preempts(gang: Sequence[Pod], *objects: Any, leaves: Sequence[str], of: Sequence[Pod]) -> None:
    """A gang comes to run, and of some pods these are left."""

    async def story(world: Living) -> None:
        put(world, list(gang))
        await world.passes(30)
        assert (running(world, list(gang)), there(world, list(of))) == (len(gang), list(leaves))

    in_virtual_time(story, *objects, *of, **ON)


def test_a_gang_evicts_as_many_as_it_needs_room() -> None:
    low = pods(4, prefix="low", cpu="1", priority=10, node="n")
    preempts(
        members(3, "train", cpu="1", priority=100),
        node("n", cpu="5"),
        preempting("train", 3),
        leaves=["low-0", "low-1"],
        of=low,
    )


def test_the_lowest_priorities_go_wherever_they_are() -> None:
    there_are = [
        *pods(2, prefix="low", cpu="1", priority=10, node="a"),
        *pods(2, prefix="lowest", cpu="1", priority=1, node="b"),
    ]
    gang = members(2, "train", cpu="1", priority=100)
    nodes = node("a", cpu="2"), node("b", cpu="2")
    preempts(gang, *nodes, preempting("train", 2), leaves=["low-0", "low-1"], of=there_are)


def test_who_has_run_for_longer_stays() -> None:
    started = {"old": "2026-01-01T00:00:00Z", "new": "2026-01-02T00:00:00Z"}
    there_are = [pod(n, cpu="1", priority=1, node="n", status={"startTime": s}) for n, s in started.items()]
    gang = [member("train-0", "train", cpu="1", priority=100)]
    preempts(gang, node("n", cpu="2"), preempting("train", 1), leaves=["old"], of=there_are)


def test_a_group_that_is_disrupted_as_a_whole_goes_as_a_whole() -> None:
    victims = [member(f"low-{n}", "low", cpu="1", priority=10, node=on) for n, on in enumerate("ab")]
    gang = [member("train-0", "train", cpu="1", priority=100)]
    low = preempting("low", 2, priority=10, disruptionMode="PodGroup")
    preempts(gang, node("a", cpu="1"), node("b", cpu="1"), low, preempting("train", 1), leaves=[], of=victims)


def test_single_pods_go_before_groups() -> None:
    there_are = [
        *(member(f"low-{n}", "low", cpu="1", priority=10, node="n") for n in range(2)),
        pod("alone", cpu="1", priority=10, node="n"),
    ]
    gang = [member("train-0", "train", cpu="1", priority=100)]
    low = preempting("low", 2, priority=10, disruptionMode="PodGroup")
    preempts(gang, node("n", cpu="3"), low, preempting("train", 1), leaves=["low-0", "low-1"], of=there_are)


def test_smaller_groups_go_before_larger_ones() -> None:
    there_are = [
        *(member(f"three-{n}", "three", cpu="1", priority=10, node="n") for n in range(3)),
        *(member(f"two-{n}", "two", cpu="1", priority=10, node="n") for n in range(2)),
    ]
    groups = [preempting(name, 1, priority=10, disruptionMode="PodGroup") for name in ("two", "three")]
    gang = [member("train-0", "train", cpu="1", priority=100)]
    left = ["three-0", "three-1", "three-2"]
    preempts(gang, node("n", cpu="5"), *groups, preempting("train", 1), leaves=left, of=there_are)


def test_who_is_of_no_lower_priority_than_the_group_is_safe() -> None:
    async def story(world: Living) -> None:
        put(world, members(1, "train", cpu="1", priority=100))
        await world.passes(30)
        assert world.node_of("train-0") == ""
        assert "preemption: No preemption victims found for incoming preemptor" in why(world, "train-0")
        assert "not eligible due to workload aware preemption enabled" in why(world, "train-0")

    in_virtual_time(
        story,
        node("n", cpu="1"),
        pod("there", cpu="1", priority=50, node="n"),
        preempting("train", 1, priority=50),
        **ON,
    )


def test_nobody_is_evicted_for_a_gang_that_does_not_fit_even_so() -> None:
    low = pods(2, prefix="low", cpu="1", priority=1, node="n")
    equal = pods(2, prefix="equal", cpu="1", priority=100, node="n")
    gang = members(3, "train", cpu="1", priority=100)

    async def story(world: Living) -> None:
        put(world, gang)
        await world.passes(30)
        assert (running(world, gang), len(there(world, low))) == (0, 2)
        assert "it would not fit even if all pods of lower priority were evicted" in why(world, "train-0")

    in_virtual_time(story, node("n", cpu="4"), *low, *equal, preempting("train", 3), **ON)


def test_a_member_that_never_preempts_speaks_for_all() -> None:
    gang = [
        member("train-0", "train", cpu="1", priority=100),
        pod(
            "train-1",
            cpu="1",
            priority=100,
            spec={"schedulingGroup": {"podGroupName": "train"}, "preemptionPolicy": "Never"},
        ),
    ]

    async def story(world: Living) -> None:
        put(world, gang)
        await world.passes(30)
        assert there(world, low) == ["low-0", "low-1"]
        assert "preemption: not eligible due to preemptionPolicy=Never." in why(world, "train-0")

    low = pods(2, prefix="low", cpu="1", priority=1, node="n")
    in_virtual_time(story, node("n", cpu="2"), *low, preempting("train", 2), **ON)


def test_who_the_gang_can_do_without_preempts_in_the_next_round() -> None:
    low = pods(4, prefix="low", cpu="1", priority=10, node="n")
    gang = members(4, "train", cpu="1", priority=100)
    preempts(gang, node("n", cpu="4"), preempting("train", 3), leaves=[], of=low)


def test_the_pods_of_a_basic_group_preempt_as_one() -> None:
    low = [pod("low", cpu="2", priority=10, node="n")]
    gang = members(4, "train", cpu="1", priority=100)
    preempts(gang, node("n", cpu="4"), preempting("train", 0), leaves=[], of=low)


@pytest.mark.parametrize("alike", [True, False], ids=["counted", "tried"])
def test_victims_are_chosen_once_and_waited_for(alike: bool) -> None:
    low = pods(4, prefix="low", cpu="2", priority=1, node="n")
    gang = members(2, "train", cpu="2", priority=100)
    if not alike:
        gang[1] = member("train-1", "train", cpu="2", memory="1Gi", priority=100)

    async def story(world: Living) -> None:
        put(world, gang)
        await world.passes(60)
        assert (running(world, gang), cluster.deletions) == (0, 2)
        assert [world.cluster.pod(each.metadata.name).status.nominated_node_name for each in gang] == ["n", "n"]
        for each in low:
            if world.cluster.pod(each.metadata.name).metadata.deletion_timestamp:
                world.cluster.remove(each)
        await world.passes(5)
        assert (running(world, gang), cluster.deletions) == (2, 2)

    cluster = LeavingSlowly()
    in_virtual_time(story, node("n", cpu="8"), *low, preempting("train", 2), cluster=cluster, **ON)


def test_pods_of_other_apis_preempt_as_ever() -> None:
    low = pods(2, prefix="low", cpu="1", priority=1, node="n")
    gang = [pod(f"train-{n}", cpu="1", priority=100) for n in range(2)]
    preempts(gang, node("n", cpu="2"), leaves=[], of=low)
