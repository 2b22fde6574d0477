"""Topology-aware pod groups (semantics 11.6): TestTopologyAwareSchedulingWithGangPolicy and …WithBasicPolicy.

Every node has two CPUs, a rack and a zone. Most pods request one CPU.
"""

from __future__ import annotations

from typing import Any

import pytest

from core_tests.scheduling.gangs.groups import GATES, member
from kubestow.api.core import Node, Pod
from kubestow.testing import node, pod
from tests.integration.fixture import ClusterFixture, Object

TOPOLOGY_AWARE: dict[str, Any] = {"gates": GATES | {"TopologyAwareWorkloadScheduling": True}}


def group(name: str, key: str, minimum: int = 0) -> Object:
    """A pod group constrained to one rack or zone; a minimum of 0 gives the basic policy."""
    policy: Object = {"gang": {"minCount": minimum}} if minimum else {"basic": {}}
    spec = {"schedulingPolicy": policy, "schedulingConstraints": {"topology": [{"key": key}]}}
    return {"apiVersion": "scheduling.k8s.io/v1alpha2", "kind": "PodGroup", "metadata": {"name": name}, "spec": spec}


def racks(**sizes: int) -> list[Node]:
    """The nodes ``<rack>-0``, ``<rack>-1``, … of racks of given sizes; ``r1`` and ``r2`` are in one zone."""
    return [
        node(f"{rack}-{number}", cpu="2", labels={"rack": rack, "zone": "z1" if rack in ("r1", "r2") else "z2"})
        for rack, size in sizes.items()
        for number in range(size)
    ]


def group_pods(*names: str, of: str = "g", cpu: str = "1") -> list[Pod]:
    """Pending pods of a group."""
    return [member(name, of, cpu=cpu, priority=100) for name in names]


def bound_pod(name: str, on: str, cpu: str) -> Pod:
    """A bound pod without a group."""
    return pod(name, node=on, cpu=cpu, priority=100)


def rack_of(node_name: str) -> str:
    return node_name.partition("-")[0]


async def racks_of(cluster: ClusterFixture, *names: str) -> set[str]:
    """Wait until the pods are bound; their racks."""
    return set(map(rack_of, await cluster.bound(*names)))


def gang_and_basic(test: Any) -> Any:
    """Parametrize for a gang of three and for a basic group."""
    return pytest.mark.parametrize("minimum", [3, 0], ids=["gang", "basic"])(test)


@gang_and_basic
async def test_a_group_is_placed_in_the_only_rack_with_enough_capacity(cluster: ClusterFixture, minimum: int) -> None:
    existing = bound_pod("existing", "r2-0", "2")
    await cluster.create(*racks(r1=3, r2=2, r3=1), existing, group("g", "rack", minimum), *group_pods("a", "b", "c"))
    async with cluster.scheduler(**TOPOLOGY_AWARE):
        assert await racks_of(cluster, "a", "b", "c") == {"r1"}


async def test_a_gang_larger_than_any_rack_stays_pending(cluster: ClusterFixture) -> None:
    await cluster.create(*racks(r1=2, r2=1, r3=1), group("g", "rack", 3), *group_pods("a", "b", "c", cpu="2"))
    async with cluster.scheduler(**TOPOLOGY_AWARE):
        messages = await cluster.pending_messages("a", "b", "c")
        assert "0/3 placements are available, first placement status: default/g needs 3 pods, 2 of 3 fit" in messages[0]


async def test_a_gang_waits_for_capacity_in_its_rack(cluster: ClusterFixture) -> None:
    first, second = bound_pod("existing1", "r1-0", "2"), bound_pod("existing2", "r1-2", "2")
    await cluster.create(*racks(r1=3), first, second, group("g", "rack", 3), *group_pods("a", "b", "c"))
    async with cluster.scheduler(**TOPOLOGY_AWARE):
        await cluster.pending_messages("a", "b", "c")
        await cluster.delete(first)
        await cluster.bound("a", "b", "c")


@gang_and_basic
async def test_the_rack_with_the_highest_utilization_is_preferred(cluster: ClusterFixture, minimum: int) -> None:
    await cluster.create(*racks(r1=2, r2=3, r3=1), group("g", "rack", minimum), *group_pods("a", "b", "c"))
    async with cluster.scheduler(**TOPOLOGY_AWARE):
        assert await racks_of(cluster, "a", "b", "c") == {"r1"}


@gang_and_basic
async def test_existing_pods_count_towards_the_utilization_of_a_rack(cluster: ClusterFixture, minimum: int) -> None:
    existing = bound_pod("existing1", "r2-0", "2"), bound_pod("existing2", "r3-2", "1")
    await cluster.create(
        *racks(r1=2, r2=3, r3=3, r4=1), *existing, group("g", "rack", minimum), *group_pods("a", "b", "c")
    )
    async with cluster.scheduler(**TOPOLOGY_AWARE):
        assert await racks_of(cluster, "a", "b", "c") == {"r2"}


