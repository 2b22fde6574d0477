"""Builders of NodeResourceTopologies, of the nodes that they describe, and of pods."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kubestow.api.core import Node, Pod
from kubestow.api.formats.quantity import Quantity, nanos
from kubestow.api.meta import convert
from kubestow.testing import PluginHarness, node, pod
from kubestow_contrib.node_resource_topology.node_resource_topology_match import NodeResourceTopologyMatch
from kubestow_contrib.node_resource_topology.zones import NodeResourceTopology

NAME = NodeResourceTopologyMatch.name
NIC = "vendor.example.com/nic"

Resources = Mapping[str, Quantity]


def zone(number: int, available: Resources, distances: Mapping[int, int] | None = None) -> dict[str, Any]:
    """A NUMA zone."""
    resources = [{"name": name, "capacity": 100, "available": amount} for name, amount in available.items()]
    costs = [{"name": f"node-{other}", "value": value} for other, value in (distances or {}).items()]
    return {"name": f"node-{number}", "type": "Node", "resources": resources, "costs": costs}


def topology(
    name: str,
    zones: Sequence[dict[str, Any]],
    policy: str = "",
    attributes: Mapping[str, str] | None = None,
    version: int = 1,
) -> NodeResourceTopology:
    """The topology of a node, by default without policy."""
    return convert(
        NodeResourceTopology,
        {
            "metadata": {"name": name, "resourceVersion": str(version)},
            "topologyPolicies": [policy] if policy else [],
            "attributes": [{"name": key, "value": value} for key, value in (attributes or {}).items()],
            "zones": list(zones),
        },
    )


def node_of(described: NodeResourceTopology, more: Resources | None = None) -> Node:
    """A node that has what its zones have together, and maybe more."""
    allocatable: dict[str, int | str] = {"pods": "110"}
    for each in described.zones:
        for resource in each.resources:
            before = nanos(allocatable.get(resource.name, 0))
            allocatable[resource.name] = f"{before + nanos(resource.available)}n"
    return node(described.metadata.name, status={"allocatable": allocatable | dict(more or {})})


def harness(
    *topologies: NodeResourceTopology, args: Mapping[str, Any] | None = None, more: Resources | None = None
) -> PluginHarness:
    """A harness with these nodes and their topologies."""
    alone = {"enabled": [{"name": NAME}], "disabled": [{"name": "*"}]}
    profile = {
        "plugins": {"preFilter": alone, "filter": alone, "preScore": {"disabled": [{"name": "*"}]}, "score": alone},
        "pluginConfig": [] if args is None else [{"name": NAME, "args": args}],
    }
    nodes = [node_of(each, more) for each in topologies]
    found = PluginHarness(nodes, profile=profile, plugins=[NodeResourceTopologyMatch])
    for each in topologies:
        found.cluster.catalog(NodeResourceTopology).put(each)
    return found


def requesting(*containers: Resources, limits: bool = False, init: Sequence[dict[str, Any]] = ()) -> Pod:
    """A pod whose containers request these amounts."""
    listed = []
    for number, requests in enumerate(containers):
        resources = {"requests": dict(requests)} | ({"limits": dict(requests)} if limits else {})
        listed.append({"name": f"c{number}", "resources": resources})
    return pod("p", spec={"containers": listed, "initContainers": list(init)})


def guaranteed(*containers: Resources, init: Sequence[dict[str, Any]] = ()) -> Pod:
    """A pod with limits as high as its requests."""
    return requesting(*containers, limits=True, init=init)
