"""Pods with what scheduling derives from them.

Most pods of a cluster are copies of each other. What is derived from a pod (requests, host ports, parsed selectors)
depends only on its :class:`Shape`: namespace, labels, controller, and spec without the node name. Shapes are interned,
so a hundred thousand pods cost a few hundred derivations and share their specs in memory. A :class:`PodInfo` is a pod
with its shape.

The pods of a StatefulSet or of an indexed Job have a label each that names the pod. Their shapes differ in labels only,
so they are of one :class:`ShapeFamily`, which holds all that does not depend on labels. For a plugin that reads some
labels only, or none, the shapes of a family that agree in these are one :class:`ShapeGroup`.

What has been prepared for the shapes of recent pods.

A counter of pods lives as long as something holds it, and what holds counters is kept in caches like this one. With
many groups of shapes, those without a placed pod are dropped first, since most of their pods are gone, and then the
least recently used; their counters are dropped with them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import NamedTuple, TypeVar

import msgspec

from kubestow.api.core import Container, Pod, PodSpec, PodStatus, ResourceRequirements, Volume
from kubestow.api.formats.int64 import ORDINARY
from kubestow.api.meta import ObjectMeta, OwnerReference
from kubestow.cluster.pods.affinity_terms import IndexKeys, PodAffinityTerms, index_keys_of
from kubestow.cluster.pods.caches import BoundedCache, WeakCache
from kubestow.rules.pods import HostPorts, host_ports
from kubestow.rules.requests import (
    CURRENT_RULES,
    Amounts,
    RequestRules,
    placed_requests,
    requests_by_spec,
    scored_requests,
)

_encode = msgspec.json.Encoder(order="deterministic").encode


class ShapeFamily:
    """What pods have in common that differ in their labels only: namespace, controller and spec.

    ``key`` is the canonical encoding; within one :class:`Shapes` equal keys mean the same object. Requests are counted
    by ``rules``, and host ports by those of the same minor version.
    """

    __slots__ = (
        "__dict__",
        "__weakref__",
        "_rules",
        "controller",
        "key",
        "metadata",
        "namespace",
        "nonzero_requests",
        "requests",
        "scored_requests",
        "spec",
    )

    def __init__(self, key: bytes, pod: Pod, rules: RequestRules) -> None:
        self.key = key
        self._rules = rules
        #: The metadata of its first pod; the others share what of it is equal.
        self.metadata = pod.metadata
        self.namespace = pod.metadata.namespace
        self.controller = pod.metadata.controller
        self.spec = pod.spec
        self.requests: Amounts = requests_by_spec(pod, rules)
        self.nonzero_requests: tuple[int, int] = placed_requests(pod, rules)[1]
        self.scored_requests: Amounts = scored_requests(pod, rules)

    @cached_property
    def key_without_requests(self) -> bytes:
        """The canonical encoding without requests and limits: equal keys mean families that differ in these only."""
        return self._encoded(_without_requests(self.spec))

    @cached_property
    def key_without_volumes(self) -> bytes:
        """The canonical encoding without requests, limits and volumes."""
        if not self.spec.volumes:
            return self.key_without_requests
        return self._encoded(msgspec.structs.replace(_without_requests(self.spec), volumes=[]))

    def _encoded(self, spec: PodSpec) -> bytes:
        return _encode((self.namespace, _owner(self.controller), spec))

    @cached_property
    def host_ports(self) -> HostPorts:
        """The host ports of containers and sidecars, without duplicates."""
        return host_ports(self.spec, self._rules.minor)

    @cached_property
    def has_extreme_requests(self) -> bool:
        """Whether a request is negative or beyond 2**53."""
        return _has_extreme(self.requests, self.nonzero_requests)

    @cached_property
    def claims(self) -> VolumeClaims:
        """The claims of the pods' volumes."""
        return VolumeClaims.of(self.spec.volumes)

    @cached_property
    def node_selection(self) -> bytes:
        """The canonical encoding of ``spec.nodeSelector`` and the pod's node affinity."""
        affinity = self.spec.affinity
        return _encode((self.spec.node_selector, affinity.node_affinity if affinity else None))

    @cached_property
    def affinity_terms(self) -> PodAffinityTerms:
        """The terms of the pod's affinity and anti-affinity."""
        return PodAffinityTerms.of(self.namespace, self.spec.affinity)