async def test_two_gangs_are_placed_in_different_racks(cluster: ClusterFixture) -> None:
    await cluster.create(*racks(r1=3, r2=2), group("g", "rack", 3), group("h", "rack", 2))
    async with cluster.scheduler(**TOPOLOGY_AWARE):
        await cluster.create(*group_pods("a", "b", "c", cpu="2"))
        assert await racks_of(cluster, "a", "b", "c") == {"r1"}
        await cluster.create(*group_pods("d", "e", of="h"))
        assert await racks_of(cluster, "d", "e") == {"r2"}


async def test_two_gangs_share_a_rack_with_enough_capacity(cluster: ClusterFixture) -> None:
    large, small = group_pods("a", cpu="2"), group_pods("b")
    await cluster.create(*racks(r1=3, r2=1), group("g", "rack", 2), group("h", "rack", 3), *large, *small)
    async with cluster.scheduler(**TOPOLOGY_AWARE):
        assert await racks_of(cluster, "a", "b") == {"r1"}
        await cluster.create(*group_pods("c", "d", "e", of="h"))
        assert await racks_of(cluster, "c", "d", "e") == {"r1"}


async def test_groups_can_have_different_topology_keys(cluster: ClusterFixture) -> None:
    await cluster.create(*racks(r1=2, r2=1, r3=3), group("g", "rack", 3), group("h", "zone", 3))
    async with cluster.scheduler(**TOPOLOGY_AWARE):
        await cluster.create(*group_pods("a", "b", "c", cpu="2"))
        assert await racks_of(cluster, "a", "b", "c") == {"r3"}
        await cluster.create(*group_pods("d", "e", "f", of="h", cpu="2"))
        assert await racks_of(cluster, "d", "e", "f") == {"r1", "r2"}


async def test_the_second_of_two_gangs_stays_pending_without_capacity(cluster: ClusterFixture) -> None:
    await cluster.create(*racks(r1=2), group("g", "rack", 3), group("h", "rack", 2), *group_pods("a", "b", "c"))
    async with cluster.scheduler(**TOPOLOGY_AWARE):
        await cluster.bound("a", "b", "c")
        await cluster.create(*group_pods("d", "e", of="h"))
        await cluster.pending_messages("d", "e")
        assert not cluster.node_of("d") and not cluster.node_of("e")


async def test_members_beyond_min_count_are_placed_in_the_same_rack(cluster: ClusterFixture) -> None:
    await cluster.create(*racks(r1=2, r2=2), group("g", "rack", 2), *group_pods("a", "b", "c"))
    async with cluster.scheduler(**TOPOLOGY_AWARE):
        assert len(await racks_of(cluster, "a", "b", "c")) == 1


async def test_a_late_member_is_placed_in_the_rack_of_its_siblings(cluster: ClusterFixture) -> None:
    await cluster.create(*racks(r1=3, r2=2, r3=1), group("g", "rack", 3), *group_pods("a", "b", "c"))
    async with cluster.scheduler(**TOPOLOGY_AWARE):
        await cluster.bound("a", "b", "c")
        await cluster.create(*group_pods("d"))
        assert await racks_of(cluster, "a", "b", "c", "d") == {"r2"}
        await cluster.create(*group_pods("e"))
        await cluster.pending_messages("e")
        assert not cluster.node_of("e")


async def test_a_basic_group_is_placed_in_the_only_rack(cluster: ClusterFixture) -> None:
    await cluster.create(*racks(r1=2), group("g", "rack"), *group_pods("a", "b", "c"))
    async with cluster.scheduler(**TOPOLOGY_AWARE):
        await cluster.bound("a", "b", "c")


async def test_a_basic_group_is_placed_in_one_of_several_racks(cluster: ClusterFixture) -> None:
    await cluster.create(*racks(r1=2, r2=2, r3=2), group("g", "rack"), *group_pods("a", "b", "c"))
    async with cluster.scheduler(**TOPOLOGY_AWARE):
        assert len(await racks_of(cluster, "a", "b", "c")) == 1


async def test_a_pod_of_a_basic_group_is_not_placed_in_another_rack(cluster: ClusterFixture) -> None:
    await cluster.create(*racks(r1=1, r2=1), group("g", "rack"), *group_pods("a", "b", "c"))
    async with cluster.scheduler(**TOPOLOGY_AWARE):
        assert len(await racks_of(cluster, "a", "b")) == 1
        (message,) = await cluster.pending_messages("c")
        assert "0/1 nodes are available: 1 Insufficient cpu." in message
        assert not cluster.node_of("c")


async def test_a_basic_group_that_fits_nowhere_is_not_scheduled(cluster: ClusterFixture) -> None:
    await cluster.create(*racks(r1=1, r2=1), group("g", "rack"), *group_pods("a", "b", cpu="3"))
    async with cluster.scheduler(**TOPOLOGY_AWARE):
        messages = await cluster.pending_messages("a", "b")
        assert "none of the 2 pods of default/g that look for a node fits" in messages[0]


