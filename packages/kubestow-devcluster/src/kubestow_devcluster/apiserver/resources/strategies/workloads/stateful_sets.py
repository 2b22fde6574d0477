"""The strategy of stateful sets."""

from __future__ import annotations

from typing import ClassVar

from kubestow_devcluster.apiserver.field_errors import FieldError, forbidden_value, invalid_value, unsupported_value
from kubestow_devcluster.apiserver.resources import int_or_percent
from kubestow_devcluster.apiserver.resources.strategies.workloads.pod_controllers import (
    PodControllerStrategy,
    validate_not_negative,
)
from kubestow_devcluster.apiserver.schema import Object

__all__ = ["StatefulSetStrategy"]


_RETENTION_POLICIES = ("Delete", "Retain")
_MUTABLE = (
    "replicas",
    "ordinals",
    "template",
    "updateStrategy",
    "revisionHistoryLimit",
    "persistentVolumeClaimRetentionPolicy",
    "minReadySeconds",
)


class StatefulSetStrategy(PodControllerStrategy):
    initial_status: ClassVar = {"replicas": 0, "availableReplicas": 0}
    noun = "statefulset"

    def default_spec(self, spec: Object) -> None:
        spec.setdefault("replicas", 1)
        spec.setdefault("podManagementPolicy", "OrderedReady")
        strategy = spec.setdefault("updateStrategy", {})
        strategy.setdefault("type", "RollingUpdate")
        if strategy["type"] == "RollingUpdate":
            rolling = strategy.setdefault("rollingUpdate", {})
            rolling.setdefault("partition", 0)
            rolling.setdefault("maxUnavailable", 1)
        spec.setdefault("revisionHistoryLimit", 10)
        retention = spec.setdefault("persistentVolumeClaimRetentionPolicy", {})
        retention.setdefault("whenDeleted", "Retain")
        retention.setdefault("whenScaled", "Retain")
        for claim in spec.get("volumeClaimTemplates") or ():
            claim.setdefault("apiVersion", "v1")
            claim.setdefault("kind", "PersistentVolumeClaim")
            claim.setdefault("spec", {}).setdefault("volumeMode", "Filesystem")
            claim.setdefault("status", {}).setdefault("phase", "Pending")

    def validate_spec(self, spec: Object) -> list[FieldError]:
        errors = []
        policy = spec["podManagementPolicy"]
        if policy not in ("OrderedReady", "Parallel"):
            problem = "must be 'OrderedReady' or 'Parallel'"
            errors.append(invalid_value("spec.podManagementPolicy", policy, problem))
        retention = spec["persistentVolumeClaimRetentionPolicy"]
        errors += [
            unsupported_value(f"spec.persistentVolumeClaimRetentionPolicy.{when}", retention[when], _RETENTION_POLICIES)
            for when in ("whenDeleted", "whenScaled")
            if retention[when] not in _RETENTION_POLICIES
        ]
        errors += validate_not_negative(spec.get("ordinals") or {}, ("start",), "spec.ordinals")
        return errors + _validate_update_strategy(spec["updateStrategy"], "spec.updateStrategy")

    def validate_update(self, new: Object, old: Object) -> list[FieldError]:
        def immutable(spec: Object) -> Object:
            return {field: value for field, value in spec.items() if field not in _MUTABLE}

        errors = self.validate(new)
        if immutable(new["spec"]) != immutable(old["spec"]):
            *names, last = (f"'{field}'" for field in _MUTABLE)
            mutable = f"{', '.join(names)} and {last}"
            problem = f"updates to statefulset spec for fields other than {mutable} are forbidden"
            errors.append(forbidden_value("spec", problem))
        return errors


def _validate_update_strategy(strategy: Object, path: str) -> list[FieldError]:
    rolling = strategy.get("rollingUpdate")
    if strategy["type"] not in ("RollingUpdate", "OnDelete"):
        return [invalid_value(path, strategy, "must be 'RollingUpdate' or 'OnDelete'")]
    if rolling is None:
        return []
    path += ".rollingUpdate"
    if strategy["type"] == "OnDelete":
        return [invalid_value(path, rolling, "only allowed for updateStrategy 'RollingUpdate'")]
    errors = validate_not_negative(rolling, ("partition",), path)
    invalid = int_or_percent.validate(rolling, ["maxUnavailable"], path, at_most_100_percent=["maxUnavailable"])
    if not invalid and "maxUnavailable" in rolling and int_or_percent.is_zero(rolling["maxUnavailable"]):
        invalid.append(invalid_value(f"{path}.maxUnavailable", rolling["maxUnavailable"], "cannot be 0"))
    return errors + invalid
