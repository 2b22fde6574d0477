"""The strategy of priority classes, and the two classes that every cluster has."""

from __future__ import annotations

from kubestow_devcluster.apiserver.field_errors import FieldError, forbidden_value, invalid_value
from kubestow_devcluster.apiserver.resources.strategy import RESTStrategy
from kubestow_devcluster.apiserver.schema import Object

__all__ = ["SYSTEM_PRIORITY_CLASSES", "PriorityClassStrategy"]

#: The highest value of a class that is not a system class.
HIGHEST_USER_DEFINABLE_PRIORITY = 1_000_000_000

#: Name -> value, description.
SYSTEM_PRIORITY_CLASSES: dict[str, tuple[int, str]] = {
    "system-cluster-critical": (
        2_000_000_000,
        "Used for system critical pods that must run in the cluster, but can be moved to another node if necessary.",
    ),
    "system-node-critical": (
        2_000_001_000,
        "Used for system critical pods that must not be moved from their current node.",
    ),
}
_RESERVED = "priority class names with 'system-' prefix are reserved for system use only. error: "


class PriorityClassStrategy(RESTStrategy):
    has_generation = True

    def set_defaults(self, new: Object) -> None:
        new.setdefault("value", 0)
        new.setdefault("preemptionPolicy", "PreemptLowerPriority")

    def validate(self, new: Object) -> list[FieldError]:
        name = new["metadata"].get("name", "")
        if name in SYSTEM_PRIORITY_CLASSES:
            is_known = new["value"] == SYSTEM_PRIORITY_CLASSES[name][0]
            return [] if is_known else [forbidden_value("metadata.name", _RESERVED)]
        if name.startswith("system-"):
            return [forbidden_value("metadata.name", _RESERVED)]
        if new["value"] > HIGHEST_USER_DEFINABLE_PRIORITY:
            problem = f"maximum allowed value of a user defined priority is {HIGHEST_USER_DEFINABLE_PRIORITY}"
            return [forbidden_value("value", problem)]
        return []

    def validate_update(self, new: Object, old: Object) -> list[FieldError]:
        return [
            forbidden_value(field, "may not be changed in an update.")
            if field == "value"
            else invalid_value(field, new[field], "field is immutable")
            for field in ("value", "preemptionPolicy")
            if new.get(field) != old.get(field)
        ]
