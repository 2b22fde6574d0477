"""The filter of NodeResourceTopologyMatch, with the behaviour of upstream's test tables."""

from __future__ import annotations

from typing import Any

import pytest

from contrib_tests.node_resource_topology.topologies import (
    NAME,
    NIC,
    Resources,
    guaranteed,
    harness,
    requesting,
    topology,
    zone,
)
from kubestow.api.core import Pod
from kubestow.testing import pod
from kubestow_contrib.node_resource_topology.zones import NodeResourceTopology

HUGEPAGES, ANYWHERE = "hugepages-2Mi", "vendor.example.com/anywhere"
CONTAINERS, PODS = "SingleNUMANodeContainerLevel", "SingleNUMANodePodLevel"
POD_UNALIGNED, CONTAINER_UNALIGNED = "cannot align pod", "cannot align container"


def two_zones(policy: str) -> NodeResourceTopology:
    """4 CPUs, 8 GiB and 10 NICs in zone 0, 8 CPUs, 8 GiB, huge pages and 5 NICs in zone 1."""
    first: Resources = {"cpu": 4, "memory": "8Gi", NIC: 10}
    second: Resources = {"cpu": 8, "memory": "8Gi", NIC: 5, HUGEPAGES: "128Mi"}
    return topology("n", [zone(0, first), zone(1, second)], policy)


def reason(found: NodeResourceTopology, tried: Pod, more: Resources | None = None) -> str | None:
    """Why the node is rejected, None if it is not."""
    rejections = harness(found, more=more).rejections(tried)
    if not rejections:
        return None
    plugin, (text,) = rejections["n"]
    assert plugin == NAME
    return text


@pytest.mark.parametrize(
    ("tried", "expected"),
    [
        (pod("nothing"), None),
        (guaranteed({"cpu": 2, "memory": "2Gi"}), None),
        (guaranteed({"cpu": 8, "memory": "8Gi"}), None),
        (guaranteed({"cpu": 9, "memory": "2Gi"}), CONTAINER_UNALIGNED),
        (guaranteed({"cpu": 2, "memory": "9Gi"}), CONTAINER_UNALIGNED),
        (guaranteed({"cpu": 4, "memory": "2Gi", NIC: 10}), None),
        (guaranteed({"cpu": 5, "memory": "2Gi", NIC: 10}), CONTAINER_UNALIGNED),
        (guaranteed({"cpu": 2, "memory": "2Gi", HUGEPAGES: "64Mi", NIC: 3}), None),
        (guaranteed({"cpu": 2, "memory": "2Gi", HUGEPAGES: "256Mi"}), CONTAINER_UNALIGNED),
        (guaranteed({"cpu": 2, "memory": "2Gi", "vendor.example.com/none": 0}), None),
        (guaranteed({"cpu": 2, "memory": "2Gi", "vendor.example.com/none": 1}), CONTAINER_UNALIGNED),
        # Only devices are exclusive unless the pod is Guaranteed.
        (requesting({"cpu": 20, "memory": "90Gi"}), None),
        (requesting({"cpu": 20, "memory": "90Gi", NIC: 10}), None),
        (requesting({"cpu": 1, "memory": "1Gi", NIC: 11}), CONTAINER_UNALIGNED),
        (requesting({NIC: 10}), None),
        (requesting({NIC: 11}), CONTAINER_UNALIGNED),
        # Containers take what they request from the zone with the lowest number.
        (guaranteed({"cpu": 4, "memory": "1Gi"}, {"cpu": 8, "memory": "1Gi"}), None),
        (guaranteed({"cpu": 4, "memory": "1Gi"}, {"cpu": 4, "memory": "1Gi"}, {"cpu": 4, "memory": "1Gi"}), None),
        (guaranteed({"cpu": 5, "memory": "1Gi"}, {"cpu": 5, "memory": "1Gi"}), CONTAINER_UNALIGNED),
        (guaranteed({"cpu": 1, "memory": "1Gi", NIC: 8}, {"cpu": 1, "memory": "1Gi", NIC: 5}), None),
        (guaranteed({"cpu": 1, "memory": "1Gi", NIC: 8}, {"cpu": 1, "memory": "1Gi", NIC: 6}), CONTAINER_UNALIGNED),
    ],
)
def test_containers_are_aligned_one_by_one(tried: Pod, expected: str | None) -> None:
    assert reason(two_zones(CONTAINERS), tried) == expected


