"""The scores of NodeResourceTopologyMatch, with the figures of upstream's test tables."""

from __future__ import annotations

import pytest

from contrib_tests.node_resource_topology.topologies import (
    NAME,
    Resources,
    guaranteed,
    harness,
    requesting,
    topology,
    zone,
)
from kubestow.testing import pod
from kubestow_contrib.node_resource_topology.zones import NodeResourceTopology

CONTAINERS = "SingleNUMANodeContainerLevel"
GPU = "gpu"


def alike(name: str, cpu: int, memory: str, policy: str) -> NodeResourceTopology:
    """Two zones with the same amounts."""
    distances = [{0: 10, 1: 12}, {0: 12, 1: 10}]
    return topology(name, [zone(n, {"cpu": cpu, "memory": memory}, distances[n]) for n in range(2)], policy)


def three_nodes(policy: str) -> list[NodeResourceTopology]:
    return [alike("a", 4, "500Mi", policy), alike("b", 2, "50Mi", policy), alike("c", 6, "60Mi", policy)]


def scores(strategy: str, *containers: Resources, nodes: list[NodeResourceTopology]) -> dict[str, int]:
    found = harness(*nodes, args={"scoringStrategy": {"type": strategy}})
    return found.scores(guaranteed(*containers), NAME)


@pytest.mark.parametrize(
    ("strategy", "expected"),
    [
        ("MostAllocated", {"a": (50 + 4) // 2, "b": (100 + 40) // 2, "c": (33 + 33) // 2}),
        ("LeastAllocated", {"a": (50 + 96) // 2, "b": (0 + 60) // 2, "c": (66 + 66) // 2}),
        ("BalancedAllocation", {"a": 89, "b": 82, "c": 100}),
    ],
)
@pytest.mark.parametrize("policy", ["SingleNUMANodeContainerLevel", "SingleNUMANodePodLevel"])
def test_single_zones_are_scored_by_what_is_available(policy: str, strategy: str, expected: dict[str, int]) -> None:
    assert scores(strategy, {"cpu": 2, "memory": "20Mi"}, nodes=three_nodes(policy)) == expected


def test_of_the_zones_that_fit_the_lowest_score_counts() -> None:
    zones = [
        zone(0, {"cpu": 4, "memory": "4Gi"}),
        zone(1, {"cpu": 8, "memory": "8Gi"}),
        zone(2, {"cpu": 1, "memory": "1Gi"}),
    ]
    nodes = [topology("n", zones, CONTAINERS)]
    assert scores("LeastAllocated", {"cpu": 2, "memory": "2Gi"}, nodes=nodes) == {"n": 50}
    assert scores("MostAllocated", {"cpu": 2, "memory": "2Gi"}, nodes=nodes) == {"n": 25}


def test_containers_are_scored_by_their_mean() -> None:
    nodes = [alike("n", 4, "4Gi", CONTAINERS)]
    assert scores("LeastAllocated", {"cpu": 1, "memory": "1Gi"}, {"cpu": 2, "memory": "2Gi"}, nodes=nodes) == {"n": 62}


def test_resources_have_weights() -> None:
    resources = [{"name": "cpu", "weight": 3}, {"name": "memory", "weight": -1}]
    args = {"scoringStrategy": {"type": "LeastAllocated", "resources": resources}}
    found = harness(alike("n", 4, "4Gi", CONTAINERS), args=args)
    assert found.scores(guaranteed({"cpu": 1, "memory": "2Gi"}), NAME) == {"n": (3 * 75 + 50) // 4}


def test_cpu_is_scored_in_whole_cores() -> None:
    nodes = [alike("n", 4, "4Gi", CONTAINERS)]
    assert scores("LeastAllocated", {"cpu": "1500m", "memory": "1Gi"}, nodes=nodes) == {"n": (50 + 75) // 2}


def test_pods_that_are_not_guaranteed_score_all_nodes_alike() -> None:
    found = harness(*three_nodes(CONTAINERS))
    assert set(found.scores(requesting({"cpu": 1}), NAME).values()) == {100}
    assert set(found.scores(pod("nothing"), NAME).values()) == {100}


def test_nodes_with_other_policies_or_without_topology_score_0() -> None:
    found = harness(alike("a", 4, "4Gi", "BestEffortPodLevel"), alike("b", 4, "4Gi", CONTAINERS))
    found.cluster.catalog(NodeResourceTopology).remove("", "b")
    assert found.scores(guaranteed({"cpu": 1, "memory": "1Gi"}), NAME) == {"a": 0, "b": 0}


def requests(cpu: int, gpus: int | None = None) -> Resources:
    found: Resources = {"cpu": cpu, "memory": "50Mi"}
    return found if gpus is None else {**found, GPU: gpus}


@pytest.mark.parametrize(
    ("policy", "containers", "expected"),
    [
        ("BestEffortContainerLevel", [2], [94, 94, 94]),
        ("BestEffortContainerLevel", [4], [94, 82, 94]),
        ("BestEffortContainerLevel", [6], [82, 0, 94]),
        ("BestEffortContainerLevel", [2, 2], [94, 94, 94]),
        ("BestEffortContainerLevel", [1, 3], [94, 82, 94]),
        ("BestEffortContainerLevel", [5, 3], [82, 0, 94]),
        ("BestEffortPodLevel", [2, 2], [94, 82, 94]),
        ("BestEffortPodLevel", [5, 3], [82, 0, 82]),
    ],
)
def test_the_fewer_zones_are_needed_the_better(policy: str, containers: list[int], expected: list[int]) -> None:
    nodes = [alike(name, cpu, "500Mi", policy) for name, cpu in (("a", 4), ("b", 2), ("c", 6))]
    found = scores("LeastNUMANodes", *[requests(cpu) for cpu in containers], nodes=nodes)
    assert list(found.values()) == expected


def four_zones(name: str, gpus: list[int], policy: str = "BestEffortContainerLevel") -> NodeResourceTopology:
    """Zones in two sockets, close to each other within a socket."""
    distances = [{0: 10, 1: 12, 2: 20, 3: 20}, {0: 12, 1: 10, 2: 20, 3: 20}]
    distances += [{0: 20, 1: 20, 2: 10, 3: 12}, {0: 20, 1: 20, 2: 12, 3: 10}]
    zones = [zone(n, {"cpu": 4, "memory": "500Mi", GPU: count}, distances[n]) for n, count in enumerate(gpus)]
    return topology(name, zones, policy)


def test_close_zones_are_better_than_distant_ones() -> None:
    nodes = [four_zones("close", [1, 1, 0, 0]), four_zones("distant", [1, 0, 1, 0])]
    assert scores("LeastNUMANodes", requests(2, 1), nodes=nodes) == {"close": 94, "distant": 94}
    assert scores("LeastNUMANodes", requests(2, 2), nodes=nodes) == {"close": 82, "distant": 76}


def test_resources_that_no_zone_lists_need_no_zone() -> None:
    found = topology("n", [zone(0, {GPU: 4})], "BestEffortContainerLevel")
    assert scores("LeastNUMANodes", requests(1), nodes=[found]) == {"n": 100}
    assert scores("LeastNUMANodes", requests(1, 1), nodes=[found]) == {"n": 0}


def test_the_step_depends_on_how_many_zones_the_kubelet_supports() -> None:
    found = topology("n", [zone(0, {"cpu": 4, "memory": "4Gi"}, {0: 10})], "", {"topologyManagerMaxNUMANodes": "4"})
    assert scores("LeastNUMANodes", {"cpu": 1, "memory": "1Gi"}, nodes=[found]) == {"n": 100 - 25 + 12}


def test_a_node_with_too_many_zones_to_search_scores_0() -> None:
    found = topology("n", [zone(number, {"cpu": 4, "memory": "4Gi"}) for number in range(11)])
    assert scores("LeastNUMANodes", {"cpu": 1, "memory": "1Gi"}, nodes=[found]) == {"n": 0}
