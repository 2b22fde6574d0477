"""Pods as scheduling holds them.

Most pods of a cluster are copies of each other. What scheduling derives from a pod (its requests, host ports, parsed
selectors) depends only on its :class:`Shape`: namespace, labels, controller and spec without the node's name. Shapes
are interned, so that a hundred thousand pods cost a few hundred derivations and share their spec in memory; a pod
itself is a :class:`PodInfo`, the object plus its shape.
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
from kubestow.cluster.pods.requests import Amounts, occupied, requests_by_spec, scored_requests

__all__ = ["HostPort", "PodInfo", "Shape", "Shapes"]

_encode = msgspec.json.Encoder(order="deterministic").encode
_ANY_IP = "0.0.0.0"


class HostPort(NamedTuple):
    """A port taken on the node itself."""

    ip: str
    protocol: str
    port: int

    def conflicts_with(self, other: HostPort) -> bool:
        """Whether both cannot be on one node (semantics 7.4)."""
        return (
            self.port == other.port
            and self.protocol == other.protocol
            and (_ANY_IP in (self.ip, other.ip) or self.ip == other.ip)
        )


class Shape:
    """What copies of a pod have in common, and everything derived from it.

    ``key`` is the identity: two pods with equal keys are the same to every plugin that decides by shape.
    """

    __slots__ = ("__dict__", "__weakref__", "controller", "key", "labels", "namespace", "spec")

    def __init__(self, key: bytes, pod: Pod) -> None:
        self.key = key
        self.namespace = pod.metadata.namespace
        self.labels = pod.metadata.labels
        #: The owner that manages the pods; of it only kind, name and API version are the same for all copies.
        self.controller: OwnerReference | None = pod.metadata.controller
        self.spec = pod.spec
        #: What the pod asks for: resource name -> millicores, bytes or count.
        self.requests: Amounts = requests_by_spec(pod)
        #: CPU (millicores) and memory (bytes) it takes on a node, with defaults for what it does not ask for.
        self.nonzero_requests: tuple[int, int] = occupied(pod)[1]
        #: The same for scoring it while it is still looking for a node.
        self.scored_requests: tuple[int, int] = scored_requests(pod)

    @cached_property
    def host_ports(self) -> tuple[HostPort, ...]:
        """Ports of containers and sidecars that are taken on the node, each once."""
        sidecars = (c for c in self.spec.init_containers if c.restart_policy == "Always")
        return tuple(sorted(set(_host_ports((*self.spec.containers, *sidecars)))))

    @cached_property
    def affinity_terms(self) -> PodAffinityTerms:
        """The terms of its pod affinity and anti-affinity."""
        return PodAffinityTerms.of(self.namespace, self.spec.affinity)

    @cached_property
    def carried_terms(self) -> Mapping[CarriedTerm, int]:
        """The same by role, with the number of times that each is there."""
        return self.affinity_terms.carried()

    @cached_property
    def index_keys(self) -> IndexKeys:
        """What the pods can be looked up by among all others."""
        return index_keys_of(self.namespace, self.labels, self.carried_terms)


def _host_ports(containers: Iterable[Container]) -> Iterable[HostPort]:
    for container in containers:
        for port in container.ports:
            if port.host_port > 0:
                yield HostPort(port.host_ip or _ANY_IP, port.protocol or "TCP", port.host_port)


@dataclass(slots=True, eq=False)
class PodInfo:
    """A pod and what scheduling derives from it. Compared by identity.

    ``requests`` and ``nonzero_requests`` are what the pod takes on its node; they differ from its shape's only while a
    kubelet reports resources of its own (semantics 7.5).
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
        """``namespace/name``, for people and messages."""
        return f"{self.pod.metadata.namespace}/{self.pod.metadata.name}"

    @property
    def priority(self) -> int:
        """``spec.priority``, 0 where it is missing."""
        return self.pod.spec.priority or 0

    @property
    def terminating(self) -> bool:
        """Whether the pod is being deleted."""
        return self.pod.metadata.deletion_timestamp is not None

    def on(self, node_name: str) -> PodInfo:
        """The same pod on a node."""
        spec = msgspec.structs.replace(self.spec, node_name=node_name)
        return PodInfo(msgspec.structs.replace(self.pod, spec=spec), self.shape, self.requests, self.nonzero_requests)


def _matters(volume: Volume) -> bool:
    """Whether a volume has a source that scheduling looks at (config maps, secrets and tokens do not)."""
    return volume != Volume(name=volume.name)


class Shapes:
    """The interned shapes of all pods that are held anywhere; a shape goes when its last pod does."""

    def __init__(self) -> None:
        self._by_key: WeakValueDictionary[bytes, Shape] = WeakValueDictionary()

    def __len__(self) -> int:
        return len(self._by_key)

    def info(self, pod: Pod) -> PodInfo:
        """The pod with its shape, sharing spec and labels with its copies.

        Raises InvalidQuantity when a request does not parse.
        """
        metadata, spec = pod.metadata, pod.spec
        controller = metadata.controller
        volumes = [volume for volume in spec.volumes if _matters(volume)] if spec.volumes else spec.volumes
        if spec.node_name or len(volumes) != len(spec.volumes):
            spec = msgspec.structs.replace(spec, node_name="", volumes=volumes)
        owner = (controller.kind, controller.name, controller.api_version) if controller else None
        key = _encode((metadata.namespace, metadata.labels, owner, spec))
        shape = self._by_key.get(key)
        if shape is None:
            shape = Shape(key, Pod(metadata=metadata, spec=spec))
            self._by_key[key] = shape
        lean = Pod(
            metadata=_with_labels(metadata, shape.labels),
            spec=msgspec.structs.replace(shape.spec, node_name=pod.spec.node_name)
            if pod.spec.node_name
            else shape.spec,
            status=pod.status,
        )
        if _reports_resources(pod.status):
            return PodInfo(lean, shape, *occupied(pod))
        return PodInfo(lean, shape, shape.requests, shape.nonzero_requests)


def _with_labels(metadata: ObjectMeta, labels: dict[str, str]) -> ObjectMeta:
    return metadata if not labels else msgspec.structs.replace(metadata, labels=labels)


def _reports_resources(status: PodStatus) -> bool:
    """Whether a kubelet speaks of resources at all; only then may a pod take something else than its spec says."""
    return status.resources is not None or any(
        reported.resources is not None for reported in (*status.container_statuses, *status.init_container_statuses)
    )
