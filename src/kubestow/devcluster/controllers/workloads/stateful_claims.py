"""The claims of a stateful set's pods: made of its claim templates, one for each pod, and outliving it.

Without an owner a claim stays for ever. Where the set's retention policy is ``Delete`` the claim is made to belong to
what it should go with: the set, or a pod that is being taken away for good; the garbage collector does the rest.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from kubestow.devcluster.apiserver.resources import Kind, Object
from kubestow.devcluster.apiserver.statuses import Failure
from kubestow.devcluster.apiserver.storage.store import Stored
from kubestow.devcluster.controllers.controller import PodController
from kubestow.devcluster.controllers.owners import Owner, owner_reference, owners_of

__all__ = ["StatefulClaims"]


class StatefulClaims:
    """What the stateful set controller does about claims."""

    def __init__(self, controller: PodController) -> None:
        self._controller, self._registry = controller, controller.registry
        self._kind: Kind = controller.registry.catalog["persistentvolumeclaims"]

    def are_ready(self, stateful_set: Object, pod: str, uid: str = "") -> bool:
        """Make the claims of a pod, ``uid`` if there is one yet; whether none is about to go. Raises Failure."""
        ready = True
        for name, template in _templates(stateful_set, pod):
            stored = self._find(stateful_set, name)
            if stored is None:
                self._create(stateful_set, pod, name, template)
            else:
                ready = ready and not _is_going(stored) and not _is_of_former(owners_of(stored), pod, uid)
        return ready

    def keep_or_let_go(self, stateful_set: Object, pod: str, uid: str, *, condemned: bool) -> None:
        """Have a pod's claims belong to what they should go with."""
        for name, _ in _templates(stateful_set, pod):
            stored = self._find(stateful_set, name)
            if stored is None or _is_going(stored):
                continue
            ours = [self._reference(stateful_set, pod, uid, condemned=condemned)]
            wanted = {reference["uid"] for reference in ours if reference}
            mine = {stateful_set["metadata"]["uid"], uid}
            have = {owner.uid for owner in owners_of(stored)} & mine
            if have != wanted:
                self._give(stored, mine, [reference for reference in ours if reference])

    def _reference(self, stateful_set: Object, pod: str, uid: str, *, condemned: bool) -> Object | None:
        """The owner that a claim should have by the set's retention policy, if any."""
        policy = stateful_set["spec"]["persistentVolumeClaimRetentionPolicy"]
        if condemned and policy["whenScaled"] == "Delete":
            pod_kind = self._controller.pod_kind
            return owner_reference(pod_kind, {"metadata": {"name": pod, "uid": uid}})
        if policy["whenDeleted"] == "Delete":
            return owner_reference(self._controller.kind, stateful_set)
        return None

    def _give(self, stored: Stored, mine: set[str], references: list[Object]) -> None:
        def change(metadata: Object) -> None:
            others = [one for one in metadata.get("ownerReferences") or () if one["uid"] not in mine]
            metadata["ownerReferences"] = [*others, *references]
            if not metadata["ownerReferences"]:
                del metadata["ownerReferences"]

        self._controller.change_metadata(self._kind, stored.namespace, stored.name, change)

    def _find(self, stateful_set: Object, name: str) -> Stored | None:
        collection = self._registry.store.collection(self._kind.storage)
        return collection.get(f"{stateful_set['metadata']['namespace']}/{name}")

    def _create(self, stateful_set: Object, pod: str, name: str, template: Object) -> None:
        described = template.get("metadata") or {}
        selected = stateful_set["spec"]["selector"].get("matchLabels") or {}
        metadata: dict[str, Any] = {"name": name, "labels": {**(described.get("labels") or {}), **selected}}
        if described.get("annotations"):
            metadata["annotations"] = dict(described["annotations"])
        owner = self._reference(stateful_set, pod, "", condemned=False)
        if owner is not None:
            metadata["ownerReferences"] = [owner]
        claim = self._kind.struct.read({"metadata": metadata, "spec": dict(template["spec"])}, [])
        about, set_name = self._controller, stateful_set["metadata"]["name"]
        try:
            self._registry.create(self._kind, stateful_set["metadata"]["namespace"], claim)
        except Failure as refused:
            problem = f"create Claim {name} for Pod {pod} in StatefulSet {set_name} failed error: {refused.message}"
            about.warn(stateful_set, "FailedCreate", problem)
            raise
        message = f"create Claim {name} Pod {pod} in StatefulSet {set_name} success"
        about.tell(stateful_set, "SuccessfulCreate", message)


def _templates(stateful_set: Object, pod: str) -> Iterator[tuple[str, Object]]:
    """Each claim template with the name of the claim it makes for a pod."""
    for template in stateful_set["spec"].get("volumeClaimTemplates") or ():
        yield f"{template['metadata']['name']}-{pod}", template


def _is_going(stored: Stored) -> bool:
    return b'"deletionTimestamp":' in stored.data


def _is_of_former(owners: tuple[Owner, ...], pod: str, uid: str) -> bool:
    """Whether the claim goes with a pod of the same name that is gone."""
    return any(owner.kind == "Pod" and owner.name == pod and owner.uid != uid for owner in owners)
