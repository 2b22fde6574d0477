"""Extended resources that devices stand for: ``example.com/gpu: 2`` in a container, without any claim (semantics 8.16).

A device class can say that its devices are such a resource. Where a node does not offer the resource itself, a claim is
made for the pod that asks for devices instead: in memory while a node is looked for, in the API once it is found.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from kubestow.api.core import Container, ContainerExtendedResourceRequest, Node
from kubestow.api.meta import ObjectMeta, OwnerReference
from kubestow.api.names import is_extended_resource
from kubestow.api.quantity import NANOS, nanos
from kubestow.api.resource import (
    EXTENDED_RESOURCE_CLAIM,
    DeviceClaim,
    DeviceClass,
    DeviceRequest,
    ExactDeviceRequest,
    ResourceClaim,
    ResourceClaimSpec,
)
from kubestow.cluster.catalog import Catalog
from kubestow.cluster.pods.requests import Amounts
from kubestow.cluster.pods.shapes import PodInfo

__all__ = ["IMPLICIT_PREFIX", "IN_MEMORY", "ExtendedResources", "NodeClaim", "is_backed_by_name"]

IN_MEMORY = "<extended-resources>"
"""The name of a claim that has not been created yet; no claim in the API can be called so."""

IMPLICIT_PREFIX = "deviceclass.resource.kubernetes.io/"
"""With a class's name behind it, this is the resource that any class stands for."""


def is_backed_by_name(resource: str) -> bool:
    """Whether a resource could be one that devices stand for."""
    return is_extended_resource(resource) or resource.startswith(IMPLICIT_PREFIX)


@dataclass(frozen=True, slots=True)
class NodeClaim:
    """The claim that a pod needs on some nodes, and which container's resource each request is for."""

    claim: ResourceClaim
    mappings: tuple[ContainerExtendedResourceRequest, ...] = ()


class ExtendedResources:
    """Which device class stands for which extended resource."""

    def __init__(self, classes: Catalog[DeviceClass]) -> None:
        self._classes = classes
        self._version = -1
        self._by_name: dict[str, DeviceClass] = {}

    def device_class(self, resource: str) -> DeviceClass | None:
        """The class whose devices are a resource. Of several that claim a name the newest, then the first by name."""
        if self._version != self._classes.version:
            self._by_name = _by_name(self._classes)
            self._version = self._classes.version
        return self._by_name.get(resource)

    def requested(self, requests: Amounts) -> list[str]:
        """The requested resources that devices could stand for, on nodes that do not offer them, sorted."""
        return sorted(name for name, amount in requests.items() if amount and self.device_class(name) is not None)

    def claim_for(self, pod: PodInfo) -> ResourceClaim:
        """An empty claim in memory, owned by the pod."""
        return ResourceClaim(
            metadata=ObjectMeta(
                name=IN_MEMORY,
                namespace=pod.namespace,
                uid=f"extended-resources-of-{pod.uid}",
                annotations={EXTENDED_RESOURCE_CLAIM: "true"},
                owner_references=[
                    OwnerReference(api_version="v1", kind="Pod", name=pod.name, uid=pod.uid, controller=True)
                ],
            )
        )

    def needed_on(self, node: Node, pod: PodInfo) -> tuple[str, ...] | None:
        """The resources that a node has as devices only, sorted; None when it cannot have one of them at all."""
        needed = []
        for name, amount in sorted(pod.shape.requests.items()):
            if not amount or not is_backed_by_name(name):
                continue
            offered = node.status.allocatable.get(name)
            if self.device_class(name) is not None and not (offered is not None and nanos(offered)):
                needed.append(name)
            elif offered is None:
                return None
        return tuple(needed)

    def with_requests(self, claim: ResourceClaim, pod: PodInfo, resources: Iterable[str]) -> NodeClaim:
        """The pod's claim, asking for some of its resources."""
        requests, mappings = self._requests(pod, resources)
        spec = ResourceClaimSpec(devices=DeviceClaim(requests=requests))
        return NodeClaim(ResourceClaim(metadata=claim.metadata, spec=spec, status=claim.status), mappings)

    def _requests(
        self, pod: PodInfo, resources: Iterable[str]
    ) -> tuple[list[DeviceRequest], tuple[ContainerExtendedResourceRequest, ...]]:
        requests: list[DeviceRequest] = []
        mappings: list[ContainerExtendedResourceRequest] = []
        for resource in resources:
            device_class = self.device_class(resource)
            assert device_class is not None
            sharing = _Sharing(pod, resource, device_class.metadata.name)
            requests += sharing.requests
            mappings += sharing.mappings
        return sorted(requests, key=lambda request: request.name), tuple(mappings)


