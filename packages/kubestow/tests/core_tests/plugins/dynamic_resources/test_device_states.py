"""Nodes whose devices are in one state share a search; the result is that of a search on each node (semantics 8.16)."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from msgspec.structs import replace

from core_tests.plugins.dynamic_resources.devices import DeviceHarness
from kubestow.api.resource import AllocationResult, DeviceClass, ResourceClaim, ResourceSlice
from kubestow.plugins.dynamic_resources.allocator import Allocator
from kubestow.plugins.dynamic_resources.cel import SelectorError
from kubestow.plugins.dynamic_resources.pools import DevicePools, PublishedSlices
from kubestow.plugins.dynamic_resources.requests import AllocationError
from kubestow.testing import node, nodes
from kubestow.testing.devices import DRIVER, claim, device, exactly, pod_with, slice_of, subrequests

NODES = nodes(6, zones=2)
NAMES = [each.metadata.name for each in NODES]
IN_ZONE = {
    "nodeSelectorTerms": [
        {"matchExpressions": [{"key": "topology.kubernetes.io/zone", "operator": "In", "values": ["zone-0"]}]}
    ]
}


def random_device(random: Random, name: str) -> Any:
    """Few different devices, so that many nodes have equal ones."""
    return device(
        name,
        memory=random.choice(["10Gi", "40Gi"]),
        attributes={"numa": random.randrange(2), "model": random.choice(["a", "a", "b"])},
        taints=random.choice([[], [], [{"key": "broken", "effect": "NoSchedule"}]]),
        allowMultipleAllocations=random.random() < 0.15,
    )


def node_slice(random: Random, name: str) -> ResourceSlice:
    """The slice of a node. Kinds of nodes are drawn with a seed of their own, so that nodes of one kind are equal."""
    kind = Random(random.randrange(3))
    devices = [random_device(kind, f"d{number}") for number in range(kind.choice([1, 3, 4]))]
    generation, of = random.choice([(1, 1)] * 9 + [(2, 2)])
    return slice_of(*devices, node=name, generation=generation, of=of)


def partitions(random: Random, name: str) -> list[ResourceSlice]:
    """A pool with shared counters: of two partitions of three units each, four units are available."""
    counters = [{"name": "units", "counters": {"n": {"value": "4"}}}]
    consumed = [{"counterSet": "units", "counters": {"n": {"value": random.choice(["1", "3"])}}}]
    devices = [device(f"part-{number}", consumesCounters=consumed) for number in range(2)]
    pool = f"{name}-parts"
    return [
        slice_of(node=name, pool=pool, name=f"{pool}-counters", of=2, sharedCounters=counters),
        slice_of(*devices, node=name, pool=pool, name=f"{pool}-devices", of=2),
    ]


def random_slices(random: Random) -> list[ResourceSlice]:
    slices = [node_slice(random, name) for name in NAMES if random.random() < 0.9]
    for name in NAMES:
        if random.random() < 0.15:
            slices += partitions(random, name)
    if random.random() < 0.5:
        slices.append(slice_of(random_device(random, "shared"), pool="network", nodeSelector=IN_ZONE))
    return slices


def random_claim(random: Random, name: str) -> ResourceClaim:
    big = f"device.capacity['{DRIVER}'].memory.compareTo(quantity('20Gi')) >= 0"
    of_model = f"device.attributes['{DRIVER}'].model == 'a'"
    request = random.choice(
        [
            exactly(1),
            exactly(2),
            exactly(0),
            exactly(1, big),
            exactly(2, of_model),
            exactly(1, tolerations=[{"operator": "Exists"}]),
            exactly(1, adminAccess=True),
            subrequests(3, 1),
        ]
    )
    same_numa = [{"requests": [], "matchAttribute": f"{DRIVER}/numa"}]
    return claim(name, request, constraints=random.choice([[], [], same_numa]))


def searched(harness: DeviceHarness, wanted: ResourceClaim) -> dict[str, AllocationResult] | None:
    """The allocations on the nodes that have one, each searched for by itself; None if the search of one fails."""
    cluster, found = harness.cluster, dict[str, AllocationResult]()
    slices = PublishedSlices(cluster.catalog(ResourceSlice), partitionable_devices=True)
    by_node = DevicePools(slices, cluster.nodes).by_node()
    for row, name in enumerate(cluster.nodes.names):
        allocator = Allocator(
            cluster.resource_claims, cluster.catalog(DeviceClass), harness.plugin._features, max_steps=None
        )
        prepared = allocator.prepare([wanted], slices_version=slices.version)
        try:
            solution = allocator.allocate(prepared, by_node.of_row(row), state=0)
        except (AllocationError, SelectorError):
            return None
        if solution is not None:
            [allocation] = solution.allocation_results([wanted], name, harness.plugin._features)
            found[name] = allocation
    return found


@pytest.mark.parametrize("seed", range(40))
def test_a_shared_search_finds_the_nodes_and_devices_that_a_search_on_each_node_finds(seed: int) -> None:
    random = Random(seed)
    harness = DeviceHarness(
        *NODES, *random_slices(random), gates={"DRAPartitionableDevices": True, "DRAAdminAccess": True}
    )
    for number in range(12):
        wanted = random_claim(random, f"c{number}")
        harness.put(wanted)
        incoming = pod_with(wanted.metadata.name, name=f"p{number}")
        expected = searched(harness, wanted)
        if expected is None:
            assert harness.decide(incoming).node_name is None
        else:
            assert harness.feasible(incoming) == expected.keys()
        change = random.random()
        if change < 0.6 and expected:
            placed = harness.run(incoming).node_name
            allocation = harness.claim(wanted.metadata.name).status.allocation
            assert allocation is not None
            assert replace(allocation, allocation_timestamp=None) == expected[str(placed)]
        elif change < 0.7:
            name = random.choice(NAMES)
            harness.put(node_slice(random, name))
        elif change < 0.8:
            index = random.randrange(len(NODES))
            labels = NODES[index].metadata.labels | {"topology.kubernetes.io/zone": random.choice(["zone-0", "zone-1"])}
            metadata = replace(NODES[index].metadata, labels=labels)
            harness.cluster.update_node(replace(NODES[index], metadata=metadata))
        elif number:
            freed = harness.cluster.catalog(ResourceClaim).get("default", f"c{random.randrange(number)}")
            if freed is not None:
                harness.cluster.catalog(ResourceClaim).remove("default", freed.metadata.name)


def test_equal_nodes_share_a_state_and_an_allocation_changes_only_that_of_its_node() -> None:
    slices = [slice_of("d0", "d1", node=name) for name in NAMES]
    harness = DeviceHarness(*NODES, *slices, claim())
    cluster = harness.cluster
    published = PublishedSlices(cluster.catalog(ResourceSlice), partitionable_devices=True)
    pools = DevicePools(published, cluster.nodes)
    allocator = Allocator(
        cluster.resource_claims, cluster.catalog(DeviceClass), harness.plugin._features, max_steps=None
    )
    assert len(set(allocator.device_states(pools.by_node()).tolist())) == 1
    placed = harness.run(pod_with("c")).node_name
    states = allocator.device_states(pools.by_node()).tolist()
    assert [NAMES[number] for number, state in enumerate(states) if states.count(state) == 1] == [placed]


def test_devices_of_nodes_whose_slices_have_not_changed_stay_the_same_objects() -> None:
    slices = [slice_of("d0", node=name) for name in NAMES]
    harness = DeviceHarness(*NODES, *slices)
    published = PublishedSlices(harness.cluster.catalog(ResourceSlice), partitionable_devices=True)
    pools = DevicePools(published, harness.cluster.nodes)
    before = pools.by_node()
    harness.put(slice_of("d0", "d1", node=NAMES[0]))
    after = pools.by_node()
    assert [after.of_row(row) is before.of_row(row) for row in range(len(NAMES))] == [False, *[True] * 5]


def test_nodes_with_equal_partitions_and_other_shared_counters_do_not_share_a_state() -> None:
    partition = device("part", consumesCounters=[{"counterSet": "card", "counters": {"units": {"value": "3"}}}])
    slices = []
    for name, units in (("a", "4"), ("b", "2")):
        shared = [{"name": "card", "counters": {"units": {"value": units}}}]
        slices.append(slice_of(node=name, name=f"{name}-card", of=2, sharedCounters=shared))
        slices.append(slice_of(partition, node=name, name=f"{name}-parts", of=2))
    assert DeviceHarness(node("a"), node("b"), *slices, claim()).feasible(pod_with("c")) == {"a"}


def test_nodes_with_equal_shared_devices_of_which_one_is_in_use_do_not_share_a_state() -> None:
    shared = device("d0", memory="10Gi", allowMultipleAllocations=True)
    asking = exactly(capacity={"requests": {"memory": "6Gi"}})
    slices = [slice_of(shared, node=name) for name in "ab"]
    harness = DeviceHarness(node("a"), node("b"), *slices, claim("one", asking), claim("two", asking))
    placed = harness.run(pod_with("one", name="p1")).node_name
    assert harness.feasible(pod_with("two", name="p2")) == {"a", "b"} - {placed}
