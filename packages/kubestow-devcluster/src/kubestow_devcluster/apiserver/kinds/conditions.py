"""Conditions in a status, one per type."""

from __future__ import annotations

from kubestow_devcluster.apiserver.schema.types import Object


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
