"""Validation of ``metadata``, which is the same for all kinds: names, labels, annotations, owners, finalizers."""

from __future__ import annotations

from collections.abc import Iterable

from kubestow.api.formats import names
from kubestow_devcluster.apiserver.field_errors import (
    FieldError,
    forbidden_value,
    invalid_value,
    invalid_values,
    required_value,
    too_long,
)
from kubestow_devcluster.apiserver.schema.types import Object

MAX_ANNOTATION_BYTES = 256 * 1024

#: The order in which kube-apiserver writes the fields.
_FIELDS = [
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
    """``metadata`` with its fields in kube-apiserver's order."""
    return {key: metadata[key] for key in _FIELDS if key in metadata}


def validate_labels(labels: dict[str, str], path: str) -> list[FieldError]:
    errors: list[FieldError] = []
    for key, value in labels.items():
        errors += invalid_values(path, key, names.qualified_name_errors(key))
        errors += invalid_values(path, value, names.label_value_errors(value))
    return errors


def validate_object_meta(metadata: Object, *, name_errors: names.NameErrors) -> list[FieldError]:
    """``name_errors`` are those that the strategy of the kind found."""
    errors: list[FieldError] = []
    name = metadata.get("name", "")
    if not name:
        errors.append(required_value("metadata.name", "name or generateName is required"))
    else:
        errors += invalid_values("metadata.name", name, name_errors)
    errors += validate_labels(metadata.get("labels") or {}, "metadata.labels")
    errors += _validate_annotations(metadata.get("annotations") or {})
    for finalizer in metadata.get("finalizers") or ():
        errors += invalid_values("metadata.finalizers", finalizer, names.qualified_name_errors(finalizer))
    errors += _validate_owner_references(metadata.get("ownerReferences") or ())
    return errors


def _validate_annotations(annotations: dict[str, str]) -> list[FieldError]:
    errors: list[FieldError] = []
    size = 0
    for key, value in annotations.items():
        errors += invalid_values("metadata.annotations", key, names.qualified_name_errors(key.lower()))
        size += len(key.encode()) + len(value.encode())
    if size > MAX_ANNOTATION_BYTES:
        errors.append(too_long("metadata.annotations", MAX_ANNOTATION_BYTES))
    return errors


def _validate_owner_references(owners: Iterable[Object]) -> list[FieldError]:
    errors: list[FieldError] = []
    controllers = 0
    for index, owner in enumerate(owners):
        path = f"metadata.ownerReferences[{index}]"
        for field, label in (("apiVersion", "version"), ("kind", "kind"), ("name", "name"), ("uid", "uid")):
            if not owner.get(field):
                errors.append(invalid_value(f"{path}.{field}", "", f"{label} must not be empty"))
        controllers += bool(owner.get("controller"))
    if controllers > 1:
        problem = "Only one reference can have Controller set to true"
        errors.append(invalid_value("metadata.ownerReferences", list(owners), problem))
    return errors


def validate_object_meta_update(new: Object, old: Object) -> list[FieldError]:
    """``new`` and ``old`` are metadata; immutable fields that the client omitted have been copied from ``old``."""
    errors: list[FieldError] = []
    for field in ("name", "namespace", "uid", "creationTimestamp"):
        if new.get(field) != old.get(field):
            errors.append(invalid_value(f"metadata.{field}", new.get(field), "field is immutable"))
            if field == "uid":
                # kube-apiserver validates the uid twice and reports both errors.
                errors.append(errors[-1])
    if old.get("deletionTimestamp"):
        added = [name for name in new.get("finalizers") or () if name not in (old.get("finalizers") or ())]
        if added:
            problem = "no new finalizers can be added if the object is being deleted, found new finalizers"
            go_strings = "[]string{" + ", ".join(f'"{name}"' for name in added) + "}"
            errors.append(forbidden_value("metadata.finalizers", f"{problem} {go_strings}"))
    return errors
