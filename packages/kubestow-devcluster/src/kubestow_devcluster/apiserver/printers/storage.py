"""Printers of persistent volumes and claims, and of the kinds of storage.k8s.io and resource.k8s.io."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Any

from kubestow.api.storage import IS_DEFAULT_CLASS
from kubestow_devcluster.apiserver.printers.table import (
    UNSET,
    Printer,
    age_of,
    columns,
    field_printer,
    format_list,
    name_of,
)
from kubestow_devcluster.apiserver.schema.types import Object

_ACCESS_MODES = {"ReadWriteOnce": "RWO", "ReadOnlyMany": "ROX", "ReadWriteMany": "RWX", "ReadWriteOncePod": "RWOP"}


def _access_modes(modes: Iterable[str] | None) -> str:
    present = set(modes or ())
    return ",".join(short for mode, short in _ACCESS_MODES.items() if mode in present)


def _print_persistent_volume(obj: Object, now: datetime) -> list[Any]:
    spec, status = obj["spec"], obj.get("status", {})
    claim = spec.get("claimRef")
    phase = "Terminating" if "deletionTimestamp" in obj["metadata"] else status.get("phase", "")
    return [
        name_of(obj),
        (spec.get("capacity") or {}).get("storage", ""),
        _access_modes(spec.get("accessModes")),
        spec.get("persistentVolumeReclaimPolicy", ""),
        phase,
        f"{claim.get('namespace')}/{claim.get('name')}" if claim else "",
        spec.get("storageClassName", ""),
        spec.get("volumeAttributesClassName", UNSET),
        status.get("reason", ""),
        age_of(obj, now),
        spec.get("volumeMode", UNSET),
    ]


def _print_persistent_volume_claim(obj: Object, now: datetime) -> list[Any]:
    spec, status = obj["spec"], obj.get("status", {})
    bound = bool(spec.get("volumeName"))
    phase = "Terminating" if "deletionTimestamp" in obj["metadata"] else status.get("phase", "")
    return [
        name_of(obj),
        phase,
        spec.get("volumeName", ""),
        (status.get("capacity") or {}).get("storage", "") if bound else "",
        _access_modes(status.get("accessModes")) if bound else "",
        spec.get("storageClassName", ""),
        spec.get("volumeAttributesClassName", UNSET),
        age_of(obj, now),
        spec.get("volumeMode", UNSET),
    ]


def _print_storage_class(obj: Object, now: datetime) -> list[Any]:
    annotations = obj["metadata"].get("annotations") or {}
    is_default = annotations.get(IS_DEFAULT_CLASS) == "true"
    return [
        name_of(obj) + (" (default)" if is_default else ""),
        obj.get("provisioner", ""),
        obj.get("reclaimPolicy", ""),
        obj.get("volumeBindingMode", ""),
        bool(obj.get("allowVolumeExpansion", False)),
        age_of(obj, now),
    ]


def _print_csi_node(obj: Object, now: datetime) -> list[Any]:
    return [name_of(obj), len(obj.get("spec", {}).get("drivers") or ()), age_of(obj, now)]


def _print_volume_attachment(obj: Object, now: datetime) -> list[Any]:
    spec = obj.get("spec", {})
    volume = spec.get("source", {}).get("persistentVolumeName", "")
    attached = bool(obj.get("status", {}).get("attached", False))
    return [name_of(obj), spec.get("attacher", ""), volume, spec.get("nodeName", ""), attached, age_of(obj, now)]


def _print_csi_driver(obj: Object, now: datetime) -> list[Any]:
    spec = obj.get("spec", {})
    flags = [spec.get("attachRequired", True), spec.get("podInfoOnMount", False), spec.get("storageCapacity", False)]
    audiences = [one.get("audience", "") for one in spec.get("tokenRequests") or ()]
    republished, modes = bool(spec.get("requiresRepublish", False)), spec.get("volumeLifecycleModes") or ()
    tokens = ",".join(audiences) if audiences else UNSET
    return [name_of(obj), *flags, tokens, republished, format_list(modes), age_of(obj, now)]


def _print_resource_claim(obj: Object, now: datetime) -> list[Any]:
    status = obj.get("status") or {}
    states = [
        state
        for state, holds in (
            ("deleted", "deletionTimestamp" in obj["metadata"]),
            ("allocated", "allocation" in status),
            ("reserved", bool(status.get("reservedFor"))),
        )
        if holds
    ]
    return [name_of(obj), ",".join(states) if states else "pending", age_of(obj, now)]


def _print_resource_slice(obj: Object, now: datetime) -> list[Any]:
    spec = obj.get("spec", {})
    node = spec.get("nodeName") or ("<all nodes>" if spec.get("allNodes") else "<some nodes>")
    return [name_of(obj), node, spec.get("driver", ""), spec.get("pool", {}).get("name", ""), age_of(obj, now)]


PRINTERS: dict[str, Printer] = {
    "csidrivers.storage.k8s.io": Printer(
        columns(
            "Name, AttachRequired:boolean, PodInfoOnMount:boolean, StorageCapacity:boolean, "
            "TokenRequests, RequiresRepublish:boolean, Modes, Age"
        ),
        _print_csi_driver,
    ),
    "csinodes.storage.k8s.io": Printer(columns("Name, Drivers:integer, Age"), _print_csi_node),
    "deviceclasses.resource.k8s.io": Printer(columns("Name, Age"), field_printer()),
    "persistentvolumeclaims": Printer(
        columns("Name, Status, Volume, Capacity, Access Modes, StorageClass, VolumeAttributesClass, Age, !VolumeMode"),
        _print_persistent_volume_claim,
    ),
    "persistentvolumes": Printer(
        columns(
            "Name, Capacity, Access Modes, Reclaim Policy, Status, Claim, StorageClass, "
            "VolumeAttributesClass, Reason, Age, !VolumeMode"
        ),
        _print_persistent_volume,
    ),
    "resourceclaims.resource.k8s.io": Printer(columns("Name, State, Age"), _print_resource_claim),
    "resourceclaimtemplates.resource.k8s.io": Printer(columns("Name, Age"), field_printer()),
    "resourceslices.resource.k8s.io": Printer(columns("Name, Node, Driver, Pool, Age"), _print_resource_slice),
    "storageclasses.storage.k8s.io": Printer(
        columns("Name, Provisioner, ReclaimPolicy, VolumeBindingMode, AllowVolumeExpansion, Age"), _print_storage_class
    ),
    "volumeattachments.storage.k8s.io": Printer(
        columns("Name, Attacher, PV, Node, Attached:boolean, Age"), _print_volume_attachment
    ),
    "volumeattributesclasses.storage.k8s.io": Printer(columns("Name, DriverName, Age"), field_printer("driverName")),
}
