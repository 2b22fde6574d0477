"""Conditions of pods, as the status of a pod stores them."""

from __future__ import annotations

from kubestow_devcluster.apiserver.schema import Object

__all__ = ["update_pod_condition"]


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
