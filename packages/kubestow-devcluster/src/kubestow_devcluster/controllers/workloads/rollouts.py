"""The progress of a Deployment: replica counts, conditions, and proportional scaling.

The conditions are Available, Progressing and ReplicaFailure. Proportional scaling distributes a change of the replicas
over the ReplicaSets during a rolling update.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import NamedTuple

from kubestow.api.formats.timestamps import timestamp
from kubestow_devcluster.apiserver.kinds.object_fields import get_condition, scaled_value, with_condition
from kubestow_devcluster.apiserver.schema.types import Object

_COUNTS = ("replicas", "updatedReplicas", "readyReplicas", "availableReplicas", "unavailableReplicas")


@dataclass(frozen=True, slots=True)
class StatusUpdate:
    """A new status, and the seconds until the progress deadline may change it; None without a deadline."""

    status: Object
    recheck_after: float | None = None


def compute_status(
    deployment: Object, replica_sets: Sequence[Object], new: Object | None, now: datetime
) -> StatusUpdate:
    """The status from all ReplicaSets of a Deployment; ``new`` is the one of the current template, if it exists."""
    spec, old = deployment["spec"], deployment.get("status") or {}
    now_text = timestamp(now)
    counts = _replica_counts(replica_sets, new)
    status: Object = {"observedGeneration": deployment["metadata"]["generation"]}
    status |= {field: counts[field] for field in _COUNTS if counts[field]}
    if "collisionCount" in old:
        status["collisionCount"] = old["collisionCount"]
    progress = _Progress(deployment, old, counts, new, now_text)
    status["conditions"], recheck_after = progress.evaluate(now)
    _, max_unavailable = max_surge_and_unavailable(spec)
    if counts["availableReplicas"] >= spec["replicas"] - max_unavailable:
        fields = ("True", "MinimumReplicasAvailable", "Deployment has minimum availability.")
    else:
        fields = ("False", "MinimumReplicasUnavailable", "Deployment does not have minimum availability.")
    available = {"type": "Available", **dict(zip(("status", "reason", "message"), fields, strict=True))}
    status["conditions"] = with_condition(status, available, now_text, update_field="lastUpdateTime")
    status["conditions"] = [condition for condition in status["conditions"] if condition["type"] != "ReplicaFailure"]
    if (failure := _replica_failure(replica_sets, new)) is not None:
        condition = {field: failure[field] for field in ("type", "status", "reason", "message")}
        previous = get_condition(old, "ReplicaFailure")
        with_previous = {**status, "conditions": [*status["conditions"], *([previous] if previous else [])]}
        status["conditions"] = with_condition(with_previous, condition, now_text, update_field="lastUpdateTime")
    return StatusUpdate(status, recheck_after)


def max_surge_and_unavailable(spec: Object) -> tuple[int, int]:
    """maxSurge and maxUnavailable in pods. Percentages are rounded up for maxSurge, down for maxUnavailable."""
    if spec["strategy"]["type"] == "Recreate":
        return 0, spec["replicas"]
    rolling_update = spec["strategy"]["rollingUpdate"]
    max_surge = scaled_value(rolling_update["maxSurge"], spec["replicas"], round_up=True)
    max_unavailable = min(
        scaled_value(rolling_update["maxUnavailable"], spec["replicas"], round_up=False), spec["replicas"]
    )
    # If both were 0, the update could not proceed.
    return max_surge, max_unavailable if max_surge or max_unavailable else 1


def available_replicas(replica_set: Object) -> int:
    return _count(replica_set, "availableReplicas")


def _count(replica_set: Object, field: str) -> int:
    return int((replica_set.get("status") or {}).get(field, 0))


def _replica_counts(replica_sets: Sequence[Object], new: Object | None) -> dict[str, int]:
    available = sum(available_replicas(replica_set) for replica_set in replica_sets)
    desired = sum(replica_set["spec"]["replicas"] for replica_set in replica_sets)
    return {
        "replicas": sum(_count(replica_set, "replicas") for replica_set in replica_sets),
        "updatedReplicas": _count(new, "replicas") if new is not None else 0,
        "readyReplicas": sum(_count(replica_set, "readyReplicas") for replica_set in replica_sets),
        "availableReplicas": available,
        "unavailableReplicas": max(0, desired - available),
    }


def _replica_failure(replica_sets: Sequence[Object], new: Object | None) -> Object | None:
    """The ReplicaFailure condition of the new ReplicaSet, or else of the first one that has it."""
    ordered = [*([new] if new is not None else []), *replica_sets]
    conditions = (get_condition(replica_set.get("status") or {}, "ReplicaFailure") for replica_set in ordered)
    return next((condition for condition in conditions if condition is not None), None)


@dataclass(frozen=True, slots=True)
class _Progress:
    """Evaluates the Progressing condition; ``old`` is the old status, ``timestamp`` the current time."""

    deployment: Object
    old: Object
    counts: dict[str, int]
    new: Object | None
    timestamp: str

    def evaluate(self, now: datetime) -> tuple[list[Object], float | None]:
        """All conditions with Progressing updated, and the seconds until the deadline if it is running."""
        progressing = get_condition(self.old, "Progressing")
        if self.deployment["spec"].get("paused"):
            return self._with("Unknown", "DeploymentPaused", "Deployment is paused"), None
        counts = {self.counts[field] for field in ("updatedReplicas", "replicas", "availableReplicas")}
        if counts == {self.deployment["spec"]["replicas"]}:
            message = f"{self._subject} has successfully progressed."
            return self._with("True", "NewReplicaSetAvailable", message), None
        if progressing is None:
            message = f"Created new {self._subject.replace('ReplicaSet', 'replica set')}"
            conditions = self._with("True", "NewReplicaSetCreated", message)
            return conditions, self._until_deadline(conditions[-1], now)
        if self._has_progressed() or progressing["reason"] in ("NewReplicaSetAvailable", "DeploymentPaused"):
            # Progressing is replaced even if it is equal, so that its lastUpdateTime is now.
            others = [condition for condition in self.old["conditions"] if condition is not progressing]
            condition = self._condition("True", "ReplicaSetUpdated", f"{self._subject} is progressing.")
            conditions = with_condition(
                {**self.old, "conditions": others}, condition, self.timestamp, update_field="lastUpdateTime"
            )
            if progressing["status"] == "True":
                conditions[-1]["lastTransitionTime"] = progressing["lastTransitionTime"]
            return conditions, self._until_deadline(conditions[-1], now)
        if (remaining := self._until_deadline(progressing, now)) > 0:
            return list(self.old["conditions"]), remaining
        return self._with("False", "ProgressDeadlineExceeded", f"{self._subject} has timed out progressing."), None

    @property
    def _subject(self) -> str:
        if self.new is not None:
            return f'ReplicaSet "{self.new["metadata"]["name"]}"'
        return f'Deployment "{self.deployment["metadata"]["name"]}"'

    def _has_progressed(self) -> bool:
        """Whether there are more updated, ready or available replicas, fewer old ones, or a new generation."""

        def increase(field: str) -> int:
            return int(self.counts[field] - self.old.get(field, 0))

        has_more = any(increase(field) > 0 for field in ("updatedReplicas", "readyReplicas", "availableReplicas"))
        has_fewer_old = increase("replicas") < increase("updatedReplicas")
        is_new_generation = self.old.get("observedGeneration", 0) < self.deployment["metadata"]["generation"]
        return has_more or has_fewer_old or is_new_generation

    def _with(self, status: str, reason: str, message: str) -> list[Object]:
        condition = self._condition(status, reason, message)
        return with_condition(self.old, condition, self.timestamp, update_field="lastUpdateTime")

    def _condition(self, status: str, reason: str, message: str) -> Object:
        return {"type": "Progressing", "status": status, "reason": reason, "message": message}

    def _until_deadline(self, progressing: Object, now: datetime) -> float:
        """Seconds until the deadline, plus one because timestamps are truncated to seconds."""
        deadline = timedelta(seconds=self.deployment["spec"]["progressDeadlineSeconds"] + 1)
        return (datetime.fromisoformat(progressing["lastUpdateTime"]) + deadline - now).total_seconds()


class ReplicaSetSize(NamedTuple):
    """The replicas of a ReplicaSet, and the Deployment's replicas plus maxSurge when it was last scaled."""

    name: str
    replicas: int
    max_replicas: int


