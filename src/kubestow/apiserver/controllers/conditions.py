"""Conditions of deployments and jobs: one per type, with the times at which they were written and last changed side."""

from __future__ import annotations

from kubestow.apiserver.resources import Object

__all__ = ["condition_of", "with_condition"]


def condition_of(status: Object, type_: str) -> Object | None:
    return next((one for one in status.get("conditions") or () if one["type"] == type_), None)


def with_condition(status: Object, condition: Object, now: str, *, written: str) -> list[Object]:
    """The conditions with this one added or replaced; the same status for the same reason is no news.

    ``written`` names the field that has the time of the last writing.
    """
    conditions: list[Object] = list(status.get("conditions") or ())
    old = condition_of(status, condition["type"])
    if old is not None and (old["status"], old.get("reason")) == (condition["status"], condition.get("reason")):
        if old.get("message") == condition.get("message"):
            return conditions
        condition = {**condition, "lastTransitionTime": old["lastTransitionTime"]}
    elif old is not None and old["status"] == condition["status"]:
        condition = {**condition, "lastTransitionTime": old["lastTransitionTime"]}
    made = {written: now, "lastTransitionTime": now, **condition}
    kept = [one for one in conditions if one["type"] != condition["type"]]
    return [*kept, made]
