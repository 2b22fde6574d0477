"""The volume side of the persistent volume controller: phases Available, Bound and Released, and the reclaim policy.

A released volume is deleted if its reclaim policy is Delete and a provisioner created it. Released volumes that were
created by hand are kept, because there is no volume plugin that could delete or recycle them.
"""

from __future__ import annotations

from kubestow.api.storage import BOUND_BY_CONTROLLER
from kubestow_devcluster.apiserver.registry.deletion import DeleteOptions
from kubestow_devcluster.apiserver.schema.types import Object
from kubestow_devcluster.apiserver.storage.store import StoredObject
from kubestow_devcluster.controllers.controller import Controller, ControllerContext, ObjectChange

__all__ = ["PROVISIONED_BY", "PersistentVolumeController"]

#: Annotation of a volume: the provisioner that created it.
PROVISIONED_BY = "pv.kubernetes.io/provisioned-by"

_CLAIMS = "persistentvolumeclaims"


class PersistentVolumeController(Controller):
    resource = "persistentvolumes"
    watched = frozenset({_CLAIMS})
    component = "persistentvolume-controller"

    def __init__(self, context: ControllerContext) -> None:
        super().__init__(context)
        self._claim_kind = context.registry.scheme[_CLAIMS]
        #: The volumes whose claimRef names a claim, by the claim's key.
        self._volumes_of: dict[str, set[str]] = {}

    def handle_change(self, change: ObjectChange) -> None:
        super().handle_change(change)
        event = change.event
        if change.resource == _CLAIMS:
            volume = self._claim_kind.decode(event.object)["spec"].get("volumeName")
            for name in self._volumes_of.get(change.key, set()) | ({volume} if volume else set()):
                self.enqueue(name)
        elif change.resource == self.resource:
            if event.previous is not None:
                self._volumes_of.get(self._claim_key(event.previous), set()).discard(event.object.name)
            if not change.is_deletion and (claim := self._claim_key(event.object)):
                self._volumes_of.setdefault(claim, set()).add(event.object.name)

    def _claim_key(self, volume: StoredObject) -> str:
        """The key of the claim in the volume's claimRef; empty without one."""
        reference = self.kind.decode(volume)["spec"].get("claimRef")
        return f"{reference.get('namespace')}/{reference.get('name')}" if reference else ""

    def reconcile(self, key: str) -> None:
        volume = self.get(key)
        if volume is None:
            return
        reference = volume["spec"].get("claimRef") or {}
        if not reference.get("uid"):
            self._set_phase(volume, "Available")
            return
        claim = self.get(f"{reference['namespace']}/{reference['name']}", self._claim_kind)
        if claim is None or claim["metadata"]["uid"] != reference["uid"]:
            self._release(volume)
        elif claim["spec"].get("volumeName", key) != key:
            self._unbind(volume)

    def _set_phase(self, volume: Object, phase: str) -> Object:
        if volume["status"].get("phase") != phase:
            volume["status"] = {"phase": phase, "lastPhaseTransitionTime": self.registry.now()}
            volume = self.kind.decode(self.registry.commit(self.kind, volume))
        return volume

    def _unbind(self, volume: Object) -> None:
        """Release a volume whose claim is bound to another one, or make it available if this controller bound it."""
        annotations = volume["metadata"].get("annotations") or {}
        if _is_reclaimed_by_deletion(volume):
            self._release(volume)
        elif annotations.pop(BOUND_BY_CONTROLLER, None) is not None:
            del volume["spec"]["claimRef"]
            volume["status"]["phase"] = ""
            self._set_phase(volume, "Available")

    def _release(self, volume: Object) -> None:
        volume = self._set_phase(volume, "Released")
        if _is_reclaimed_by_deletion(volume) and "deletionTimestamp" not in volume["metadata"]:
            deletion = DeleteOptions(uid=volume["metadata"]["uid"])
            self.registry.delete(self.kind, "", volume["metadata"]["name"], deletion)


def _is_reclaimed_by_deletion(volume: Object) -> bool:
    annotations = volume["metadata"].get("annotations") or {}
    return PROVISIONED_BY in annotations and volume["spec"].get("persistentVolumeReclaimPolicy") == "Delete"
