"""The verbs on objects: create, update, delete. The only writer of the store.

Every write passes here, whether it came over HTTP or from a controller inside the process: defaults, ownership,
admission, what the kind's strategy prepares and validates, then one commit. Objects are dicts without ``kind`` and
``apiVersion``, already read through the kind's schema; refusals are raised as :class:`StatusError`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from random import Random
from uuid import UUID

import msgspec

from kubestow.api.timestamps import timestamp
from kubestow.devcluster.apiserver import field_errors, statuses
from kubestow.devcluster.apiserver import field_management as ownership
from kubestow.devcluster.apiserver.registry.admission import Admission
from kubestow.devcluster.apiserver.registry.custom_resources import DEFINITIONS, Definitions
from kubestow.devcluster.apiserver.registry.deletion import (
    DeleteOptions,
    begin_deletion,
    check_preconditions,
    is_released,
)
from kubestow.devcluster.apiserver.resources import Kind, Object, Scheme, metadata
from kubestow.devcluster.apiserver.storage.store import Store, StoredObject

__all__ = ["SYSTEM", "Registry", "WriteOptions"]

_SUFFIX_ALPHABET = "bcdfghjklmnpqrstvwxz2456789"
_MAX_GENERATED = 63 - 5


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """How a write is made: by which field manager, and whether only as a rehearsal."""

    field_manager: str = "unknown"
    dry_run: bool = False


#: Writes of the server's own controllers; they are not recorded in managedFields.
SYSTEM = WriteOptions(field_manager="")


class Registry:
    """``clock`` gives the present moment, ``random`` the uids and name suffixes."""

    def __init__(self, store: Store, scheme: Scheme, *, clock: Callable[[], datetime], random: Random) -> None:
        self.store, self.scheme = store, scheme
        self.admission = Admission(store)
        self._definitions = Definitions(self, store, scheme)
        self.clock, self._random = clock, random
        self._stamp: tuple[int, str] = (0, "")

    def now(self) -> str:
        """The present second, as the API writes it."""
        moment = self.clock()
        second = int(moment.timestamp())
        if self._stamp[0] != second:
            self._stamp = (second, timestamp(moment))
        return self._stamp[1]

    def get(self, kind: Kind, namespace: str, name: str) -> StoredObject:
        """Raises a 404 Failure."""
        stored = self.store.collection(kind.storage).get(kind.key(namespace, name))
        if stored is None:
            raise statuses.not_found(kind, name)
        return stored

    # Create

    def create(self, kind: Kind, namespace: str, new: Object, write: WriteOptions = SYSTEM) -> StoredObject:
        """Store a new object. ``new`` is taken over and changed."""
        self._name(kind, namespace, new)
        self._own(kind, None, new, write, "")
        return self._create(kind, new, write)

    def create_applied(self, kind: Kind, namespace: str, new: Object, write: WriteOptions) -> StoredObject:
        """Store a new object whose managedFields are settled already."""
        self._name(kind, namespace, new)
        return self._create(kind, new, write)

    def _name(self, kind: Kind, namespace: str, new: Object) -> None:
        identity = new.setdefault("metadata", {})
        if identity.get("resourceVersion"):
            raise statuses.bad_request("resourceVersion should not be set on objects to be created")
        if kind.namespaced:
            identity["namespace"] = namespace
        else:
            identity.pop("namespace", None)
        if not identity.get("name") and identity.get("generateName"):
            identity["name"] = self._generated(identity["generateName"])
        kind.strategy.default(new)

    def _generated(self, prefix: str) -> str:
        suffix = "".join(self._random.choice(_SUFFIX_ALPHABET) for _ in range(5))
        return prefix[:_MAX_GENERATED] + suffix

    def _create(self, kind: Kind, new: Object, write: WriteOptions) -> StoredObject:
        strategy, now = kind.strategy, self.now()
        self.admission.admit(kind, new)
        identity = new["metadata"]
        identity["uid"] = str(UUID(int=self._random.getrandbits(128), version=4))
        identity["creationTimestamp"] = now
        for field in ("deletionTimestamp", "deletionGracePeriodSeconds", "generation", "selfLink"):
            identity.pop(field, None)
        if strategy.has_generation:
            identity["generation"] = 1
        strategy.prepare_create(new, now)
        name = identity.get("name", "")
        causes = metadata.validate(identity, name_errors=strategy.name_errors(name)) + strategy.validate(new)
        if causes:
            raise statuses.invalid(kind.name, name, causes, group=kind.group if not strategy.converts else "")
        key = kind.key(identity.get("namespace", ""), name)
        if self.store.collection(kind.storage).get(key) is not None:
            taken = statuses.generate_name_conflict if identity.get("generateName") else statuses.already_exists
            raise taken(kind, name)
        return self.commit(kind, new, dry_run=write.dry_run, version=not write.dry_run)

    # Update

    def update(
        self,
        kind: Kind,
        namespace: str,
        name: str,
        change: Callable[[Object], Object],
        write: WriteOptions = SYSTEM,
        *,
        subresource: str = "",
        owned: bool = False,
    ) -> StoredObject:
        """Replace an object by what ``change`` makes of it; the same object again is no write.

        ``subresource`` is ``status`` for writes of the status alone. ``owned``: managedFields are settled already.
        """
        stored = self.get(kind, namespace, name)
        old = kind.decode(stored)
        new = change(old)
        settled = new["metadata"].get("managedFields") if owned else None
        self._restore(kind, new, old, stored, subresource)
        if settled:
            new["metadata"]["managedFields"] = settled
        kind.strategy.default(new)
        if new == old:
            return stored
        kind.strategy.prepare_update(new, old, self.now())
        self._count_generation(kind, new, old)
        if not owned:
            self._own(kind, old, new, write, subresource)
        self._validate_update(kind, new, old, subresource)
        if is_released(kind, new):
            self.commit_deletion(kind, new, dry_run=write.dry_run)
            new["metadata"]["resourceVersion"] = str(stored.resource_version)
            return self._encoded(kind, new, stored.resource_version)
        return self.commit(kind, new, dry_run=write.dry_run)

    def _restore(self, kind: Kind, new: Object, old: Object, stored: StoredObject, subresource: str) -> None:
        """Put back what this write may not touch, and check the version it was based on."""
        identity, before = new["metadata"], old["metadata"]
        based_on = identity.get("resourceVersion", "")
        if not based_on and not kind.strategy.unconditional_update:
            cause = field_errors.invalid_value("metadata.resourceVersion", 0, "must be specified for an update")
            raise statuses.invalid(kind.resource, stored.name, [cause], group=kind.group)
        if based_on and based_on != before["resourceVersion"]:
            raise statuses.conflict(kind, stored.name)
        for field in ("deletionTimestamp", "deletionGracePeriodSeconds", "generation"):
            identity.pop(field, None)
            if field in before:
                identity[field] = before[field]
        for field in ("name", "namespace", "uid", "creationTimestamp", "managedFields"):
            if field not in identity and field in before:
                identity[field] = before[field]
        identity["resourceVersion"] = before["resourceVersion"]
        if subresource == "status":
            if "managedFields" in before:
                identity["managedFields"] = before["managedFields"]
            status = new.get("status")
            for field in [field for field in new if field not in ("metadata", "status")]:
                del new[field]
            new.update({field: value for field, value in old.items() if field not in ("metadata", "status")})
            if status is not None:
                new["status"] = status
        elif kind.status:
            new.pop("status", None)
            if "status" in old:
                new["status"] = old["status"]

    def _count_generation(self, kind: Kind, new: Object, old: Object) -> None:
        if not kind.strategy.has_generation:
            return
        apart = ("metadata", "status") if kind.status or kind.custom is None else ("metadata",)
        if {k: v for k, v in new.items() if k not in apart} != {k: v for k, v in old.items() if k not in apart}:
            new["metadata"]["generation"] = old["metadata"].get("generation", 0) + 1

    def _validate_update(self, kind: Kind, new: Object, old: Object, subresource: str) -> None:
        identity = new["metadata"]
        causes = metadata.validate(identity, name_errors=()) + metadata.validate_update(identity, old["metadata"])
        if not subresource:
            causes += kind.strategy.validate_update(new, old)
        elif subresource != "status":
            causes += kind.strategy.validate_subresource(new, old, subresource)
        if causes:
            raise statuses.invalid(kind.name, identity["name"], causes, group=kind.group)

    def _own(self, kind: Kind, old: Object | None, new: Object, write: WriteOptions, subresource: str) -> None:
        if not write.field_manager:
            return
        manager = ownership.Manager(write.field_manager, "Update", kind.api_version, subresource)
        if old is not None:
            ownership.record_update(old, new, kind.struct, manager, self.now())
            return
        new["metadata"].pop("managedFields", None)
        # The status of a new object is not its creator's, even where it is taken as sent.
        status = new.pop("status", None) if kind.status else None
        ownership.record_update(None, new, kind.struct, manager, self.now())
        if status is not None:
            new["status"] = status

    # Delete

    def delete(
        self, kind: Kind, namespace: str, name: str, deletion: DeleteOptions, write: WriteOptions = SYSTEM
    ) -> tuple[StoredObject, bool]:
        """Delete an object, or begin to. Returns its state and whether it is gone."""
        stored = self.get(kind, namespace, name)
        old = kind.decode(stored)
        check_preconditions(kind, old, deletion)
        if problem := kind.strategy.deletion_problem(name):
            raise statuses.forbidden(kind, name, problem)
        new, stays = begin_deletion(kind, old, deletion, self.clock())
        if new != old:
            stored = self.commit(kind, new, dry_run=write.dry_run)
            new = kind.decode(stored)
        if stays:
            return stored, False
        return self.commit_deletion(kind, new, dry_run=write.dry_run), True

    def remove(self, kind: Kind, namespace: str, name: str) -> None:
        """Delete an object for the server's own reasons."""
        self.delete(kind, namespace, name, DeleteOptions())

    # Commit

    def commit(self, kind: Kind, new: Object, *, dry_run: bool = False, version: bool = True) -> StoredObject:
        """Store an object as it is. With ``dry_run`` only what would be stored is returned."""
        if dry_run:
            if not version:
                new["metadata"].pop("resourceVersion", None)
            return self._encoded(kind, new, 0)
        if kind.storage == DEFINITIONS:
            self._definitions.settle(new, self.now())
        next_resource_version = self.store.next_resource_version
        new["metadata"]["resourceVersion"] = str(next_resource_version)
        stored = self._encoded(kind, new, next_resource_version)
        self.store.put(kind.storage, stored)
        if kind.storage == DEFINITIONS:
            self._definitions.written(new)
        return stored

    def commit_deletion(self, kind: Kind, last: Object, *, dry_run: bool = False) -> StoredObject:
        """Remove an object; ``last`` is the state that watchers see go."""
        if dry_run:
            return self._encoded(kind, last, 0)
        next_resource_version = self.store.next_resource_version
        last["metadata"]["resourceVersion"] = str(next_resource_version)
        final = self._encoded(kind, last, next_resource_version)
        self.store.delete(kind.storage, final)
        if kind.storage == DEFINITIONS:
            self._definitions.removed(final.name)
        elif kind.custom is not None:
            self._definitions.instance_removed(kind)
        return final

    def _encoded(self, kind: Kind, new: Object, version: int) -> StoredObject:
        held = kind.strategy.stored(new) if kind.strategy.converts else new
        shelf = self.scheme[kind.stored_in] if kind.stored_in else kind
        identity = metadata.ordered(held["metadata"])
        body = {"metadata": identity} | {field: value for field, value in held.items() if field != "metadata"}
        return StoredObject(
            kind.key(identity.get("namespace", ""), identity["name"]),
            version,
            msgspec.json.encode(body),
            _interned(identity.get("labels")),
            shelf.fields(held),
        )


_NO_LABELS: dict[str, str] = {}


def _interned(labels: dict[str, str] | None) -> dict[str, str]:
    """Labels repeat endlessly across a cluster; their texts are kept once."""
    if not labels:
        return _NO_LABELS
    return {sys.intern(key): sys.intern(value) for key, value in labels.items()}
