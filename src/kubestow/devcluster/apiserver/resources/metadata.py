"""The rules of ``metadata``, the same for every kind: names, labels, annotations, finalizers, what is immutable."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from kubestow.api import names
from kubestow.devcluster.apiserver.field_errors import Cause, invalid_value, invalid_values, required_value, too_long

__all__ = ["ordered", "validate", "validate_labels", "validate_update"]

Object = dict[str, Any]

MAX_ANNOTATION_BYTES = 256 * 1024

#: The order in which a server writes metadata.
_ORDER = [
    "name",
    "generateName",
    "namespace",
    "uid",
    "resourceVersion",
    "generation",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "labels",
    "annotations",
    "ownerReferences",
    "finalizers",
    "managedFields",
]


def ordered(metadata: Object) -> Object:
    """The same metadata in the order in which a server writes it."""
    return {key: metadata[key] for key in _ORDER if key in metadata}


def validate_labels(labels: dict[str, str], path: str) -> list[Cause]:
    causes: list[Cause] = []
    for key, value in labels.items():
        causes += invalid_values(path, key, names.qualified_name_errors(key))
        causes += invalid_values(path, value, names.label_value_errors(value))
    return causes


def validate(metadata: Object, *, name_errors: names.NameErrors) -> list[Cause]:
    """``name_errors`` is the kind's verdict on the name."""
    causes: list[Cause] = []
    name = metadata.get("name", "")
    if not name:
        causes.append(required_value("metadata.name", "name or generateName is required"))
    else:
        causes += invalid_values("metadata.name", name, name_errors)
    causes += validate_labels(metadata.get("labels") or {}, "metadata.labels")
    causes += _validate_annotations(metadata.get("annotations") or {})
    for finalizer in metadata.get("finalizers") or ():
        causes += invalid_values("metadata.finalizers", finalizer, names.qualified_name_errors(finalizer))
    causes += _validate_owners(metadata.get("ownerReferences") or ())
    return causes


def _validate_annotations(annotations: dict[str, str]) -> list[Cause]:
    causes: list[Cause] = []
    size = 0
    for key, value in annotations.items():
        causes += invalid_values("metadata.annotations", key, names.qualified_name_errors(key.lower()))
        size += len(key.encode()) + len(value.encode())
    if size > MAX_ANNOTATION_BYTES:
        causes.append(too_long("metadata.annotations", MAX_ANNOTATION_BYTES))
    return causes


def _validate_owners(owners: Iterable[Object]) -> list[Cause]:
    causes: list[Cause] = []
    controllers = 0
    for index, owner in enumerate(owners):
        path = f"metadata.ownerReferences[{index}]"
        for field, shown in (("apiVersion", "version"), ("kind", "kind"), ("name", "name"), ("uid", "uid")):
            if not owner.get(field):
                causes.append(invalid_value(f"{path}.{field}", "", f"{shown} must not be empty"))
        controllers += bool(owner.get("controller"))
    if controllers > 1:
        causes.append(
            invalid_value(
                "metadata.ownerReferences", list(owners), "Only one reference can have Controller set to true"
            )
        )
    return causes


def validate_update(new: Object, old: Object) -> list[Cause]:
    """``new`` and ``old`` are metadata; an absent immutable field was filled in from the old one before."""
    causes: list[Cause] = []
    for field in ("name", "namespace", "uid", "creationTimestamp"):
        if new.get(field) != old.get(field):
            causes.append(invalid_value(f"metadata.{field}", new.get(field), "field is immutable"))
            if field == "uid":
                # The real server checks the uid twice and lists both.
                causes.append(causes[-1])
    if old.get("deletionTimestamp"):
        added = [name for name in new.get("finalizers") or () if name not in (old.get("finalizers") or ())]
        if added:
            problem = "no new finalizers can be added if the object is being deleted, found new finalizers"
            shown = "[]string{" + ", ".join(f'"{name}"' for name in added) + "}"
            causes.append(Cause("FieldValueForbidden", f"Forbidden: {problem} {shown}", "metadata.finalizers"))
    return causes