def _has_extreme(requests: Amounts, nonzero_requests: tuple[int, int]) -> bool:
    return any(not 0 <= amount <= ORDINARY for amount in (*requests.values(), *nonzero_requests))


class VolumeClaims(NamedTuple):
    """The claims that volumes name, and the names of ephemeral volumes, whose claims are named after pod and volume."""

    names: frozenset[str]
    ephemeral: frozenset[str]

    @classmethod
    def of(cls, volumes: Iterable[Volume]) -> VolumeClaims:
        """Those of the volumes of a pod."""
        sources = [(volume.name, volume.persistent_volume_claim, volume.ephemeral) for volume in volumes]
        names = frozenset(claim.claim_name for _, claim, _ in sources if claim is not None)
        return cls(
            names, frozenset(name for name, claim, ephemeral in sources if claim is None and ephemeral is not None)
        )


class ShapeGroup(NamedTuple):
    """The shapes of a family that agree in some labels, ``labels``; see :meth:`Shape.group`."""

    family: ShapeFamily
    labels: tuple[tuple[str, str], ...]


class Shape:
    """What copies of a pod have in common, and everything derived from it."""

    __slots__ = (
        "__dict__",
        "__weakref__",
        "_grouped",
        "controller",
        "family",
        "labels",
        "namespace",
        "nonzero_requests",
        "requests",
        "scored_requests",
        "spec",
    )

    def __init__(self, family: ShapeFamily, labels: dict[str, str]) -> None:
        #: What the shape has in common with shapes that differ in their labels only.
        self.family = family
        self.labels = labels
        self.namespace = family.namespace
        #: The controller's owner reference. Only its kind, name and API version are the same for all copies.
        self.controller: OwnerReference | None = family.controller
        self.spec = family.spec
        #: The pod's requests by resource name: millicores, bytes or counts.
        self.requests = family.requests
        #: CPU (millicores) and memory (bytes) that the pod counts for on its node, with defaults for missing requests.
        self.nonzero_requests = family.nonzero_requests
        #: The requests by which NodeResourcesFit scores the pod before it is placed.
        self.scored_requests = family.scored_requests
        self._grouped: tuple[Collection[str] | None, ShapeGroup] | None = None

    @property
    def host_ports(self) -> HostPorts:
        """The host ports of containers and sidecars, without duplicates."""
        return self.family.host_ports

    @property
    def node_selection(self) -> bytes:
        """The canonical encoding of ``spec.nodeSelector`` and the pod's node affinity."""
        return self.family.node_selection

    @property
    def affinity_terms(self) -> PodAffinityTerms:
        """The terms of the pod's affinity and anti-affinity."""
        return self.family.affinity_terms

    @cached_property
    def index_keys(self) -> IndexKeys:
        """The keys by which the pods are indexed."""
        terms = self.affinity_terms
        return index_keys_of(self.namespace, self.labels, (terms,) if terms else ())

    def group(self, label_keys: Collection[str] | None) -> ShapeGroup:
        """The shapes of the family that agree with this one in the labels with some keys; in all labels for None."""
        grouped = self._grouped
        if grouped is not None and grouped[0] == label_keys:
            return grouped[1]
        labels = self.labels.items()
        group = ShapeGroup(self.family, tuple(labels if label_keys is None else _with_keys(labels, label_keys)))
        self._grouped = label_keys, group
        return group


def _with_keys(labels: Iterable[tuple[str, str]], keys: Collection[str]) -> list[tuple[str, str]]:
    return [label for label in labels if label[0] in keys] if keys else []


def _owner(controller: OwnerReference | None) -> tuple[str, str, str] | None:
    """What of a controller is the same for all its pods."""
    return (controller.kind, controller.name, controller.api_version) if controller else None


