"""Fields that objects of several kinds share: ``metadata``, conditions in a status, integers or percentages."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from kubestow.api.formats import names
from kubestow_devcluster.apiserver.schema.types import Object
from kubestow_devcluster.apiserver.statuses import (
    FieldError,
    forbidden_value,
    invalid_value,
    invalid_values,
    required_value,
    too_long,
    validate_name,
)

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


def ordered_metadata(metadata: Object) -> Object:
    """``metadata`` with its fields in kube-apiserver's order."""
    return {key: metadata[key] for key in _FIELDS if key in metadata}


def validate_labels(labels: dict[str, str], path: str) -> list[FieldError]:
    errors: list[FieldError] = []
    for key, value in labels.items():
        errors += validate_name(path, key, names.qualified_name_errors)
        errors += validate_name(path, value, names.label_value_errors)
    return errors


def validate_label_selector(selector: Object, path: str) -> list[FieldError]:
    errors = validate_labels(selector.get("matchLabels") or {}, f"{path}.matchLabels")
    for index, requirement in enumerate(selector.get("matchExpressions") or ()):
        item = f"{path}.matchExpressions[{index}]"
        operator, values = requirement.get("operator", ""), requirement.get("values") or ()
        if operator not in ("In", "NotIn", "Exists", "DoesNotExist"):
            errors.append(invalid_value(f"{item}.operator", operator, "not a valid selector operator"))
        elif operator in ("In", "NotIn") and not values:
            errors.append(required_value(f"{item}.values", "must be specified when `operator` is 'In' or 'NotIn'"))
        elif operator in ("Exists", "DoesNotExist") and values:
            problem = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'"
            errors.append(forbidden_value(f"{item}.values", problem))
        errors += validate_name(f"{item}.key", requirement.get("key", ""), names.qualified_name_errors)
        for number, value in enumerate(values):
            errors += validate_name(f"{item}.values[{number}]", value, names.label_value_errors)
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
    size = 0
    for key, value in (metadata.get("annotations") or {}).items():
        errors += invalid_values("metadata.annotations", key, names.qualified_name_errors(key.lower()))
        size += len(key.encode()) + len(value.encode())
    if size > MAX_ANNOTATION_BYTES:
        errors.append(too_long("metadata.annotations", MAX_ANNOTATION_BYTES))
    for finalizer in metadata.get("finalizers") or ():
        errors += validate_name("metadata.finalizers", finalizer, names.qualified_name_errors)
    owners = metadata.get("ownerReferences") or ()
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


def update_pod_condition(status: Object, condition: Object, now: str) -> bool:
    """Add ``condition`` or replace the one of its type; return whether the status changed.

    ``lastTransitionTime`` becomes ``now`` only when the condition's status changes.
    """
    conditions: list[Object] = status.get("conditions") or []
    new: Object = {"type": condition["type"], "status": condition["status"], "lastProbeTime": None}
    new["lastTransitionTime"] = now
    new |= {key: value for key, value in condition.items() if key not in new}
    for index, old in enumerate(conditions):
        if old["type"] == condition["type"]:
            if old["status"] == condition["status"]:
                new["lastTransitionTime"] = old.get("lastTransitionTime")
            if new == old:
                return False
            status["conditions"] = [*conditions[:index], new, *conditions[index + 1 :]]
            return True
    status["conditions"] = [*conditions, new]
    return True


def get_condition(status: Object, type_: str) -> Object | None:
    return next((condition for condition in status.get("conditions") or () if condition["type"] == type_), None)


def with_condition(status: Object, condition: Object, now: str, *, update_field: str = "") -> list[Object]:
    """The conditions of ``status`` with ``condition`` added or replaced; unchanged if it is there already.

    ``lastTransitionTime`` changes only with the condition's status. ``update_field`` names the field for the time of
    the last update, such as ``lastUpdateTime``, in kinds that have one.
    """
    conditions: list[Object] = list(status.get("conditions") or ())
    old = get_condition(status, condition["type"])
    if old is not None and condition.items() <= old.items():
        return conditions
    is_same_status = old is not None and old["status"] == condition["status"]
    times: Object = {update_field: now} if update_field else {}
    times["lastTransitionTime"] = old["lastTransitionTime"] if old is not None and is_same_status else now
    others = [other for other in conditions if other["type"] != condition["type"]]
    return [*others, {**times, **condition}]


# At most nine digits, so that a percentage fits an int32.
_PERCENTAGE = re.compile(r"[0-9]{1,9}%")
_INVALID_PERCENTAGE = (
    "a valid percent string must be a numeric string followed by an ending '%' (e.g. '1%',  or '93%',"
    " regex used for validation is '[0-9]+%')"
)


def scaled_value(value: int | str, total: int, *, round_up: bool) -> int:
    """``value`` itself if it is an integer, else that percentage of ``total``."""
    if isinstance(value, int):
        return value
    share = int(value.rstrip("%")) * total
    return -(-share // 100) if round_up else share // 100


def is_zero(value: int | str | None) -> bool:
    """Whether the value is missing, 0 or 0%."""
    return value is None or scaled_value(value, 100, round_up=True) == 0


def validate_int_or_percent(
    obj: Mapping[str, Any], fields: Sequence[str], path: str, *, at_most_100_percent: Sequence[str] = ()
) -> list[FieldError]:
    """Validate these fields of the object at ``path``; those in ``at_most_100_percent`` cannot exceed 100%."""
    errors: list[FieldError] = []
    for field in fields:
        if (value := obj.get(field)) is None:
            continue
        field_path = f"{path}.{field}"
        if isinstance(value, bool) or not isinstance(value, (int, str)):
            errors.append(invalid_value(field_path, value, "must be an integer or percentage (e.g '5%')"))
        elif isinstance(value, int):
            if value < 0:
                errors.append(invalid_value(field_path, value, "must be greater than or equal to 0"))
        elif not isinstance(value, str) or not _PERCENTAGE.fullmatch(value):
            errors.append(invalid_value(field_path, value, _INVALID_PERCENTAGE))
        elif field in at_most_100_percent and int(value[:-1]) > 100:
            errors.append(invalid_value(field_path, value, "must not be greater than 100%"))
    return errors
