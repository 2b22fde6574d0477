"""What pods request, as the kubelet's topology manager counts it, and which nodes have a zone for it."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from kubestow.api.formats.quantity import Quantity
from kubestow.cluster.nodes.views import Nodes
from kubestow.cluster.pods.shapes import Shape
from kubestow.rules.pods import QOSClass, qos_class
from kubestow_contrib.node_load.usage import amount_of
from kubestow_contrib.node_resource_topology.zones import ABSENT, Available

Amounts = Mapping[str, int]
"""Millicores of CPU, bytes, or counts, by resource."""


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
        init = tuple(
            ContainerRequests(
                "sidecar" if each.restart_policy == "Always" else "init", _amounts(each.resources.requests)
            )
            for each in spec.init_containers
        )
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


def _amounts(quantities: Mapping[str, Quantity]) -> dict[str, int]:
    return {name: amount_of(name, quantity) for name, quantity in sorted(quantities.items())}


#: Keys of what cannot be aligned; 0 if all can.
POD, CONTAINER, _INIT, _SIDECAR = 1, 2, 3, 4
CONTAINER_KINDS = {"": CONTAINER, "init": _INIT, "sidecar": _SIDECAR}

Mask = NDArray[np.bool_]


def unaligned_pods(pod: PodRequests, nodes: Nodes, available: Available) -> NDArray[np.int32]:
    """POD where no zone can run the pod as a whole, int32 per node."""
    fits = _fitting_zones(pod, pod.together, nodes, available).any(axis=0)
    return np.where(fits, 0, POD).astype(np.int32)


def unaligned_containers(pod: PodRequests, nodes: Nodes, available: Available) -> NDArray[np.int32]:
    """The kind of the first container that no zone can run, int32 per node. Changes what is available."""
    keys = np.zeros(len(nodes), np.int32)
    for kind, requests in pod.containers:
        zones = _fitting_zones(pod, requests, nodes, available)
        keys[(keys == 0) & ~zones.any(axis=0)] = CONTAINER_KINDS[kind]
        if not kind:
            lowest = zones.argmax(axis=0)
            for name, request in requests.items():
                if request and pod.needs_zone(name):
                    available.subtract(name, lowest, request)
    return keys


def _fitting_zones(pod: PodRequests, requests: Amounts, nodes: Nodes, available: Available) -> Mask:
    """Which zones have all that is requested, bool (zones, nodes)."""
    fitting = np.ones(available.shape, np.bool_)
    for name, request in requests.items():
        if not request:
            continue
        there = available.of(name)
        zones = there >= request if pod.needs_zone(name) else there != ABSENT
        if is_at_node_level(name):
            zones = zones | ~(there != ABSENT).any(axis=0)
        if not is_native(name):
            zones = zones & (nodes.allocatable(name) > 0)
        fitting &= zones
    return fitting