def _without_requests(spec: PodSpec) -> PodSpec:
    return msgspec.structs.replace(
        spec,
        containers=[_requesting_nothing(container) for container in spec.containers],
        init_containers=[_requesting_nothing(container) for container in spec.init_containers],
        overhead={},
        resources=None,
    )


def _requesting_nothing(container: Container) -> Container:
    return msgspec.structs.replace(container, resources=ResourceRequirements())


class PodFields:
    """The fields of a Pod by short names, for classes that keep it as ``pod``."""

    __slots__ = ()

    pod: Pod

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


@dataclass(slots=True, eq=False)
class PodInfo(PodFields):
    """A pod and what scheduling derives from it. Compared by identity. ``uid`` is the pod's identity.

    ``requests`` (millicores, bytes or counts by resource) and ``nonzero_requests`` (CPU and memory) are what the pod
    counts for on its node. They differ from its shape's only if the kubelet reports resources in the pod's status
    (semantics 7.5).
    """

    pod: Pod
    shape: Shape
    requests: Amounts
    nonzero_requests: tuple[int, int]
    #: ``metadata.uid``, which is read several times for every pod.
    uid: str = field(init=False)

    def __post_init__(self) -> None:
        self.uid = self.pod.metadata.uid

    @property
    def priority(self) -> int:
        """``spec.priority``, 0 if unset."""
        return self.pod.spec.priority or 0

    @property
    def has_extreme_requests(self) -> bool:
        """Whether a request is negative or so large that sums and products of it may not fit into 64 bits."""
        if self.requests is self.shape.requests:
            return self.shape.family.has_extreme_requests
        return _has_extreme(self.requests, self.nonzero_requests)

    @property
    def is_assigned(self) -> bool:
        """Whether the pod has a node."""
        return bool(self.pod.spec.node_name)

    @property
    def is_assigned_or_nominated(self) -> bool:
        """Whether the pod has a node, or a nominated one."""
        return bool(self.pod.spec.node_name or self.pod.status.nominated_node_name)

    @property
    def terminating(self) -> bool:
        """Whether the pod is being deleted."""
        return self.pod.metadata.deletion_timestamp is not None

    def on(self, node_name: str) -> PodInfo:
        """The same pod with ``spec.nodeName`` set."""
        spec = msgspec.structs.replace(self.spec, node_name=node_name)
        return replace(self, pod=msgspec.structs.replace(self.pod, spec=spec))

    def nominated_to(self, node_name: str) -> PodInfo:
        """The same pod with ``status.nominatedNodeName`` set."""
        status = msgspec.structs.replace(self.status, nominated_node_name=node_name)
        return replace(self, pod=msgspec.structs.replace(self.pod, status=status))


def _affects_scheduling(volume: Volume) -> bool:
    """Whether a volume has one of the decoded sources: claims and disks, but not config maps, secrets and tokens."""
    return volume != Volume(name=volume.name)


