"""Conditions in a status: one per type, with the times at which they were written and last changed side."""

from __future__ import annotations

from kubestow.devcluster.apiserver.resources import Object

__all__ = ["condition_of", "with_condition"]


def condition_of(status: Object, type_: str) -> Object | None:
    return next((one for one in status.get("conditions") or () if one["type"] == type_), None)


def with_condition(status: Object, condition: Object, now: str, *, written: str = "") -> list[Object]:
    """The conditions with this one added or replaced; one that says nothing new stays as it is.

    ``written`` names the field that has the time of the last writing, in kinds whose conditions have one.
    """
    conditions: list[Object] = list(status.get("conditions") or ())
    old = condition_of(status, condition["type"])
    if old is not None and condition.items() <= old.items():
        return conditions
    same_side = old is not None and old["status"] == condition["status"]
    made: Object = {written: now} if written else {}
    made["lastTransitionTime"] = old["lastTransitionTime"] if old is not None and same_side else now
    kept = [one for one in conditions if one["type"] != condition["type"]]
    return [*kept, {**made, **condition}]
