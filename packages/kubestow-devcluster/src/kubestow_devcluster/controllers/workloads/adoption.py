"""Claiming pods by selector: adoption of matching orphans, release of pods that no longer match.

The rules are those of kube-controller-manager's PodControllerRefManager: terminating pods are neither adopted nor
released, and an owner that is being deleted does neither.
"""

from __future__ import annotations

from kubestow_devcluster.apiserver.schema.types import Object
from kubestow_devcluster.apiserver.storage.selectors import matches_label_selector
from kubestow_devcluster.component_base.stored_objects import new_controller_ref
from kubestow_devcluster.controllers.controller import ObjectChange, PodController, key_of
from kubestow_devcluster.controllers.pod_index import PodView


class AdoptingController(PodController):
    """A controller whose objects claim the pods that match their selector."""

    def handle_change(self, change: ObjectChange) -> None:
        super().handle_change(change)
        event = change.event
        if change.resource != "pods" or change.is_deletion or change.owner_refs or not event.object.labels:
            return
        if event.previous is None or change.previous_owner_refs or event.previous.labels != event.object.labels:
            # Enqueue the objects that could adopt an orphan with these labels.
            for stored in self.registry.store.collection(self.resource).snapshot(f"{event.object.namespace}/"):
                if matches_label_selector(self.selector(self.kind.decode(stored)), event.object.labels):
                    self.enqueue(stored.key)

    def selector(self, owner: Object) -> Object:
        """The label selector of an object."""
        selector: Object = owner["spec"]["selector"]
        return selector

    def can_adopt(self, owner: Object, pod: PodView) -> bool:
        """Whether the owner may adopt a pod that matches its selector."""
        return True

    def claim_pods(self, owner: Object) -> list[PodView]:
        """Adopt and release pods. Returns the owner's pods, oldest first, newly adopted ones last."""
        metadata = owner["metadata"]
        pods = self.pods.controlled_by(self.kind.name, key_of(owner), metadata["uid"])
        self.throttle(key_of(owner), len(pods))
        if "deletionTimestamp" in metadata:
            return pods
        released = {pod.key for pod in self._release_pods(owner)}
        return [*(pod for pod in pods if pod.key not in released), *self._adopt_pods(owner)]

    def adopt_and_release(self, owner: Object) -> bool:
        """Adopt and release pods. Returns whether there were any; their changes enqueue the owner again."""
        if "deletionTimestamp" in owner["metadata"]:
            return False
        return bool([*self._release_pods(owner), *self._adopt_pods(owner)])

    def _release_pods(self, owner: Object) -> list[PodView]:
        """Release the pods that do not match the owner's selector. Costs nothing per pod if all of them match."""
        uid, selector = owner["metadata"]["uid"], self.selector(owner)
        pods = self.pods.of_controller(self.kind.name, key_of(owner), uid)
        if all(matches_label_selector(selector, labels) for labels, _ in pods.label_sets()):
            return []
        released = [
            pod for pod in pods if not pod.is_terminating and not matches_label_selector(selector, pod.metadata.labels)
        ]
        for pod in released:
            self.update_owner_references(self.pod_kind, pod.metadata.namespace, pod.name, remove={uid})
        return released

    def _adopt_pods(self, owner: Object) -> list[PodView]:
        """Adopt the orphans that match the owner's selector."""
        selector, controller_ref = self.selector(owner), new_controller_ref(self.kind, owner)
        adopted = [
            pod
            for pod in self.pods.orphans(owner["metadata"]["namespace"])
            if pod.is_active and matches_label_selector(selector, pod.metadata.labels) and self.can_adopt(owner, pod)
        ]
        for pod in adopted:
            self.update_owner_references(self.pod_kind, pod.metadata.namespace, pod.name, add=[controller_ref])
        return adopted
