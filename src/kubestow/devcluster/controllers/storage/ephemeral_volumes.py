"""Generic ephemeral volumes: a claim for each, made from the template in the pod and owned by the pod."""

from __future__ import annotations

from kubestow.devcluster.apiserver.resources import Object
from kubestow.devcluster.controllers.controller import Controller, Happening
from kubestow.devcluster.controllers.owners import owner_reference, owners_of

__all__ = ["EphemeralVolumeController"]

_CLAIMS = "persistentvolumeclaims"


class EphemeralVolumeController(Controller):
    resource = "pods"
    component = "ephemeral_volume"

    def observe(self, happening: Happening) -> None:
        event = happening.event
        if (
            happening.resource == self.resource
            and event.type == "ADDED"
            and b'"volumeClaimTemplate":' in event.object.data
        ):
            self.reconcile_soon(happening.key)

    def reconcile(self, key: str) -> None:
        pod = self.find(key)
        if pod is None or "deletionTimestamp" in pod["metadata"]:
            return
        for volume in pod["spec"].get("volumes") or ():
            template = volume.get("ephemeral", {}).get("volumeClaimTemplate")
            if template is not None:
                self._provide(pod, f"{pod['metadata']['name']}-{volume['name']}", template)

    def _provide(self, pod: Object, name: str, template: Object) -> None:
        namespace = pod["metadata"]["namespace"]
        found = self.registry.store.collection(_CLAIMS).get(f"{namespace}/{name}")
        if found is not None:
            if pod["metadata"]["uid"] not in {owner.uid for owner in owners_of(found)}:
                message = f"PVC {namespace}/{name} was not created for pod {self._name(pod)} (pod is not owner)"
                self.warn(pod, "WarningVolumeConflict", message)
            return
        described = template.get("metadata") or {}
        identity = {field: described[field] for field in ("labels", "annotations") if described.get(field)}
        identity |= {"name": name, "ownerReferences": [owner_reference(self.kind, pod)]}
        kind = self.registry.catalog[_CLAIMS]
        new = kind.struct.read({"metadata": identity, "spec": template.get("spec") or {}}, [])
        self.registry.create(kind, namespace, new)

    def _name(self, pod: Object) -> str:
        return self.kind.key(pod["metadata"]["namespace"], pod["metadata"]["name"])
