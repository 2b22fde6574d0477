"""The resource claim controllers: create ResourceClaims from templates, and release those that are no longer in use.

A claim created for a pod is owned by it and deleted with it; ``status.resourceClaimStatuses`` of the pod has its name.
The scheduler allocates devices and reserves claims for pods. The reservation for a pod that has finished or was deleted
is removed here, and the allocation with the last reservation. Unlike in kube-controller-manager, pods that are created
with a node name get no reservation.
"""

from __future__ import annotations

from collections.abc import Iterator

from kubestow.rules.claims import POD_CLAIM_NAME, resource_claim
from kubestow_devcluster.apiserver import statuses
from kubestow_devcluster.apiserver.registry.registry import DeleteOptions
from kubestow_devcluster.apiserver.schema.types import Object
from kubestow_devcluster.apiserver.storage.store import StoredObject
from kubestow_devcluster.component_base.stored_objects import controller_of, is_pod_finished, owner_refs_of, uid_of
from kubestow_devcluster.controllers.controller import Controller, ControllerContext, ObjectChange

_CLAIMS = "resourceclaims.resource.k8s.io"
_TEMPLATES = "resourceclaimtemplates.resource.k8s.io"
#: Keeps a claim while devices are allocated for it.
_FINALIZER = "resource.kubernetes.io/delete-protection"


class ResourceClaimTemplateController(Controller):
    """Creates the claims of pods that reference a ResourceClaimTemplate."""

    resource = "pods"
    watched = frozenset({_CLAIMS})
    component = "resource_claim"

    def __init__(self, context: ControllerContext) -> None:
        super().__init__(context)
        self._claim_kind = context.registry.scheme[_CLAIMS]
        self._template_kind = context.registry.scheme[_TEMPLATES]
        #: The names of the claims created for pods, by the pod's uid and the name of its entry.
        self._created: dict[tuple[str, str], str] = {}

    def handle_change(self, change: ObjectChange) -> None:
        if change.resource == _CLAIMS:
            self._handle_claim(change)
        if change.resource != self.resource or change.is_deletion:
            return
        if b'"resourceClaimTemplateName":' in change.event.object.data:
            self.enqueue(change.key)

    def _handle_claim(self, change: ObjectChange) -> None:
        owner, stored = controller_of(change.owner_refs), change.event.object
        if owner is None or owner.kind != "Pod":
            return
        entry = (self._claim_kind.decode(stored)["metadata"].get("annotations") or {}).get(POD_CLAIM_NAME, "")
        self._created[owner.uid, entry] = stored.name
        if change.is_deletion:
            del self._created[owner.uid, entry]

    def reconcile(self, key: str) -> None:
        stored = self.registry.store.collection("pods").get(key)
        if stored is None or is_pod_finished(stored):
            return
        pod = self.kind.decode(stored)
        if "deletionTimestamp" in pod["metadata"]:
            return
        old: list[Object] = pod["status"].get("resourceClaimStatuses") or []
        known = {status["name"] for status in old}
        new = [
            {"name": entry["name"], "resourceClaimName": self._ensure_claim(pod, entry)}
            for entry in pod["spec"].get("resourceClaims") or ()
            if entry.get("resourceClaimTemplateName") and entry["name"] not in known
        ]
        if new:
            pod["status"]["resourceClaimStatuses"] = [*old, *new]
            self.registry.commit(self.kind, pod)

    def _ensure_claim(self, pod: Object, entry: Object) -> str:
        """The name of the claim for an entry of the pod, created unless it exists. Raises StatusError."""
        name = self._created.get((pod["metadata"]["uid"], entry["name"]))
        if name is not None:
            return name
        try:
            namespace, template_name = pod["metadata"]["namespace"], entry["resourceClaimTemplateName"]
            template = self._template_kind.decode(self.registry.get(self._template_kind, namespace, template_name))
            new = self._claim_kind.struct.read(resource_claim(pod["metadata"], entry["name"], template["spec"]), [])
            return self.registry.create(self._claim_kind, namespace, new).name
        except statuses.StatusError as failure:
            message = f"PodResourceClaim {entry['name']}: {failure.message}"
            self.record_warning(pod, "FailedResourceClaimCreation", message)
            raise


class ResourceClaimController(Controller):
    """Removes reservations of finished pods, deallocates unreserved claims and deletes claims of finished pods."""

    resource = _CLAIMS
    watched = frozenset({"pods"})
    component = "resource_claim"

    def __init__(self, context: ControllerContext) -> None:
        super().__init__(context)
        self._pods = context.registry.store.collection("pods")

    def handle_change(self, change: ObjectChange) -> None:
        super().handle_change(change)
        pod = change.event.object
        if change.resource == "pods" and (change.is_deletion or is_pod_finished(pod)):
            for name in self._claim_names(pod):
                self.enqueue(f"{pod.namespace}/{name}")

    def _claim_names(self, stored: StoredObject) -> Iterator[str]:
        if b'"resourceClaims":' not in stored.data and b'"extendedResourceClaimStatus":' not in stored.data:
            return
        pod = self.pod_kind.decode(stored)
        status = pod["status"]
        entries = (*(pod["spec"].get("resourceClaims") or ()), *(status.get("resourceClaimStatuses") or ()))
        for entry in (*entries, status.get("extendedResourceClaimStatus") or {}):
            if entry.get("resourceClaimName"):
                yield entry["resourceClaimName"]

    def reconcile(self, key: str) -> None:
        stored = self.registry.store.collection(_CLAIMS).get(key)
        if stored is None:
            return
        claim, namespace = self.kind.decode(stored), stored.namespace
        reserved_for: list[Object] = claim["status"].get("reservedFor") or []
        valid = [consumer for consumer in reserved_for if self._is_in_use_by(namespace, consumer)]
        is_terminating = "deletionTimestamp" in claim["metadata"]
        if len(valid) < len(reserved_for) or (is_terminating and not valid):
            # Leave only these reservations; without any, deallocate the claim and remove its finalizer.
            metadata = claim["metadata"]
            is_protected = _FINALIZER in (metadata.get("finalizers") or ())
            status = {**claim["status"], "reservedFor": valid}
            if not valid:
                del status["reservedFor"]
                if is_protected:
                    status.pop("allocation", None)
                    status.pop("devices", None)
            self.update_status(claim, status)
            if is_protected and not valid:
                self.remove_finalizer(self.kind, metadata["namespace"], metadata["name"], _FINALIZER)
        owner = controller_of(owner_refs_of(stored))
        if not valid and not is_terminating and owner is not None and owner.kind == "Pod":
            consumer = {"resource": "pods", "name": owner.name, "uid": owner.uid}
            if not self._is_in_use_by(namespace, consumer):
                self.registry.delete(self.kind, namespace, stored.name, DeleteOptions(uid=claim["metadata"]["uid"]))

    def _is_in_use_by(self, namespace: str, consumer: Object) -> bool:
        """Whether a consumer uses the claim or still can; consumers other than pods are assumed to."""
        if consumer.get("apiGroup") or consumer.get("resource") != "pods":
            return True
        stored = self._pods.get(f"{namespace}/{consumer['name']}")
        return stored is not None and not is_pod_finished(stored) and uid_of(stored) == consumer["uid"]
