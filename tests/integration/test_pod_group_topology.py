"""Pod groups that stay together (semantics 11.6): TestTopologyAwareSchedulingWithGangPolicy and …WithBasicPolicy.

Every node has two CPUs, a rack and a zone. Most pods want one CPU.
"""

from __future__ import annotations

from typing import Any

import pytest

from kubestow.api.core import Node, Pod
from kubestow.testing import node, pod
from tests.integration.fixture import Object, Stage
from tests.scheduling.gangs.groups import GATES, member

ON: dict[str, Any] = {"gates": GATES | {"TopologyAwareWorkloadScheduling": True}}


def group(name: str, key: str, minimum: int = 0) -> Object:
    """A pod group that goes to one rack or zone; with the minimum 0 it is a basic one."""
    policy: Object = {"gang": {"minCount": minimum}} if minimum else {"basic": {}}
    spec = {"schedulingPolicy": policy, "schedulingConstraints": {"topology": [{"key": key}]}}
    return {"apiVersion": "scheduling.k8s.io/v1alpha2", "kind": "PodGroup", "metadata": {"name": name}, "spec": spec}


def racks(**sizes: int) -> list[Node]:
    """The nodes ``<rack>-0``, ``<rack>-1``, … of racks of some sizes; ``r1`` and ``r2`` are in one zone."""
    return [
        node(f"{rack}-{number}", cpu="2", labels={"rack": rack, "zone": "z1" if rack in ("r1", "r2") else "z2"})
        for rack, size in sizes.items()
        for number in range(size)
    ]


def ours(*names: str, of: str = "g", cpu: str = "1") -> list[Pod]:
    """Pods of a group."""
    return [member(name, of, cpu=cpu, priority=100) for name in names]


def theirs(name: str, on: str, cpu: str) -> Pod:
    """A pod that is there already."""
    return pod(name, node=on, cpu=cpu, priority=100)


def rack_of(node_name: str) -> str:
    return node_name.partition("-")[0]


async def racks_of(stage: Stage, *names: str) -> set[str]:
    """The racks of some pods, once they are bound."""
    return set(map(rack_of, await stage.bound(*names)))


def both(test: Any) -> Any:
    """For a gang of three and for a basic group."""
    return pytest.mark.parametrize("minimum", [3, 0], ids=["gang", "basic"])(test)


@both
async def test_a_group_goes_to_the_only_rack_that_has_room_for_it(stage: Stage, minimum: int) -> None:
    there = theirs("existing", "r2-0", "2")
    await stage.create(*racks(r1=3, r2=2, r3=1), there, group("g", "rack", minimum), *ours("a", "b", "c"))
    async with stage.scheduler(**ON):
        assert await racks_of(stage, "a", "b", "c") == {"r1"}


async def test_a_gang_without_a_rack_of_its_size_stays_pending(stage: Stage) -> None:
    await stage.create(*racks(r1=2, r2=1, r3=1), group("g", "rack", 3), *ours("a", "b", "c", cpu="2"))
    async with stage.scheduler(**ON):
        told = await stage.refused("a", "b", "c")
        assert "0/3 placements are available, first placement status: default/g needs 3 pods, 2 of 3 fit" in told[0]


async def test_a_gang_waits_for_room_in_its_rack(stage: Stage) -> None:
    first, second = theirs("existing1", "r1-0", "2"), theirs("existing2", "r1-2", "2")
    await stage.create(*racks(r1=3), first, second, group("g", "rack", 3), *ours("a", "b", "c"))
    async with stage.scheduler(**ON):
        await stage.refused("a", "b", "c")
        await stage.delete(first)
        await stage.bound("a", "b", "c")


@both
async def test_the_rack_that_is_used_up_most_is_preferred(stage: Stage, minimum: int) -> None:
    await stage.create(*racks(r1=2, r2=3, r3=1), group("g", "rack", minimum), *ours("a", "b", "c"))
    async with stage.scheduler(**ON):
        assert await racks_of(stage, "a", "b", "c") == {"r1"}


@both
async def test_what_runs_there_already_counts_as_use(stage: Stage, minimum: int) -> None:
    there = theirs("existing1", "r2-0", "2"), theirs("existing2", "r3-2", "1")
    await stage.create(*racks(r1=2, r2=3, r3=3, r4=1), *there, group("g", "rack", minimum), *ours("a", "b", "c"))
    async with stage.scheduler(**ON):
        assert await racks_of(stage, "a", "b", "c") == {"r2"}


