"""The garbage collector: deletes dependents whose owners do not exist, and completes foreground and orphan deletions.

Background: the owner is removed at once, then its dependents are found to have no owner. Foreground: a finalizer keeps
the owner until the dependents with blockOwnerDeletion are deleted. Orphan: a finalizer keeps the owner until no
dependent refers to it any more.

Events are deleted some time after their last update. A real cluster stores events with an etcd lease instead
(kube-apiserver's ``--event-ttl``).
"""

from __future__ import annotations

import asyncio
from itertools import islice

from kubestow_devcluster.apiserver.kinds.kind import Kind
from kubestow_devcluster.apiserver.registry.registry import PROPAGATION_FINALIZERS, DeleteOptions
from kubestow_devcluster.apiserver.schema.types import Object
from kubestow_devcluster.apiserver.storage.store import StoredObject
from kubestow_devcluster.component_base.stored_objects import OwnerRef, is_terminating, owner_refs_of, uid_of
from kubestow_devcluster.controllers.controller import Controller, ControllerContext, ObjectChange

_FOREGROUND, _ORPHAN = PROPAGATION_FINALIZERS["Foreground"], PROPAGATION_FINALIZERS["Orphan"]

ObjectRef = tuple[str, str]
"""An object of any kind: its resource and its key."""


class GarbageCollector(Controller):
    """Reconciles objects of all kinds; its keys are ``resource key``."""

    # The base class needs a resource; this controller handles all of them.
    resource = "events"
    watched = None
    component = "garbage-collector"

    def __init__(self, context: ControllerContext) -> None:
        super().__init__(context)
        #: The dependents of each owner, by the owner's uid.
        self._dependents: dict[str, set[ObjectRef]] = {}

    def handle_change(self, change: ObjectChange) -> None:
        ref = (change.resource, change.key)
        owner_refs = () if change.is_deletion else change.owner_refs
        if owner_refs or change.previous_owner_refs:
            for owner in owner_refs:
                self._dependents.setdefault(owner.uid, set()).add(ref)
            current = {owner.uid for owner in owner_refs}
            for owner in change.previous_owner_refs:
                if owner.uid not in current:
                    self._dependents.get(owner.uid, set()).discard(ref)
                    if not self._dependents.get(owner.uid):
                        self._dependents.pop(owner.uid, None)
                    # The owner may wait for this dependent.
                    if (owner_ref := self._resolve(owner, ref)) is not None:
                        self._enqueue(owner_ref)
        if change.is_deletion:
            for dependent in self._dependents.get(uid_of(change.event.object), ()):
                self._enqueue(dependent)
        elif (owner_refs and owner_refs != change.previous_owner_refs) or _waits_for_dependents(change.event.object):
            self._enqueue(ref)

    def _enqueue(self, ref: ObjectRef) -> None:
        self.enqueue(" ".join(ref))

    def _resolve(self, owner: OwnerRef, dependent: ObjectRef) -> ObjectRef | None:
        """The owner's resource and key.

        None for a kind that is not served, and for an owner in a namespace of a cluster-scoped dependent.
        """
        kind = self.registry.scheme.kind_for(owner.api_version.rpartition("/")[0], owner.kind)
        namespace = dependent[1].rpartition("/")[0]
        if kind is None or (kind.namespaced and not namespace):
            return None
        return kind.storage, kind.key(namespace, owner.name)

    def _find(self, ref: ObjectRef) -> StoredObject | None:
        resource, key = ref
        return self.registry.store.collection(resource).get(key)

    def reconcile(self, key: str) -> None:
        resource, _, object_key = key.partition(" ")
        ref = (resource, object_key)
        stored = self._find(ref)
        if stored is None or resource not in self.registry.scheme:
            return
        kind = self.registry.scheme[resource]
        metadata = kind.decode(stored)["metadata"]
        finalizers = metadata.get("finalizers") or () if "deletionTimestamp" in metadata else ()
        if _ORPHAN in finalizers:
            self._orphan_dependents(metadata["uid"])
            self.remove_finalizer(kind, stored.namespace, stored.name, _ORPHAN)
        elif _FOREGROUND in finalizers:
            if not self._delete_dependents(metadata["uid"]):
                self.remove_finalizer(kind, stored.namespace, stored.name, _FOREGROUND)
        elif owner_refs := owner_refs_of(stored):
            self._collect(ref, kind, stored, owner_refs)

    def _collect(self, ref: ObjectRef, kind: Kind, stored: StoredObject, owner_refs: tuple[OwnerRef, ...]) -> None:
        """Delete a dependent without a solid owner; if it has one, only drop its references to the others.

        As with Kubernetes' garbage collector, it stays as it is while one of its owners cannot be resolved.
        """
        dangling, waiting = [], []
        for owner in owner_refs:
            owner_ref = self._resolve(owner, ref)
            if owner_ref is None:
                return
            found = self._find(owner_ref)
            if found is None or uid_of(found) != owner.uid:
                dangling.append(owner.uid)
            elif _waits_for_dependents(found, _FOREGROUND):
                waiting.append(owner.uid)
        if not dangling and not waiting:
            return
        if len(dangling) + len(waiting) < len(owner_refs):
            self.update_owner_references(kind, stored.namespace, stored.name, remove={*dangling, *waiting})
        elif not is_terminating(stored):
            uid = uid_of(stored)
            propagation = "Foreground" if waiting and self._dependents.get(uid) else "Background"
            if propagation == "Foreground" and self._has_waiting_dependent(uid):
                # A circle of owners: unless those of this object can be deleted before it, each waits for the next.
                def unblock(metadata: Object) -> None:
                    owners = metadata["ownerReferences"]
                    metadata["ownerReferences"] = [{**owner, "blockOwnerDeletion": False} for owner in owners]

                self.update_metadata(kind, stored.namespace, stored.name, unblock)
            deletion = DeleteOptions(uid=uid, propagation_policy=propagation)
            self.registry.delete(kind, stored.namespace, stored.name, deletion)

    def _has_waiting_dependent(self, uid: str) -> bool:
        dependents = (self._find(dependent) for dependent in self._dependents.get(uid, ()))
        return any(stored is not None and _waits_for_dependents(stored, _FOREGROUND) for stored in dependents)

    def _delete_dependents(self, uid: str) -> bool:
        """Enqueue the dependents for deletion. Returns whether one of them still blocks the owner's."""
        is_blocked = False
        for dependent in list(self._dependents.get(uid, ())):
            self._enqueue(dependent)
            stored = self._find(dependent)
            owner_refs = owner_refs_of(stored) if stored is not None else ()
            is_blocked = is_blocked or any(owner.uid == uid and owner.block_owner_deletion for owner in owner_refs)
        return is_blocked

    def _orphan_dependents(self, uid: str) -> None:
        for resource, key in list(self._dependents.get(uid, ())):
            stored = self._find((resource, key))
            if stored is not None and resource in self.registry.scheme:
                kind = self.registry.scheme[resource]
                self.update_owner_references(kind, stored.namespace, stored.name, remove={uid})


