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
    return (first != NO_CAPACITY).tolist()


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
