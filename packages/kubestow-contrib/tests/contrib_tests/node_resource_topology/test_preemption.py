"""Preemption with NodeResourceTopologyMatch: victims make room in the zone that they run in (preemptionMode)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from contrib_tests.node_resource_topology.topologies import NAME, topology, zone
from contrib_tests.watched_nodes import profile_of
from kubestow.api.core import Pod
from kubestow.testing import SchedulerHarness, in_virtual_time, node, pod
from kubestow_contrib.node_resource_topology.agent_reports import read_placements
from kubestow_contrib.node_resource_topology.node_resource_topology_match import NodeResourceTopologyMatch
from kubestow_contrib.node_resource_topology.zones import NodeResourceTopology

METADATA = "topology.node.k8s.io/numaplacement-metadata"
VECTOR = "topology.node.k8s.io/numaplacement-vector"
#: In the order of their hashes.
CONTAINERS = [("default", "v0", "c"), ("default", "v1", "c")]


def report(free: tuple[int, int], metadata: str, vectors: Mapping[int, str]) -> NodeResourceTopology:
    zones = [zone(number, {"cpu": cpu, "memory": "8Gi"}) for number, cpu in enumerate(free)]
    for number, vector in vectors.items():
        zones[number]["attributes"] = [{"name": VECTOR, "value": vector}]
    return topology("n", zones, attributes={"topologyManagerPolicy": "single-numa-node", METADATA: metadata})


def sized(name: str, cpu: int, *, on: str = "", priority: int = 0) -> Pod:
    resources = {"cpu": str(cpu), "memory": "1Gi"}
    container = {"name": "c", "resources": {"requests": resources, "limits": resources}}
    status = {"phase": "Running"} if on else {}
    return pod(name, node=on, priority=priority, spec={"containers": [container]}, status=status)


def first_and_second() -> list[tuple[str, str, str]]:
    """The containers in the order of their hashes: all run in the busiest zone but the first one."""
    found = read_placements(report((0, 0), "npv0v001::ve=leb89::cc=2::nn=2::bn=1", {0: "!"}), CONTAINERS)
    return sorted(found, key=found.__getitem__)


def test_containers_without_a_number_are_in_the_busiest_zone() -> None:
    first, second = first_and_second()
    described = report((0, 0), "npv0v001::ve=leb89::cc=2::nn=2::bn=0", {1: "#"})
    # The character of 1 is that after "!", without the quotation mark, which the code does not have.
    assert read_placements(described, CONTAINERS) == {first: 0, second: 1}


def test_numbers_are_differences_of_one_or_more_characters() -> None:
    containers = [("ns", f"pod-{number}", "c") for number in range(200)]
    # 64 has two characters: one that continues with the value 0, and one that ends with the value 0.
    continuing = [c for c in map(chr, range(0x21, 0x7F)) if c not in '"&<>\\'][64]
    described = report((0, 0), "npv0v001::ve=leb89::cc=200::nn=2::bn=0", {1: f"!{continuing}!#"})
    found = read_placements(described, containers)
    everywhere = read_placements(report((0, 0), "npv0v001::ve=leb89::cc=200::nn=2::bn=0", {}), containers)
    ordered = list(everywhere)
    assert [ordered.index(each) for each in found if found[each] == 1] == [0, 64, 65]


@pytest.mark.parametrize(
    ("metadata", "vectors"),
    [
        ("", {}),
        ("npv0v001::ve=leb89::cc=3::nn=2::bn=0", {}),
        ("npv0v002::ve=leb89::cc=2::nn=2::bn=0", {}),
        ("npv0v001::ve=plain::cc=2::nn=2::bn=0", {}),
        ("npv0v001::ve=leb89::cc=two::nn=2::bn=0", {}),
        ("npv0v001::cc=2", {}),
        ("npv0v001::ve=leb89::cc=2::nn=2::bn=0", {1: "%"}),
        ("npv0v001::ve=leb89::cc=2::nn=2::bn=0", {1: "&"}),
        ("npv0v001::ve=leb89::cc=2::nn=2::bn=0", {0: "!", 1: "!"}),
    ],
)
def test_a_report_with_a_mistake_places_nothing(metadata: str, vectors: dict[int, str]) -> None:
    assert read_placements(report((0, 0), metadata, vectors), CONTAINERS) == {}


def preempted(mode: str, cpu: int) -> set[str]:
    """The victims of a pod on a node where zone 0 has one free CPU and zone 1 two, and each a container with two."""
    evicted: set[str] = set()

    async def scenario(harness: SchedulerHarness) -> None:
        await harness.advance(2)
        harness.cluster.put(sized("p", cpu, priority=10))
        await harness.advance(10)
        evicted.update({"v0", "v1"} - {each.metadata.name for each in harness.cluster.pods()})

    profile: dict[str, Any] = profile_of(NAME)
    profile["pluginConfig"] = [{"name": NAME, "args": {"preemptionMode": mode}}]
    profiles = [{"schedulerName": "default-scheduler", **profile}]
    described = report((1, 2), "npv0v001::ve=leb89::cc=2::nn=2::bn=1", {0: "!"})
    victims = [sized(name, 2, on="n") for name in ("v0", "v1")]
    objects = [node("n", cpu="32"), described, *victims]
    in_virtual_time(scenario, *objects, plugins=[NodeResourceTopologyMatch], profiles=profiles)
    return evicted


def test_the_victim_is_the_pod_in_the_zone_that_has_room_then() -> None:
    first, second = first_and_second()
    assert preempted("Enabled", 4) == {second[1]}
    assert first != second


def test_no_pod_is_evicted_without_help_from_it() -> None:
    assert preempted("Enabled", 5) == set()
    assert preempted("Disabled", 4) == set()
