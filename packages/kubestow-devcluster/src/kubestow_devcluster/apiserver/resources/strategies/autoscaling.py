"""The strategies of horizontal pod autoscalers, which are stored as autoscaling/v2."""

from __future__ import annotations

from typing import Any, ClassVar, TypeVar

import msgspec

from kubestow.api.formats import quantity
from kubestow.api.formats.names import path_segment_name_errors
from kubestow_devcluster.apiserver.kinds.kind import RESTStrategy
from kubestow_devcluster.apiserver.schema.types import Object
from kubestow_devcluster.apiserver.statuses import (
    FieldError,
    forbidden_value,
    invalid_value,
    required_value,
    unsupported_value,
    validate_choice,
    validate_name,
)

_T = TypeVar("_T", list[Any], dict[str, Any])

_DEFAULT_CPU_UTILIZATION = 80
#: The field with the source of each type of metric.
_SOURCES = {
    "ContainerResource": "containerResource",
    "External": "external",
    "Object": "object",
    "Pods": "pods",
    "Resource": "resource",
}
_DEFAULT_SCALE_UP: Object = {
    "stabilizationWindowSeconds": 0,
    "selectPolicy": "Max",
    "policies": [
        {"type": "Pods", "value": 4, "periodSeconds": 15},
        {"type": "Percent", "value": 100, "periodSeconds": 15},
    ],
}
_DEFAULT_SCALE_DOWN: Object = {
    "selectPolicy": "Max",
    "policies": [{"type": "Percent", "value": 100, "periodSeconds": 15}],
}
_MAX_STABILIZATION, _MAX_PERIOD = 3600, 1800


class HorizontalPodAutoscalerStrategy(RESTStrategy):
    """The strategy of autoscaling/v2."""

    initial_status: ClassVar = {"desiredReplicas": 0}
    validates_updates_as_new = True

    def set_defaults(self, new: Object) -> None:
        spec = new["spec"]
        if spec.get("minReplicas") is None:
            spec["minReplicas"] = 1
        if not spec.get("metrics"):
            spec["metrics"] = [_cpu_metric(_DEFAULT_CPU_UTILIZATION)]
        if (behavior := spec.get("behavior")) is not None:
            behavior["scaleUp"] = _DEFAULT_SCALE_UP | (behavior.get("scaleUp") or {})
            behavior["scaleDown"] = _DEFAULT_SCALE_DOWN | (behavior.get("scaleDown") or {})

    def validate(self, new: Object) -> list[FieldError]:
        spec = new["spec"]
        least, most, path = spec["minReplicas"], spec.get("maxReplicas", 0), "spec.maxReplicas"
        errors = []
        if least < 1:
            errors.append(invalid_value("spec.minReplicas", least, "must be greater than or equal to 1"))
        if most == 0:
            errors.append(required_value(path, "must be set and greater than 0"))
        elif most < 0:
            errors.append(invalid_value(path, most, "must be greater than or equal to 1"))
        if most < least:
            errors.append(invalid_value(path, most, "must be greater than or equal to `minReplicas`"))
        errors += _reference_errors(spec.get("scaleTargetRef") or {}, "spec.scaleTargetRef")
        metrics = spec.get("metrics") or ()
        for index, metric in enumerate(metrics):
            errors += _metric_errors(metric, f"spec.metrics[{index}]")
        for direction, rules in (spec.get("behavior") or {}).items():
            errors += _scaling_rules_errors(rules, f"spec.behavior.{direction}")
        return errors


def _cpu_metric(utilization: int) -> Object:
    target = {"type": "Utilization", "averageUtilization": utilization}
    return {"type": "Resource", "resource": {"name": "cpu", "target": target}}


def _reference_errors(reference: Object, path: str) -> list[FieldError]:
    errors: list[FieldError] = []
    for field in ("kind", "name"):
        value = reference.get(field) or ""
        if not value:
            errors.append(required_value(f"{path}.{field}"))
        errors += validate_name(f"{path}.{field}", value, path_segment_name_errors)
    return errors


def _metric_errors(metric: Object, path: str) -> list[FieldError]:
    type_ = metric.get("type") or ""
    field = _SOURCES.get(type_)
    if field is None:
        return [unsupported_value(f"{path}.type", type_, tuple(_SOURCES))]
    others = [other for other in _SOURCES.values() if other != field and metric.get(other) is not None]
    errors = [forbidden_value(f"{path}.{other}", "must populate the given metric source only") for other in others]
    source = metric.get(field)
    if source is None:
        return [*errors, required_value(f"{path}.{field}", "must populate information for the given metric source")]
    return errors + _source_errors(field, source, f"{path}.{field}")