def scale_proportionally(replica_sets: Sequence[ReplicaSetSize], allowed: int) -> dict[str, int]:
    """The replicas of each set by name, ``allowed`` in total. ``replica_sets`` is ordered oldest first."""
    missing = allowed - sum(replica_set.replicas for replica_set in replica_sets)
    ordered = list(reversed(replica_sets)) if missing > 0 else list(replica_sets)
    ordered.sort(key=lambda replica_set: replica_set.replicas, reverse=True)
    sizes = {replica_set.name: replica_set.replicas for replica_set in ordered}
    remaining = missing
    for replica_set in ordered:
        step = _proportional_size(replica_set, allowed) - replica_set.replicas
        step = min(step, remaining) if missing > 0 else max(step, remaining)
        sizes[replica_set.name] += step
        remaining -= step
    if ordered:
        largest = ordered[0].name
        sizes[largest] = max(0, sizes[largest] + remaining)
    return sizes


def _proportional_size(replica_set: ReplicaSetSize, allowed: int) -> int:
    """The size in proportion to the change of the total, rounded half away from zero."""
    if replica_set.max_replicas <= 0:
        return replica_set.replicas if allowed else 0
    return (2 * replica_set.replicas * allowed + replica_set.max_replicas) // (2 * replica_set.max_replicas)
