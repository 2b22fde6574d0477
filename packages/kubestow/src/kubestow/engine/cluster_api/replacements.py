"""Replacements: the pods that controllers create for evicted ones, and the claims of both.

A claim that was created for a pod is deleted with it, and its replacement gets one of its own. A claim for devices that
pods share is released by a pod that is gone, and deallocated once none is left.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator
from itertools import count
from typing import Any

import msgspec

from kubestow.api.core import Pod, PodStatus
from kubestow.api.meta import ObjectMeta, OwnerReference, convert
from kubestow.api.resource import ResourceClaim, ResourceClaimStatus
from kubestow.api.storage import PersistentVolumeClaim, PersistentVolumeClaimStatus
from kubestow.cluster.cache import Cluster
from kubestow.rules.claims import ephemeral_claim_name, resource_claim_prefix
from kubestow.rules.owners import controller_reference, generated_name, generated_suffix

#: Controllers that do not replace a pod: that of static pods, and one whose pods belong to their nodes.
_NOT_REPLACING = frozenset({"Node", "DaemonSet"})
_REPLACEMENT = "/replacement"

#: Finds an object by its kind, namespace and name.
Find = Callable[[type[Any], str, str], Any | None]


def replacing_controller(pod: Pod) -> OwnerReference | None:
    """The controller of a pod, if it creates another one, wherever that may be placed."""
    controller = pod.metadata.controller
    return None if controller is None or controller.kind in _NOT_REPLACING else controller


def replacement(pod: Pod, controller: OwnerReference, existing: Container[tuple[str, str]], created: str | None) -> Pod:
    """The pending pod that a controller creates in place of a pod.

    The pod of a StatefulSet keeps its name, others get a generated one. ``existing`` are namespaces and names of pods,
    ``created`` is the time of creation.
    """
    metadata, name = pod.metadata, pod.metadata.name
    if controller.kind != "StatefulSet":
        suffixes = (generated_suffix(f"replacement of {name}", number) for number in count(1))
        names = (generated_name(f"{controller.name}-", suffix) for suffix in suffixes)
        name = next(name for name in names if (metadata.namespace, name) not in existing)
    uid = f"{metadata.uid}{_REPLACEMENT}"
    metadata = msgspec.structs.replace(metadata, name=name, uid=uid, creation_timestamp=created)
    spec = msgspec.structs.replace(pod.spec, node_name="")
    status = PodStatus(resource_claim_statuses=pod.status.resource_claim_statuses)
    return msgspec.structs.replace(pod, metadata=metadata, spec=spec, status=status)


def original_uid(uid: str) -> str:
    """The uid of the pod that a pod was created for in the end, its own if it is no replacement."""
    while uid.endswith(_REPLACEMENT):
        uid = uid.removesuffix(_REPLACEMENT)
    return uid


# -- claims ------------------------------------------------------------------------------------------------------------


def claims_of(pod: Pod, find: Find) -> Iterator[ResourceClaim | PersistentVolumeClaim]:
    """The claims for devices and ephemeral volumes that a pod refers to and that exist."""
    namespace, status = pod.metadata.namespace, pod.status
    names = [claim.resource_claim_name for claim in pod.spec.resource_claims]
    names += [claim.resource_claim_name for claim in status.resource_claim_statuses]
    if status.extended_resource_claim_status is not None:
        names.append(status.extended_resource_claim_status.resource_claim_name)
    wanted: list[tuple[type[Any], str]] = [(ResourceClaim, name) for name in names if name]
    wanted += [
        (PersistentVolumeClaim, ephemeral_claim_name(pod.metadata.name, v.name))
        for v in pod.spec.volumes
        if v.ephemeral is not None
    ]
    for kind, name in wanted:
        if (claim := find(kind, namespace, name)) is not None:
            yield claim


def belongs_to(obj: Any, uids: Container[str]) -> bool:
    """Whether an object is a claim that was created for one of the pods with these uids."""
    if not isinstance(obj, (ResourceClaim, PersistentVolumeClaim)):
        return False
    controller = obj.metadata.controller
    return controller is not None and controller.kind == "Pod" and controller.uid in uids


def released(claim: ResourceClaim, gone: Container[str]) -> ResourceClaim:
    """The claim without the pods with these uids; deallocated if it is reserved for no other."""
    status = claim.status
    consumers = [consumer for consumer in status.reserved_for if consumer.uid not in gone]
    if len(consumers) == len(status.reserved_for):
        return claim
    fields: dict[str, Any] = {"reserved_for": consumers}
    if not consumers:
        fields |= {"allocation": None, "devices": []}
    return msgspec.structs.replace(claim, status=msgspec.structs.replace(status, **fields))


def with_own_claims(created: Pod, replaced: Pod, find: Find) -> tuple[Pod, list[Any]]:
    """A pod that replaces another one, with the claims that are created for it, like those of the other."""
    statuses, claims = [], list[Any]()
    for status in created.status.resource_claim_statuses:
        old = find(ResourceClaim, replaced.metadata.namespace, status.resource_claim_name or "")
        if old is not None and belongs_to(old, {replaced.metadata.uid}):
            prefix = resource_claim_prefix(created.metadata.name, status.name)
            name = generated_name(prefix, generated_suffix(f"{created.metadata.uid}/{status.name}"))
            claims.append(_created_for(created, old, name, status=ResourceClaimStatus()))
            status = msgspec.structs.replace(status, resource_claim_name=name)
        statuses.append(status)
    for volume in created.spec.volumes:
        if volume.ephemeral is None:
            continue
        former_name = ephemeral_claim_name(replaced.metadata.name, volume.name)
        old = find(PersistentVolumeClaim, replaced.metadata.namespace, former_name)
        if old is not None and belongs_to(old, {replaced.metadata.uid}):
            spec = msgspec.structs.replace(old.spec, volume_name="")
            name = ephemeral_claim_name(created.metadata.name, volume.name)
            claims.append(_created_for(created, old, name, spec=spec, status=PersistentVolumeClaimStatus()))
    if not statuses:
        return created, claims
    pod_status = msgspec.structs.replace(created.status, resource_claim_statuses=statuses)
    return msgspec.structs.replace(created, status=pod_status), claims


def _created_for(pod: Pod, like: Any, name: str, **fields: Any) -> Any:
    """A new claim of a pod with the spec of another one."""
    reference = controller_reference("v1", "Pod", name=pod.metadata.name, uid=pod.metadata.uid)
    metadata = ObjectMeta(
        name=name,
        namespace=pod.metadata.namespace,
        uid=f"{type(like).__name__}/{pod.metadata.uid}/{name}".lower(),
        labels=like.metadata.labels,
        owner_references=[convert(OwnerReference, reference)],
    )
    return msgspec.structs.replace(like, metadata=metadata, **fields)


class ClaimsOfEviction:
    """The claims of an evicted pod, which are deleted with it or released, and those of its replacement, in a cluster.

    The pod is off its node when this is made.
    """

    def __init__(self, cache: Cluster, pod: Pod) -> None:
        self._cache, self._pod = cache, pod
        self._before = list(claims_of(pod, lambda kind, namespace, name: cache.catalog(kind).get(namespace, name)))
        self._created: list[Any] = []
        gone = {pod.metadata.uid}
        for claim in self._before:
            if belongs_to(claim, gone):
                self._remove(claim)
            elif isinstance(claim, ResourceClaim):
                cache.catalog(ResourceClaim).put(released(claim, gone))

    def create_for(self, replacement: Pod) -> Pod:
        """The replacement with the claims that are created for it."""
        before = {(type(claim), claim.metadata.namespace, claim.metadata.name): claim for claim in self._before}
        replacement, self._created = with_own_claims(replacement, self._pod, lambda *key: before.get(key))
        for claim in self._created:
            self._cache.catalog(type(claim)).put(claim)
        return replacement

    def undo(self) -> None:
        """Have the claims as they were before the eviction."""
        for claim in self._created:
            self._remove(claim)
        for claim in self._before:
            self._cache.catalog(type(claim)).put(claim)

    def _remove(self, claim: Any) -> None:
        self._cache.catalog(type(claim)).remove(claim.metadata.namespace, claim.metadata.name)
