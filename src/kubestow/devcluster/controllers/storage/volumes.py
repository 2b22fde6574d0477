"""Persistent volumes: available, bound, or released when their claim is gone, and then kept or deleted.

A released volume is deleted if its reclaim policy says so and a provisioner made it; whoever made one by hand has to
take care of it, as there is nobody here who could wipe it.
"""

from __future__ import annotations

from kubestow.api.storage import BOUND_BY_CONTROLLER
from kubestow.devcluster.apiserver.registry.deletion import Deletion
from kubestow.devcluster.apiserver.resources import Object
from kubestow.devcluster.apiserver.storage.store import Stored
from kubestow.devcluster.controllers.controller import Controller, Happening, World

__all__ = ["PROVISIONED_BY", "VolumeController"]

#: Annotation of a volume: the provisioner that made it.
PROVISIONED_BY = "pv.kubernetes.io/provisioned-by"

_CLAIMS = "persistentvolumeclaims"


class VolumeController(Controller):
    resource = "persistentvolumes"
    component = "persistentvolume-controller"

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._claim_kind = world.registry.catalog[_CLAIMS]
        #: The volumes that refer to a claim, by its key.
        self._of_claims: dict[str, set[str]] = {}

    def observe(self, happening: Happening) -> None:
        super().observe(happening)
        event = happening.event
        if happening.resource == _CLAIMS:
            named = self._claim_kind.decode(event.object)["spec"].get("volumeName")
            for name in self._of_claims.get(happening.key, set()) | ({named} if named else set()):
                self.reconcile_soon(name)
        elif happening.resource == self.resource:
            if event.previous is not None:
                self._of_claims.get(self._claim_key(event.previous), set()).discard(event.object.name)
            if event.type != "DELETED" and (key := self._claim_key(event.object)):
                self._of_claims.setdefault(key, set()).add(event.object.name)

    def _claim_key(self, volume: Stored) -> str:
        """The claim that a volume refers to, if any."""
        reference = self.kind.decode(volume)["spec"].get("claimRef")
        return f"{reference.get('namespace')}/{reference.get('name')}" if reference else ""

    def reconcile(self, key: str) -> None:
        volume = self.find(key)
        if volume is None:
            return
        reference = volume["spec"].get("claimRef") or {}
        if not reference.get("uid"):
            self._set_phase(volume, "Available")
            return
        claim = self.find(f"{reference['namespace']}/{reference['name']}", self._claim_kind)
        if claim is None or claim["metadata"]["uid"] != reference["uid"]:
            self._release(volume)
        elif claim["spec"].get("volumeName", key) != key:
            self._let_go(volume)

    def _set_phase(self, volume: Object, phase: str) -> Object:
        if volume["status"].get("phase") != phase:
            volume["status"] = {"phase": phase, "lastPhaseTransitionTime": self.registry.now()}
            volume = self.kind.decode(self.registry.commit(self.kind, volume))
        return volume

    def _let_go(self, volume: Object) -> None:
        """The claim took another volume: whoever reserved this one for it, nobody needs it."""
        annotations = volume["metadata"].get("annotations") or {}
        if _is_to_be_deleted(volume):
            self._release(volume)
        elif annotations.pop(BOUND_BY_CONTROLLER, None) is not None:
            del volume["spec"]["claimRef"]
            volume["status"]["phase"] = ""
            self._set_phase(volume, "Available")

    def _release(self, volume: Object) -> None:
        volume = self._set_phase(volume, "Released")
        if _is_to_be_deleted(volume) and "deletionTimestamp" not in volume["metadata"]:
            deletion = Deletion(uid=volume["metadata"]["uid"])
            self.registry.delete(self.kind, "", volume["metadata"]["name"], deletion)


def _is_to_be_deleted(volume: Object) -> bool:
    annotations = volume["metadata"].get("annotations") or {}
    return PROVISIONED_BY in annotations and volume["spec"].get("persistentVolumeReclaimPolicy") == "Delete"