async def test_two_gangs_get_a_rack_each(stage: Stage) -> None:
    await stage.create(*racks(r1=3, r2=2), group("g", "rack", 3), group("h", "rack", 2))
    async with stage.scheduler(**ON):
        await stage.create(*ours("a", "b", "c", cpu="2"))
        assert await racks_of(stage, "a", "b", "c") == {"r1"}
        await stage.create(*ours("d", "e", of="h"))
        assert await racks_of(stage, "d", "e") == {"r2"}


async def test_two_gangs_share_a_rack_that_has_room_for_both(stage: Stage) -> None:
    large, small = ours("a", cpu="2"), ours("b")
    await stage.create(*racks(r1=3, r2=1), group("g", "rack", 2), group("h", "rack", 3), *large, *small)
    async with stage.scheduler(**ON):
        assert await racks_of(stage, "a", "b") == {"r1"}
        await stage.create(*ours("c", "d", "e", of="h"))
        assert await racks_of(stage, "c", "d", "e") == {"r1"}


async def test_groups_may_differ_in_what_holds_them_together(stage: Stage) -> None:
    await stage.create(*racks(r1=2, r2=1, r3=3), group("g", "rack", 3), group("h", "zone", 3))
    async with stage.scheduler(**ON):
        await stage.create(*ours("a", "b", "c", cpu="2"))
        assert await racks_of(stage, "a", "b", "c") == {"r3"}
        await stage.create(*ours("d", "e", "f", of="h", cpu="2"))
        assert await racks_of(stage, "d", "e", "f") == {"r1", "r2"}


async def test_of_two_gangs_one_fits(stage: Stage) -> None:
    await stage.create(*racks(r1=2), group("g", "rack", 3), group("h", "rack", 2), *ours("a", "b", "c"))
    async with stage.scheduler(**ON):
        await stage.bound("a", "b", "c")
        await stage.create(*ours("d", "e", of="h"))
        await stage.refused("d", "e")
        assert not stage.node_of("d") and not stage.node_of("e")


async def test_more_pods_than_a_gang_needs_stay_together_too(stage: Stage) -> None:
    await stage.create(*racks(r1=2, r2=2), group("g", "rack", 2), *ours("a", "b", "c"))
    async with stage.scheduler(**ON):
        assert len(await racks_of(stage, "a", "b", "c")) == 1


async def test_who_comes_later_follows_the_others(stage: Stage) -> None:
    await stage.create(*racks(r1=3, r2=2, r3=1), group("g", "rack", 3), *ours("a", "b", "c"))
    async with stage.scheduler(**ON):
        await stage.bound("a", "b", "c")
        await stage.create(*ours("d"))
        assert await racks_of(stage, "a", "b", "c", "d") == {"r2"}
        await stage.create(*ours("e"))
        await stage.refused("e")
        assert not stage.node_of("e")


async def test_a_basic_group_is_placed_in_the_only_rack(stage: Stage) -> None:
    await stage.create(*racks(r1=2), group("g", "rack"), *ours("a", "b", "c"))
    async with stage.scheduler(**ON):
        await stage.bound("a", "b", "c")


async def test_a_basic_group_stays_together_where_several_racks_would_do(stage: Stage) -> None:
    await stage.create(*racks(r1=2, r2=2, r3=2), group("g", "rack"), *ours("a", "b", "c"))
    async with stage.scheduler(**ON):
        assert len(await racks_of(stage, "a", "b", "c")) == 1


async def test_of_a_basic_group_nobody_goes_to_another_rack(stage: Stage) -> None:
    await stage.create(*racks(r1=1, r2=1), group("g", "rack"), *ours("a", "b", "c"))
    async with stage.scheduler(**ON):
        assert len(await racks_of(stage, "a", "b")) == 1
        (told,) = await stage.refused("c")
        assert "0/1 nodes are available: 1 Insufficient cpu." in told
        assert not stage.node_of("c")


async def test_a_basic_group_that_fits_nowhere_is_not_scheduled(stage: Stage) -> None:
    await stage.create(*racks(r1=1, r2=1), group("g", "rack"), *ours("a", "b", cpu="3"))
    async with stage.scheduler(**ON):
        told = await stage.refused("a", "b")
        assert "none of the 2 pods of default/g that look for a node fits" in told[0]


