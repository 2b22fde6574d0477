"""Stateful sets: their defaults, what may be written there, and the few fields that may change later."""

from __future__ import annotations

from typing import ClassVar

from kubestow.devcluster.apiserver.field_errors import Cause, forbidden_value, invalid_value, unsupported_value
from kubestow.devcluster.apiserver.resources import int_or_percent
from kubestow.devcluster.apiserver.resources.kind import Object
from kubestow.devcluster.apiserver.resources.workloads.replicas import WorkloadStrategy, not_negative

__all__ = ["StatefulSetStrategy"]


class StatefulSetStrategy(WorkloadStrategy):
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

    def validate_spec(self, spec: Object) -> list[Cause]:
        causes = []
        policy = spec["podManagementPolicy"]
        if policy not in ("OrderedReady", "Parallel"):
            problem = "must be 'OrderedReady' or 'Parallel'"
            causes.append(invalid_value("spec.podManagementPolicy", policy, problem))
        retention = spec["persistentVolumeClaimRetentionPolicy"]
        causes += [
            unsupported_value(f"spec.persistentVolumeClaimRetentionPolicy.{when}", retention[when], _RETENTION)
            for when in ("whenDeleted", "whenScaled")
            if retention[when] not in _RETENTION
        ]
        causes += not_negative(spec.get("ordinals") or {}, ("start",), "spec.ordinals")
        return causes + _validate_stateful_update(spec["updateStrategy"], "spec.updateStrategy")

    def validate_update(self, new: Object, old: Object) -> list[Cause]:
        def fixed(spec: Object) -> Object:
            return {field: value for field, value in spec.items() if field not in _STATEFUL_MUTABLE}

        causes = self.validate(new)
        if fixed(new["spec"]) != fixed(old["spec"]):
            *names, last = (f"'{field}'" for field in _STATEFUL_MUTABLE)
            listed = f"{', '.join(names)} and {last}"
            problem = f"updates to statefulset spec for fields other than {listed} are forbidden"
            causes.append(forbidden_value("spec", problem))
        return causes


_RETENTION = ("Delete", "Retain")
_STATEFUL_MUTABLE = (
    "replicas",
    "ordinals",
    "template",
    "updateStrategy",
    "revisionHistoryLimit",
    "persistentVolumeClaimRetentionPolicy",
    "minReadySeconds",
)


def _validate_stateful_update(strategy: Object, path: str) -> list[Cause]:
    rolling = strategy.get("rollingUpdate")
    if strategy["type"] not in ("RollingUpdate", "OnDelete"):
        return [invalid_value(path, strategy, "must be 'RollingUpdate' or 'OnDelete'")]
    if rolling is None:
        return []
    path += ".rollingUpdate"
    if strategy["type"] == "OnDelete":
        return [invalid_value(path, rolling, "only allowed for updateStrategy 'RollingUpdate'")]
    causes = not_negative(rolling, ("partition",), path)
    wrong = int_or_percent.validate(rolling, ["maxUnavailable"], path, at_most_whole=["maxUnavailable"])
    if not wrong and "maxUnavailable" in rolling and int_or_percent.comes_to_nothing(rolling["maxUnavailable"]):
        wrong.append(invalid_value(f"{path}.maxUnavailable", rolling["maxUnavailable"], "cannot be 0"))
    return causes + wrong
