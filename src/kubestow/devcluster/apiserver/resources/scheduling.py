"""Priority classes, disruption budgets, leases and device claims: what schedulers read and write beside pods."""

from __future__ import annotations

from kubestow.devcluster.apiserver.field_errors import (
    Cause,
    forbidden_value,
    invalid_value,
    required_value,
    unsupported_value,
)
from kubestow.devcluster.apiserver.resources import int_or_percent
from kubestow.devcluster.apiserver.resources.kind import Object, Strategy

__all__ = [
    "SYSTEM_PRIORITY_CLASSES",
    "DeviceObjectStrategy",
    "LeaseStrategy",
    "PodDisruptionBudgetStrategy",
    "PriorityClassStrategy",
    "ResourceClaimStrategy",
]

#: The highest value a class made by users may have.
HIGHEST_USER_PRIORITY = 1_000_000_000

SYSTEM_PRIORITY_CLASSES: dict[str, tuple[int, str]] = {
    "system-cluster-critical": (
        2_000_000_000,
        "Used for system critical pods that must run in the cluster, but can be moved to another node if necessary.",
    ),
    "system-node-critical": (
        2_000_001_000,
        "Used for system critical pods that must not be moved from their current node.",
    ),
}


class PriorityClassStrategy(Strategy):
    has_generation = True

    def default(self, new: Object) -> None:
        new.setdefault("value", 0)
        new.setdefault("preemptionPolicy", "PreemptLowerPriority")

    def validate(self, new: Object) -> list[Cause]:
        name = new["metadata"].get("name", "")
        if name in SYSTEM_PRIORITY_CLASSES:
            return (
                []
                if new["value"] == SYSTEM_PRIORITY_CLASSES[name][0]
                else [forbidden_value("metadata.name", _RESERVED)]
            )
        if name.startswith("system-"):
            return [forbidden_value("metadata.name", _RESERVED)]
        if new["value"] > HIGHEST_USER_PRIORITY:
            problem = f"maximum allowed value of a user defined priority is {HIGHEST_USER_PRIORITY}"
            return [forbidden_value("value", problem)]
        return []

    def validate_update(self, new: Object, old: Object) -> list[Cause]:
        return [
            forbidden_value(field, "may not be changed in an update.")
            if field == "value"
            else invalid_value(field, new[field], "field is immutable")
            for field in ("value", "preemptionPolicy")
            if new.get(field) != old.get(field)
        ]


_EVICTION_POLICIES = ("AlwaysAllow", "IfHealthyBudget")
_RESERVED = "priority class names with 'system-' prefix are reserved for system use only. error: "


class PodDisruptionBudgetStrategy(Strategy):
    has_generation = True

    def prepare_create(self, new: Object, now: str) -> None:
        new["status"] = {"disruptionsAllowed": 0, "currentHealthy": 0, "desiredHealthy": 0, "expectedPods": 0}

    def validate(self, new: Object) -> list[Cause]:
        spec, causes = new["spec"], []
        bounds = [field for field in ("minAvailable", "maxUnavailable") if field in spec]
        if len(bounds) > 1:
            shown = {field: spec[field] for field in bounds}
            causes.append(invalid_value("spec", shown, "minAvailable and maxUnavailable cannot be both set"))
        causes += int_or_percent.validate(spec, bounds, "spec", at_most_whole=bounds)
        policy = spec.get("unhealthyPodEvictionPolicy", "IfHealthyBudget")
        if policy not in _EVICTION_POLICIES:
            causes.append(unsupported_value("spec.unhealthyPodEvictionPolicy", policy, _EVICTION_POLICIES))
        return causes

    def validate_update(self, new: Object, old: Object) -> list[Cause]:
        return self.validate(new)


class LeaseStrategy(Strategy):
    create_on_update = True
    unconditional_update = False

    def validate(self, new: Object) -> list[Cause]:
        causes: list[Cause] = []
        for name, least in (("leaseDurationSeconds", 1), ("leaseTransitions", 0)):
            value = new["spec"].get(name)
            if value is not None and value < least:
                bound = "greater than 0" if least else "greater than or equal to 0"
                causes.append(invalid_value(f"spec.{name}", value, f"must be {bound}"))
        return causes

    def validate_update(self, new: Object, old: Object) -> list[Cause]:
        return self.validate(new)


class DeviceObjectStrategy(Strategy):
    """Device classes and resource slices."""

    has_generation = True


class ResourceClaimStrategy(Strategy):
    def default(self, new: Object) -> None:
        for request in new["spec"].get("devices", {}).get("requests") or ():
            exactly = request.get("exactly")
            for part in [exactly] if exactly is not None else request.get("firstAvailable") or ():
                part.setdefault("allocationMode", "ExactCount")
                if part["allocationMode"] == "ExactCount":
                    part.setdefault("count", 1)

    def prepare_create(self, new: Object, now: str) -> None:
        new["status"] = {}

    def validate(self, new: Object) -> list[Cause]:
        return [
            required_value(f"spec.devices.requests[{index}].name")
            for index, request in enumerate(new["spec"].get("devices", {}).get("requests") or ())
            if not request.get("name")
        ]

    def validate_update(self, new: Object, old: Object) -> list[Cause]:
        return [] if new["spec"] == old["spec"] else [invalid_value("spec", new["spec"], "field is immutable")]
