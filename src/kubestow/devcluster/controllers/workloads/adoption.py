"""Adopting and releasing: pods belong to the object whose selector they match, however they came to be.

A pod that nobody controls and that matches is adopted; one that no longer matches is let go and runs on by itself. What
belongs to an object that is being deleted is left as it is.
"""

from __future__ import annotations

from kubestow.devcluster.apiserver.resources import Object
from kubestow.devcluster.apiserver.selectors import selects
from kubestow.devcluster.controllers.controller import Happening, PodController, key_of
from kubestow.devcluster.controllers.owners import owner_reference
from kubestow.devcluster.controllers.pods import Pod

__all__ = ["AdoptingController"]


class AdoptingController(PodController):
    """A controller whose objects have the pods that their selector matches."""

    def observe(self, happening: Happening) -> None:
        super().observe(happening)
        event = happening.event
        if happening.resource != "pods" or event.type == "DELETED" or happening.owners or not event.object.labels:
            return
        if event.previous is None or happening.previous_owners or event.previous.labels != event.object.labels:
            self._find_adopters(event.object.namespace, event.object.labels)

    def _find_adopters(self, namespace: str, labels: dict[str, str]) -> None:
        """A pod that nobody controls has come or changed its labels."""
        for stored in self.registry.store.collection(self.resource).snapshot(f"{namespace}/"):
            if selects(self.selector(self.kind.decode(stored)), labels):
                self.reconcile_soon(stored.key)

    def selector(self, owner: Object) -> Object:
        """The label selector of an object."""
        found: Object = owner["spec"]["selector"]
        return found

    def may_have(self, owner: Object, pod: Pod) -> bool:
        """Whether a pod that matches can be one of the object's."""
        return True

    def claimed(self, owner: Object) -> list[Pod]:
        """Adopt and release. The pods that belong to the object then, the oldest first."""
        identity = owner["metadata"]
        pods = self.pods.controlled(self.kind.name, key_of(owner), identity["uid"])
        self.rest_after(key_of(owner), len(pods))
        if "deletionTimestamp" in identity:
            return pods
        selector, reference = self.selector(owner), owner_reference(self.kind, owner)
        kept = []
        for pod in pods:
            if pod.is_deleted or selects(selector, pod.metadata.labels):
                kept.append(pod)
            else:
                self.change_pod(pod, lambda metadata: _disown(metadata, reference["uid"]))
        for pod in list(self.pods.free(identity["namespace"])):
            if pod.is_active and selects(selector, pod.metadata.labels) and self.may_have(owner, pod):
                self.change_pod(pod, lambda metadata: _own(metadata, reference))
                kept.append(pod)
        return kept


def _own(metadata: Object, reference: Object) -> None:
    metadata["ownerReferences"] = [*(metadata.get("ownerReferences") or ()), reference]


def _disown(metadata: Object, uid: str) -> None:
    left = [one for one in metadata["ownerReferences"] if one["uid"] != uid]
    metadata["ownerReferences"] = left
    if not left:
        del metadata["ownerReferences"]
