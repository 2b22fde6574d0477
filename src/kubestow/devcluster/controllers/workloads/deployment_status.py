"""What a deployment says of itself: its counts, and whether it is available, gets on, and can make its pods.

The condition Progressing carries the deadline: each step forward writes it anew, and when nothing has moved for
``progressDeadlineSeconds`` it turns False.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from kubestow.api.timestamps import timestamp
from kubestow.devcluster.apiserver.resources import Object
from kubestow.devcluster.apiserver.resources.int_or_percent import scaled
from kubestow.devcluster.controllers.conditions import condition_of, with_condition

__all__ = ["Report", "allowances", "available_in", "report"]

_COUNTS = ("replicas", "updatedReplicas", "readyReplicas", "availableReplicas", "unavailableReplicas")


@dataclass(frozen=True, slots=True)
class Report:
    """The status, and in how many seconds time alone may change it; None: never."""

    status: Object
    due: float | None = None


def report(deployment: Object, sets: Sequence[Object], new: Object | None, moment: datetime) -> Report:
    """``new`` is the set of the present template, if there is one; ``moment`` the present."""
    spec, before = deployment["spec"], deployment.get("status") or {}
    now = timestamp(moment)
    counts = _counted(sets, new)
    status: Object = {"observedGeneration": deployment["metadata"]["generation"]}
    status |= {field: counts[field] for field in _COUNTS if counts[field]}
    if "collisionCount" in before:
        status["collisionCount"] = before["collisionCount"]
    progress = _Progress(deployment, before, counts, new, now)
    status["conditions"], due = progress.judged(moment)
    status["conditions"] = with_condition(status, _availability(spec, counts), now, written="lastUpdateTime")
    status["conditions"] = [one for one in status["conditions"] if one["type"] != "ReplicaFailure"]
    if (failure := _failure(sets, new)) is not None:
        told = {field: failure[field] for field in ("type", "status", "reason", "message")}
        kept = {**status, "conditions": [*status["conditions"], *_of_type(before, "ReplicaFailure")]}
        status["conditions"] = with_condition(kept, told, now, written="lastUpdateTime")
    return Report(status, due)


def allowances(spec: Object) -> tuple[int, int]:
    """maxSurge and maxUnavailable in pods. Percentages of surge are rounded up, of unavailability down."""
    if spec["strategy"]["type"] == "Recreate":
        return 0, spec["replicas"]
    rolling = spec["strategy"]["rollingUpdate"]
    surge = scaled(rolling["maxSurge"], spec["replicas"], up=True)
    unavailable = min(scaled(rolling["maxUnavailable"], spec["replicas"], up=False), spec["replicas"])
    # With neither, nothing could ever move.
    return surge, unavailable if surge or unavailable else 1


def available_in(replica_set: Object) -> int:
    """The pods of a replica set that are available."""
    return _count(replica_set, "availableReplicas")


def _count(replica_set: Object, field: str) -> int:
    return int((replica_set.get("status") or {}).get(field, 0))


def _counted(sets: Sequence[Object], new: Object | None) -> dict[str, int]:
    available = sum(available_in(one) for one in sets)
    return {
        "replicas": sum(_count(one, "replicas") for one in sets),
        "updatedReplicas": _count(new, "replicas") if new is not None else 0,
        "readyReplicas": sum(_count(one, "readyReplicas") for one in sets),
        "availableReplicas": available,
        "unavailableReplicas": max(0, sum(one["spec"]["replicas"] for one in sets) - available),
    }


def _availability(spec: Object, counts: dict[str, int]) -> Object:
    _, unavailable = allowances(spec)
    if counts["availableReplicas"] >= spec["replicas"] - unavailable:
        said = ("True", "MinimumReplicasAvailable", "Deployment has minimum availability.")
    else:
        said = ("False", "MinimumReplicasUnavailable", "Deployment does not have minimum availability.")
    return {"type": "Available", **dict(zip(("status", "reason", "message"), said, strict=True))}


def _failure(sets: Sequence[Object], new: Object | None) -> Object | None:
    """The condition of the first replica set, the new one before others, that cannot make its pods."""
    ordered = [*([new] if new is not None else []), *sets]
    found = (condition_of(one.get("status") or {}, "ReplicaFailure") for one in ordered)
    return next((one for one in found if one is not None), None)


def _of_type(status: Object, type_: str) -> list[Object]:
    return [one for one in (condition_of(status, type_),) if one is not None]


@dataclass(frozen=True, slots=True)
class _Progress:
    """What the condition Progressing is made from."""

    deployment: Object
    before: Object
    counts: dict[str, int]
    new: Object | None
    now: str

    def judged(self, moment: datetime) -> tuple[list[Object], float | None]:
        """The conditions, and the seconds until the deadline."""
        old = condition_of(self.before, "Progressing")
        if self.deployment["spec"].get("paused"):
            return self._with("Unknown", "DeploymentPaused", "Deployment is paused"), None
        if self._is_complete():
            message = f"{self._subject} has successfully progressed."
            return self._with("True", "NewReplicaSetAvailable", message), None
        if old is None:
            message = f"Created new {self._subject.replace('ReplicaSet', 'replica set')}"
            made = self._with("True", "NewReplicaSetCreated", message)
            return made, self._left(made[-1], moment)
        if self._has_moved() or old["reason"] in ("NewReplicaSetAvailable", "DeploymentPaused"):
            made = self._renewed(old)
            return made, self._left(made[-1], moment)
        if (left := self._left(old, moment)) > 0:
            return list(self.before["conditions"]), left
        return self._with("False", "ProgressDeadlineExceeded", f"{self._subject} has timed out progressing."), None

    @property
    def _subject(self) -> str:
        if self.new is not None:
            return f'ReplicaSet "{self.new["metadata"]["name"]}"'
        return f'Deployment "{self.deployment["metadata"]["name"]}"'

    def _is_complete(self) -> bool:
        counted = {self.counts[field] for field in ("updatedReplicas", "replicas", "availableReplicas")}
        return counted == {self.deployment["spec"]["replicas"]}

    def _has_moved(self) -> bool:
        """Whether there is more of the new, less of the old, or something else to be done than before."""

        def gained(field: str) -> int:
            return int(self.counts[field] - self.before.get(field, 0))

        more = any(gained(field) > 0 for field in ("updatedReplicas", "readyReplicas", "availableReplicas"))
        fewer_old = gained("replicas") < gained("updatedReplicas")
        renewed = self.before.get("observedGeneration", 0) < self.deployment["metadata"]["generation"]
        return more or fewer_old or renewed

    def _renewed(self, old: Object) -> list[Object]:
        """The condition written anew, because the deadline counts from then."""
        stale = {**self.before, "conditions": [one for one in self.before["conditions"] if one is not old]}
        condition = self._condition("True", "ReplicaSetUpdated", f"{self._subject} is progressing.")
        made = with_condition(stale, condition, self.now, written="lastUpdateTime")
        if old["status"] == "True":
            made[-1]["lastTransitionTime"] = old["lastTransitionTime"]
        return made

    def _with(self, status: str, reason: str, message: str) -> list[Object]:
        condition = self._condition(status, reason, message)
        return with_condition(self.before, condition, self.now, written="lastUpdateTime")

    def _condition(self, status: str, reason: str, message: str) -> Object:
        return {"type": "Progressing", "status": status, "reason": reason, "message": message}

    def _left(self, progressing: Object, moment: datetime) -> float:
        """Seconds until the deadline, and one more, because conditions tell the time to the second."""
        allowed = timedelta(seconds=self.deployment["spec"]["progressDeadlineSeconds"] + 1)
        return (datetime.fromisoformat(progressing["lastUpdateTime"]) + allowed - moment).total_seconds()
