"""Extended resources backed by devices: ``example.com/gpu: 2`` in a container, without a claim (semantics 8.16).

A device class can map its devices to an extended resource. On nodes that do not offer the resource themselves, the
scheduler builds a claim that requests devices instead: in memory in Filter, in the API in PreBind.

For the resource scorers the devices on a node, and the allocated ones, are counted instead. As in kube-scheduler
(semantics 8.8), devices of all published slices count, whether or not their pool is complete; a
slice with an unknown kind of node selection counts on all nodes; a class whose selectors fail has no devices.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kubestow.api.core import Container, ContainerExtendedResourceRequest, Node
from kubestow.api.formats.names import is_extended_resource
from kubestow.api.formats.quantity import NANOS, nanos
from kubestow.api.meta import ObjectMeta, OwnerReference
from kubestow.api.resource import (
    EXTENDED_RESOURCE_CLAIM,
    DeviceClaim,
    DeviceClass,
    DeviceRequest,
    ExactDeviceRequest,
    ResourceClaim,
    ResourceClaimSpec,
    ResourceSlice,
)
from kubestow.cluster.changes.catalog import Catalog
from kubestow.cluster.nodes.views import NodeRows, Nodes
from kubestow.cluster.pods.shapes import PodInfo
from kubestow.framework.interface import Handle
from kubestow.plugins.dynamic_resources.cel import SelectorCache, SelectorError
from kubestow.plugins.dynamic_resources.pools import NodeSelectionError, PooledDevice, PublishedSlices
from kubestow.rules.minors import Behaviour
from kubestow.rules.requests import Amounts

Int64s = NDArray[np.int64]


IN_MEMORY_CLAIM_NAME = "<extended-resources>"
"""The name of an extended resource claim that is not in the API yet; not a valid name in the API."""

DEVICE_CLASS_PREFIX = "deviceclass.resource.kubernetes.io/"
"""The prefix of the implicit extended resource of each device class; the class name follows."""


def is_dra_extended_resource_name(resource: str) -> bool:
    """Whether a device class can map devices to a resource of this name."""
    return is_extended_resource(resource) or resource.startswith(DEVICE_CLASS_PREFIX)


@dataclass(frozen=True, slots=True)
class ExtendedResourceClaim:
    """The claim of a pod for some of its extended resources, and the request for each container and resource."""

    claim: ResourceClaim
    mappings: tuple[ContainerExtendedResourceRequest, ...] = ()


class ExtendedResources:
    """The extended resources that device classes map to their devices."""

    def __init__(self, classes: Catalog[DeviceClass]) -> None:
        self._classes = classes
        self._version = -1
        self._by_resource: dict[str, DeviceClass] = {}

    def device_class(self, resource: str) -> DeviceClass | None:
        """The class of a resource: of several, the newest, then the first by name."""
        return self._current().get(resource)

    @property
    def names(self) -> Collection[str]:
        """The resources that have a device class."""
        return self._current().keys()

    def is_requested(self, requests: Amounts) -> bool:
        """Whether any requested resource has a device class."""
        classes = self._current()
        return bool(classes) and any(amount and name in classes for name, amount in requests.items())

    def _current(self) -> dict[str, DeviceClass]:
        """The classes by resource, as they are now."""
        if self._version != self._classes.version:
            by_name = sorted(self._classes, key=lambda each: each.metadata.name, reverse=True)
            self._by_resource = {}
            for device_class in sorted(by_name, key=lambda each: each.metadata.creation_timestamp or ""):
                if device_class.spec.extended_resource_name:
                    self._by_resource[device_class.spec.extended_resource_name] = device_class
                self._by_resource[DEVICE_CLASS_PREFIX + device_class.metadata.name] = device_class
            self._version = self._classes.version
        return self._by_resource

    def in_memory_claim(self, pod: PodInfo) -> ResourceClaim:
        """A claim without requests that the pod owns and that is not in the API."""
        owner = OwnerReference(api_version="v1", kind="Pod", name=pod.name, uid=pod.uid, controller=True)
        return ResourceClaim(
            metadata=ObjectMeta(
                name=IN_MEMORY_CLAIM_NAME,
                namespace=pod.namespace,
                uid=f"extended-resources-of-{pod.uid}",
                annotations={EXTENDED_RESOURCE_CLAIM: "true"},
                owner_references=[owner],
            )
        )

    def backed_by_devices(self, nodes: Nodes, pod: PodInfo) -> tuple[NDArray[np.intp], list[tuple[str, ...] | None]]:
        """The requested resources that need devices because a node does not offer them, sorted.

        Nodes have a number (intp) that says which entry of the list is theirs. An entry is None where the node does not
        offer a resource that has no device class either.
        """
        numbers = np.zeros(len(nodes), np.intp)
        for name, amount in pod.shape.requests.items():
            if not amount or not is_dra_extended_resource_name(name):
                continue
            lacking = nodes.allocatable(name) == 0
            if self.device_class(name) is None:  # what is listed as 0 is offered
                for position in np.flatnonzero(lacking).tolist():
                    lacking[position] = name not in nodes.node(position).status.allocatable
            numbers = np.unique(2 * numbers + lacking, return_inverse=True)[1]
        firsts = np.unique(numbers, return_index=True)[1].tolist()
        return numbers, [self._backed_on(nodes.node(first), pod) for first in firsts]

    def _backed_on(self, node: Node, pod: PodInfo) -> tuple[str, ...] | None:
        resources = []
        for name, amount in sorted(pod.shape.requests.items()):
            if not amount or not is_dra_extended_resource_name(name):
                continue
            allocatable = node.status.allocatable.get(name)
            if self.device_class(name) is not None and not (allocatable is not None and nanos(allocatable)):
                resources.append(name)
            elif allocatable is None:
                return None
        return tuple(resources)

    def with_requests(self, claim: ResourceClaim, pod: PodInfo, resources: Iterable[str]) -> ExtendedResourceClaim:
        """The pod's claim with device requests for some of its resources."""
        requests: list[DeviceRequest] = []
        mappings: list[ContainerExtendedResourceRequest] = []
        for resource in resources:
            device_class = self.device_class(resource)
            assert device_class is not None
            of_resource, mapped = self._device_requests(pod, resource, device_class.metadata.name)
            requests += of_resource
            mappings += mapped
        spec = ResourceClaimSpec(devices=DeviceClaim(requests=sorted(requests, key=lambda request: request.name)))
        with_requests = ResourceClaim(metadata=claim.metadata, spec=spec, status=claim.status)
        return ExtendedResourceClaim(with_requests, tuple(mappings))

    def _device_requests(self, pod: PodInfo, resource: str, class_name: str) -> _DeviceRequests:
        return _shared_requests(pod, resource, class_name)


