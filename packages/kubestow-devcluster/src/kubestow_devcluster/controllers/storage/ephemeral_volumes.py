"""The ephemeral volume controller: creates the claims of generic ephemeral volumes, owned by the pod."""

from __future__ import annotations

from kubestow.api.meta import decode
from kubestow.api.storage import PersistentVolumeClaim
from kubestow.rules.claims import ephemeral_claim, ownership_problem
from kubestow_devcluster.apiserver.schema.types import Object
from kubestow_devcluster.controllers.controller import Controller, ObjectChange, key_of

__all__ = ["EphemeralVolumeController"]

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