@pytest.mark.parametrize(
    ("tried", "expected"),
    [
        (guaranteed({"cpu": 4, "memory": "1Gi"}, {"cpu": 4, "memory": "1Gi"}), None),
        (guaranteed({"cpu": 4, "memory": "1Gi"}, {"cpu": 5, "memory": "1Gi"}), POD_UNALIGNED),
        (guaranteed({"cpu": 1, "memory": "1Gi", NIC: 5}, {"cpu": 1, "memory": "1Gi", NIC: 6}), POD_UNALIGNED),
        (requesting({"cpu": 1, "memory": "1Gi", NIC: 11}), POD_UNALIGNED),
        (requesting({"cpu": 19, "memory": "90Gi", NIC: 5}), None),
    ],
)
def test_a_pod_is_aligned_as_a_whole(tried: Pod, expected: str | None) -> None:
    assert reason(two_zones(PODS), tried) == expected


def init_container(cpu: int, restart_policy: str = "") -> dict[str, Any]:
    amounts = {"cpu": str(cpu), "memory": "1Gi"}
    policy = {"restartPolicy": restart_policy} if restart_policy else {}
    return {"name": "i", "resources": {"requests": amounts, "limits": amounts}, **policy}


@pytest.mark.parametrize(
    ("init", "expected"),
    [
        ([init_container(8), init_container(8)], None),
        ([init_container(9)], "cannot align init container"),
        ([init_container(9, "Always")], "cannot align sidecar container"),
    ],
)
def test_init_containers_are_aligned_and_nothing_is_subtracted_for_them(
    init: list[dict[str, Any]], expected: str | None
) -> None:
    assert reason(two_zones(CONTAINERS), guaranteed({"cpu": 8, "memory": "1Gi"}, init=init)) == expected


def test_the_largest_init_container_counts_for_the_pod_as_a_whole() -> None:
    tried = guaranteed({"cpu": 1, "memory": "1Gi"}, init=[init_container(9)])
    assert reason(two_zones(PODS), tried) == POD_UNALIGNED


def test_devices_and_storage_that_no_zone_lists_are_looked_for_on_the_node() -> None:
    more: Resources = {ANYWHERE: "1", "ephemeral-storage": "10Gi"}
    tried = guaranteed({"cpu": 2, "memory": "2Gi", ANYWHERE: 1, "ephemeral-storage": "1Gi"})
    assert reason(two_zones(CONTAINERS), tried, more) is None
    assert reason(two_zones(CONTAINERS), tried) == CONTAINER_UNALIGNED


@pytest.mark.parametrize(
    ("policy", "attributes", "expected"),
    [
        ("", {}, None),
        ("BestEffortPodLevel", {}, None),
        ("Restricted", {}, None),
        ("", {"topologyManagerPolicy": "single-numa-node"}, CONTAINER_UNALIGNED),
        ("", {"topologyManagerPolicy": "single-numa-node", "topologyManagerScope": "pod"}, POD_UNALIGNED),
        ("", {"topologyManagerPolicy": "restricted", "topologyManagerScope": "pod"}, None),
        (CONTAINERS, {"topologyManagerPolicy": "none"}, None),
        (CONTAINERS, {"topologyManagerScope": "pod"}, POD_UNALIGNED),
        (PODS, {"topologyManagerPolicy": "unknown", "topologyManagerScope": "unknown"}, POD_UNALIGNED),
    ],
)
def test_attributes_take_precedence_over_the_deprecated_policies(
    policy: str, attributes: dict[str, str], expected: str | None
) -> None:
    found = topology("n", [zone(0, {"cpu": 4, "memory": "8Gi"})], policy, attributes)
    assert reason(found, guaranteed({"cpu": 5, "memory": "1Gi"})) == expected


def test_a_node_without_topology_passes() -> None:
    tried = guaranteed({"cpu": 100, "memory": "1Gi"})
    found = harness(two_zones(PODS))
    found.cluster.catalog(NodeResourceTopology).remove("", "n")
    assert found.feasible(tried) == {"n"}


def test_zones_of_other_types_or_with_impossible_numbers_are_ignored() -> None:
    enough: Resources = {"cpu": 8, "memory": "8Gi"}
    zones = [zone(0, {"cpu": 2, "memory": "8Gi"}), zone(75, enough), zone(1, enough) | {"type": "Socket"}]
    zones.append(zone(2, enough) | {"name": "gpu-2"})
    assert reason(topology("n", zones, PODS), guaranteed({"cpu": 2, "memory": "1Gi"})) is None
    assert reason(topology("n", zones, PODS), guaranteed({"cpu": 4, "memory": "1Gi"})) == POD_UNALIGNED


@pytest.mark.parametrize("available", ["-5", "lots"])
def test_an_impossible_amount_is_none(available: str) -> None:
    found = topology("n", [zone(0, {"cpu": 8, "memory": "8Gi"})], PODS)
    tried = guaranteed({"cpu": 4, "memory": "1Gi"})
    assert reason(found, tried) is None
    running = harness(found)
    running.cluster.catalog(NodeResourceTopology).put(
        topology("n", [zone(0, {"cpu": available, "memory": "8Gi"})], PODS, version=2)
    )
    assert running.rejections(tried) == {"n": (NAME, (POD_UNALIGNED,))}