def _by_name(classes: Iterable[DeviceClass]) -> dict[str, DeviceClass]:
    by_name: dict[str, DeviceClass] = {}
    oldest_first = sorted(classes, key=lambda c: c.metadata.name, reverse=True)
    for device_class in sorted(oldest_first, key=lambda c: c.metadata.creation_timestamp or ""):
        if device_class.spec.extended_resource_name:
            by_name[device_class.spec.extended_resource_name] = device_class
        by_name[IMPLICIT_PREFIX + device_class.metadata.name] = device_class
    return by_name


@dataclass(slots=True)
class _Sharing:
    """The requests of all containers for one resource.

    Containers that run beside each other have requests of their own. An init container that ends before others start
    uses theirs, and adds a request for what it needs beyond them; of those only the largest is kept.
    """

    pod: PodInfo
    resource: str
    class_name: str
    requests: list[DeviceRequest] = field(default_factory=list)
    mappings: list[ContainerExtendedResourceRequest] = field(default_factory=list)

    def __post_init__(self) -> None:
        init, regular = self.pod.spec.init_containers, self.pod.spec.containers
        containers = [*init, *regular]
        passing = [number for number, container in enumerate(init) if container.restart_policy != "Always"]
        lasting: dict[int, DeviceRequest] = {}
        for number, container in enumerate(containers):
            if number not in passing:
                request, mappings = self._request(number, container, ())
                self.mappings += mappings
                if request is not None:
                    lasting[number] = request
        largest, before = self._passing(containers, passing, lasting)
        self.requests = [*([largest] if largest is not None else []), *lasting.values()]
        self.mappings += before

    def _passing(
        self, containers: Sequence[Container], passing: Sequence[int], lasting: Mapping[int, DeviceRequest]
    ) -> tuple[DeviceRequest | None, list[ContainerExtendedResourceRequest]]:
        largest: DeviceRequest | None = None
        names: set[str] = set()
        mappings: list[ContainerExtendedResourceRequest] = []
        for number in passing:
            usable = [request for later, request in lasting.items() if later >= number]
            request, mapped = self._request(number, containers[number], usable)
            mappings += mapped
            if request is not None:
                names.add(request.name)
                if largest is None or _count(largest) < _count(request):
                    largest = request
        if largest is None:
            return None, mappings
        name = largest.name
        return largest, [
            self._mapping(mapped.container_name, name if mapped.request_name in names else mapped.request_name)
            for mapped in mappings
        ]

    def _request(
        self, number: int, container: Container, usable: Iterable[DeviceRequest]
    ) -> tuple[DeviceRequest | None, list[ContainerExtendedResourceRequest]]:
        """What a container asks for beyond the requests that it may use, and all it uses."""
        names = sorted(container.resources.requests)
        wanted = nanos(container.resources.requests.get(self.resource, 0)) // NANOS
        if not wanted:
            return None, []
        mappings, found = [], 0
        for request in usable:
            found += _count(request)
            mappings.append(self._mapping(container.name, request.name))
            if found >= wanted:
                return None, mappings
        name = f"container-{number}-request-{names.index(self.resource)}"
        exactly = ExactDeviceRequest(
            device_class_name=self.class_name, allocation_mode="ExactCount", count=wanted - found
        )
        return DeviceRequest(name=name, exactly=exactly), [*mappings, self._mapping(container.name, name)]

    def _mapping(self, container: str, request: str) -> ContainerExtendedResourceRequest:
        return ContainerExtendedResourceRequest(
            container_name=container, resource_name=self.resource, request_name=request
        )


def _count(request: DeviceRequest) -> int:
    return request.exactly.count if request.exactly is not None else 0
