"""The history of a StatefulSet's or DaemonSet's pod template, kept as ControllerRevision objects.

The revision with the highest number is that of the current template. When a template returns to an earlier state, as in
a rollback, its revision gets a new number.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import msgspec

from kubestow.rules.owners import template_hash
from kubestow_devcluster.apiserver.kinds.kind import Kind
from kubestow_devcluster.apiserver.registry.deletion import DeleteOptions
from kubestow_devcluster.apiserver.schema.types import Object
from kubestow_devcluster.apiserver.storage.selectors import matches_label_selector
from kubestow_devcluster.component_base.stored_objects import controller_of, new_controller_ref, owner_refs_of
from kubestow_devcluster.controllers.controller import Controller, key_of


class ControllerRevisionHistory:
    """The revisions of the objects of one controller; ``hash_label`` is the label of a revision that has its hash."""

    def __init__(self, controller: Controller, *, hash_label: str) -> None:
        self._controller, self._hash_label = controller, hash_label
        self._registry = controller.registry
        self._kind: Kind = controller.registry.scheme["controllerrevisions.apps"]

    def sync(self, owner: Object) -> list[Object]:
        """Ensure that the newest revision is the current template's. Returns all revisions, oldest first."""
        revisions = self._claim_revisions(owner)
        patch = {"spec": {"template": {**owner["spec"]["template"], "$patch": "replace"}}}
        # Clients compare the stored bytes, so keys are sorted as in Go's encoding of maps.
        data = msgspec.json.decode(msgspec.json.encode(patch, order="sorted"))
        equal = [revision for revision in revisions if revision["data"] == data]
        if equal and equal[-1] is revisions[-1]:
            return revisions
        number = max([revision["revision"] for revision in revisions], default=0) + 1
        if not equal:
            return [*revisions, self._create(owner, data, number)]

        def renumbered(old: Object) -> Object:
            return {**old, "metadata": dict(old["metadata"]), "revision": number}

        metadata = equal[-1]["metadata"]
        stored = self._registry.update(self._kind, metadata["namespace"], metadata["name"], renumbered)
        return [*(revision for revision in revisions if revision is not equal[-1]), self._kind.decode(stored)]

    def hash_of(self, revision: Object) -> str:
        hash_: str = (revision["metadata"].get("labels") or {}).get(self._hash_label, "")
        return hash_

    def truncate(self, owner: Object, revisions: list[Object], live: Collection[str]) -> None:
        """Delete the oldest revisions beyond revisionHistoryLimit; those named in ``live`` stay and do not count."""
        unused = [revision for revision in revisions if revision["metadata"]["name"] not in live]
        surplus = max(0, len(unused) - owner["spec"].get("revisionHistoryLimit", 10))
        for revision in unused[:surplus]:
            metadata = revision["metadata"]
            self._registry.delete(
                self._kind, metadata["namespace"], metadata["name"], DeleteOptions(uid=metadata["uid"])
            )

    def _claim_revisions(self, owner: Object) -> list[Object]:
        """The revisions of the owner, orphans that match its selector included, which it adopts."""
        metadata = owner["metadata"]
        claimed = []
        for stored in self._registry.store.collection(self._kind.storage).snapshot(f"{metadata['namespace']}/"):
            controller = controller_of(owner_refs_of(stored))
            if controller is None and matches_label_selector(owner["spec"]["selector"], stored.labels):
                reference = new_controller_ref(self._controller.kind, owner)
                self._controller.update_owner_references(self._kind, stored.namespace, stored.name, add=[reference])
                claimed.append(self._kind.decode(self._registry.get(self._kind, stored.namespace, stored.name)))
            elif controller is not None and controller.uid == metadata["uid"]:
                claimed.append(self._kind.decode(stored))
        return sorted(claimed, key=lambda revision: (revision["revision"], revision["metadata"]["creationTimestamp"]))

    def _create(self, owner: Object, data: Object, number: int) -> Object:
        owner_metadata, template = owner["metadata"], owner["spec"]["template"]
        namespace, prefix = owner_metadata["namespace"], f"{key_of(owner)}-"
        # Another owner of the same name, of another kind or deleted, may have a revision with the same hash.
        existing = self._registry.store.collection(self._kind.storage).snapshot(prefix)
        hash_ = template_hash(template, {stored.key.removeprefix(prefix) for stored in existing})
        metadata: dict[str, Any] = {
            "name": f"{owner_metadata['name']}-{hash_}",
            "labels": {**(template.get("metadata", {}).get("labels") or {}), self._hash_label: hash_},
            "ownerReferences": [new_controller_ref(self._controller.kind, owner)],
        }
        if owner_metadata.get("annotations"):
            metadata["annotations"] = dict(owner_metadata["annotations"])
        new = {"metadata": metadata, "data": data, "revision": number}
        return self._kind.decode(self._registry.create(self._kind, namespace, self._kind.struct.read(new, [])))
