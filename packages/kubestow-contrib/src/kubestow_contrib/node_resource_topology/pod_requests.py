"""What a pod requests, as the topology manager of a kubelet counts it."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Mapping
from typing import NamedTuple

from kubestow.api.core import Container
from kubestow.api.formats.quantity import Quantity
from kubestow.cluster.pods.shapes import Shape
from kubestow.rules.pods import QOSClass, qos_class
from kubestow_contrib.node_resource_topology.topologies import amount

__all__ = [
    "Amounts",
    "ContainerRequests",
    "PodRequests",
    "is_at_node_level",
    "is_exclusive",
    "is_in_zones",
    "is_native",
]

Amounts = Mapping[str, int]
"""Millicores of CPU, bytes, or counts, by resource."""

_ALWAYS = "Always"


class ContainerRequests(NamedTuple):
    """The requests of a container; ``kind`` is ``init``, ``sidecar``, or "" for an app container."""

    kind: str
    amounts: Amounts


class PodRequests(NamedTuple):
    """The requests of a pod: of its containers in order, init containers first, and of all together.

    ``is_aligned`` says whether the kubelet may reject it at all.
    """

    containers: tuple[ContainerRequests, ...]
    together: Amounts
    is_guaranteed: bool
    is_aligned: bool

    @classmethod
    def of(cls, shape: Shape) -> PodRequests:
        """The requests of a shape."""
        spec = shape.spec
        init = tuple(ContainerRequests(_kind(each), _amounts(each.resources.requests)) for each in spec.init_containers)
        apps = tuple(ContainerRequests("", _amounts(each.resources.requests)) for each in spec.containers)
        together: dict[str, int] = {}
        for container in apps:
            for name, request in container.amounts.items():
                together[name] = together.get(name, 0) + request
        for container in init:
            for name, request in container.amounts.items():
                together[name] = max(together.get(name, 0), request)
        for name, overhead in _amounts(spec.overhead).items():
            together[name] = together.get(name, 0) + overhead
        quality = qos_class(spec)
        requests_devices = any(not is_native(name) for each in (*init, *apps) for name in each.amounts)
        is_aligned = quality is not QOSClass.BEST_EFFORT or requests_devices
        return cls((*init, *apps), together, quality is QOSClass.GUARANTEED, is_aligned)

    def signature(self) -> Hashable:
        """The same as a hashable value."""
        containers = tuple((kind, tuple(amounts.items())) for kind, amounts in self.containers)
        return containers, tuple(self.together.items()), self.is_guaranteed, self.is_aligned

    def needs_zone(self, resource: str) -> bool:
        """Whether a zone must have what is requested; CPU and memory are exclusive for Guaranteed pods only."""
        return self.is_guaranteed or not is_in_zones(resource)


def is_native(resource: str) -> bool:
    """Whether a resource is one of Kubernetes' own."""
    return "/" not in resource or "kubernetes.io/" in resource


def is_exclusive(resource: str, amount: int, listed: Collection[str], *, is_guaranteed: bool) -> bool:
    """Whether a container has so much of a resource for itself as long as it runs.

    Devices if zones list them (``listed``); of a Guaranteed pod whole CPUs, memory and huge pages.
    """
    if not is_native(resource):
        return resource in listed
    if resource == "cpu":
        return is_guaranteed and amount > 0 and amount % 1000 == 0
    return is_guaranteed and amount > 0 and is_in_zones(resource)


def is_in_zones(resource: str) -> bool:
    """Whether a resource always belongs to a NUMA zone."""
    return resource in ("cpu", "memory") or resource.startswith("hugepages-")


def is_at_node_level(resource: str) -> bool:
    """Whether a resource may belong to no zone, such as storage, and devices of any place."""
    return resource in ("storage", "ephemeral-storage") or not is_native(resource)


def _kind(init_container: Container) -> str:
    return "sidecar" if init_container.restart_policy == _ALWAYS else "init"


def _amounts(quantities: Mapping[str, Quantity]) -> dict[str, int]:
    return {name: amount(name, quantity) for name, quantity in sorted(quantities.items())}
