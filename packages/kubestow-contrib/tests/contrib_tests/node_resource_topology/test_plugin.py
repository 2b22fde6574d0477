"""NodeResourceTopologyMatch in a scheduler: args, events, reservations, and the contract of plugins."""

from __future__ import annotations

from typing import Any

import pytest

from contrib_tests.node_resource_topology.topologies import (
    NAME,
    NIC,
    guaranteed,
    harness,
    node_of,
    requesting,
    topology,
    zone,
)
from contrib_tests.watched_nodes import profile_of
from kubestow.errors import ConfigurationError
from kubestow.framework.cycle_state import CycleState
from kubestow.testing import check_plugin, in_virtual_time, node, pod
from kubestow_contrib.node_resource_topology.node_resource_topology_match import NodeResourceTopologyMatch
from kubestow_contrib.node_resource_topology.zones import NodeResourceTopology

SMALL = guaranteed({"cpu": 1, "memory": "1Gi"})


def one_zone(cpu: int, version: int = 1, name: str = "n") -> NodeResourceTopology:
    return topology(name, [zone(0, {"cpu": cpu, "memory": "8Gi"})], "SingleNUMANodePodLevel", version=version)


@pytest.mark.parametrize(
    ("args", "problem"),
    [
        ({"scoringStrategy": {"type": "Most"}}, "invalid enum value 'Most'"),
        ({"scoringStrategy": {}}, "missing required field `type`"),
        ({"cache": {"resyncMethod": "Sometimes"}}, "invalid enum value 'Sometimes'"),
        ({"preemptionMode": "On"}, "invalid enum value 'On'"),
        ({"discardReserved": True}, "discardReserved"),
    ],
)
def test_bad_args_are_rejected(args: dict[str, Any], problem: str) -> None:
    with pytest.raises(ConfigurationError, match=problem):
        harness(args=args)


def test_a_rejected_pod_is_tried_again_when_its_zone_has_room() -> None:
    async def scenario(running: Any) -> None:
        running.cluster.put(SMALL)
        await running.advance(20)
        assert "cannot align pod" in running.cluster.condition("p").message
        running.cluster.put(one_zone(4))
        await running.advance(2)
        assert running.node_of("p") == "n"

    profiles = [{"schedulerName": "default-scheduler", **profile_of(NAME)}]
    in_virtual_time(scenario, node("n"), one_zone(0), plugins=[NodeResourceTopologyMatch], profiles=profiles)


def test_a_topology_may_be_reported_before_its_node_is_there() -> None:
    found = harness()
    found.cluster.catalog(NodeResourceTopology).put(one_zone(0))
    found.cluster.add_node(node_of(one_zone(4)))
    assert found.feasible(SMALL) == set()
    found.cluster.remove_node("n")
    found.cluster.catalog(NodeResourceTopology).remove("", "n")
    found.cluster.add_node(node_of(one_zone(4)))
    assert found.feasible(SMALL) == {"n"}


def test_a_node_is_rejected_while_a_pod_is_placed_on_it() -> None:
    found = harness(one_zone(4), one_zone(4, name="other"), args={"discardReservedNodes": True})
    plugins = found.profiles["default-scheduler"].plugins
    (plugin,) = (each for each in plugins if isinstance(each, NodeResourceTopologyMatch))
    state, placed = CycleState(), found.info(guaranteed({"cpu": 1, "memory": "1Gi"}))
    assert found.feasible(SMALL) == {"n", "other"}
    found.cluster.assume(placed, "n")
    plugin.reserve(state, placed, "n")
    assert found.rejections(SMALL) == {"n": (NAME, ("invalid node topology data",))}
    plugin.post_bind(state, placed, "n")
    assert found.feasible(SMALL) == {"n", "other"}
    plugin.reserve(state, placed, "n")
    plugin.unreserve(state, placed, "n")
    found.cluster.forget(placed.uid)
    assert found.feasible(SMALL) == {"n", "other"}


@pytest.mark.parametrize(
    "cache", [{"discardReservedNodes": True}, {"cacheResyncPeriodSeconds": 5, "preemptionMode": "Enabled"}], ids=str
)
@pytest.mark.parametrize("strategy", ["LeastAllocated", "MostAllocated", "BalancedAllocation", "LeastNUMANodes"])
def test_the_contract_is_kept(strategy: str, cache: dict[str, Any]) -> None:
    policies = ["SingleNUMANodePodLevel", "SingleNUMANodeContainerLevel", "BestEffortPodLevel", ""]
    topologies = [
        topology(
            name,
            [zone(0, {"cpu": version, "memory": "4Gi", NIC: 2}), zone(1, {"cpu": 4, "memory": "2Gi"})],
            policies[(version + number) % 4],
            version=version,
        )
        for number, name in enumerate("abc")
        for version in range(1, 4)
    ]
    nodes = [node(name, cpu="16", memory="32Gi", allocatable={NIC: "2"}) for name in "abcd"]
    pods = [
        SMALL,
        guaranteed({"cpu": 3, "memory": "1Gi"}, {"cpu": 2, "memory": "1Gi"}),
        requesting({NIC: 2}),
        pod("none"),
    ]
    args = {"scoringStrategy": {"type": strategy}, **cache}
    check_plugin(NodeResourceTopologyMatch, args=args, nodes=nodes, pods=pods, objects=topologies)
