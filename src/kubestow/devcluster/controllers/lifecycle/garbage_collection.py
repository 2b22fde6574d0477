"""Garbage: objects whose owners are gone, and owners that wait for their dependents.

Background: an owner is deleted at once and its dependents are found to have none. Foreground: the owner waits, marked
by a finalizer, until the dependents that block its deletion are gone. Orphan: the owner waits until its dependents no
longer refer to it.
"""

from __future__ import annotations

from kubestow.devcluster.apiserver.registry.deletion import PROPAGATION_FINALIZERS, Deletion
from kubestow.devcluster.apiserver.resources import Kind, Object
from kubestow.devcluster.apiserver.storage.store import Stored
from kubestow.devcluster.controllers.controller import Controller, Happening, World
from kubestow.devcluster.controllers.owners import Owner, owners_of, uid_of

__all__ = ["GarbageCollector"]

_FOREGROUND, _ORPHAN = PROPAGATION_FINALIZERS["Foreground"], PROPAGATION_FINALIZERS["Orphan"]

#: An object of any kind: its resource and key.
Place = tuple[str, str]


class GarbageCollector(Controller):
    """Reconciles objects of all kinds; its keys are ``resource key``."""

    # It looks after objects of every kind, and has to name one.
    resource = "events"
    component = "garbage-collector"

    def __init__(self, world: World) -> None:
        super().__init__(world)
        #: The objects that refer to an owner, by its uid.
        self._dependents: dict[str, set[Place]] = {}

    def observe(self, happening: Happening) -> None:
        place = (happening.resource, happening.key)
        gone = happening.event.type == "DELETED"
        owners = () if gone else happening.owners
        if owners or happening.previous_owners:
            self._index(place, owners, happening.previous_owners)
        if gone:
            for dependent in self._dependents.get(uid_of(happening.event.object), ()):
                self._look_at(dependent)
        elif (owners and owners != happening.previous_owners) or _waits_for_dependents(happening.event.object):
            self._look_at(place)

    def _index(self, place: Place, owners: tuple[Owner, ...], previous: tuple[Owner, ...]) -> None:
        for owner in owners:
            self._dependents.setdefault(owner.uid, set()).add(place)
        kept = {owner.uid for owner in owners}
        for owner in previous:
            if owner.uid not in kept:
                self._dependents.get(owner.uid, set()).discard(place)
                if not self._dependents.get(owner.uid):
                    self._dependents.pop(owner.uid, None)
                if (above := self._place_of(owner, place)) is not None:
                    self._look_at(above)

    def _look_at(self, place: Place) -> None:
        self.reconcile_soon(" ".join(place))

    def _place_of(self, owner: Owner, dependent: Place) -> Place | None:
        """Where an owner is kept; None for kinds that are not served."""
        kind = self.registry.catalog.named((owner.api_version.rpartition("/")[0], owner.kind))
        if kind is None:
            return None
        return kind.storage, kind.key(dependent[1].rpartition("/")[0], owner.name)

    def reconcile(self, key: str) -> None:
        resource, _, within = key.partition(" ")
        stored = self.registry.store.collection(resource).get(within)
        if stored is None or resource not in self.registry.catalog:
            return
        place, kind = (resource, within), self.registry.catalog[resource]
        metadata = kind.decode(stored)["metadata"]
        finalizers = metadata.get("finalizers") or () if "deletionTimestamp" in metadata else ()
        if _ORPHAN in finalizers:
            self._orphan_dependents(metadata["uid"])
            self._release(kind, stored, _ORPHAN)
        elif _FOREGROUND in finalizers:
            if not self._delete_dependents(metadata["uid"]):
                self._release(kind, stored, _FOREGROUND)
        elif owners := owners_of(stored):
            self._judge(place, kind, stored, owners)

    def _judge(self, place: Place, kind: Kind, stored: Stored, owners: tuple[Owner, ...]) -> None:
        """Delete what has only owners that are gone or going; drop references to those where others remain."""
        absent = {owner.uid for owner in owners if not self._exists(owner, place)}
        waiting = {owner.uid for owner in owners if owner.uid not in absent and self._waits(owner, place)}
        if not absent and not waiting:
            return
        if len(absent) + len(waiting) < len(owners):
            self._drop_references(kind, stored, absent | waiting)
        elif b'"deletionTimestamp":' not in stored.data:
            uid = uid_of(stored)
            propagation = "Foreground" if waiting and self._dependents.get(uid) else ""
            deletion = Deletion(uid=uid, propagation=propagation)
            self.registry.delete(kind, stored.namespace, stored.name, deletion)

    def _exists(self, owner: Owner, dependent: Place) -> bool:
        place = self._place_of(owner, dependent)
        if place is None:
            return True
        stored = self.registry.store.collection(place[0]).get(place[1])
        return stored is not None and uid_of(stored) == owner.uid

    def _waits(self, owner: Owner, dependent: Place) -> bool:
        place = self._place_of(owner, dependent)
        stored = self.registry.store.collection(place[0]).get(place[1]) if place is not None else None
        return stored is not None and _waits_for_dependents(stored, _FOREGROUND)

    def _delete_dependents(self, uid: str) -> bool:
        """Have the dependents deleted; whether any of them still blocks."""
        blocked = False
        for place in list(self._dependents.get(uid, ())):
            self._look_at(place)
            stored = self.registry.store.collection(place[0]).get(place[1])
            owners = owners_of(stored) if stored is not None else ()
            blocked = blocked or any(owner.uid == uid and owner.block_owner_deletion for owner in owners)
        return blocked

    def _orphan_dependents(self, uid: str) -> None:
        for resource, key in list(self._dependents.get(uid, ())):
            stored = self.registry.store.collection(resource).get(key)
            if stored is not None and resource in self.registry.catalog:
                self._drop_references(self.registry.catalog[resource], stored, {uid})

    def _drop_references(self, kind: Kind, stored: Stored, uids: set[str]) -> None:
        def change(metadata: Object) -> None:
            left = [one for one in metadata.get("ownerReferences") or () if one["uid"] not in uids]
            metadata["ownerReferences"] = left
            if not left:
                del metadata["ownerReferences"]

        self.change_metadata(kind, stored.namespace, stored.name, change)

    def _release(self, kind: Kind, stored: Stored, finalizer: str) -> None:
        def change(metadata: Object) -> None:
            metadata["finalizers"] = [one for one in metadata["finalizers"] if one != finalizer]
            if not metadata["finalizers"]:
                del metadata["finalizers"]

        self.change_metadata(kind, stored.namespace, stored.name, change)


def _waits_for_dependents(stored: Stored, *finalizers: str) -> bool:
    """Whether the object is being deleted and has one of the finalizers (by default either) that are ours to remove."""
    data = stored.data
    if b'"deletionTimestamp":' not in data:
        return False
    return any(b'"%s"' % finalizer.encode() in data for finalizer in finalizers or (_FOREGROUND, _ORPHAN))
