"""Kinds that make pods: what they have in common, and replica sets, replication controllers and deployments."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from kubestow.devcluster.apiserver.field_errors import (
    Cause,
    forbidden_value,
    invalid_value,
    required_value,
    unsupported_value,
)
from kubestow.devcluster.apiserver.resources import int_or_percent, metadata, pod_spec
from kubestow.devcluster.apiserver.resources.kind import Object, Strategy

__all__ = [
    "DeploymentStrategy",
    "ReplicaSetStrategy",
    "ReplicationControllerStrategy",
    "WorkloadStrategy",
    "not_negative",
    "template_labels",
]


class WorkloadStrategy(Strategy):
    """A spec with a pod template, a selector that must match it, and a status the controller writes."""

    has_generation = True
    #: Status of a new object, before any controller has looked.
    initial_status: ClassVar[dict[str, Any]] = {}
    #: What messages call the kind.
    noun: ClassVar = "deployment"
    #: Whether its pods have to be restarted for ever.
    runs_forever: ClassVar = True

    def default(self, new: Object) -> None:
        spec = new["spec"]
        pod_spec.default_template(spec.setdefault("template", {}))
        self.default_spec(spec)

    def default_spec(self, spec: Object) -> None:
        """Defaults besides those of the template."""

    def prepare_create(self, new: Object, now: str) -> None:
        new["status"] = dict(self.initial_status)

    def validate(self, new: Object) -> list[Cause]:
        spec = new["spec"]
        causes = self.validate_selector(spec)
        causes += not_negative(spec, ("replicas", "minReadySeconds", "revisionHistoryLimit"), "spec")
        causes += self.validate_spec(spec)
        causes += metadata.validate_labels(template_labels(spec), "spec.template.labels")
        template = spec["template"].get("spec", {})
        if self.runs_forever and template.get("restartPolicy") in ("OnFailure", "Never"):
            path = "spec.template.spec.restartPolicy"
            causes.append(unsupported_value(path, template["restartPolicy"], ("Always",)))
        return causes + pod_spec.validate_spec(template, "spec.template.spec")

    def validate_spec(self, spec: Object) -> list[Cause]:
        """What is wrong with the fields that only this kind has."""
        return []

    def validate_selector(self, spec: Object) -> list[Cause]:
        selector = spec.get("selector")
        if selector is None:
            return [required_value("spec.selector")]
        wanted, labels = selector.get("matchLabels") or {}, template_labels(spec)
        if not wanted and not selector.get("matchExpressions"):
            problem = f"empty selector is invalid for {self.noun}"
            return [invalid_value("spec.selector", selector, problem)]
        if any(labels.get(key) != value for key, value in wanted.items()):
            problem = "`selector` does not match template `labels`"
            return [invalid_value("spec.template.metadata.labels", labels, problem)]
        return []

    def validate_update(self, new: Object, old: Object) -> list[Cause]:
        causes = self.validate(new)
        if new["spec"].get("selector") != old["spec"].get("selector"):
            causes.append(invalid_value("spec.selector", new["spec"].get("selector"), "field is immutable"))
        return causes


def not_negative(within: Object, fields: Sequence[str], path: str) -> list[Cause]:
    return [
        invalid_value(f"{path}.{field}", within[field], "must be greater than or equal to 0")
        for field in fields
        if within.get(field, 0) < 0
    ]


def template_labels(spec: Object) -> dict[str, str]:
    labels: dict[str, str] = spec["template"].get("metadata", {}).get("labels") or {}
    return labels


class ReplicaSetStrategy(WorkloadStrategy):
    initial_status: ClassVar = {"replicas": 0}

    def default_spec(self, spec: Object) -> None:
        spec.setdefault("replicas", 1)


class ReplicationControllerStrategy(WorkloadStrategy):
    initial_status: ClassVar = {"replicas": 0}

    def default_spec(self, spec: Object) -> None:
        spec.setdefault("replicas", 1)
        if not spec.get("selector") and template_labels(spec):
            spec["selector"] = dict(template_labels(spec))

    def validate_selector(self, spec: Object) -> list[Cause]:
        selector = spec.get("selector")
        return super().validate_selector({**spec, "selector": {"matchLabels": selector}} if selector else {})

    def validate_update(self, new: Object, old: Object) -> list[Cause]:
        return self.validate(new)


class DeploymentStrategy(WorkloadStrategy):
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

    def validate_spec(self, spec: Object) -> list[Cause]:
        strategy, path = spec["strategy"], "spec.strategy"
        if strategy["type"] not in ("Recreate", "RollingUpdate"):
            return [unsupported_value(f"{path}.type", strategy["type"], ("Recreate", "RollingUpdate"))]
        rolling = strategy.get("rollingUpdate")
        if rolling is None:
            return []
        if strategy["type"] == "Recreate":
            return [forbidden_value(f"{path}.rollingUpdate", "may not be specified when strategy `type` is 'Recreate'")]
        path += ".rollingUpdate"
        fields = ("maxUnavailable", "maxSurge")
        causes = int_or_percent.validate(rolling, fields, path, at_most_whole=fields[:1])
        if not causes and all(int_or_percent.comes_to_nothing(rolling.get(field)) for field in fields):
            amount = rolling["maxUnavailable"]
            causes.append(invalid_value(f"{path}.maxUnavailable", amount, "may not be 0 when `maxSurge` is 0"))
        return causes
