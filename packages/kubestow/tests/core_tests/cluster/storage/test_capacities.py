"""Which CSIStorageCapacity has enough for a volume, after objects are added, changed and deleted."""

from __future__ import annotations

import pytest

from kubestow.api.storage import CSIStorageCapacity
from kubestow.cluster.cache import Cluster
from kubestow.cluster.storage.capacities import NO_CAPACITY
from kubestow.testing import node
from kubestow.testing.storage import capacity

GI = 1 << 30


@pytest.fixture
def cluster() -> Cluster:
    cluster = Cluster()
    for name in ("a", "b"):
        cluster.add_node(node(name, zone=name))
    return cluster


def enough(cluster: Cluster, gibibytes: int) -> list[bool]:
    """Whether each node's zone has enough."""
    first = cluster.volumes.capacities.first_sufficient("slow", gibibytes * GI)
    return [number != NO_CAPACITY for number in first.tolist()]


def test_a_zone_has_what_the_latest_state_of_its_object_says(cluster: Cluster) -> None:
    catalog = cluster.catalog(CSIStorageCapacity)
    catalog.put(capacity("in-a", available="2Gi", zone="a"))
    assert (enough(cluster, 2), enough(cluster, 3)) == ([True, False], [False, False])
    catalog.put(capacity("in-a", available="3Gi", zone="a"))
    assert enough(cluster, 3) == [True, False]
    catalog.put(capacity("in-a", available="9Gi", largest="1Gi", zone="a"))
    assert (enough(cluster, 1), enough(cluster, 2)) == ([True, False], [False, False])


def test_an_object_that_moves_to_another_zone_or_class_leaves_nothing_behind(cluster: Cluster) -> None:
    catalog = cluster.catalog(CSIStorageCapacity)
    catalog.put(capacity("moving", available="2Gi", zone="a"))
    assert enough(cluster, 1) == [True, False]
    catalog.put(capacity("moving", available="2Gi", zone="b"))
    assert enough(cluster, 1) == [False, True]
    catalog.put(capacity("moving", available="2Gi", zone="b", storage_class="fast"))
    assert enough(cluster, 1) == [False, False]


def test_a_deleted_object_has_no_capacity(cluster: Cluster) -> None:
    catalog = cluster.catalog(CSIStorageCapacity)
    catalog.put(capacity("everywhere", available="2Gi"))
    assert enough(cluster, 2) == [True, True]
    catalog.remove("kube-system", "everywhere")
    assert enough(cluster, 1) == [False, False]


def test_the_other_objects_of_a_class_stay_when_one_is_deleted(cluster: Cluster) -> None:
    catalog = cluster.catalog(CSIStorageCapacity)
    for zone in "ab":
        catalog.put(capacity(f"in-{zone}", available="2Gi", zone=zone))
    assert enough(cluster, 2) == [True, True]
    catalog.remove("kube-system", "in-a")
    assert enough(cluster, 2) == [False, True]
    catalog.put(capacity("in-b", available="3Gi", zone="b"))
    assert enough(cluster, 3) == [False, True]
    catalog.remove("kube-system", "in-b")
    assert enough(cluster, 1) == [False, False]


def test_the_capacity_of_an_object_is_in_bytes_and_zero_without_one(cluster: Cluster) -> None:
    catalog = cluster.catalog(CSIStorageCapacity)
    catalog.put(capacity("a", available="2Gi", zone="a"))
    catalog.put(capacity("b", available=None, largest="1Gi", zone="b"))
    first = cluster.volumes.capacities.first_sufficient("slow", 1)
    assert cluster.volumes.capacities.capacity("slow", first).tolist() == [2 * GI, 0]
    nowhere = cluster.volumes.capacities.first_sufficient("slow", 9 * GI)
    assert nowhere.tolist() == [NO_CAPACITY, NO_CAPACITY]
    assert cluster.volumes.capacities.capacity("slow", nowhere).tolist() == [0, 0]
    assert cluster.volumes.capacities.capacity("fast", nowhere).tolist() == [0, 0]
    catalog.put(capacity("a", available="5Gi", zone="a"))
    assert cluster.volumes.capacities.capacity("slow", first).tolist() == [5 * GI, 0]


def test_of_several_objects_for_a_node_the_first_with_enough_counts(cluster: Cluster) -> None:
    catalog = cluster.catalog(CSIStorageCapacity)
    for name, available in (("c", "9Gi"), ("a", "1Gi"), ("b", "5Gi")):
        catalog.put(capacity(name, available=available))
    found = [cluster.volumes.capacities.first_sufficient("slow", size * GI).tolist() for size in (1, 2, 6, 10)]
    assert found == [[0, 0], [1, 1], [2, 2], [NO_CAPACITY, NO_CAPACITY]]


def test_the_nodes_of_a_topology_follow_their_labels(cluster: Cluster) -> None:
    cluster.catalog(CSIStorageCapacity).put(capacity("in-a", available="2Gi", zone="a"))
    assert enough(cluster, 1) == [True, False]
    cluster.update_node(node("b", zone="a"))
    assert enough(cluster, 1) == [True, True]
    cluster.add_node(node("c", zone="a"))
    assert enough(cluster, 1) == [True, True, True]