async def test_the_pods_of_a_basic_group_that_fit_are_scheduled(cluster: ClusterFixture) -> None:
    await cluster.create(*racks(r1=1, r2=1), group("g", "rack"), *group_pods("big", cpu="3"), *group_pods("small"))
    async with cluster.scheduler(**TOPOLOGY_AWARE):
        await cluster.bound("small")
        await cluster.pending_messages("big")


async def test_the_preferred_rack_can_be_too_small_for_late_members(cluster: ClusterFixture) -> None:
    await cluster.create(*racks(r1=4, r2=1), bound_pod("existing", "r1-0", "2"), group("g", "rack"))
    async with cluster.scheduler(**TOPOLOGY_AWARE):
        for each in group_pods("a", "b"):
            await cluster.create(each)
            assert await racks_of(cluster, each.metadata.name) == {"r2"}
        await cluster.create(*group_pods("c"))
        await cluster.pending_messages("c")
        assert not cluster.node_of("c")


async def test_two_basic_groups_are_placed_in_sequence(cluster: ClusterFixture) -> None:
    await cluster.create(*racks(r1=3, r2=1), group("g", "rack"), group("h", "rack"), *group_pods("a", "b"))
    async with cluster.scheduler(**TOPOLOGY_AWARE):
        assert await racks_of(cluster, "a", "b") == {"r2"}
        await cluster.create(*group_pods("c", "d", of="h"))
        assert await racks_of(cluster, "c", "d") == {"r1"}


async def test_two_basic_groups_share_the_only_rack(cluster: ClusterFixture) -> None:
    first, second = group_pods("a", "b"), group_pods("c", "d", "e", of="h")
    await cluster.create(*racks(r1=3), group("g", "rack"), group("h", "rack"), *first, *second)
    async with cluster.scheduler(**TOPOLOGY_AWARE):
        await cluster.bound("a", "b", "c", "d", "e")


async def test_basic_groups_can_have_different_topology_keys(cluster: ClusterFixture) -> None:
    await cluster.create(*racks(r1=1, r3=2, r4=2), group("g", "rack"), group("h", "zone"), *group_pods("a", "b"))
    async with cluster.scheduler(**TOPOLOGY_AWARE):
        assert await racks_of(cluster, "a", "b") == {"r1"}
        await cluster.create(*group_pods("c", "d", "e", of="h", cpu="2"))
        assert await racks_of(cluster, "c", "d", "e") == {"r3", "r4"}


async def test_a_basic_group_that_outgrows_its_rack_leaves_the_other_rack_to_the_next_group(
    cluster: ClusterFixture,
) -> None:
    await cluster.create(*racks(r1=2, r2=1), group("g", "rack"), group("h", "rack"), *group_pods("a"))
    async with cluster.scheduler(**TOPOLOGY_AWARE):
        assert await racks_of(cluster, "a") == {"r2"}
        await cluster.create(*group_pods("b", "c"))
        assert await racks_of(cluster, "b") == {"r2"}
        await cluster.pending_messages("c")
        await cluster.create(*group_pods("d", "e", "f", of="h"))
        assert await racks_of(cluster, "d", "e", "f") == {"r1"}


async def test_a_basic_group_continues_when_its_rack_gains_capacity(cluster: ClusterFixture) -> None:
    existing = bound_pod("existing", "r1-0", "1")
    await cluster.create(*racks(r1=1, r2=1), existing, group("g", "rack"), *group_pods("a"))
    async with cluster.scheduler(**TOPOLOGY_AWARE):
        assert await racks_of(cluster, "a") == {"r1"}
        await cluster.create(*group_pods("b"))
        await cluster.pending_messages("b")
        await cluster.delete(existing)
        assert await racks_of(cluster, "a", "b") == {"r1"}


async def test_topology_constraints_hold_without_gang_scheduling(cluster: ClusterFixture) -> None:
    gates = {"GenericWorkload": True, "TopologyAwareWorkloadScheduling": True}
    await cluster.create(*racks(r1=1, r2=2), group("g", "rack", 5), *group_pods("a", "b", "c"))
    async with cluster.scheduler(gates=gates):
        assert await racks_of(cluster, "a", "b", "c") == {"r2"}


async def test_a_group_must_exist_even_without_gang_scheduling(cluster: ClusterFixture) -> None:
    gates = {"GenericWorkload": True, "TopologyAwareWorkloadScheduling": True}
    await cluster.create(*racks(r1=1), *group_pods("a"))
    async with cluster.scheduler(gates=gates):
        assert await cluster.pending_messages("a") == ['podgroup.scheduling.k8s.io "g" not found']
        await cluster.create(group("g", "rack"))
        await cluster.bound("a")
