"""What deleting an object means for it: preconditions, finalizers, grace, and when it is over.

An object is marked first, if it lingers or something has to be done before it goes; it is removed by the write that
leaves nothing to wait for. All of it is about one object's metadata: the registry stores what comes of it.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from kubestow.api.timestamps import timestamp
from kubestow.devcluster.apiserver import statuses
from kubestow.devcluster.apiserver.resources import Kind, Object

__all__ = ["PROPAGATION_FINALIZERS", "DeleteOptions", "begin_deletion", "check_preconditions", "is_released"]

#: Propagation policy -> the finalizer by which the garbage collector learns of it.
PROPAGATION_FINALIZERS = {"Background": "", "Foreground": "foregroundDeletion", "Orphan": "orphan"}


@dataclass(frozen=True, slots=True)
class DeleteOptions:
    """DeleteOptions: seconds of grace (None: the kind's default) and what must hold of the object.

    ``propagation_policy`` says what becomes of its dependents: Background, Foreground or Orphan; empty: as its finalizers say.
    """

    grace_period_seconds: int | None = None
    uid: str = ""
    resource_version: str = ""
    propagation_policy: str = ""


def check_preconditions(kind: Kind, old: Object, deletion: DeleteOptions) -> None:
    """Raises a 409 Failure."""
    identity = old["metadata"]
    if deletion.uid and deletion.uid != identity["uid"]:
        problem = (
            f"the UID in the precondition ({deletion.uid}) does not match the UID in record ({identity['uid']})."
            " The object might have been deleted and then recreated"
        )
        raise statuses.conflict(kind, identity["name"], problem, resource=kind.name)
    if deletion.resource_version and deletion.resource_version != identity["resourceVersion"]:
        problem = (
            f"the ResourceVersion in the precondition ({deletion.resource_version}) does not match the ResourceVersion"
            f" in record ({identity['resourceVersion']}). The object might have been modified"
        )
        raise statuses.conflict(kind, identity["name"], problem, resource=kind.name)


def begin_deletion(kind: Kind, old: Object, deletion: DeleteOptions, now: datetime) -> tuple[Object, bool]:
    """The object as it is once its deletion has begun, and whether it stays for now."""
    new = {**old, "metadata": dict(old["metadata"])}
    _keep_for_dependents(new["metadata"], deletion.propagation_policy)
    lingers = _mark(kind, new, deletion, now)
    if kind.storage == "namespaces" and new["status"].get("phase") != "Terminating":
        new["status"] = {**new["status"], "phase": "Terminating"}
    return new, lingers or bool(new["metadata"].get("finalizers")) or kind.storage == "namespaces"


def is_released(kind: Kind, new: Object) -> bool:
    """Whether an object whose deletion has begun has nothing more to wait for: no grace, no finalizers."""
    identity = new["metadata"]
    return (
        "deletionTimestamp" in identity
        and not identity.get("finalizers")
        and not identity.get("deletionGracePeriodSeconds")
        and not (kind.storage == "namespaces" and new["spec"].get("finalizers"))
    )


def _keep_for_dependents(identity: Object, propagation: str) -> None:
    """The finalizer that the propagation policy asks for, and none that it does not."""
    if not propagation:
        return
    wanted = PROPAGATION_FINALIZERS[propagation]
    kept = [one for one in identity.get("finalizers") or () if one not in PROPAGATION_FINALIZERS.values()]
    identity["finalizers"] = [*kept, wanted] if wanted else kept
    if not identity["finalizers"]:
        del identity["finalizers"]


def _mark(kind: Kind, new: Object, deletion: DeleteOptions, now: datetime) -> bool:
    """Set the deletion timestamp where this kind of deletion needs one; whether there is time left to live."""
    identity = new["metadata"]
    if "deletionTimestamp" in identity:
        left, asked = identity.get("deletionGracePeriodSeconds", 0), deletion.grace_period_seconds
        if asked is None or asked >= left:
            return bool(left)
        begun = datetime.fromisoformat(identity["deletionTimestamp"]) - timedelta(seconds=left)
        identity["deletionTimestamp"] = timestamp(begun + timedelta(seconds=asked))
        identity["deletionGracePeriodSeconds"] = asked
        return asked > 0
    period = kind.strategy.grace_period(new, deletion.grace_period_seconds)
    if period is None and not identity.get("finalizers") and kind.storage != "namespaces":
        return False
    identity["deletionTimestamp"] = timestamp(now + timedelta(seconds=period or 0))
    if period is not None or identity.get("finalizers"):
        identity["deletionGracePeriodSeconds"] = period or 0
    if "generation" in identity:
        identity["generation"] += 1
    return bool(period)