async def test_of_a_basic_group_whoever_fits_is_scheduled(stage: Stage) -> None:
    await stage.create(*racks(r1=1, r2=1), group("g", "rack"), *ours("big", cpu="3"), *ours("small"))
    async with stage.scheduler(**ON):
        await stage.bound("small")
        await stage.refused("big")


async def test_the_best_rack_may_be_too_small_for_those_that_come_later(stage: Stage) -> None:
    await stage.create(*racks(r1=4, r2=1), theirs("existing", "r1-0", "2"), group("g", "rack"))
    async with stage.scheduler(**ON):
        for each in ours("a", "b"):
            await stage.create(each)
            assert await racks_of(stage, each.metadata.name) == {"r2"}
        await stage.create(*ours("c"))
        await stage.refused("c")
        assert not stage.node_of("c")


async def test_two_basic_groups_go_one_after_the_other(stage: Stage) -> None:
    await stage.create(*racks(r1=3, r2=1), group("g", "rack"), group("h", "rack"), *ours("a", "b"))
    async with stage.scheduler(**ON):
        assert await racks_of(stage, "a", "b") == {"r2"}
        await stage.create(*ours("c", "d", of="h"))
        assert await racks_of(stage, "c", "d") == {"r1"}


async def test_two_basic_groups_share_the_only_rack(stage: Stage) -> None:
    first, second = ours("a", "b"), ours("c", "d", "e", of="h")
    await stage.create(*racks(r1=3), group("g", "rack"), group("h", "rack"), *first, *second)
    async with stage.scheduler(**ON):
        await stage.bound("a", "b", "c", "d", "e")


async def test_basic_groups_may_differ_in_what_holds_them_together(stage: Stage) -> None:
    await stage.create(*racks(r1=1, r3=2, r4=2), group("g", "rack"), group("h", "zone"), *ours("a", "b"))
    async with stage.scheduler(**ON):
        assert await racks_of(stage, "a", "b") == {"r1"}
        await stage.create(*ours("c", "d", "e", of="h", cpu="2"))
        assert await racks_of(stage, "c", "d", "e") == {"r3", "r4"}


async def test_a_basic_group_does_not_fit_the_rack_it_began_in_and_the_next_one_does(stage: Stage) -> None:
    await stage.create(*racks(r1=2, r2=1), group("g", "rack"), group("h", "rack"), *ours("a"))
    async with stage.scheduler(**ON):
        assert await racks_of(stage, "a") == {"r2"}
        await stage.create(*ours("b", "c"))
        assert await racks_of(stage, "b") == {"r2"}
        await stage.refused("c")
        await stage.create(*ours("d", "e", "f", of="h"))
        assert await racks_of(stage, "d", "e", "f") == {"r1"}


async def test_a_basic_group_goes_on_when_there_is_more_room(stage: Stage) -> None:
    there = theirs("existing", "r1-0", "1")
    await stage.create(*racks(r1=1, r2=1), there, group("g", "rack"), *ours("a"))
    async with stage.scheduler(**ON):
        assert await racks_of(stage, "a") == {"r1"}
        await stage.create(*ours("b"))
        await stage.refused("b")
        await stage.delete(there)
        assert await racks_of(stage, "a", "b") == {"r1"}


async def test_groups_stay_together_without_the_plugin_that_waits_for_their_number(stage: Stage) -> None:
    gates = {"GenericWorkload": True, "TopologyAwareWorkloadScheduling": True}
    await stage.create(*racks(r1=1, r2=2), group("g", "rack", 5), *ours("a", "b", "c"))
    async with stage.scheduler(gates=gates):
        assert await racks_of(stage, "a", "b", "c") == {"r2"}


async def test_without_that_plugin_a_group_has_to_exist_all_the_same(stage: Stage) -> None:
    gates = {"GenericWorkload": True, "TopologyAwareWorkloadScheduling": True}
    await stage.create(*racks(r1=1), *ours("a"))
    async with stage.scheduler(gates=gates):
        assert await stage.refused("a") == ['podgroup.scheduling.k8s.io "g" not found']
        await stage.create(group("g", "rack"))
        await stage.bound("a")
