"""Preemption by a single pod since 1.37: groups are evicted as a whole, with the priority of the group."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from core_tests.scheduling.gangs.groups import group, member
from core_tests.scheduling.gangs.scenarios import remaining
from kubestow.api.core import Pod
from kubestow.rules.minors import Behaviour, Minor
from kubestow.testing import node, pod
from kubestow.testing.scheduler_harness import SchedulerHarness, in_virtual_time

SINCE = Minor(37)
BEFORE = SINCE.without(Behaviour.POD_GROUPS_ARE_VICTIMS)
ALL: dict[str, Any] = {"disruptionMode": {"all": {}}}


def check(
    preemptor: Pod, *objects: Any, existing: Sequence[Pod], leaves: Sequence[str], minor: Minor = Minor(37)
) -> None:
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
