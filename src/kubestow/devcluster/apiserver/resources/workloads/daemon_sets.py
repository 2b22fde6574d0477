"""Daemon sets: their defaults, what may be written there, and the count of their templates."""

from __future__ import annotations

from typing import ClassVar

from kubestow.devcluster.apiserver.field_errors import Cause, invalid_value, required_value, unsupported_value
from kubestow.devcluster.apiserver.resources import int_or_percent
from kubestow.devcluster.apiserver.resources.kind import Object
from kubestow.devcluster.apiserver.resources.workloads.replicas import WorkloadStrategy

__all__ = ["TEMPLATE_GENERATION", "DaemonSetStrategy"]

#: Annotation of a daemon set: how many templates it has had.
TEMPLATE_GENERATION = "deprecated.daemonset.template.generation"


class DaemonSetStrategy(WorkloadStrategy):
    initial_status: ClassVar = {
        "currentNumberScheduled": 0,
        "numberMisscheduled": 0,
        "desiredNumberScheduled": 0,
        "numberReady": 0,
    }
    noun = "daemonset"

    def default_spec(self, spec: Object) -> None:
        strategy = spec.setdefault("updateStrategy", {})
        strategy.setdefault("type", "RollingUpdate")
        if strategy["type"] == "RollingUpdate":
            rolling = strategy.setdefault("rollingUpdate", {})
            rolling.setdefault("maxUnavailable", 1)
            rolling.setdefault("maxSurge", 0)
        spec.setdefault("revisionHistoryLimit", 10)

    def validate_spec(self, spec: Object) -> list[Cause]:
        strategy, path = spec["updateStrategy"], "spec.updateStrategy"
        if strategy["type"] not in ("RollingUpdate", "OnDelete"):
            return [unsupported_value(f"{path}.type", strategy["type"], ("OnDelete", "RollingUpdate"))]
        rolling, path = strategy.get("rollingUpdate") or {}, f"{path}.rollingUpdate"
        fields = ("maxUnavailable", "maxSurge")
        causes = int_or_percent.validate(rolling, fields, path, at_most_whole=fields)
        if causes or strategy["type"] == "OnDelete":
            return causes
        unavailable, surge = (int_or_percent.comes_to_nothing(rolling.get(field)) for field in fields)
        if unavailable and surge:
            causes.append(required_value(f"{path}.maxUnavailable", "cannot be 0 when maxSurge is 0"))
        elif not unavailable and not surge:
            problem = "may not be set when maxUnavailable is non-zero"
            causes.append(invalid_value(f"{path}.maxSurge", rolling["maxSurge"], problem))
        return causes

    def prepare_create(self, new: Object, now: str) -> None:
        super().prepare_create(new, now)
        new["metadata"].setdefault("annotations", {})[TEMPLATE_GENERATION] = "1"

    def prepare_update(self, new: Object, old: Object, now: str) -> None:
        """The annotation counts the templates there have been; nobody else writes it."""
        text = (old["metadata"].get("annotations") or {}).get(TEMPLATE_GENERATION, "1")
        count = int(text) if text.isdigit() else 1
        count += new["spec"]["template"] != old["spec"]["template"]
        new["metadata"]["annotations"] = {
            **(new["metadata"].get("annotations") or {}),
            TEMPLATE_GENERATION: str(count),
        }
