"""NodeResourceTopology: the NUMA zones of a node, and the topology manager of its kubelet.

Attributes take precedence over the deprecated ``topologyPolicies``. Values that are not known are ignored.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from kubestow.api.custom import CustomObject
from kubestow.api.formats.quantity import Quantity, millis, units
from kubestow.api.meta import APIObject
from kubestow.errors import InvalidQuantity

__all__ = ["MOST_ZONES", "Layout", "NodeResourceTopology", "amount", "read_available", "read_layout", "zone_number"]

#: NUMA zones have numbers below this one; others are ignored.
MOST_ZONES = 64
_UNKNOWN_DISTANCE = 255
_DEFAULT_MAX_ZONES, _LIMIT_OF_MAX_ZONES = 8, 1024

_SINGLE_ZONE = "single-numa-node"
_POLICIES = ("none", "best-effort", "restricted", _SINGLE_ZONE)
_SCOPES = ("container", "pod")
#: The deprecated policies, as policy and scope.
_DEPRECATED = {
    f"{name}{scope.capitalize()}Level": (policy, scope)
    for name, policy in (("SingleNUMANode", _SINGLE_ZONE), ("BestEffort", "best-effort"), ("Restricted", "restricted"))
    for scope in _SCOPES
}


class ZoneResource(APIObject, frozen=True):
    """``zones[].resources[]``."""

    name: str = ""
    available: Quantity = 0


class ZoneCost(APIObject, frozen=True):
    """``zones[].costs[]``: the distance to another zone."""

    name: str = ""
    value: int = 0


class Attribute(APIObject, frozen=True):
    """``attributes[]`` of a topology and of its zones."""

    name: str = ""
    value: str = ""


class Zone(APIObject, frozen=True):
    """``zones[]``."""

    name: str = ""
    type: str = ""
    resources: list[ZoneResource] = []
    costs: list[ZoneCost] = []
    attributes: list[Attribute] = []


class NodeResourceTopology(CustomObject, frozen=True):
    """The zones of the node of the same name."""

    resource: ClassVar[str] = "noderesourcetopologies.v1alpha2.topology.node.k8s.io"
    is_about_node: ClassVar[bool] = True
    topology_policies: list[str] = []
    attributes: list[Attribute] = []
    zones: list[Zone] = []


@dataclass(frozen=True, slots=True)
class Layout:
    """What nodes of one kind have in common: policy and scope of the topology manager, and the zones.

    ``zones`` are the numbers of the zones, ascending, and ``distances`` those between them, in this order.
    """

    policy: str
    scope: str
    max_zones: int
    zones: tuple[int, ...]
    distances: tuple[tuple[int, ...], ...]

    @property
    def needs_single_zone(self) -> bool:
        """Whether the kubelet rejects pods that do not get all from one zone."""
        return self.policy == _SINGLE_ZONE

    @property
    def aligns_pods(self) -> bool:
        """Whether the containers of a pod are aligned together, and not one by one."""
        return self.scope == "pod"


def read_layout(topology: NodeResourceTopology) -> Layout:
    """The layout of a node."""
    policy, scope, max_zones = "none", "container", _DEFAULT_MAX_ZONES
    if topology.topology_policies:
        policy, scope = _DEPRECATED.get(topology.topology_policies[0], (policy, scope))
    for attribute in topology.attributes:
        value = attribute.value
        if attribute.name == "topologyManagerPolicy" and value in _POLICIES:
            policy = value
        elif attribute.name == "topologyManagerScope" and value in _SCOPES:
            scope = value
        elif attribute.name == "topologyManagerMaxNUMANodes" and value.isascii() and value.isdigit() and int(value) > 1:
            max_zones = min(int(value), _LIMIT_OF_MAX_ZONES)
    zones = _numa_zones(topology)
    costs = {number: {zone_number(cost.name): cost.value for cost in zone.costs} for number, zone in zones.items()}
    distances = tuple(tuple(costs[a].get(b, _UNKNOWN_DISTANCE) for b in zones) for a in zones)
    return Layout(policy, scope, max_zones, tuple(zones), distances)


def read_available(topology: NodeResourceTopology) -> Mapping[str, Mapping[int, int]]:
    """What is available of each resource in each zone that lists it: millicores of CPU, bytes, or counts."""
    available: dict[str, dict[int, int]] = {}
    for number, zone in _numa_zones(topology).items():
        for resource in zone.resources:
            available.setdefault(resource.name, {})[number] = max(0, amount(resource.name, resource.available))
    return available


def amount(resource: str, quantity: Quantity) -> int:
    """A quantity in millicores, bytes or counts; 0 if it is malformed."""
    try:
        return millis(quantity) if resource == "cpu" else units(quantity)
    except InvalidQuantity:
        return 0


def _numa_zones(topology: NodeResourceTopology) -> dict[int, Zone]:
    """The NUMA zones by number, ascending; of several with one number, the last."""
    found = {zone_number(zone.name): zone for zone in topology.zones if zone.type == "Node"}
    return {number: zone for number, zone in sorted(found.items()) if 0 <= number < MOST_ZONES}


def zone_number(name: str) -> int:
    """The number of a zone, -1 if the name is not that of a NUMA zone."""
    prefix, _, number = name.rpartition("-")
    return int(number) if prefix == "node" and number.isascii() and number.isdigit() else -1
