"""The ephemeral volume controller: creates the claims of generic ephemeral volumes, owned by the pod."""

from __future__ import annotations

from kubestow_devcluster.apiserver.schema.types import Object
from kubestow_devcluster.component_base.stored_objects import new_controller_ref, owner_refs_of
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
            template = volume.get("ephemeral", {}).get("volumeClaimTemplate")
            if template is not None:
                self._ensure_claim(pod, f"{pod['metadata']['name']}-{volume['name']}", template)

    def _ensure_claim(self, pod: Object, name: str, template: Object) -> None:
        namespace = pod["metadata"]["namespace"]
        existing = self.registry.store.collection(_CLAIMS).get(f"{namespace}/{name}")
        if existing is not None:
            if pod["metadata"]["uid"] not in {owner.uid for owner in owner_refs_of(existing)}:
                message = f"PVC {namespace}/{name} was not created for pod {key_of(pod)} (pod is not owner)"
                self.record_warning(pod, "WarningVolumeConflict", message)
            return
        template_metadata = template.get("metadata") or {}
        metadata = {
            field: template_metadata[field] for field in ("labels", "annotations") if template_metadata.get(field)
        }
        metadata |= {"name": name, "ownerReferences": [new_controller_ref(self.kind, pod)]}
        kind = self.registry.scheme[_CLAIMS]
        new = kind.struct.read({"metadata": metadata, "spec": template.get("spec") or {}}, [])
        self.registry.create(kind, namespace, new)