def _source_errors(field: str, source: Object, path: str) -> list[FieldError]:
    """The errors of the source of a metric, in the field of its type."""
    errors: list[FieldError] = []
    target, place = source.get("target") or {}, f"{path}.target"
    if field in ("resource", "containerResource"):
        if not source.get("name"):
            errors.append(required_value(f"{path}.name", "must specify a resource name"))
        if field == "containerResource" and not source.get("container"):
            errors.append(required_value(f"{path}.container", "must specify a container"))
        errors += _target_errors(target, place)
        has = [name for name in ("averageUtilization", "averageValue") if target.get(name) is not None]
        if not has:
            problem = "must set either a target raw value or a target utilization"
            errors.append(required_value(f"{place}.averageUtilization", problem))
        elif len(has) > 1:
            problem = "may not set both a target raw value and a target utilization"
            errors.append(forbidden_value(f"{place}.averageValue", problem))
        return errors
    if field == "object":
        errors += _reference_errors(source.get("describedObject") or {}, f"{path}.describedObject")
    name = (source.get("metric") or {}).get("name") or ""
    if not name:
        errors.append(required_value(f"{path}.metric.name", "must specify a metric name"))
    errors += validate_name(f"{path}.metric.name", name, path_segment_name_errors)
    errors += _target_errors(target, place)
    if target.get("averageValue") is None and (field == "pods" or target.get("value") is None):
        problem = {
            "pods": "must specify a positive target averageValue",
            "object": "must set either a target value or averageValue",
            "external": "must set either a target value for metric or a per-pod target",
        }[field]
        errors.append(required_value(f"{place}.averageValue", problem))
    if field == "external" and target.get("averageValue") is not None and target.get("value") is not None:
        problem = "may not set both a target value for metric and a per-pod target"
        errors.append(forbidden_value(f"{place}.value", problem))
    return errors


def _target_errors(target: Object, path: str) -> list[FieldError]:
    errors, type_ = [], target.get("type") or ""
    if not type_:
        errors.append(required_value(f"{path}.type", "must specify a metric target type"))
    if type_ not in ("Utilization", "Value", "AverageValue"):
        errors.append(invalid_value(f"{path}.type", type_, "must be either Utilization, Value, or AverageValue"))
    errors += [
        invalid_value(f"{path}.{field}", target[field], "must be positive")
        for field in ("value", "averageValue")
        if target.get(field) is not None and quantity.nanos(target[field]) <= 0
    ]
    utilization = target.get("averageUtilization")
    if utilization is not None and utilization < 1:
        errors.append(invalid_value(f"{path}.averageUtilization", utilization, "must be greater than 0"))
    return errors


def _scaling_rules_errors(rules: Object, path: str) -> list[FieldError]:
    errors, window = [], rules.get("stabilizationWindowSeconds")
    if window is not None and window < 0:
        problem = "must be greater than or equal to zero"
        errors.append(invalid_value(f"{path}.stabilizationWindowSeconds", window, problem))
    if window is not None and window > _MAX_STABILIZATION:
        problem = f"must be less than or equal to {_MAX_STABILIZATION}"
        errors.append(invalid_value(f"{path}.stabilizationWindowSeconds", window, problem))
    errors += validate_choice(f"{path}.selectPolicy", rules["selectPolicy"], ("Disabled", "Max", "Min"))
    if not rules["policies"]:
        errors.append(required_value(f"{path}.policies", "must specify at least one Policy"))
    for index, policy in enumerate(rules["policies"]):
        errors += _policy_errors(policy, f"{path}.policies[{index}]")
    tolerance = rules.get("tolerance")
    if tolerance is not None and quantity.nanos(tolerance) < 0:
        errors.append(invalid_value(f"{path}.tolerance", tolerance, "must be greater than or equal to 0"))
    return errors


def _policy_errors(policy: Object, path: str) -> list[FieldError]:
    errors = validate_choice(f"{path}.type", policy.get("type", ""), ("Percent", "Pods"))
    errors += [
        invalid_value(f"{path}.{field}", policy.get(field, 0), "must be greater than zero")
        for field in ("value", "periodSeconds")
        if policy.get(field, 0) <= 0
    ]
    if policy.get("periodSeconds", 0) > _MAX_PERIOD:
        problem = f"must be less than or equal to {_MAX_PERIOD}"
        errors.append(invalid_value(f"{path}.periodSeconds", policy["periodSeconds"], problem))
    return errors


