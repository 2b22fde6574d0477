"""Revisions: what the pod template of a stateful or daemon set was, kept as ControllerRevision objects.

The newest revision is the present template's. A template that comes back takes its old revision along under a new
number, which is how rolling back works: it is a change of the template like any other.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection
from typing import Any

import msgspec

from kubestow.devcluster.apiserver.registry.deletion import Deletion
from kubestow.devcluster.apiserver.resources import Kind, Object
from kubestow.devcluster.apiserver.selectors import selects
from kubestow.devcluster.apiserver.storage.store import Stored
from kubestow.devcluster.controllers.controller import Controller, key_of
from kubestow.devcluster.controllers.owners import controller_among, owner_reference, owners_of

__all__ = ["POD_LABEL", "Revisions", "template_hash"]

#: The label that names a pod's revision.
POD_LABEL = "controller-revision-hash"

_HASH_ALPHABET = "bcdfghjklmnpqrstvwxz2456789"


class Revisions:
    """The revisions of a controller's objects; ``label`` is the one that gives a revision's hash."""

    def __init__(self, controller: Controller, *, label: str) -> None:
        self._controller, self._label = controller, label
        self._registry = controller.registry
        self._kind: Kind = controller.registry.catalog["controllerrevisions.apps"]

    def settled(self, owner: Object) -> list[Object]:
        """All revisions of the owner, the oldest first; the last is that of its present template."""
        revisions = self._owned(owner)
        data = {"spec": {"template": {**owner["spec"]["template"], "$patch": "replace"}}}
        equal = [one for one in revisions if one["data"] == data]
        if equal and equal[-1] is revisions[-1]:
            return revisions
        number = max([one["revision"] for one in revisions], default=0) + 1
        if not equal:
            return [*revisions, self._create(owner, data, number)]

        def renumbered(old: Object) -> Object:
            return {**old, "metadata": dict(old["metadata"]), "revision": number}

        identity = equal[-1]["metadata"]
        stored = self._registry.update(self._kind, identity["namespace"], identity["name"], renumbered)
        return [*(one for one in revisions if one is not equal[-1]), self._kind.decode(stored)]

    def hash_of(self, revision: Object) -> str:
        found: str = (revision["metadata"].get("labels") or {}).get(self._label, "")
        return found

    def forget_old(self, owner: Object, revisions: list[Object], live: Collection[str]) -> None:
        """Delete the oldest revisions beyond the owner's limit; those named in ``live`` stay and do not count."""
        idle = [one for one in revisions if one["metadata"]["name"] not in live]
        surplus = max(0, len(idle) - owner["spec"].get("revisionHistoryLimit", 10))
        for one in idle[:surplus]:
            identity = one["metadata"]
            self._registry.delete(self._kind, identity["namespace"], identity["name"], Deletion(uid=identity["uid"]))

    def _owned(self, owner: Object) -> list[Object]:
        identity = owner["metadata"]
        found = []
        for stored in self._registry.store.collection(self._kind.storage).snapshot(f"{identity['namespace']}/"):
            controller = controller_among(owners_of(stored))
            if controller is None and selects(owner["spec"]["selector"], stored.labels):
                found.append(self._adopted(owner, stored))
            elif controller is not None and controller.uid == identity["uid"]:
                found.append(self._kind.decode(stored))
        return sorted(found, key=lambda one: (one["revision"], one["metadata"]["creationTimestamp"]))

    def _adopted(self, owner: Object, stored: Stored) -> Object:
        reference = owner_reference(self._controller.kind, owner)

        def own(metadata: Object) -> None:
            metadata["ownerReferences"] = [*(metadata.get("ownerReferences") or ()), reference]

        self._controller.change_metadata(self._kind, stored.namespace, stored.name, own)
        return self._kind.decode(self._registry.get(self._kind, stored.namespace, stored.name))

    def _create(self, owner: Object, data: Object, number: int) -> Object:
        identity, template = owner["metadata"], owner["spec"]["template"]
        namespace, prefix = identity["namespace"], f"{key_of(owner)}-"
        # A revision may have an owner of the same name: another kind's, or a former one that is being collected.
        others = self._registry.store.collection(self._kind.storage).snapshot(prefix)
        hash_ = template_hash(template, {one.key.removeprefix(prefix) for one in others})
        metadata: dict[str, Any] = {
            "name": f"{identity['name']}-{hash_}",
            "labels": {**(template.get("metadata", {}).get("labels") or {}), self._label: hash_},
            "ownerReferences": [owner_reference(self._controller.kind, owner)],
        }
        if identity.get("annotations"):
            metadata["annotations"] = dict(identity["annotations"])
        made = {"metadata": metadata, "data": data, "revision": number}
        return self._kind.decode(self._registry.create(self._kind, namespace, self._kind.struct.read(made, [])))


def template_hash(template: Object, taken: Collection[str]) -> str:
    """Ten characters that follow from the template, other than those that are taken."""
    content = msgspec.json.encode(template, order="deterministic")
    for salt in range(len(taken) + 1):
        digest = hashlib.blake2b(content, digest_size=10, salt=bytes([salt % 256])).digest()
        made = "".join(_HASH_ALPHABET[byte % len(_HASH_ALPHABET)] for byte in digest)
        if made not in taken:
            return made
    raise AssertionError("more salts than taken hashes")