class ExtendedResourcesOfContainers(ExtendedResources):
    """The extended resources before :attr:`Behaviour.EXTENDED_RESOURCES_ARE_SHARED_BY_CONTAINERS`."""

    def is_requested(self, requests: Amounts) -> bool:
        return super().is_requested({name: requests[name] for name in requests if is_extended_resource(name)})

    def _current(self) -> dict[str, DeviceClass]:
        if self._version != self._classes.version:
            by_name = sorted(self._classes, key=lambda each: each.metadata.name)
            self._by_resource = {
                each.spec.extended_resource_name or DEVICE_CLASS_PREFIX + each.metadata.name: each for each in by_name
            }
            self._version = self._classes.version
        return self._by_resource

    def backed_by_devices(self, nodes: Nodes, pod: PodInfo) -> tuple[NDArray[np.intp], list[tuple[str, ...] | None]]:
        """As in a current minor version, but a node that lists a resource offers it, 0 of it too.

        QUIRK: on a node that lacks one of the resources, and on every node for a pod with claims of its own, devices
        are requested for the resources that the node offers, too.
        """
        names = [name for name, amount in pod.shape.requests.items() if amount and is_extended_resource(name)]
        known = tuple(sorted(name for name in names if self.device_class(name) is not None))
        backed: dict[tuple[str, ...] | None, int] = {}
        numbers = np.empty(len(nodes), np.intp)
        for position in range(len(nodes)):
            lacking = [name for name in names if name not in nodes.node(position).status.allocatable]
            resources: tuple[str, ...] | None = known if lacking or pod.spec.resource_claims else ()
            if any(name not in known for name in lacking):
                resources = None
            numbers[position] = backed.setdefault(resources, len(backed))
        return numbers, list(backed)

    def _device_requests(self, pod: PodInfo, resource: str, class_name: str) -> _DeviceRequests:
        requests: list[DeviceRequest] = []
        mappings: list[ContainerExtendedResourceRequest] = []
        for index, container in enumerate([*pod.spec.init_containers, *pod.spec.containers]):
            request, names = _request(index, container, resource, class_name, ())
            mappings += [_mapping(container, resource, name) for name in names]
            requests += [request] if request is not None else []
        return requests, mappings


