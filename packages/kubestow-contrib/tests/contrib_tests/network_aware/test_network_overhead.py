"""NetworkOverhead, with the test tables of scheduler-plugins, and compared with a count of pods one by one."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from contrib_tests.watched_nodes import profile_of
from kubestow.api.core import Node, Pod
from kubestow.api.meta import convert
from kubestow.testing import PluginHarness, check_plugin, in_virtual_time, node, pod
from kubestow_contrib.network_aware import (
    GROUP_LABEL,
    REGION,
    WORKLOAD_LABEL,
    ZONE,
    AppGroup,
    NetworkOverhead,
    NetworkTopology,
)

NAME = "NetworkOverhead"
REGION_COSTS = {"us-west-1": {"us-east-1": 20}, "us-east-1": {"us-west-1": 20}}
ZONE_COSTS = {"Z1": {"Z2": 5}, "Z2": {"Z1": 5}, "Z3": {"Z4": 10}, "Z4": {"Z3": 10}}


def topology(weights: str = "UserDefined", name: str = "nt-default") -> NetworkTopology:
    def origins(costs: dict[str, dict[str, int]]) -> list[dict[str, Any]]:
        return [
            {"origin": origin, "costList": [{"destination": d, "networkCost": cost} for d, cost in to.items()]}
            for origin, to in costs.items()
        ]

    topologies = [
        {"topologyKey": ZONE, "originList": origins(ZONE_COSTS)},
        {"topologyKey": REGION, "originList": origins(REGION_COSTS)},
    ]
    spec = {"weights": [{"name": weights, "topologyList": topologies}]}
    return convert(NetworkTopology, {"metadata": {"name": name, "namespace": "default"}, "spec": spec})


def group(dependencies: dict[str, list[str]], most: int = 100, name: str = "basic") -> AppGroup:
    workloads = [
        {
            "workload": {"selector": selector},
            "dependencies": [{"workload": {"selector": other}, "maxNetworkCost": most} for other in others],
        }
        for selector, others in dependencies.items()
    ]
    return convert(AppGroup, {"metadata": {"name": name, "namespace": "default"}, "spec": {"workloads": workloads}})


BASIC = {"p1": ["p2"], "p2": ["p3"], "p3": []}
PLACES = [("us-west-1", "Z1")] * 2 + [("us-west-1", "Z2")] * 2 + [("us-east-1", "Z3")] * 2 + [("us-east-1", "Z4")] * 2


def located(name: str, region: str, zone: str) -> Node:
    labels = {key: value for key, value in ((REGION, region), (ZONE, zone)) if value}
    return node(name, cpu="100", labels=labels)


def member(workload: str, node_name: str = "", name: str = "", application: str = "basic") -> Pod:
    labels = {GROUP_LABEL: application, WORKLOAD_LABEL: workload}
    return pod(name or f"{workload}-{node_name or 'new'}", node=node_name, labels=labels)


def harness(pods: list[Pod], *objects: Any, nodes: list[Node] | None = None, **args: Any) -> PluginHarness:
    nodes = nodes or [located(f"n-{number}", *place) for number, place in enumerate(PLACES, 1)]
    found = PluginHarness(nodes, pods, profile=profile_of(NAME, args), plugins=[NetworkOverhead])
    for obj in objects:
        found.cluster.catalog(type(obj)).put(obj)
    return found


PLACED = [member("p1", "n-2"), member("p2", "n-5"), member("p3", "n-1")]


@pytest.mark.parametrize(
    ("workload", "expected"),
    [
        ("p1", [0, 0, 0, 0, 100, 95, 50, 50]),
        ("p2", [100, 95, 75, 75, 0, 0, 0, 0]),
        ("p3", [0] * 8),
        ("other", [0] * 8),
    ],
)
def test_scores(workload: str, expected: list[int]) -> None:
    found = harness(PLACED, group(BASIC), topology())
    assert list(found.scores(member(workload), NAME).values()) == expected


@pytest.mark.parametrize(
    ("workload", "feasible"),
    [
        ("p1", {"n-5", "n-6"}),  # p2 is on n-5
        ("p2", {"n-7", "n-8"}),  # p3 is on n-8
        ("p3", {f"n-{number}" for number in range(1, 9)}),
    ],
)
def test_nodes_that_are_too_far_are_rejected(workload: str, feasible: set[str]) -> None:
    pods = [member("p1", "n-2"), member("p2", "n-5"), member("p3", "n-8")]
    found = harness(pods, group(BASIC, most=0), topology())
    assert found.feasible(member(workload)) == feasible


@pytest.mark.parametrize(
    ("objects", "args"),
    [
        ([], {}),
        ([topology()], {}),
        ([group(BASIC, most=0), topology()], {"namespaces": ["elsewhere"]}),
        ([group(BASIC, most=0), topology(name="other")], {}),
        ([group(BASIC, most=0), topology("Measured")], {}),
    ],
)
def test_without_group_or_costs_no_node_is_rejected(objects: list[Any], args: dict[str, Any]) -> None:
    assert len(harness(PLACED, *objects, **args).feasible(member("p1"))) == 8


def test_args_name_the_topology_and_its_weights() -> None:
    args: dict[str, Any] = {
        "networkTopologyName": "nt-test",
        "weightsName": "Measured",
        "namespaces": ["elsewhere", "default"],
    }
    found = harness(PLACED, group(BASIC, most=0), topology("Measured", "nt-test"), **args)
    assert found.feasible(member("p1")) == {"n-5", "n-6"}


def expected_costs(pods: list[Pod], nodes: dict[str, tuple[str, str]], others: list[str]) -> dict[str, int]:
    """The cost of each node, pod by pod."""
    costs = {}
    for name, (region, zone) in nodes.items():
        total = 0
        for other in others:
            for placed in pods:
                if placed.metadata.labels[WORKLOAD_LABEL] != other:
                    continue
                there = nodes[placed.spec.node_name]
                if placed.spec.node_name == name:
                    continue
                if there == ("", ""):
                    total += 100
                elif there == (region, zone):
                    total += 1
                elif there[0] == region:
                    total += ZONE_COSTS.get(zone, {}).get(there[1], 100)
                else:
                    total += REGION_COSTS.get(region, {}).get(there[0], 100)
        costs[name] = total
    return costs


@pytest.mark.parametrize("seed", range(12))
def test_costs_are_sums_over_pods(seed: int) -> None:
    random = Random(seed)
    places = [*PLACES, ("", ""), ("us-west-1", ""), ("", "Z9"), ("eu-1", "Z1")]
    nodes = {f"n-{number}": random.choice(places) for number in range(12)}
    pods = [member(random.choice(["a", "b", "c"]), random.choice(list(nodes)), f"p{i}") for i in range(30)]
    others = random.choices(["a", "b"], k=3)
    found = harness(
        pods,
        group({"new": others}, most=1000),
        topology(),
        nodes=[located(name, *place) for name, place in nodes.items()],
    )
    costs = expected_costs(pods, nodes, others)
    lowest, highest = min(costs.values()), max(costs.values())
    scores = found.scores(member("new"), NAME)
    assert scores
    feasible = {name: cost for name, cost in costs.items() if name in scores}
    lowest, highest = min(feasible.values()), max(feasible.values())
    if highest > lowest:
        for name, cost in feasible.items():
            assert scores[name] == 100 - int(100 * (cost - lowest) / (highest - lowest))


def test_a_rejected_pod_is_tried_again_when_a_pod_is_placed_nearer() -> None:
    async def scenario(running: Any) -> None:
        running.cluster.put(member("p1"))
        await running.advance(20)
        assert running.node_of("p1-new") == ""
        running.cluster.put(member("p2", "n-1", "near"))
        await running.advance(20)
        assert running.node_of("p1-new") == "n-1"

    profiles = [{"schedulerName": "default-scheduler", **profile_of(NAME)}]
    far = member("p2", "gone-far", "far")
    nodes = [located("n-1", "us-west-1", "Z1"), located("gone-far", "us-east-1", "Z3")]
    cordoned = node("gone-far", unschedulable=True, labels={REGION: "us-east-1", ZONE: "Z3"})
    objects = [nodes[0], cordoned, far, group(BASIC, most=0), topology()]
    in_virtual_time(scenario, *objects, plugins=[NetworkOverhead], profiles=profiles)


def test_the_contract_is_kept() -> None:
    nodes = [located("a", "us-west-1", "Z1"), located("b", "us-east-1", "Z3"), located("c", "", "")]
    pods = [member("p1"), member("p2"), member("p2", "a", "placed"), pod("other")]
    check_plugin(NetworkOverhead, nodes=nodes, pods=pods, objects=[group(BASIC, most=5), topology()])
