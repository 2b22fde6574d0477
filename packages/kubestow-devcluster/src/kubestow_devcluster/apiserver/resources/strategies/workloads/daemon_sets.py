"""The strategy of daemon sets, which also counts the generations of their templates."""

from __future__ import annotations

from typing import ClassVar

from kubestow_devcluster.apiserver.field_errors import FieldError, invalid_value, required_value, unsupported_value
from kubestow_devcluster.apiserver.resources import int_or_percent
from kubestow_devcluster.apiserver.resources.strategies.workloads.pod_controllers import PodControllerStrategy
from kubestow_devcluster.apiserver.schema import Object

__all__ = ["TEMPLATE_GENERATION", "DaemonSetStrategy"]

#: The annotation that counts the pod templates a daemon set has had.
TEMPLATE_GENERATION = "deprecated.daemonset.template.generation"
_TYPES = ("OnDelete", "RollingUpdate")


class DaemonSetStrategy(PodControllerStrategy):
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

    def validate_spec(self, spec: Object) -> list[FieldError]:
        strategy, path = spec["updateStrategy"], "spec.updateStrategy"
        if strategy["type"] not in _TYPES:
            return [unsupported_value(f"{path}.type", strategy["type"], _TYPES)]
        rolling, path = strategy.get("rollingUpdate") or {}, f"{path}.rollingUpdate"
        fields = ("maxUnavailable", "maxSurge")
        errors = int_or_percent.validate(rolling, fields, path, at_most_100_percent=fields)
        if errors or strategy["type"] == "OnDelete":
            return errors
        no_unavailable, no_surge = (int_or_percent.is_zero(rolling.get(field)) for field in fields)
        if no_unavailable and no_surge:
            errors.append(required_value(f"{path}.maxUnavailable", "cannot be 0 when maxSurge is 0"))
        elif not no_unavailable and not no_surge:
            problem = "may not be set when maxUnavailable is non-zero"
            errors.append(invalid_value(f"{path}.maxSurge", rolling["maxSurge"], problem))
        return errors

    def prepare_for_create(self, new: Object, now: str) -> None:
        super().prepare_for_create(new, now)
        new["metadata"].setdefault("annotations", {})[TEMPLATE_GENERATION] = "1"

    def prepare_for_update(self, new: Object, old: Object, now: str) -> None:
        text = (old["metadata"].get("annotations") or {}).get(TEMPLATE_GENERATION, "1")
        count = int(text) if text.isdigit() else 1
        count += new["spec"]["template"] != old["spec"]["template"]
        new["metadata"]["annotations"] = {
            **(new["metadata"].get("annotations") or {}),
            TEMPLATE_GENERATION: str(count),
        }