#: The annotations of autoscaling/v1 with what only v2 has fields for, as lists or objects in JSON.
_ANNOTATIONS = "autoscaling.alpha.kubernetes.io/"
_BEHAVIOR, _METRICS = f"{_ANNOTATIONS}behavior", f"{_ANNOTATIONS}metrics"
_CONDITIONS, _CURRENT_METRICS = f"{_ANNOTATIONS}conditions", f"{_ANNOTATIONS}current-metrics"


class HorizontalPodAutoscalerV1Strategy(RESTStrategy):
    """The strategy of autoscaling/v1, whose only metric is the utilization of CPU.

    Other metrics, the behavior, and the conditions and current metrics of the status are in annotations.
    """

    needs_conversion = True
    initial_status: ClassVar = {"currentReplicas": 0, "desiredReplicas": 0}
    validates_updates_as_new = True

    def from_storage(self, stored: Object) -> Object:
        spec, status = dict(stored["spec"]), dict(stored.get("status") or {})
        metrics, annotations = spec.pop("metrics", ()), {}
        if (utilization := _cpu_utilization(metrics)) is not None:
            spec["targetCPUUtilizationPercentage"] = utilization
        annotations[_METRICS] = [metric for metric in metrics if _cpu_utilization([metric]) is None]
        annotations[_BEHAVIOR] = spec.pop("behavior", None)
        annotations[_CONDITIONS] = status.pop("conditions", None)
        annotations[_CURRENT_METRICS] = current = status.pop("currentMetrics", None)
        for metric in current or ():
            if metric["type"] == "Resource" and metric["resource"]["name"] == "cpu":
                measured = metric["resource"]["current"].get("averageUtilization")
                status |= {} if measured is None else {"currentCPUUtilizationPercentage": measured}
        status["currentReplicas"] = status.get("currentReplicas", 0)
        metadata = dict(stored["metadata"])
        encoded = {name: msgspec.json.encode(value).decode() for name, value in annotations.items() if value}
        if encoded:
            metadata["annotations"] = (metadata.get("annotations") or {}) | encoded
        return {**stored, "metadata": metadata, "spec": spec, "status": status}

    def to_storage(self, served: Object) -> Object:
        metadata, spec = dict(served["metadata"]), dict(served["spec"])
        status = dict(served.get("status") or {})
        annotations = dict(metadata.pop("annotations", None) or {})
        utilization = spec.pop("targetCPUUtilizationPercentage", None)
        status.pop("currentCPUUtilizationPercentage", None)
        metrics = [] if utilization is None else [_cpu_metric(utilization)]
        metrics += _decoded(annotations.pop(_METRICS, ""), list)
        spec["metrics"] = metrics or [_cpu_metric(_DEFAULT_CPU_UTILIZATION)]
        if behavior := _decoded(annotations.pop(_BEHAVIOR, ""), dict):
            spec["behavior"] = behavior
        for name, field in ((_CONDITIONS, "conditions"), (_CURRENT_METRICS, "currentMetrics")):
            if value := _decoded(annotations.pop(name, ""), list):
                status[field] = value
        if annotations:
            metadata["annotations"] = annotations
        status.setdefault("desiredReplicas", 0)
        return {**served, "metadata": metadata, "spec": spec, "status": status}

    def set_defaults(self, new: Object) -> None:
        if new["spec"].get("minReplicas") is None:
            new["spec"]["minReplicas"] = 1

    def validate(self, new: Object) -> list[FieldError]:
        return HorizontalPodAutoscalerStrategy().validate(self.to_storage(new))


def _cpu_utilization(metrics: list[Object]) -> int | None:
    """The target of the first metric that is the utilization of CPU."""
    for metric in metrics:
        if metric["type"] == "Resource" and metric["resource"]["name"] == "cpu":
            target: Object = metric["resource"]["target"]
            if target.get("averageUtilization") is not None:
                return int(target["averageUtilization"])
    return None


def _decoded(text: str, type_: type[_T]) -> _T:
    """The value of an annotation; an empty one if it is missing or not of this type."""
    try:
        value: _T = msgspec.json.decode(text, type=type_)
    except (msgspec.DecodeError, msgspec.ValidationError):
        return type_()
    return value