class Shapes:
    """Interns shapes, whose pods count by ``rules``; a shape lives as long as a pod of it."""

    def __init__(self, rules: RequestRules = CURRENT_RULES) -> None:
        self._rules = rules
        self._families: WeakCache[bytes, ShapeFamily] = WeakCache()
        #: By the key of the family and the labels.
        self._shapes: WeakCache[tuple[bytes, frozenset[tuple[str, str]]], Shape] = WeakCache()
        #: The latest shape with a spec, by the identity of that.
        self._by_spec: WeakCache[int, Shape] = WeakCache()

    def __len__(self) -> int:
        return len(self._shapes)

    def info(self, pod: Pod, before: PodInfo | None = None) -> PodInfo:
        """The pod with its shape; it shares with its copies the spec and what is equal in their metadata.

        An earlier state of it, ``before``, is likely to have the same shape: to compare them is cheaper than to encode
        the pod. Raises InvalidQuantity when a request does not parse.
        """
        shape = self.shape(pod) if before is None or not _has_shape(pod, before.shape) else before.shape
        shared = Pod(
            metadata=_shared_metadata(pod.metadata, shape),
            spec=msgspec.structs.replace(shape.spec, node_name=pod.spec.node_name)
            if pod.spec.node_name
            else shape.spec,
            status=pod.status,
        )
        if self._rules.reads(pod.status):
            return PodInfo(shared, shape, *placed_requests(pod, self._rules))
        return PodInfo(shared, shape, shape.requests, shape.nonzero_requests)

    def shape(self, pod: Pod) -> Shape:
        """The shape of a pod. Raises InvalidQuantity when a request does not parse."""
        metadata, spec = pod.metadata, pod.spec
        shape = self._by_spec.get(id(spec))
        if shape is not None and shape.spec is spec and _has_shape(pod, shape):
            return shape
        controller = metadata.controller
        volumes = [volume for volume in spec.volumes if _affects_scheduling(volume)] if spec.volumes else spec.volumes
        if spec.node_name or len(volumes) != len(spec.volumes):
            spec = msgspec.structs.replace(spec, node_name="", volumes=volumes)
        family_key = _encode((metadata.namespace, _owner(controller), spec))
        key = family_key, frozenset(metadata.labels.items())
        shape = self._shapes.get(key)
        if shape is None:
            shape = Shape(self._family(family_key, metadata, spec), metadata.labels)
            self._shapes.put((shape.family.key, key[1]), shape)
        if shape.spec is spec:
            self._by_spec.put(id(spec), shape)
        return shape

    def _family(self, key: bytes, metadata: ObjectMeta, spec: PodSpec) -> ShapeFamily:
        family = self._families.get(key)
        if family is None:
            family = self._families.put(key, ShapeFamily(key, Pod(metadata=metadata, spec=spec), self._rules))
        return family


def _has_shape(pod: Pod, shape: Shape) -> bool:
    """Whether a pod obviously has a shape; one that names a volume which does not matter may have it all the same."""
    metadata, spec = pod.metadata, pod.spec
    if metadata.namespace != shape.namespace or metadata.labels != shape.labels:
        return False
    if (metadata.owner_references or shape.controller) and _owner(metadata.controller) != _owner(shape.controller):
        return False
    if spec.node_name:
        spec = msgspec.structs.replace(spec, node_name="")
    return spec is shape.spec or spec == shape.spec


def _shared_metadata(metadata: ObjectMeta, shape: Shape) -> ObjectMeta:
    """A pod's metadata without copies of what the shape has; a third of the pod's memory otherwise."""
    first = shape.family.metadata
    return msgspec.structs.replace(
        metadata,
        labels=shape.labels,
        annotations=first.annotations if metadata.annotations == first.annotations else metadata.annotations,
        finalizers=first.finalizers if metadata.finalizers == first.finalizers else metadata.finalizers,
        owner_references=first.owner_references
        if metadata.owner_references == first.owner_references
        else metadata.owner_references,
    )


V = TypeVar("V")

_SWEEP_ABOVE, _MAX_GROUPS = 128, 256


class ShapeCache(BoundedCache[ShapeGroup, V]):
    """A bounded cache by group of shapes. ``is_in_use`` says whether there are placed pods of a family."""

    def __init__(
        self,
        is_in_use: Callable[[ShapeFamily], bool],
        *,
        budget: int = _MAX_GROUPS,
        minimum: int = 1,
        sweep_above: int = _SWEEP_ABOVE,
    ) -> None:
        super().__init__(budget, minimum=minimum)
        self._is_in_use = is_in_use
        #: With more groups than this, those that are not in use are dropped; at first, and later at least, as given.
        self._sweep_above = self._least_sweep_above = sweep_above

    def put(self, key: ShapeGroup, value: V, *, cost: int = 1) -> V:
        """Cache what has been prepared for a group of shapes, in place of an earlier value."""
        super().put(key, value, cost=cost)
        if len(self) > self._sweep_above:
            self.retain(lambda group: group is key or self._is_in_use(group.family))
            self._sweep_above = max(self._least_sweep_above, 2 * len(self))
        return value
