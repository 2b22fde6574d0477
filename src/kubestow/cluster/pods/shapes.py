"""Pods with what scheduling derives from them.

Most pods of a cluster are copies of each other. What is derived from a pod (requests, host ports, parsed selectors)
depends only on its :class:`Shape`: namespace, labels, controller, and spec without the node name. Shapes are interned,
so a hundred thousand pods cost a few hundred derivations and share their specs in memory. A :class:`PodInfo` is a pod
with its shape.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple
from weakref import WeakValueDictionary

import msgspec

from kubestow.api.core import Container, Pod, PodSpec, PodStatus, Volume
from kubestow.api.meta import ObjectMeta, OwnerReference
from kubestow.cluster.pods.affinity_terms import CarriedTerm, PodAffinityTerms
from kubestow.cluster.pods.index_keys import IndexKeys, index_keys_of
from kubestow.cluster.pods.requests import Amounts, placed_requests, requests_by_spec, scored_requests

__all__ = ["HostPort", "PodInfo", "Shape", "Shapes"]

_encode = msgspec.json.Encoder(order="deterministic").encode
_ANY_IP = "0.0.0.0"


class HostPort(NamedTuple):
    """A host port: its IP address, protocol and number."""

    ip: str
    protocol: str
    port: int

    def conflicts_with(self, other: HostPort) -> bool:
        """Whether two pods with these ports cannot share a node (semantics 7.4)."""
        return (
            self.port == other.port
            and self.protocol == other.protocol
            and (_ANY_IP in (self.ip, other.ip) or self.ip == other.ip)
        )


class Shape:
    """What copies of a pod have in common, and everything derived from it.

    ``key`` is the canonical encoding; within one :class:`Shapes` equal keys mean the same object.
    """

    __slots__ = ("__dict__", "__weakref__", "controller", "key", "labels", "namespace", "spec")

    def __init__(self, key: bytes, pod: Pod) -> None:
        self.key = key
        self.namespace = pod.metadata.namespace
        self.labels = pod.metadata.labels
        #: The controller's owner reference. Only its kind, name and API version are the same for all copies.
        self.controller: OwnerReference | None = pod.metadata.controller
        self.spec = pod.spec
        #: The pod's requests by resource name: millicores, bytes or counts.
        self.requests: Amounts = requests_by_spec(pod)
        #: CPU (millicores) and memory (bytes) that the pod counts for on its node, with defaults for missing requests.
        self.nonzero_requests: tuple[int, int] = placed_requests(pod)[1]
        #: The same for scoring the pod before it is placed.
        self.scored_requests: tuple[int, int] = scored_requests(pod)

    @cached_property
    def host_ports(self) -> tuple[HostPort, ...]:
        """The host ports of containers and sidecars, without duplicates."""
        sidecars = (c for c in self.spec.init_containers if c.restart_policy == "Always")
        return tuple(sorted(set(_host_ports((*self.spec.containers, *sidecars)))))

    @cached_property
    def affinity_terms(self) -> PodAffinityTerms:
        """The terms of the pod's affinity and anti-affinity."""
        return PodAffinityTerms.of(self.namespace, self.spec.affinity)

    @cached_property
    def carried_terms(self) -> Mapping[CarriedTerm, int]:
        """The same terms with their kinds, each with the number of times that the pod has it."""
        return self.affinity_terms.carried()

    @cached_property
    def index_keys(self) -> IndexKeys:
        """The keys by which the pods are indexed."""
        return index_keys_of(self.namespace, self.labels, self.carried_terms)


def _host_ports(containers: Iterable[Container]) -> Iterable[HostPort]:
    for container in containers:
        for port in container.ports:
            if port.host_port > 0:
                yield HostPort(port.host_ip or _ANY_IP, port.protocol or "TCP", port.host_port)


