"""Create, update and delete of objects of any kind. The registry is the only writer of the store.

Every write passes here, from HTTP and from controllers in the same process: managed fields, defaulting, admission, the
strategy's preparation and validation, then one write to the store. Objects are dicts without ``kind`` and
``apiVersion`` that the kind's schema has read. A write of a CustomResourceDefinition also updates the served kinds.

An object with a grace period or finalizers is deleted in two steps: it gets a deletionTimestamp, and is removed by the
write that leaves neither.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from random import Random
from uuid import UUID

import msgspec

from kubestow.api.formats.timestamps import timestamp
from kubestow.rules.owners import NAME_ALPHABET, SUFFIX_LENGTH, generated_name
from kubestow_devcluster.apiserver import statuses
from kubestow_devcluster.apiserver.kinds.kind import Kind, Scheme, value_at
from kubestow_devcluster.apiserver.kinds.object_fields import (
    ordered_metadata,
    validate_object_meta,
    validate_object_meta_update,
)
from kubestow_devcluster.apiserver.managed_fields import FieldManager, record_update, written_entries
from kubestow_devcluster.apiserver.registry.admission import AdmissionChain
from kubestow_devcluster.apiserver.resources.definitions import (
    CLEANUP_FINALIZER,
    accept_names,
    is_terminating,
    kinds_of,
    set_terminating,
)
from kubestow_devcluster.apiserver.schema.types import Object
from kubestow_devcluster.apiserver.storage.store import Store, StoredObject


class ObjectStorage:
    """Encodes objects and writes them to ``store``."""

    def __init__(self, store: Store, scheme: Scheme) -> None:
        self.store, self._scheme = store, scheme

    def put(self, kind: Kind, new: Object) -> StoredObject:
        """Create or replace an object at the next resourceVersion, which is set in ``new``."""
        resource_version = self.store.next_resource_version
        new["metadata"]["resourceVersion"] = str(resource_version)
        stored = self.encode(kind, new, resource_version)
        self.store.put(kind.storage, stored)
        return stored

    def delete(self, kind: Kind, last: Object) -> StoredObject:
        """Remove an object. ``last`` is the state of the DELETED event, at the next resourceVersion."""
        resource_version = self.store.next_resource_version
        last["metadata"]["resourceVersion"] = str(resource_version)
        final = self.encode(kind, last, resource_version)
        self.store.delete(kind.storage, final)
        return final

    def encode(self, kind: Kind, obj: Object, resource_version: int) -> StoredObject:
        """An object as it is stored, in the storage version of its kind."""
        converted = kind.strategy.to_storage(obj) if kind.strategy.needs_conversion else obj
        storage_kind = self._scheme[kind.rest.stored_in] if kind.rest.stored_in else kind
        metadata = ordered_metadata(converted["metadata"])
        body = {"metadata": metadata} | {field: value for field, value in converted.items() if field != "metadata"}
        return StoredObject(
            kind.key(metadata.get("namespace", ""), metadata["name"]),
            resource_version,
            msgspec.json.encode(body),
            _interned(metadata.get("labels")),
            storage_kind.selectable_values(converted),
        )


_NO_LABELS: dict[str, str] = {}


def _interned(labels: dict[str, str] | None) -> dict[str, str]:
    """Labels with interned strings: the same keys and values occur in many objects."""
    if not labels:
        return _NO_LABELS
    return {sys.intern(key): sys.intern(value) for key, value in labels.items()}


DEFINITIONS = "customresourcedefinitions.apiextensions.k8s.io"


class CustomResources:
    """The definitions in one store. Those that it already contains are served from the start.

    ``delete`` deletes an instance by kind, namespace and name.
    """

    def __init__(self, storage: ObjectStorage, scheme: Scheme, *, delete: Callable[[Kind, str, str], None]) -> None:
        self._storage, self._store, self._scheme = storage, storage.store, scheme
        self._delete = delete
        self._kind = scheme[DEFINITIONS]
        for stored in self._store.collection(DEFINITIONS).snapshot():
            scheme.set_custom_resource(stored.name, kinds_of(self._kind.decode(stored)))

    def put_definition(self, new: Object, now: str) -> StoredObject:
        """Store a definition with its conditions and serve its kinds; delete its instances if it is terminating."""
        group, name = new["spec"]["group"], new["metadata"]["name"]
        accept_names(new, [kind for kind in self._scheme if kind.group == group and kind.resource != name], now)
        if is_terminating(new):
            set_terminating(new, now)
        stored = self._storage.put(self._kind, new)
        self._scheme.set_custom_resource(name, kinds_of(new))
        if is_terminating(new):
            self._delete_instances(name, now)
        return stored

    def definition_deleted(self, name: str) -> None:
        self._scheme.set_custom_resource(name, [])

    def instance_deleted(self, kind: Kind, now: str) -> None:
        """Remove a terminating definition once its last instance is deleted."""
        stored = self._store.collection(DEFINITIONS).get(kind.resource)
        if stored is not None and is_terminating(self._kind.decode(stored)):
            self._remove_if_empty(kind.resource, now)

    def _delete_instances(self, name: str, now: str) -> None:
        kind = next((kind for kind in self._scheme if kind.resource == name), None)
        if kind is not None:
            for stored in self._store.collection(name).snapshot():
                if b'"deletionTimestamp"' not in stored.data:
                    self._delete(kind, stored.namespace, stored.name)
        self._remove_if_empty(name, now)

    def _remove_if_empty(self, name: str, now: str) -> None:
        """Remove the cleanup finalizer of a definition without instances, and the definition if it has no other."""
        stored = self._store.collection(DEFINITIONS).get(name)
        if stored is None or len(self._store.collection(name)):
            return
        definition = self._kind.decode(stored)
        finalizers = [one for one in definition["metadata"].get("finalizers") or () if one != CLEANUP_FINALIZER]
        definition["metadata"]["finalizers"] = finalizers
        if finalizers:
            if CLEANUP_FINALIZER.encode() in stored.data:
                self.put_definition(definition, now)
            return
        del definition["metadata"]["finalizers"]
        self._storage.delete(self._kind, definition)
        self.definition_deleted(name)


#: Attempts to generate a name that is free.
_NAME_ATTEMPTS = 8
#: The resourceVersions of a write without a precondition.
_UNCONDITIONAL = ("", "0")
#: Metadata that only the server sets.
_SYSTEM_FIELDS = ("deletionTimestamp", "deletionGracePeriodSeconds", "generation")


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """The options of a create, update or patch. An empty field manager is not recorded in managedFields.

    ``authorize`` is called with the new object and the one before, None for a creation; it raises a StatusError for
    content that the user must not write.
    """

    field_manager: str = "unknown"
    dry_run: bool = False
    authorize: Callable[[Object, Object | None], None] | None = None


#: Writes of the server's own controllers.
SYSTEM = WriteOptions(field_manager="")


class Registry:
    """The registry of one store. ``clock`` returns the current time, ``random`` makes uids and name suffixes."""

    def __init__(self, store: Store, scheme: Scheme, *, clock: Callable[[], datetime], random: Random) -> None:
        self.store, self.scheme, self.clock = store, scheme, clock
        self.admission = AdmissionChain(store)
        self._storage = ObjectStorage(store, scheme)
        self._custom_resources = CustomResources(self._storage, scheme, delete=self._delete_now)
        self._random = random
        self._timestamp: tuple[int, str] = (0, "")

    def now(self) -> str:
        """The current time as a Kubernetes timestamp, to the second."""
        time = self.clock()
        second = int(time.timestamp())
        if self._timestamp[0] != second:
            self._timestamp = (second, timestamp(time))
        return self._timestamp[1]

    def get(self, kind: Kind, namespace: str, name: str) -> StoredObject:
        """Raises a 404 StatusError."""
        stored = self.store.collection(kind.storage).get(kind.key(namespace, name))
        if stored is None:
            raise statuses.not_found(kind.group_resource, name)
        return stored

    # Create

    def create(
        self, kind: Kind, namespace: str, new: Object, options: WriteOptions = SYSTEM, *, applied: bool = False
    ) -> StoredObject:
        """Create an object; modifies ``new``. Raises a StatusError.

        ``applied`` means that server-side apply has set managedFields.
        """
        drop_disabled_fields(kind, new, None)
        self._set_metadata_and_defaults(kind, namespace, new)
        if options.field_manager and not applied:
            self._record_create(kind, new, options.field_manager)
        strategy, now = kind.strategy, self.now()
        self.admission.admit(kind, new)
        if options.authorize is not None:
            options.authorize(new, None)
        metadata = new["metadata"]
        metadata["uid"] = str(UUID(int=self._random.getrandbits(128), version=4))
        metadata["creationTimestamp"] = now
        for field in (*_SYSTEM_FIELDS, "selfLink"):
            metadata.pop(field, None)
        if strategy.has_generation:
            metadata["generation"] = 1
        strategy.prepare_for_create(new, now)
        name = metadata.get("name", "")
        errors = validate_object_meta(metadata, name_errors=strategy.validate_name(name))
        errors += strategy.validate(new)
        if errors:
            raise statuses.invalid(kind.name, name, errors, group="" if kind.rest.stored_in else kind.group)
        charged_quotas = self.admission.validate(kind, new)
        if self.store.collection(kind.storage).get(kind.key(metadata.get("namespace", ""), name)) is not None:
            conflict = statuses.generate_name_conflict if metadata.get("generateName") else statuses.already_exists
            raise conflict(kind.group_resource, name)
        if options.dry_run:
            metadata.pop("resourceVersion", None)
        return self._commit_charged(kind, new, charged_quotas, options)

    def _set_metadata_and_defaults(self, kind: Kind, namespace: str, new: Object) -> None:
        metadata = new.setdefault("metadata", {})
        if metadata.get("resourceVersion", "") not in _UNCONDITIONAL:
            raise statuses.bad_request("resourceVersion should not be set on objects to be created")
        if kind.namespaced:
            metadata["namespace"] = namespace
        else:
            metadata.pop("namespace", None)
        if not metadata.get("name") and metadata.get("generateName"):
            # A name that is free, unless none is found in a few attempts.
            collection = self.store.collection(kind.storage)
            name = ""
            for _ in range(_NAME_ATTEMPTS):
                suffix = "".join(self._random.choice(NAME_ALPHABET) for _ in range(SUFFIX_LENGTH))
                name = generated_name(metadata["generateName"], suffix)
                if collection.get(kind.key(metadata.get("namespace", ""), name)) is None:
                    break
            metadata["name"] = name
        kind.strategy.set_defaults(new)

    # Update

    def update(
        self,
        kind: Kind,
        namespace: str,
        name: str,
        change: Callable[[Object], Object],
        options: WriteOptions = SYSTEM,
        *,
        subresource: str = "",
        applied: bool = False,
    ) -> StoredObject:
        """Replace an object by the result of ``change``; an equal result is not written. Raises a StatusError.

        ``subresource`` is that of the request; ``status`` writes the status alone. ``applied`` means that server-side
        apply has set managedFields.
        """
        stored = self.get(kind, namespace, name)
        old = kind.decode(stored)
        new = change(old)
        managed_fields = new["metadata"].get("managedFields") if applied else None
        self._restore_immutable(kind, new, old, subresource)
        if managed_fields:
            new["metadata"]["managedFields"] = managed_fields
        drop_disabled_fields(kind, new, old)
        kind.strategy.set_defaults(new)
        if not subresource:
            self.admission.admit_update(kind, new, old)
        if new == old:
            return stored
        if options.authorize is not None:
            options.authorize(new, old)
        kind.strategy.prepare_for_update(new, old, self.now())
        if subresource != "status":
            self._update_generation(kind, new, old)
        if options.field_manager and not applied:
            manager = FieldManager(options.field_manager, "Update", kind.api_version, subresource)
            record_update(old, new, kind.struct, manager, self.now())
        metadata = new["metadata"]
        errors = validate_object_meta(metadata, name_errors=())
        errors += validate_object_meta_update(metadata, old["metadata"])
        if not subresource:
            errors += kind.strategy.validate_update(new, old)
        elif subresource == "status":
            errors += kind.strategy.validate_status_update(new, old)
        else:
            errors += kind.strategy.validate_subresource_update(new, old, subresource)
        if errors:
            raise statuses.invalid(kind.name, metadata["name"], errors, group=kind.group)
        charged_quotas = self.admission.validate(kind, new, old, subresource)
        if can_be_removed(kind, new):
            self.commit_deletion(kind, new, dry_run=options.dry_run)
            new["metadata"]["resourceVersion"] = str(stored.resource_version)
            return self._storage.encode(kind, new, stored.resource_version)
        return self._commit_charged(kind, new, charged_quotas, options)

    def _restore_immutable(self, kind: Kind, new: Object, old: Object, subresource: str) -> None:
        """Restore what this write cannot change. Raises a 409 or 422 StatusError for the resourceVersion of ``new``."""
        after, before = new["metadata"], old["metadata"]
        resource_version = after.get("resourceVersion", "")
        is_unconditional = resource_version in _UNCONDITIONAL
        if is_unconditional and not kind.strategy.allow_unconditional_update:
            error = statuses.invalid_value("metadata.resourceVersion", 0, "must be specified for an update")
            raise statuses.invalid(kind.resource, before["name"], [error], group=kind.group)
        if not is_unconditional and resource_version != before["resourceVersion"]:
            raise statuses.conflict(kind.group_resource, before["name"])
        for field in _SYSTEM_FIELDS:
            after.pop(field, None)
            if field in before:
                after[field] = before[field]
        for field in ("name", "namespace", "uid", "creationTimestamp"):
            if field not in after and field in before:
                after[field] = before[field]
        requested = after.pop("managedFields", None)
        if entries := written_entries(None if subresource else requested, before.get("managedFields") or []):
            after["managedFields"] = entries
        after["resourceVersion"] = before["resourceVersion"]
        if subresource == "status":
            for field in kind.strategy.kept_by_status_writes:
                after.pop(field, None)
                if field in before:
                    after[field] = before[field]
            status = new.get("status")
            for field in [field for field in new if field not in ("metadata", "status")]:
                del new[field]
            new.update({field: value for field, value in old.items() if field not in ("metadata", "status")})
            if status is not None:
                new["status"] = status
        elif kind.subresources.status:
            new.pop("status", None)
            if "status" in old:
                new["status"] = old["status"]

    def _update_generation(self, kind: Kind, new: Object, old: Object) -> None:
        if not kind.strategy.has_generation:
            return
        # The status of a custom resource without the status subresource is a field like any other.
        has_status = kind.subresources.status or kind.custom is None
        excluded = ("metadata", "status") if has_status else ("metadata",)
        is_changed = any(new.get(field) != old.get(field) for field in {*new, *old}.difference(excluded))
        if kind.strategy.counts_annotations and not is_changed:
            is_changed = new["metadata"].get("annotations") != old["metadata"].get("annotations")
        if is_changed:
            new["metadata"]["generation"] = old["metadata"].get("generation", 0) + 1

    # Managed fields

    def _record_create(self, kind: Kind, new: Object, field_manager: str) -> None:
        manager = FieldManager(field_manager, "Update", kind.api_version)
        new["metadata"].pop("managedFields", None)
        # The status of a new object belongs to no manager, even when it is stored as sent.
        status = new.pop("status", None) if kind.subresources.status else None
        record_update(None, new, kind.struct, manager, self.now())
        if status is not None:
            new["status"] = status

    # Delete

    def delete(
        self, kind: Kind, namespace: str, name: str, delete_options: DeleteOptions, options: WriteOptions = SYSTEM
    ) -> tuple[StoredObject, bool]:
        """Delete an object, or begin its graceful deletion. Raises a StatusError.

        Returns its last state, and whether it has been removed.
        """
        stored = self.get(kind, namespace, name)
        old = kind.decode(stored)
        check_preconditions(kind, old, delete_options)
        if problem := kind.strategy.validate_delete(name):
            raise statuses.forbidden(kind.group_resource, name, problem)
        new, remains = begin_deletion(kind, old, delete_options, self.clock())
        if new != old:
            stored = self.commit(kind, new, dry_run=options.dry_run)
            new = kind.decode(stored)
        if remains:
            return stored, False
        return self.commit_deletion(kind, new, dry_run=options.dry_run), True

    def _delete_now(self, kind: Kind, namespace: str, name: str) -> None:
        self.delete(kind, namespace, name, DeleteOptions())

    # Commit

    def commit(self, kind: Kind, new: Object, *, dry_run: bool = False) -> StoredObject:
        """Write an object without further checks; with ``dry_run`` only return what would be stored."""
        if dry_run:
            return self._storage.encode(kind, new, 0)
        if kind.storage != DEFINITIONS:
            return self._storage.put(kind, new)
        return self._custom_resources.put_definition(new, self.now())

    def _commit_charged(
        self, kind: Kind, new: Object, charged_quotas: list[Object], options: WriteOptions
    ) -> StoredObject:
        if not options.dry_run:
            for quota in charged_quotas:
                self._storage.put(self.scheme["resourcequotas"], quota)
        return self.commit(kind, new, dry_run=options.dry_run)

    def commit_deletion(self, kind: Kind, last: Object, *, dry_run: bool = False) -> StoredObject:
        """Remove an object; ``last`` is its state in the DELETED event."""
        if dry_run:
            return self._storage.encode(kind, last, 0)
        final = self._storage.delete(kind, last)
        if kind.storage == DEFINITIONS:
            self._custom_resources.definition_deleted(final.name)
        elif kind.custom is not None:
            self._custom_resources.instance_deleted(kind, self.now())
        return final


def drop_disabled_fields(kind: Kind, new: Object, old: Object | None) -> None:
    """Remove the fields of features that are off, unless the object has them already."""
    for path in kind.rest.disabled_fields:
        if old is not None and value_at(old, path) is not None:
            continue
        parent, _, field = path.rpartition(".")
        holder = value_at(new, parent)
        if isinstance(holder, dict):
            holder.pop(field, None)


#: Propagation policy -> the finalizer that makes the garbage collector act on it.
PROPAGATION_FINALIZERS = {"Background": "", "Foreground": "foregroundDeletion", "Orphan": "orphan"}


@dataclass(frozen=True, slots=True)
class DeleteOptions:
    """The options of a delete.

    ``grace_period_seconds`` None means the default of the kind. ``uid`` and ``resource_version`` are preconditions.
    ``propagation_policy`` is Background, Foreground or Orphan; empty keeps the finalizers as they are.
    """

    grace_period_seconds: int | None = None
    uid: str = ""
    resource_version: str = ""
    propagation_policy: str = ""


def check_preconditions(kind: Kind, old: Object, options: DeleteOptions) -> None:
    """Raises a 409 StatusError."""
    metadata = old["metadata"]
    if options.uid and options.uid != metadata["uid"]:
        problem = (
            f"the UID in the precondition ({options.uid}) does not match the UID in record ({metadata['uid']})."
            " The object might have been deleted and then recreated"
        )
        raise statuses.conflict(kind.group_resource, metadata["name"], problem, subject=kind.name)
    if options.resource_version and options.resource_version != metadata["resourceVersion"]:
        problem = (
            f"the ResourceVersion in the precondition ({options.resource_version}) does not match the ResourceVersion"
            f" in record ({metadata['resourceVersion']}). The object might have been modified"
        )
        raise statuses.conflict(kind.group_resource, metadata["name"], problem, subject=kind.name)


def begin_deletion(kind: Kind, old: Object, options: DeleteOptions, now: datetime) -> tuple[Object, bool]:
    """The object after its deletion has begun, and whether it remains for now."""
    new = {**old, "metadata": dict(old["metadata"])}
    if options.propagation_policy:
        finalizer, metadata = PROPAGATION_FINALIZERS[options.propagation_policy], new["metadata"]
        others = [one for one in metadata.get("finalizers") or () if one not in PROPAGATION_FINALIZERS.values()]
        metadata["finalizers"] = [*others, finalizer] if finalizer else others
        if not metadata["finalizers"]:
            del metadata["finalizers"]
    has_grace_period = _set_deletion_timestamp(kind, new, options, now)
    is_namespace = kind.storage == "namespaces"
    if is_namespace and new["status"].get("phase") != "Terminating":
        new["status"] = {**new["status"], "phase": "Terminating"}
    return new, has_grace_period or bool(new["metadata"].get("finalizers")) or is_namespace


def can_be_removed(kind: Kind, new: Object) -> bool:
    """Whether the deletion of an object has begun and neither a grace period nor finalizers are left."""
    metadata = new["metadata"]
    return (
        "deletionTimestamp" in metadata
        and not metadata.get("finalizers")
        and not metadata.get("deletionGracePeriodSeconds")
        and not (kind.storage == "namespaces" and new["spec"].get("finalizers"))
    )


def _set_deletion_timestamp(kind: Kind, new: Object, options: DeleteOptions, now: datetime) -> bool:
    """Set or shorten the grace period where the deletion has one; returns whether it is more than zero."""
    metadata = new["metadata"]
    if "deletionTimestamp" in metadata:
        # A later delete can only shorten the grace period.
        current = metadata.get("deletionGracePeriodSeconds", 0)
        if options.grace_period_seconds is None or options.grace_period_seconds >= current:
            return bool(current)
        begun = datetime.fromisoformat(metadata["deletionTimestamp"]) - timedelta(seconds=current)
        metadata["deletionTimestamp"] = timestamp(begun + timedelta(seconds=options.grace_period_seconds))
        metadata["deletionGracePeriodSeconds"] = options.grace_period_seconds
        return options.grace_period_seconds > 0
    period = kind.strategy.graceful_deletion_period(new, options.grace_period_seconds)
    if period is None and not metadata.get("finalizers") and kind.storage != "namespaces":
        return False
    metadata["deletionTimestamp"] = timestamp(now + timedelta(seconds=period or 0))
    if period is not None or metadata.get("finalizers"):
        metadata["deletionGracePeriodSeconds"] = period or 0
    if "generation" in metadata:
        metadata["generation"] += 1
    return bool(period)