def _waits_for_dependents(stored: StoredObject, *finalizers: str) -> bool:
    """Whether the object is terminating and has one of the finalizers, by default either of the garbage collector's."""
    if not is_terminating(stored):
        return False
    return any(b'"%s"' % finalizer.encode() in stored.data for finalizer in finalizers or (_FOREGROUND, _ORPHAN))


#: Events deleted per reconciliation.
BATCH = 500
#: The only key in the queue: each reconciliation deletes the events that have expired.
_SWEEP = ""


class EventTTLController(Controller):
    resource = "events"

    def __init__(self, context: ControllerContext) -> None:
        super().__init__(context)
        self._ttl = context.event_ttl
        #: When each event was last updated, in the loop's time, oldest first.
        self._updated: dict[str, float] = {}

    def handle_change(self, change: ObjectChange) -> None:
        self._updated.pop(change.key, None)
        if not change.is_deletion:
            if not self._updated:
                self.enqueue_after(_SWEEP, self._ttl)
            self._updated[change.key] = asyncio.get_running_loop().time()

    def reconcile(self, key: str) -> None:
        expired_before = asyncio.get_running_loop().time() - self._ttl
        for event, updated in list(islice(self._updated.items(), BATCH)):
            if updated > expired_before:
                self.enqueue_after(_SWEEP, updated - expired_before)
                return
            del self._updated[event]
            stored = self.registry.store.collection(self.resource).get(event)
            if stored is not None:
                self.registry.commit_deletion(self.kind, self.kind.decode(stored))
        if self._updated:
            self.enqueue(_SWEEP)
