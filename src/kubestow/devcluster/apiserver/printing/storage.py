"""Volumes, claims, and the classes and drivers behind them."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Any

from kubestow.devcluster.apiserver.printing.layout import UNSET, Layout, Object, age_of, columns, name_of

__all__ = ["LAYOUTS"]


_ACCESS = {"ReadWriteOnce": "RWO", "ReadOnlyMany": "ROX", "ReadWriteMany": "RWX", "ReadWriteOncePod": "RWOP"}


def _access(modes: Iterable[str] | None) -> str:
    present = set(modes or ())
    return ",".join(short for mode, short in _ACCESS.items() if mode in present)


def _volume(new: Object, now: datetime) -> list[Any]:
    spec, status = new["spec"], new.get("status", {})
    claim = spec.get("claimRef")
    phase = "Terminating" if "deletionTimestamp" in new["metadata"] else status.get("phase", "")
    return [
        name_of(new),
        (spec.get("capacity") or {}).get("storage", ""),
        _access(spec.get("accessModes")),
        spec.get("persistentVolumeReclaimPolicy", ""),
        phase,
        f"{claim.get('namespace')}/{claim.get('name')}" if claim else "",
        spec.get("storageClassName", ""),
        spec.get("volumeAttributesClassName", UNSET),
        status.get("reason", ""),
        age_of(new, now),
        spec.get("volumeMode", UNSET),
    ]


def _claim(new: Object, now: datetime) -> list[Any]:
    spec, status = new["spec"], new.get("status", {})
    bound = bool(spec.get("volumeName"))
    phase = "Terminating" if "deletionTimestamp" in new["metadata"] else status.get("phase", "")
    return [
        name_of(new),
        phase,
        spec.get("volumeName", ""),
        (status.get("capacity") or {}).get("storage", "") if bound else "",
        _access(status.get("accessModes")) if bound else "",
        spec.get("storageClassName", ""),
        spec.get("volumeAttributesClassName", UNSET),
        age_of(new, now),
        spec.get("volumeMode", UNSET),
    ]


def _storage_class(new: Object, now: datetime) -> list[Any]:
    annotations = new["metadata"].get("annotations") or {}
    is_default = annotations.get("storageclass.kubernetes.io/is-default-class") == "true"
    return [
        name_of(new) + (" (default)" if is_default else ""),
        new.get("provisioner", ""),
        new.get("reclaimPolicy", ""),
        new.get("volumeBindingMode", ""),
        bool(new.get("allowVolumeExpansion", False)),
        age_of(new, now),
    ]


def _node_drivers(new: Object, now: datetime) -> list[Any]:
    return [name_of(new), len(new.get("spec", {}).get("drivers") or ()), age_of(new, now)]


LAYOUTS: dict[str, Layout] = {
    "csinodes.storage.k8s.io": Layout(columns("Name", ("Drivers", "integer"), "Age"), _node_drivers),
    "persistentvolumeclaims": Layout(
        columns(
            "Name",
            "Status",
            "Volume",
            "Capacity",
            "Access Modes",
            "StorageClass",
            "VolumeAttributesClass",
            "Age",
            "!VolumeMode",
        ),
        _claim,
    ),
    "persistentvolumes": Layout(
        columns(
            "Name",
            "Capacity",
            "Access Modes",
            "Reclaim Policy",
            "Status",
            "Claim",
            "StorageClass",
            "VolumeAttributesClass",
            "Reason",
            "Age",
            "!VolumeMode",
        ),
        _volume,
    ),
    "storageclasses.storage.k8s.io": Layout(
        columns("Name", "Provisioner", "ReclaimPolicy", "VolumeBindingMode", "AllowVolumeExpansion", "Age"),
        _storage_class,
    ),
}
