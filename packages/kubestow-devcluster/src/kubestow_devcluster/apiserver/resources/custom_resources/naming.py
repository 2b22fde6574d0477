"""The conditions of a CustomResourceDefinition: NamesAccepted, Established and Terminating.

kube-apiserver's naming, establishing and finalizing controllers set them after the write. Here they are set in the
write itself: the names are accepted and the definition is established, unless another kind of the group has its names.
"""

from __future__ import annotations

from collections.abc import Iterable

from kubestow_devcluster.apiserver.resources.kind import Kind
from kubestow_devcluster.apiserver.schema import Object

__all__ = ["CLEANUP_FINALIZER", "accept_names", "is_terminating", "set_terminating"]

#: The finalizer that keeps a definition until its instances are deleted.
CLEANUP_FINALIZER = "customresourcecleanup.apiextensions.k8s.io"


def accept_names(definition: Object, others: Iterable[Kind], now: str) -> None:
    """Set the accepted names and the conditions NamesAccepted and Established.

    ``others`` are the kinds of the same group that other definitions or the server itself define.
    """
    spec, status = definition["spec"], definition["status"]
    conflict = _conflict(spec["names"], list(others))
    if conflict is None:
        status["acceptedNames"] = spec["names"]
        accepted = _condition("NamesAccepted", "True", "NoConflicts", "no conflicts found")
        established = _condition("Established", "True", "InitialNamesAccepted", "the initial names have been accepted")
    else:
        accepted = _condition("NamesAccepted", "False", *conflict)
        established = _condition("Established", "False", "NotAccepted", "not all names are accepted")
    conditions = {one["type"]: one for one in status.get("conditions") or ()}
    for new in (accepted, established):
        old = conditions.get(new["type"])
        if new["type"] == "Established" and old is not None and old["status"] == "True":
            continue  # An established definition stays established.
        is_unchanged = old is not None and old["status"] == new["status"]
        new["lastTransitionTime"] = old["lastTransitionTime"] if old is not None and is_unchanged else now
        conditions[new["type"]] = new
    order = ("NamesAccepted", "Established", "Terminating")
    # Conditions that a user has set are kept.
    ordered = [*order, *(type_ for type_ in conditions if type_ not in order)]
    status["conditions"] = [conditions[type_] for type_ in ordered if type_ in conditions]


def _condition(type_: str, status: str, reason: str, message: str) -> Object:
    return {"type": type_, "status": status, "lastTransitionTime": "", "reason": reason, "message": message}


def _conflict(names: Object, others: list[Kind]) -> tuple[str, str] | None:
    """Reason and message of the first name that another kind of the group has."""
    for other in others:
        taken = {other.plural, other.singular, *other.names.short_names}
        for field, reason in (("plural", "PluralConflict"), ("singular", "SingularConflict")):
            if names.get(field) in taken:
                return reason, f'"{names[field]}" is already in use'
        for short_name in names.get("shortNames") or ():
            if short_name in taken:
                return "ShortNamesConflict", f'"{short_name}" is already in use'
        if names["kind"] in (other.name, other.list_kind):
            return "KindConflict", f'"{names["kind"]}" is already in use'
    return None


def set_terminating(definition: Object, now: str) -> None:
    message = "CustomResource deletion is in progress"
    terminating = _condition("Terminating", "True", "InstanceDeletionInProgress", message)
    terminating["lastTransitionTime"] = now
    others = [one for one in definition["status"]["conditions"] if one["type"] != "Terminating"]
    definition["status"]["conditions"] = [*others, terminating]


def is_terminating(definition: Object) -> bool:
    return "deletionTimestamp" in definition["metadata"]
