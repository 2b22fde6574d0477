"""Deletion of one object: preconditions, propagation policy, grace period and finalizers.

An object with a grace period or finalizers gets a deletionTimestamp first, and is removed by the write that leaves
neither. These functions compute the metadata; the registry writes it.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from kubestow.api.formats.timestamps import timestamp
from kubestow_devcluster.apiserver import statuses
from kubestow_devcluster.apiserver.kinds.kind import Kind
from kubestow_devcluster.apiserver.schema.types import Object

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
    _set_propagation_finalizer(new["metadata"], options.propagation_policy)
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


def _set_propagation_finalizer(metadata: Object, policy: str) -> None:
    if not policy:
        return
    finalizer = PROPAGATION_FINALIZERS[policy]
    others = [one for one in metadata.get("finalizers") or () if one not in PROPAGATION_FINALIZERS.values()]
    metadata["finalizers"] = [*others, finalizer] if finalizer else others
    if not metadata["finalizers"]:
        del metadata["finalizers"]


def _set_deletion_timestamp(kind: Kind, new: Object, options: DeleteOptions, now: datetime) -> bool:
    """Set or shorten the grace period where the deletion has one; returns whether it is more than zero."""
    metadata = new["metadata"]
    if "deletionTimestamp" in metadata:
        # A later delete can only shorten the grace period; returns whether it is more than zero.
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