@dataclass(slots=True, eq=False)
class PodInfo:
    """A pod and what scheduling derives from it. Compared by identity.

    ``requests`` (millicores, bytes or counts by resource) and ``nonzero_requests`` (CPU and memory) are what the pod
    counts for on its node. They differ from its shape's only if the kubelet reports resources in the pod's status
    (semantics 7.5).
    """

    pod: Pod
    shape: Shape
    requests: Amounts
    nonzero_requests: tuple[int, int]

    @property
    def metadata(self) -> ObjectMeta:
        """The pod's metadata."""
        return self.pod.metadata

    @property
    def spec(self) -> PodSpec:
        """The pod's spec."""
        return self.pod.spec

    @property
    def status(self) -> PodStatus:
        """The pod's status."""
        return self.pod.status

    @property
    def name(self) -> str:
        """``metadata.name``."""
        return self.pod.metadata.name

    @property
    def namespace(self) -> str:
        """``metadata.namespace``."""
        return self.pod.metadata.namespace

    @property
    def uid(self) -> str:
        """``metadata.uid``: the pod's identity."""
        return self.pod.metadata.uid

    @property
    def labels(self) -> dict[str, str]:
        """``metadata.labels``."""
        return self.pod.metadata.labels

    @property
    def key(self) -> str:
        """``namespace/name``, for messages."""
        return f"{self.pod.metadata.namespace}/{self.pod.metadata.name}"

    @property
    def priority(self) -> int:
        """``spec.priority``, 0 if unset."""
        return self.pod.spec.priority or 0

    @property
    def terminating(self) -> bool:
        """Whether the pod is being deleted."""
        return self.pod.metadata.deletion_timestamp is not None

    def on(self, node_name: str) -> PodInfo:
        """The same pod with ``spec.nodeName`` set."""
        spec = msgspec.structs.replace(self.spec, node_name=node_name)
        return PodInfo(msgspec.structs.replace(self.pod, spec=spec), self.shape, self.requests, self.nonzero_requests)


def _affects_scheduling(volume: Volume) -> bool:
    """Whether a volume has one of the decoded sources: claims and disks, but not config maps, secrets and tokens."""
    return volume != Volume(name=volume.name)


class Shapes:
    """Interns shapes; a shape lives as long as a pod of it."""

    def __init__(self) -> None:
        self._by_key: WeakValueDictionary[bytes, Shape] = WeakValueDictionary()

    def __len__(self) -> int:
        return len(self._by_key)

    def info(self, pod: Pod) -> PodInfo:
        """The pod with its shape; it shares spec and labels with its copies.

        Raises InvalidQuantity when a request does not parse.
        """
        metadata, spec = pod.metadata, pod.spec
        controller = metadata.controller
        volumes = [volume for volume in spec.volumes if _affects_scheduling(volume)] if spec.volumes else spec.volumes
        if spec.node_name or len(volumes) != len(spec.volumes):
            spec = msgspec.structs.replace(spec, node_name="", volumes=volumes)
        owner = (controller.kind, controller.name, controller.api_version) if controller else None
        key = _encode((metadata.namespace, metadata.labels, owner, spec))
        shape = self._by_key.get(key)
        if shape is None:
            shape = Shape(key, Pod(metadata=metadata, spec=spec))
            self._by_key[key] = shape
        shared = Pod(
            metadata=_with_labels(metadata, shape.labels),
            spec=msgspec.structs.replace(shape.spec, node_name=pod.spec.node_name)
            if pod.spec.node_name
            else shape.spec,
            status=pod.status,
        )
        if _reports_resources(pod.status):
            return PodInfo(shared, shape, *placed_requests(pod))
        return PodInfo(shared, shape, shape.requests, shape.nonzero_requests)


def _with_labels(metadata: ObjectMeta, labels: dict[str, str]) -> ObjectMeta:
    return metadata if not labels else msgspec.structs.replace(metadata, labels=labels)


def _reports_resources(status: PodStatus) -> bool:
    """Whether the status has resources, so that the pod may count for something else than its spec's requests."""
    return status.resources is not None or any(
        reported.resources is not None for reported in (*status.container_statuses, *status.init_container_statuses)
    )
