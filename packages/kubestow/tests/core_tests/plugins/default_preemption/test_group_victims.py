"""Preemption by a single pod since 1.37: groups are evicted as a whole, with the priority of the group."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core_tests.scheduling.gangs.groups import group, member
from core_tests.scheduling.gangs.scenarios import remaining
from kubestow.api.core import Pod
from kubestow.rules.minors import Behaviour, Minor
from kubestow.testing import node, pod
from kubestow.testing.scheduler_harness import SchedulerHarness, in_virtual_time

SINCE = Minor(37)
BEFORE = SINCE.without(Behaviour.POD_GROUPS_ARE_VICTIMS)
ALL: dict[str, Any] = {"disruptionMode": {"all": {}}}


def check(preemptor: Pod, *objects: Any, existing: Sequence[Pod], leaves: Sequence[str], minor: Minor = SINCE) -> None:
    """Of the ``existing`` pods those named in ``leaves`` remain when the preemptor is bound, or all if it is not."""
    gates = {"GenericWorkload": True} | ({"GangScheduling": True} if minor.number < 37 else {})

    async def scenario(harness: SchedulerHarness) -> None:
        harness.cluster.put(preemptor)
        await harness.advance(30)
        assert remaining(harness, existing) == list(leaves)
        assert bool(harness.node_of(preemptor.metadata.name)) == (len(leaves) < len(existing))

    in_virtual_time(scenario, *objects, *existing, minor=minor, gates=gates)


def low(priority: int = 10, **more: Any) -> list[Pod]:
    """The pods of a group, one on node a and one on node b."""
    return [member(f"low-{name}", "low", cpu="1", priority=priority, node=name, **more) for name in ("a", "b")]


NODES = node("a", cpu="1"), node("b", cpu="1")


@pytest.mark.parametrize(("minor", "leaves"), [(SINCE, []), (BEFORE, ["low-b"]), (Minor(36), ["low-b"])], ids=str)
def test_a_pod_evicts_a_whole_group(minor: Minor, leaves: list[str]) -> None:
    selected = pod("high", cpu="1", priority=100, spec={"nodeName": "", "nodeSelector": {"x": "y"}})
    nodes = node("a", cpu="1", labels={"x": "y"}), node("b", cpu="1")
    check(selected, *nodes, group("low", 2, priority=10, **ALL), existing=low(), leaves=leaves, minor=minor)


def test_a_pod_evicts_one_pod_of_a_group_whose_pods_are_disrupted_singly() -> None:
    selected = pod("high", cpu="1", priority=100, spec={"nodeSelector": {"x": "y"}})
    nodes = node("a", cpu="1", labels={"x": "y"}), node("b", cpu="1")
    check(selected, *nodes, group("low", 2, priority=10), existing=low(), leaves=["low-b"])


@pytest.mark.parametrize(("minor", "is_evicted"), [(SINCE, False), (BEFORE, True), (Minor(36), True)], ids=str)
def test_the_priority_of_the_group_protects_its_pods(minor: Minor, is_evicted: bool) -> None:
    high = pod("high", cpu="1", priority=100)
    leaves = ["low-b"] if is_evicted else ["low-a", "low-b"]
    check(high, *NODES, group("low", 2, priority=200), existing=low(), leaves=leaves, minor=minor)


def test_a_node_without_a_whole_group_is_cheaper() -> None:
    single = pod("single", cpu="1", priority=10, node="c")
    existing = [*low(), single]
    high = pod("high", cpu="1", priority=100)
    objects = *NODES, node("c", cpu="1"), group("low", 2, priority=10, **ALL)
    check(high, *objects, existing=existing, leaves=["low-a", "low-b"])


def test_a_group_stays_if_the_preemptor_fits_beside_its_pods() -> None:
    pods = [member("low-a", "low", cpu="1", priority=20, node="a"), pod("single", cpu="2", priority=10, node="a")]
    high = pod("high", cpu="2", priority=100)
    check(high, node("a", cpu="3"), group("low", 1, priority=20, **ALL), existing=pods, leaves=["low-a"])


class Placed(NamedTuple):
    """A pod on a node: its CPUs, its priority where it is in no group, and its group."""

    cpu: int
    priority: int
    group: str
    is_on_candidate: bool


#: The priority of each group, and whether it is evicted as a whole.
GROUPS = {"low": (10, True), "high": (50, True), "single": (30, False)}
placed_pods = st.lists(
    st.builds(Placed, st.integers(1, 3), st.sampled_from((5, 20, 200)), st.sampled_from(("", *GROUPS)), st.booleans()),
    max_size=6,
)


def expected_victims(placed: Sequence[Placed], needed: int, capacity: int) -> set[int]:
    """The victims of a pod of priority 100: all units are removed, and put back one after the other if they fit."""
    units: dict[object, list[int]] = {}
    for number, each in enumerate(placed):
        is_whole = each.group and GROUPS[each.group][1]
        units.setdefault(each.group if is_whole else number, []).append(number)

    def priority(number: int) -> int:
        each = placed[number]
        return GROUPS[each.group][0] if each.group else each.priority

    def cpu(numbers: Sequence[int]) -> int:
        return sum(placed[number].cpu for number in numbers if placed[number].is_on_candidate)

    here = [unit for unit in units.values() if cpu(unit)]
    potential = sorted((u for u in here if priority(u[0]) < 100), key=lambda u: (-priority(u[0]), u[0]))
    free = capacity - cpu([n for unit in here if unit not in potential for n in unit]) - needed
    victims: set[int] = set()
    if free < 0:
        return victims
    for unit in potential:
        if cpu(unit) <= free:
            free -= cpu(unit)
        else:
            victims |= set(unit)
    return victims


@settings(max_examples=40, deadline=None)
@given(placed_pods, st.integers(1, 6))
def test_the_victims_are_those_of_one_unit_after_the_other(placed: list[Placed], needed: int) -> None:
    capacity = sum(each.cpu for each in placed if each.is_on_candidate)
    existing = []
    for number, each in enumerate(placed):
        spec = {"schedulingGroup": {"podGroupName": each.group}} if each.group else {}
        own = GROUPS[each.group][0] if each.group else each.priority
        started = {"startTime": f"2026-01-01T00:00:{number:02}Z"}
        on = "a" if each.is_on_candidate else "b"
        existing.append(pod(f"p{number}", cpu=str(each.cpu), priority=own, node=on, spec=spec, status=started))
    victims = expected_victims(placed, needed, capacity)
    groups = [
        group(name, 1, priority=priority, **(ALL if is_whole else {})) for name, (priority, is_whole) in GROUPS.items()
    ]
    nodes = node("a", cpu=str(max(capacity, 1)), labels={"x": "y"}), node("b", cpu="20")
    high = pod("preemptor", cpu=str(needed), priority=100, spec={"nodeSelector": {"x": "y"}})

    async def scenario(harness: SchedulerHarness) -> None:
        harness.cluster.put(high)
        await harness.advance(30)
        left = [f"p{number}" for number in range(len(placed)) if number not in victims]
        assert remaining(harness, existing) == left

    gates = {"GenericWorkload": True}
    in_virtual_time(scenario, *nodes, *groups, *existing, minor=SINCE, gates=gates)