def extended_resources(classes: Catalog[DeviceClass], emulates: Callable[[Behaviour], bool]) -> ExtendedResources:
    """The extended resources of device classes, as a minor version has them."""
    is_shared = emulates(Behaviour.EXTENDED_RESOURCES_ARE_SHARED_BY_CONTAINERS)
    return ExtendedResources(classes) if is_shared else ExtendedResourcesOfContainers(classes)


# -- requests of containers ----------------------------------------------------------------------------------------


_DeviceRequests = tuple[list[DeviceRequest], list[ContainerExtendedResourceRequest]]


def _shared_requests(pod: PodInfo, resource: str, class_name: str) -> _DeviceRequests:
    """The device requests of all containers of a pod for one resource, and the mappings of containers to them.

    Containers and sidecars have requests of their own. An ordinary init container uses the requests of containers that
    start after it, and requests only the devices that are missing; of these requests only the largest is kept.
    """
    init_containers = pod.spec.init_containers
    containers = [*init_containers, *pod.spec.containers]
    ordinary = [i for i, container in enumerate(init_containers) if container.restart_policy != "Always"]
    long_running: dict[int, DeviceRequest] = {}
    mappings: list[ContainerExtendedResourceRequest] = []
    for index, container in enumerate(containers):
        if index not in ordinary:
            request, names = _request(index, container, resource, class_name, ())
            mappings += [_mapping(container, resource, name) for name in names]
            if request is not None:
                long_running[index] = request
    largest: DeviceRequest | None = None
    own_names: set[str] = set()
    used: list[tuple[Container, str]] = []
    for index in ordinary:
        usable = [request for later, request in long_running.items() if later >= index]
        request, names = _request(index, containers[index], resource, class_name, usable)
        used += [(containers[index], name) for name in names]
        if request is not None:
            own_names.add(request.name)
            if largest is None or _device_count(largest) < _device_count(request):
                largest = request
    for container, name in used:
        request_name = largest.name if largest is not None and name in own_names else name
        mappings.append(_mapping(container, resource, request_name))
    return [*([largest] if largest is not None else []), *long_running.values()], mappings


def _request(
    index: int, container: Container, resource: str, class_name: str, usable: Iterable[DeviceRequest]
) -> tuple[DeviceRequest | None, list[str]]:
    """The request of a container beyond those that it can use, and the names of all of them."""
    needed = nanos(container.resources.requests.get(resource, 0)) // NANOS
    if not needed:
        return None, []
    names, covered = [], 0
    for request in usable:
        covered += _device_count(request)
        names.append(request.name)
        if covered >= needed:
            return None, names
    name = f"container-{index}-request-{sorted(container.resources.requests).index(resource)}"
    exactly = ExactDeviceRequest(device_class_name=class_name, allocation_mode="ExactCount", count=needed - covered)
    return DeviceRequest(name=name, exactly=exactly), [*names, name]


