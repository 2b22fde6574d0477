"""The strategies of deployments, replica sets and replication controllers."""

from __future__ import annotations

from typing import ClassVar

from kubestow_devcluster.apiserver.field_errors import FieldError, forbidden_value, invalid_value, unsupported_value
from kubestow_devcluster.apiserver.resources import int_or_percent
from kubestow_devcluster.apiserver.resources.strategies.workloads.pod_controllers import (
    PodControllerStrategy,
    template_labels,
)
from kubestow_devcluster.apiserver.schema import Object

__all__ = ["DeploymentStrategy", "ReplicaSetStrategy", "ReplicationControllerStrategy"]

_TYPES = ("Recreate", "RollingUpdate")


class ReplicaSetStrategy(PodControllerStrategy):
    initial_status: ClassVar = {"replicas": 0}

    def default_spec(self, spec: Object) -> None:
        spec.setdefault("replicas", 1)


class ReplicationControllerStrategy(PodControllerStrategy):
    default_propagation_policy = "Orphan"
    initial_status: ClassVar = {"replicas": 0}

    def default_spec(self, spec: Object) -> None:
        spec.setdefault("replicas", 1)
        if not spec.get("selector") and template_labels(spec):
            spec["selector"] = dict(template_labels(spec))

    def validate_selector(self, spec: Object) -> list[FieldError]:
        selector = spec.get("selector")
        return super().validate_selector({**spec, "selector": {"matchLabels": selector}} if selector else {})

    def validate_update(self, new: Object, old: Object) -> list[FieldError]:
        return self.validate(new)


class DeploymentStrategy(PodControllerStrategy):
    kept_by_status_writes = ("labels",)

    def default_spec(self, spec: Object) -> None:
        spec.setdefault("replicas", 1)
        strategy = spec.setdefault("strategy", {})
        strategy.setdefault("type", "RollingUpdate")
        if strategy["type"] == "RollingUpdate":
            rolling = strategy.setdefault("rollingUpdate", {})
            rolling.setdefault("maxUnavailable", "25%")
            rolling.setdefault("maxSurge", "25%")
        spec.setdefault("revisionHistoryLimit", 10)
        spec.setdefault("progressDeadlineSeconds", 600)

    def validate_spec(self, spec: Object) -> list[FieldError]:
        strategy, path = spec["strategy"], "spec.strategy"
        if strategy["type"] not in _TYPES:
            return [unsupported_value(f"{path}.type", strategy["type"], _TYPES)]
        rolling = strategy.get("rollingUpdate")
        if rolling is None:
            return []
        if strategy["type"] == "Recreate":
            return [forbidden_value(f"{path}.rollingUpdate", "may not be specified when strategy `type` is 'Recreate'")]
        path += ".rollingUpdate"
        fields = ("maxUnavailable", "maxSurge")
        errors = int_or_percent.validate(rolling, fields, path, at_most_100_percent=fields[:1])
        if not errors and all(int_or_percent.is_zero(rolling.get(field)) for field in fields):
            value = rolling["maxUnavailable"]
            errors.append(invalid_value(f"{path}.maxUnavailable", value, "may not be 0 when `maxSurge` is 0"))
        return errors
