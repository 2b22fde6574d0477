"""The strategy of pod disruption budgets."""

from __future__ import annotations

from kubestow_devcluster.apiserver.field_errors import FieldError, invalid_value, unsupported_value
from kubestow_devcluster.apiserver.resources import int_or_percent
from kubestow_devcluster.apiserver.resources.strategy import RESTStrategy
from kubestow_devcluster.apiserver.schema import Object

__all__ = ["PodDisruptionBudgetStrategy"]

_UNHEALTHY_POD_EVICTION_POLICIES = ("AlwaysAllow", "IfHealthyBudget")


class PodDisruptionBudgetStrategy(RESTStrategy):
    has_generation = True

    def prepare_for_create(self, new: Object, now: str) -> None:
        new["status"] = {"disruptionsAllowed": 0, "currentHealthy": 0, "desiredHealthy": 0, "expectedPods": 0}

    def validate(self, new: Object) -> list[FieldError]:
        spec, errors = new["spec"], []
        bounds = [field for field in ("minAvailable", "maxUnavailable") if field in spec]
        if len(bounds) > 1:
            value = {field: spec[field] for field in bounds}
            errors.append(invalid_value("spec", value, "minAvailable and maxUnavailable cannot be both set"))
        errors += int_or_percent.validate(spec, bounds, "spec", at_most_100_percent=bounds)
        policy = spec.get("unhealthyPodEvictionPolicy", "IfHealthyBudget")
        if policy not in _UNHEALTHY_POD_EVICTION_POLICIES:
            path = "spec.unhealthyPodEvictionPolicy"
            errors.append(unsupported_value(path, policy, _UNHEALTHY_POD_EVICTION_POLICIES))
        return errors

    def validate_update(self, new: Object, old: Object) -> list[FieldError]:
        return self.validate(new)
