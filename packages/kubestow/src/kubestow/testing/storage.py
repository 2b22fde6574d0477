"""Builders of claims, volumes, storage classes and CSI objects.

volume("pv", claim="data", zone="a")
claim("data", volume="pv")
pod("a", spec=mounting("data"))
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kubestow.api.meta import convert
from kubestow.api.storage import (
    CSIDriver,
    CSINode,
    CSIStorageCapacity,
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
    VolumeAttachment,
)

DRIVER = "csi.example.com"
_ZONE = "topology.kubernetes.io/zone"

Object = Mapping[str, Any]


def mounting(*claims: str, ephemeral: Sequence[str] = (), inline: Sequence[Object] = ()) -> dict[str, Any]:
    """The ``volumes`` of a pod spec: claims, ephemeral volumes and inline volume sources as in the API."""
    volumes: list[dict[str, Any]] = [
        {"name": f"v{number}", "persistentVolumeClaim": {"claimName": name}} for number, name in enumerate(claims)
    ]
    volumes += [{"name": name, "ephemeral": {}} for name in ephemeral]
    volumes += [{"name": f"inline-{number}", **source} for number, source in enumerate(inline)]
    return {"volumes": volumes}


def claim(
    name: str = "data",
    *,
    namespace: str = "default",
    volume: str = "",
    size: str | None = "1Gi",
    storage_class: str | None = "slow",
    modes: Sequence[str] = ("ReadWriteOnce",),
    phase: str = "",
    selected_node: str = "",
    owner: str = "",
    selector: Object | None = None,
    metadata: Object | None = None,
    spec: Object | None = None,
) -> PersistentVolumeClaim:
    """A claim, bound to ``volume`` if set. ``owner`` is the UID of the pod that owns it."""
    annotations = {"pv.kubernetes.io/bind-completed": "yes"} if volume else {}
    if selected_node:
        annotations["volume.kubernetes.io/selected-node"] = selected_node
    owners = [{"kind": "Pod", "name": "owner", "uid": owner, "controller": True}] if owner else []
    return convert(
        PersistentVolumeClaim,
        {
            "metadata": {
                "name": name,
                "namespace": namespace,
                "uid": f"uid-{namespace}-{name}",
                "resourceVersion": "1",
                "annotations": annotations,
                "ownerReferences": owners,
                **(metadata or {}),
            },
            "spec": {
                "accessModes": list(modes),
                "resources": {"requests": {} if size is None else {"storage": size}},
                "volumeName": volume,
                "storageClassName": storage_class,
                "selector": selector,
                **(spec or {}),
            },
            "status": {"phase": phase or ("Bound" if volume else "Pending")},
        },
    )


def ephemeral_claim(pod: str, volume_name: str, **same: Any) -> PersistentVolumeClaim:
    """The claim of a generic ephemeral volume of a pod."""
    return claim(f"{pod}-{volume_name}", owner=f"uid-default-{pod}", **same)


def volume(
    name: str = "pv",
    *,
    size: str = "1Gi",
    storage_class: str = "slow",
    zone: str | None = None,
    host: str | None = None,
    claim: str = "",
    claim_uid: str = "",
    modes: Sequence[str] = ("ReadWriteOnce",),
    phase: str = "Available",
    source: Object | None = None,
    labels: Mapping[str, str] | None = None,
    metadata: Object | None = None,
    spec: Object | None = None,
) -> PersistentVolume:
    """A CSI volume; ``zone`` and ``host`` define its node affinity, ``claim`` its claimRef."""
    node_labels = {_ZONE: zone, "kubernetes.io/hostname": host}
    expressions = [{"key": key, "operator": "In", "values": [value]} for key, value in node_labels.items() if value]
    affinity = {"required": {"nodeSelectorTerms": [{"matchExpressions": expressions}]}} if expressions else None
    claim_ref = {"namespace": "default", "name": claim, "uid": claim_uid} if claim else None
    return convert(
        PersistentVolume,
        {
            "metadata": {"name": name, "resourceVersion": "1", "labels": labels, **(metadata or {})},
            "spec": {
                "capacity": {"storage": size},
                "accessModes": list(modes),
                "storageClassName": storage_class,
                "claimRef": claim_ref,
                "nodeAffinity": affinity,
                **(source if source is not None else {"csi": {"driver": DRIVER, "volumeHandle": f"handle-{name}"}}),
                **(spec or {}),
            },
            "status": {"phase": phase},
        },
    )


def storage_class(
    name: str = "slow",
    *,
    provisioner: str = "kubernetes.io/no-provisioner",
    waits: bool | None = True,
    zones: Sequence[str] = (),
) -> StorageClass:
    """A storage class; ``waits`` is WaitForFirstConsumer, Immediate or unset. ``zones`` are its allowedTopologies."""
    mode = {True: "WaitForFirstConsumer", False: "Immediate", None: None}[waits]
    topologies = [{"matchLabelExpressions": [{"key": _ZONE, "values": list(zones)}]}] if zones else []
    metadata = {"name": name, "resourceVersion": "1"}
    how = {"provisioner": provisioner, "volumeBindingMode": mode, "allowedTopologies": topologies}
    return convert(StorageClass, {"metadata": metadata, **how})


def csi_node(name: str, *, migrated: Sequence[str] = (), **limits: int | None) -> CSINode:
    """The CSI drivers of a node with their volume limits; ``_`` in a driver name stands for ``.``."""
    drivers = [
        {"name": driver.replace("_", "."), "allocatable": None if limit is None else {"count": limit}}
        for driver, limit in limits.items()
    ]
    annotations = {"storage.alpha.kubernetes.io/migrated-plugins": ",".join(migrated)} if migrated else {}
    return convert(CSINode, {"metadata": {"name": name, "annotations": annotations}, "spec": {"drivers": drivers}})


def csi_driver(name: str = DRIVER, *, tracks_capacity: bool = False, must_be_installed: bool = False) -> CSIDriver:
    """A CSI driver."""
    spec = {"storageCapacity": tracks_capacity, "preventPodSchedulingIfMissing": must_be_installed}
    return convert(CSIDriver, {"metadata": {"name": name}, "spec": spec})


def capacity(
    name: str,
    *,
    available: str | None,
    zone: str | None = None,
    largest: str | None = None,
    storage_class: str = "slow",
) -> CSIStorageCapacity:
    """The capacity of a storage class for the nodes of a zone, or for all nodes."""
    topology: dict[str, Any] = {"matchLabels": {_ZONE: zone}} if zone else {}
    where = {"storageClassName": storage_class, "nodeTopology": topology}
    metadata = {"name": name, "namespace": "kube-system"}
    amounts = {"capacity": available, "maximumVolumeSize": largest}
    return convert(CSIStorageCapacity, {"metadata": metadata, **where, **amounts})


def attachment(name: str, *, node: str, volume: str, driver: str = DRIVER) -> VolumeAttachment:
    """A VolumeAttachment."""
    spec = {"attacher": driver, "nodeName": node, "source": {"persistentVolumeName": volume}}
    return convert(VolumeAttachment, {"metadata": {"name": name}, "spec": spec})
