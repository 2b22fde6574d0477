"""Volumes, claims and the classes that make them."""

from __future__ import annotations

from kubestow.devcluster.apiserver.field_errors import Cause, forbidden_value, required_value
from kubestow.devcluster.apiserver.resources.kind import Object, Strategy

__all__ = [
    "CSIDriverStrategy",
    "PersistentVolumeClaimStrategy",
    "PersistentVolumeStrategy",
    "StorageClassStrategy",
    "StorageObjectStrategy",
]


class PersistentVolumeStrategy(Strategy):
    delete_returns_object = True

    def default(self, new: Object) -> None:
        new["spec"].setdefault("persistentVolumeReclaimPolicy", "Retain")
        new["spec"].setdefault("volumeMode", "Filesystem")

    def prepare_create(self, new: Object, now: str) -> None:
        _protect(new, "kubernetes.io/pv-protection")
        new["status"] = {"phase": "Pending", "lastPhaseTransitionTime": now}

    def validate(self, new: Object) -> list[Cause]:
        return [required_value(f"spec.{name}") for name in ("accessModes", "capacity") if not new["spec"].get(name)]


class PersistentVolumeClaimStrategy(Strategy):
    delete_returns_object = True

    def default(self, new: Object) -> None:
        new["spec"].setdefault("volumeMode", "Filesystem")

    def prepare_create(self, new: Object, now: str) -> None:
        _protect(new, "kubernetes.io/pvc-protection")
        new["status"] = {"phase": "Pending"}

    def validate(self, new: Object) -> list[Cause]:
        spec = new["spec"]
        causes = (
            []
            if spec.get("accessModes")
            else [required_value("spec.accessModes", "at least 1 access mode is required")]
        )
        if not (spec["resources"].get("requests") or {}).get("storage"):
            causes.append(required_value("spec.resources[storage]"))
        return causes

    def validate_update(self, new: Object, old: Object) -> list[Cause]:
        def fixed(spec: Object) -> Object:
            mutable = ("resources", "volumeAttributesClassName")
            bound_later = () if old["spec"].get("volumeName") else ("volumeName",)
            return {key: value for key, value in spec.items() if key not in (*mutable, *bound_later)}

        if fixed(new["spec"]) == fixed(old["spec"]):
            return []
        problem = (
            "spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims"
        )
        return [forbidden_value("spec", problem)]


def _protect(new: Object, finalizer: str) -> None:
    finalizers = new["metadata"].setdefault("finalizers", [])
    if finalizer not in finalizers:
        finalizers.append(finalizer)


class StorageObjectStrategy(Strategy):
    """Kinds of storage.k8s.io that answer a delete with the object."""

    delete_returns_object = True


class StorageClassStrategy(StorageObjectStrategy):
    def default(self, new: Object) -> None:
        new.setdefault("reclaimPolicy", "Delete")
        new.setdefault("volumeBindingMode", "Immediate")

    def validate(self, new: Object) -> list[Cause]:
        return [] if new.get("provisioner") else [required_value("provisioner")]


class CSIDriverStrategy(StorageObjectStrategy):
    def default(self, new: Object) -> None:
        spec = new.setdefault("spec", {})
        spec.setdefault("attachRequired", True)
        for name in ("podInfoOnMount", "storageCapacity", "requiresRepublish", "seLinuxMount"):
            spec.setdefault(name, False)
        spec.setdefault("fsGroupPolicy", "ReadWriteOnceWithFSType")
        spec.setdefault("volumeLifecycleModes", ["Persistent"])