def _mapping(container: Container, resource: str, request: str) -> ContainerExtendedResourceRequest:
    return ContainerExtendedResourceRequest(container_name=container.name, resource_name=resource, request_name=request)


def _device_count(request: DeviceRequest) -> int:
    return request.exactly.count if request.exactly is not None else 0


# -- devices for the resource scorers ------------------------------------------------------------------------------


class DeviceCounts:
    """Counts the devices that back extended resources."""

    def __init__(self, handle: Handle) -> None:
        self._cluster = handle.cluster
        self._enabled = handle.feature_enabled("DRAExtendedResource")
        self._extended_resources = extended_resources(handle.cluster.catalog(DeviceClass), handle.emulates)
        self._slices = PublishedSlices(handle.cluster.catalog(ResourceSlice), partitionable_devices=True)
        self._selectors = SelectorCache(multiple_allocations=handle.feature_enabled("DRAConsumableCapacity"))

    def is_backed(self, resource: str) -> bool:
        """Whether devices back a resource on nodes that do not offer it themselves."""
        return self._enabled and self._extended_resources.device_class(resource) is not None

    @property
    def backed_resources(self) -> Collection[str]:
        """The resources that devices back on nodes that do not offer them themselves."""
        return self._extended_resources.names if self._enabled else ()

    def usage(self, resource: str, nodes: Nodes) -> tuple[Int64s, Int64s]:
        """Capacity and use of a resource per node, two int64 arrays; in devices where they back the resource."""
        capacity, used = nodes.allocatable(resource), nodes.requested(resource)
        device_class = self._extended_resources.device_class(resource) if self._enabled else None
        if device_class is None or capacity.all():
            return capacity, used
        devices, allocated = self._count_on_nodes(device_class, nodes)
        is_backed = (capacity == 0) & (devices > 0)
        return np.where(is_backed, devices, capacity), np.where(is_backed, allocated, used)

    def usage_of_rows(self, resource: str, nodes: NodeRows) -> tuple[Sequence[int], Sequence[int]]:
        """The same for a few nodes."""
        if all(nodes.allocatable(resource)) or not self.is_backed(resource):
            return nodes.allocatable(resource), nodes.requested(resource)
        capacities, used = self.usage(resource, nodes.as_nodes())
        return capacities.tolist(), used.tolist()

    def _count_on_nodes(self, device_class: DeviceClass, nodes: Nodes) -> Int64s:
        """The devices of a class on each node and how many of them are allocated, int64 of shape (2, nodes)."""
        self._slices.refresh()
        counts = np.zeros((2, len(nodes)), np.int64)
        try:
            for position, name in enumerate(nodes.names):
                for published in self._slices.node_local.get(name, ()):
                    counts[:, position] += self._count(device_class, published.devices)
            for published in self._slices.multi_node:
                masks = list(published.node_masks(nodes))
                groups: Sequence[Sequence[PooledDevice]] = [published.devices]
                if published.per_device_node_selection:
                    groups = [(device,) for device in published.devices]
                elif not masks:
                    masks = [np.ones(len(nodes), np.bool_)]
                for devices, mask in zip(groups, masks, strict=False):
                    counts += np.outer(self._count(device_class, devices), mask)
        except (SelectorError, NodeSelectionError):
            counts[:] = 0
        return counts

    def _count(self, device_class: DeviceClass, devices: Sequence[PooledDevice]) -> Int64s:
        """The number of devices of a class and how many of them are allocated, int64 of shape (2,)."""
        tracker, subject = self._cluster.resource_claims, f"class {device_class.metadata.name}"
        matching = [d for d in devices if d.matches(device_class.spec.selectors, self._selectors, subject=subject)]
        allocated = sum(
            tracker.devices.is_allocated(device.id) or tracker.devices.is_shared(device.id) for device in matching
        )
        return np.array([len(matching), allocated], np.int64)
