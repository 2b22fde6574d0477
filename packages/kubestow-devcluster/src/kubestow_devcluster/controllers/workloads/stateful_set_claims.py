"""The PersistentVolumeClaims of a StatefulSet's pods: one for each pod and claim template; they outlive the pod.

A claim without an owner is kept. Where the retention policy is Delete, the claim gets an owner reference to the set, or
to a pod that is being scaled down, and the garbage collector deletes it with that owner.
"""

from __future__ import annotations

from kubestow.rules.workloads import stateful_set_claims
from kubestow_devcluster.apiserver.kinds.kind import Kind
from kubestow_devcluster.apiserver.schema.types import Object
from kubestow_devcluster.apiserver.statuses import StatusError
from kubestow_devcluster.apiserver.storage.store import StoredObject
from kubestow_devcluster.component_base.stored_objects import is_terminating, new_controller_ref, owner_refs_of
from kubestow_devcluster.controllers.controller import PodController

__all__ = ["StatefulSetClaims"]


class StatefulSetClaims:
    """Creates claims and updates their owner references, for the StatefulSet controller."""

    def __init__(self, controller: PodController) -> None:
        self._controller, self._registry = controller, controller.registry
        self._kind: Kind = controller.registry.scheme["persistentvolumeclaims"]

    def ensure(self, stateful_set: Object, pod: str, uid: str = "") -> bool:
        """Create the missing claims of a pod. Returns whether none of its claims is being deleted. Raises StatusError.

        ``uid`` is the pod's, empty if the pod does not exist yet.
        """
        is_ready = True
        for _, claim in stateful_set_claims(stateful_set, pod):
            stored = self._find(stateful_set, claim["metadata"]["name"])
            if stored is None:
                self._create(stateful_set, pod, claim)
            else:
                is_ready = is_ready and not is_terminating(stored) and not _is_owned_by_former_pod(stored, pod, uid)
        return is_ready

    def update_owner_references(self, stateful_set: Object, pod: str, uid: str, *, is_condemned: bool) -> None:
        """Make the owner references of a pod's claims those that the retention policy asks for."""
        for _, claim in stateful_set_claims(stateful_set, pod):
            stored = self._find(stateful_set, claim["metadata"]["name"])
            if stored is None or is_terminating(stored):
                continue
            reference = self._owner_reference(stateful_set, pod, uid, is_condemned=is_condemned)
            desired = {reference["uid"]} if reference else set()
            managed = {stateful_set["metadata"]["uid"], uid}
            if {owner.uid for owner in owner_refs_of(stored)} & managed != desired:
                self._replace_references(stored, managed, [reference] if reference else [])

    def _owner_reference(self, stateful_set: Object, pod: str, uid: str, *, is_condemned: bool) -> Object | None:
        """The owner reference of a pod's claim by the set's retention policy; None if the claim is kept."""
        policy = stateful_set["spec"]["persistentVolumeClaimRetentionPolicy"]
        if is_condemned and policy["whenScaled"] == "Delete":
            return new_controller_ref(self._controller.pod_kind, {"metadata": {"name": pod, "uid": uid}})
        if policy["whenDeleted"] == "Delete":
            return new_controller_ref(self._controller.kind, stateful_set)
        return None

    def _replace_references(self, stored: StoredObject, managed: set[str], references: list[Object]) -> None:
        def replace(metadata: Object) -> None:
            others = [ref for ref in metadata.get("ownerReferences") or () if ref["uid"] not in managed]
            metadata["ownerReferences"] = [*others, *references]
            if not metadata["ownerReferences"]:
                del metadata["ownerReferences"]

        self._controller.update_metadata(self._kind, stored.namespace, stored.name, replace)

    def _find(self, stateful_set: Object, name: str) -> StoredObject | None:
        collection = self._registry.store.collection(self._kind.storage)
        return collection.get(f"{stateful_set['metadata']['namespace']}/{name}")

    def _create(self, stateful_set: Object, pod: str, claim: Object) -> None:
        name = claim["metadata"]["name"]
        reference = self._owner_reference(stateful_set, pod, "", is_condemned=False)
        if reference is not None:
            claim["metadata"]["ownerReferences"] = [reference]
        claim = self._kind.struct.read(claim, [])
        set_name = stateful_set["metadata"]["name"]
        try:
            self._registry.create(self._kind, stateful_set["metadata"]["namespace"], claim)
        except StatusError as failure:
            message = f"create Claim {name} for Pod {pod} in StatefulSet {set_name} failed error: {failure.message}"
            self._controller.record_warning(stateful_set, "FailedCreate", message)
            raise
        message = f"create Claim {name} Pod {pod} in StatefulSet {set_name} success"
        self._controller.record_event(stateful_set, "SuccessfulCreate", message)


def _is_owned_by_former_pod(claim: StoredObject, pod: str, uid: str) -> bool:
    """Whether the claim is owned by a deleted pod of the same name, and so will be deleted."""
    return any(owner.kind == "Pod" and owner.name == pod and owner.uid != uid for owner in owner_refs_of(claim))
