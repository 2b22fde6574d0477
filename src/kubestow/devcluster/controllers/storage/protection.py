"""Volumes and claims in use stay until they are not: the finalizers that keep them are taken off here.

A claim is in use while a pod that has a node and has not ended names it; a volume while it is bound.
"""

from __future__ import annotations

from typing import Any, ClassVar

import msgspec

from kubestow.devcluster.apiserver.resources import Object
from kubestow.devcluster.apiserver.storage.store import Stored
from kubestow.devcluster.controllers.controller import Controller, Happening, World

__all__ = ["ClaimProtection", "VolumeProtection"]


class _ClaimSource(msgspec.Struct, frozen=True, rename="camel"):
    claim_name: str = ""


class _Volume(msgspec.Struct, frozen=True, rename="camel"):
    name: str = ""
    persistent_volume_claim: _ClaimSource | None = None
    ephemeral: dict[str, Any] | None = None


class _Spec(msgspec.Struct, frozen=True):
    volumes: tuple[_Volume, ...] | None = ()


class _Pod(msgspec.Struct, frozen=True):
    spec: _Spec


def _claims_of(pod: Stored) -> set[str]:
    """The keys of the claims that a pod uses."""
    if b'"persistentVolumeClaim":' not in pod.data and b'"ephemeral":' not in pod.data:
        return set()
    found = set()
    for volume in msgspec.json.decode(pod.data, type=_Pod).spec.volumes or ():
        if volume.persistent_volume_claim is not None:
            found.add(f"{pod.namespace}/{volume.persistent_volume_claim.claim_name}")
        elif volume.ephemeral is not None:
            found.add(f"{pod.namespace}/{pod.name}-{volume.name}")
    return found


def _uses_volumes(pod: Stored) -> bool:
    return bool(pod.fields[0]) and pod.fields[5] not in ("Succeeded", "Failed")


class _Protection(Controller):
    """Takes its finalizer off what is being deleted and not in use."""

    finalizer: ClassVar[str]

    def reconcile(self, key: str) -> None:
        stored = self.registry.store.collection(self.resource).get(key)
        if stored is None or b'"deletionTimestamp":' not in stored.data:
            return
        found = self.kind.decode(stored)
        if self.finalizer in (found["metadata"].get("finalizers") or ()) and not self.is_used(key, found):
            self.change_metadata(self.kind, stored.namespace, stored.name, self._release)

    def is_used(self, key: str, found: Object) -> bool:
        raise NotImplementedError

    def _release(self, metadata: Object) -> None:
        metadata["finalizers"] = [one for one in metadata["finalizers"] if one != self.finalizer]
        if not metadata["finalizers"]:
            del metadata["finalizers"]


class ClaimProtection(_Protection):
    resource = "persistentvolumeclaims"
    component = "pvc-protection-controller"
    finalizer = "kubernetes.io/pvc-protection"

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._pods = world.registry.store.collection("pods")
        #: The pods that name a claim, by its key.
        self._users: dict[str, set[str]] = {}

    def observe(self, happening: Happening) -> None:
        super().observe(happening)
        event = happening.event
        if happening.resource != "pods" or (event.type == "MODIFIED" and _uses_volumes(event.object)):
            return
        for key in _claims_of(event.object):
            users = self._users.setdefault(key, set())
            (users.discard if event.type == "DELETED" else users.add)(happening.key)
            if not users:
                del self._users[key]
            self.reconcile_soon(key)

    def is_used(self, key: str, found: Object) -> bool:
        pods = [self._pods.get(user) for user in self._users.get(key, ())]
        return any(pod is not None and _uses_volumes(pod) for pod in pods)


class VolumeProtection(_Protection):
    resource = "persistentvolumes"
    component = "pv-protection-controller"
    finalizer = "kubernetes.io/pv-protection"

    def is_used(self, key: str, found: Object) -> bool:
        return bool(found["status"].get("phase") == "Bound")
