"""The strategies of persistent volumes and claims, and of the kinds of storage.k8s.io."""

from __future__ import annotations

from kubestow_devcluster.apiserver.field_errors import FieldError, forbidden_value, required_value
from kubestow_devcluster.apiserver.kinds.kind import ALL_CLIENT_METADATA, RESTStrategy
from kubestow_devcluster.apiserver.schema.types import Object


class PersistentVolumeStrategy(RESTStrategy):
    returns_deleted_object = True

    def set_defaults(self, new: Object) -> None:
        new["spec"].setdefault("persistentVolumeReclaimPolicy", "Retain")
        new["spec"].setdefault("volumeMode", "Filesystem")

    def prepare_for_create(self, new: Object, now: str) -> None:
        _add_finalizer(new, "kubernetes.io/pv-protection")
        new["status"] = {"phase": "Pending", "lastPhaseTransitionTime": now}

    def validate(self, new: Object) -> list[FieldError]:
        return [required_value(f"spec.{name}") for name in ("accessModes", "capacity") if not new["spec"].get(name)]


class PersistentVolumeClaimStrategy(RESTStrategy):
    returns_deleted_object = True

    def set_defaults(self, new: Object) -> None:
        new["spec"].setdefault("volumeMode", "Filesystem")

    def prepare_for_create(self, new: Object, now: str) -> None:
        _add_finalizer(new, "kubernetes.io/pvc-protection")
        new["status"] = {"phase": "Pending"}

    def validate(self, new: Object) -> list[FieldError]:
        spec, errors = new["spec"], []
        if not spec.get("accessModes"):
            errors.append(required_value("spec.accessModes", "at least 1 access mode is required"))
        if not (spec["resources"].get("requests") or {}).get("storage"):
            errors.append(required_value("spec.resources[storage]"))
        return errors

    def validate_update(self, new: Object, old: Object) -> list[FieldError]:
        mutable = {"resources", "volumeAttributesClassName"}
        if not old["spec"].get("volumeName"):
            mutable.add("volumeName")

        def immutable(spec: Object) -> Object:
            return {key: value for key, value in spec.items() if key not in mutable}

        if immutable(new["spec"]) == immutable(old["spec"]):
            return []
        problem = (
            "spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims"
        )
        return [forbidden_value("spec", problem)]


def _add_finalizer(new: Object, finalizer: str) -> None:
    finalizers = new["metadata"].setdefault("finalizers", [])
    if finalizer not in finalizers:
        finalizers.append(finalizer)


class StorageObjectStrategy(RESTStrategy):
    """The kinds of storage.k8s.io whose DELETE returns the object; of these, volume attachments have a status."""

    returns_deleted_object = True
    kept_by_status_writes = ALL_CLIENT_METADATA


class StorageClassStrategy(StorageObjectStrategy):
    def set_defaults(self, new: Object) -> None:
        new.setdefault("reclaimPolicy", "Delete")
        new.setdefault("volumeBindingMode", "Immediate")

    def validate(self, new: Object) -> list[FieldError]:
        return [] if new.get("provisioner") else [required_value("provisioner")]


class CSIDriverStrategy(StorageObjectStrategy):
    def set_defaults(self, new: Object) -> None:
        spec = new.setdefault("spec", {})
        spec.setdefault("attachRequired", True)
        for name in ("podInfoOnMount", "storageCapacity", "requiresRepublish", "seLinuxMount"):
            spec.setdefault(name, False)
        spec.setdefault("fsGroupPolicy", "ReadWriteOnceWithFSType")
        spec.setdefault("volumeLifecycleModes", ["Persistent"])
