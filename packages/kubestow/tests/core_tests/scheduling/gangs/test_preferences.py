"""Gangs that prefer narrow domains: the best preference by which they fit counts, or else what they require."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from core_tests.scheduling.gangs.groups import GATES, group, members
from core_tests.scheduling.gangs.scenarios import bound_count, create_pods
from kubestow.plugins.gang_scheduling.gang_scheduling import PREFERRED_TOPOLOGY, SEGMENT_SIZE, SEGMENT_TOPOLOGY
from kubestow.testing import node
from kubestow.testing.scheduler_harness import SchedulerHarness, in_virtual_time

TOPOLOGY_AWARE: dict[str, Any] = {"gates": GATES | {"TopologyAwareWorkloadScheduling": True}}
#: Two blocks of two racks, called as block and rack.
PODS = members(4, "train", cpu="1")


def preferring(minimum: int = 4, **annotations: str) -> Any:
    made = group("train", minimum)
    keys = {"levels": PREFERRED_TOPOLOGY, "size": SEGMENT_SIZE, "required": SEGMENT_TOPOLOGY}
    written = {keys[name]: text for name, text in annotations.items()}
    return replace(made, metadata=replace(made.metadata, annotations=written))


def racks(**cpus: int) -> list[Any]:
    """Nodes that are racks of blocks: ``a1`` is rack 1 of block a."""
    return [node(name, cpu=str(cpu), labels={"block": name[0], "rack": name}) for name, cpu in cpus.items()]


def nodes_of(harness: SchedulerHarness) -> list[str]:
    return sorted(harness.node_of(each.metadata.name) for each in PODS)


@pytest.mark.parametrize(
    ("cpus", "expected"),
    [
        ({"a1": 2, "a2": 2, "b1": 4, "b2": 1}, ["b1"] * 4),
        ({"a1": 2, "a2": 2, "b1": 3, "c1": 3}, ["a1", "a1", "a2", "a2"]),
        ({"a1": 1, "a2": 1, "b1": 1, "c1": 1}, ["a1", "a2", "b1", "c1"]),
        ({"a1": 1, "a2": 1, "b1": 1}, [""] * 4),
    ],
    ids=["one rack", "one block", "anywhere", "nowhere"],
)
def test_a_gang_is_placed_by_the_best_preference_by_which_it_fits(cpus: dict[str, int], expected: list[str]) -> None:
    async def scenario(harness: SchedulerHarness) -> None:
        create_pods(harness, PODS)
        await harness.advance(5)
        assert nodes_of(harness) == expected

    in_virtual_time(scenario, *racks(**cpus), preferring(levels="rack,block"), **TOPOLOGY_AWARE)


@pytest.mark.parametrize(
    ("cpus", "expected"),
    [({"a1": 2, "b1": 2}, ["a1", "a1", "b1", "b1"]), ({"a1": 3, "b1": 1}, [""] * 4)],
    ids=["whole segments", "parts of segments"],
)
def test_a_gang_is_bound_in_whole_segments_only(cpus: dict[str, int], expected: list[str]) -> None:
    async def scenario(harness: SchedulerHarness) -> None:
        create_pods(harness, PODS)
        await harness.advance(5)
        assert nodes_of(harness) == expected

    in_virtual_time(scenario, *racks(**cpus), preferring(size="2", required="rack"), **TOPOLOGY_AWARE)


def test_pods_beyond_the_minimum_are_not_bound_to_the_preference() -> None:
    late = members(6, "train", cpu="1")

    async def scenario(harness: SchedulerHarness) -> None:
        create_pods(harness, late)
        await harness.advance(30)
        assert bound_count(harness, late) == 6
        found = [harness.node_of(each.metadata.name) for each in late]
        assert {name: found.count(name) for name in found} == {"a1": 5, "b1": 1}

    in_virtual_time(scenario, *racks(a1=5, b1=1), preferring(levels="rack"), **TOPOLOGY_AWARE)
