"""Volumes and claims in use: protection controllers, and the claims of generic ephemeral volumes.

The protection controllers remove the finalizers of terminating volumes and claims once they are not in use.
A claim is in use while a bound pod that has not finished refers to it; a volume is in use while it is bound.
The claims of generic ephemeral volumes are owned by their pod.
"""

from __future__ import annotations

from typing import Any, ClassVar

import msgspec

from kubestow.api.meta import decode
from kubestow.api.storage import PersistentVolumeClaim
from kubestow.rules.claims import ephemeral_claim, ephemeral_claim_name, ownership_problem
from kubestow_devcluster.apiserver.schema.types import Object
from kubestow_devcluster.apiserver.storage.store import StoredObject
from kubestow_devcluster.component_base.stored_objects import is_pod_finished, is_terminating, node_name_of
from kubestow_devcluster.controllers.controller import Controller, ControllerContext, ObjectChange, key_of


class _ClaimVolumeSource(msgspec.Struct, frozen=True, rename="camel"):
    claim_name: str = ""


class _PodVolume(msgspec.Struct, frozen=True, rename="camel"):
    name: str = ""
    persistent_volume_claim: _ClaimVolumeSource | None = None
    ephemeral: dict[str, Any] | None = None


class _PodSpec(msgspec.Struct, frozen=True):
    volumes: tuple[_PodVolume, ...] | None = ()


class _PodVolumes(msgspec.Struct, frozen=True):
    """The volumes of a pod."""

    spec: _PodSpec


def _claim_keys(pod: StoredObject) -> set[str]:
    """The keys of the claims that a pod uses."""
    if b'"persistentVolumeClaim":' not in pod.data and b'"ephemeral":' not in pod.data:
        return set()
    keys = set()
    for volume in msgspec.json.decode(pod.data, type=_PodVolumes).spec.volumes or ():
        if volume.persistent_volume_claim is not None:
            keys.add(f"{pod.namespace}/{volume.persistent_volume_claim.claim_name}")
        elif volume.ephemeral is not None:
            keys.add(f"{pod.namespace}/{ephemeral_claim_name(pod.name, volume.name)}")
    return keys


def _uses_volumes(pod: StoredObject) -> bool:
    return bool(node_name_of(pod)) and not is_pod_finished(pod)


class _ProtectionController(Controller):
    """Removes ``finalizer`` from terminating objects that are not in use."""

    finalizer: ClassVar[str]

    def reconcile(self, key: str) -> None:
        stored = self.registry.store.collection(self.resource).get(key)
        if stored is None or not is_terminating(stored):
            return
        current = self.kind.decode(stored)
        if self.finalizer in (current["metadata"].get("finalizers") or ()) and not self.is_in_use(key, current):
            self.remove_finalizer(self.kind, stored.namespace, stored.name, self.finalizer)

    def is_in_use(self, key: str, current: Object) -> bool:
        raise NotImplementedError


class PVCProtectionController(_ProtectionController):
    resource = "persistentvolumeclaims"
    watched = frozenset({"pods"})
    component = "pvc-protection-controller"
    finalizer = "kubernetes.io/pvc-protection"

    def __init__(self, context: ControllerContext) -> None:
        super().__init__(context)
        self._pods = context.registry.store.collection("pods")
        #: The keys of the pods that refer to a claim, by the claim's key.
        self._users: dict[str, set[str]] = {}

    def handle_change(self, change: ObjectChange) -> None:
        super().handle_change(change)
        event = change.event
        if change.resource != "pods" or (event.type == "MODIFIED" and _uses_volumes(event.object)):
            return
        for claim in _claim_keys(event.object):
            users = self._users.setdefault(claim, set())
            (users.discard if change.is_deletion else users.add)(change.key)
            if not users:
                del self._users[claim]
            self.enqueue(claim)

    def is_in_use(self, key: str, current: Object) -> bool:
        pods = [self._pods.get(user) for user in self._users.get(key, ())]
        return any(pod is not None and _uses_volumes(pod) for pod in pods)


class PVProtectionController(_ProtectionController):
    resource = "persistentvolumes"
    component = "pv-protection-controller"
    finalizer = "kubernetes.io/pv-protection"

    def is_in_use(self, key: str, current: Object) -> bool:
        return bool(current["status"].get("phase") == "Bound")


_CLAIMS = "persistentvolumeclaims"


class EphemeralVolumeController(Controller):
    resource = "pods"
    component = "ephemeral_volume"

    def handle_change(self, change: ObjectChange) -> None:
        event = change.event
        if event.type == "ADDED" and b'"volumeClaimTemplate":' in event.object.data:
            self.enqueue(change.key)

    def reconcile(self, key: str) -> None:
        pod = self.get(key)
        if pod is None or "deletionTimestamp" in pod["metadata"]:
            return
        for volume in pod["spec"].get("volumes") or ():
            if volume.get("ephemeral", {}).get("volumeClaimTemplate") is not None:
                self._ensure_claim(pod, ephemeral_claim(pod["metadata"], volume))

    def _ensure_claim(self, pod: Object, claim: Object) -> None:
        namespace, kind = pod["metadata"]["namespace"], self.registry.scheme[_CLAIMS]
        key = f"{namespace}/{claim['metadata']['name']}"
        existing = self.registry.store.collection(_CLAIMS).get(key)
        if existing is None:
            self.registry.create(kind, namespace, kind.struct.read(claim, []))
            return
        found = decode(PersistentVolumeClaim, existing.data)
        problem = ownership_problem(found, pod=key_of(pod), pod_uid=pod["metadata"]["uid"])
        if problem is not None:
            self.record_warning(pod, "WarningVolumeConflict", problem)
