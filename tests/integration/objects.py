"""Manifests of volumes, claims, storage classes, CSI objects and devices."""

from __future__ import annotations

from tests.integration.fixture import Object

DEVICE_CLASS: Object = {
    "apiVersion": "resource.k8s.io/v1",
    "kind": "DeviceClass",
    "metadata": {"name": "gpus"},
    "spec": {},
}

#: The patch that binds the claim ``a``.
BOUND: Object = {
    "metadata": {"annotations": {"pv.kubernetes.io/bind-completed": "yes"}},
    "spec": {"volumeName": "pv-a"},
}


def device_class(name: str, extended_resource: str | None = None) -> Object:
    spec = {} if extended_resource is None else {"extendedResourceName": extended_resource}
    return DEVICE_CLASS | {"metadata": {"name": name}, "spec": spec}


def claim(name: str) -> Object:
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": name, "annotations": {"pv.kubernetes.io/bind-completed": "yes"}},
        "spec": {
            "accessModes": ["ReadWriteOncePod"],
            "resources": {"requests": {"storage": "1Gi"}},
            "volumeName": f"pv-{name}",
            "storageClassName": "",
        },
        "status": {"phase": "Bound", "accessModes": ["ReadWriteOncePod"]},
    }


def volume(name: str) -> Object:
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": f"pv-{name}"},
        "spec": {
            "accessModes": ["ReadWriteOncePod"],
            "capacity": {"storage": "1Gi"},
            "csi": {"driver": "example.com", "volumeHandle": name},
            "claimRef": {"namespace": "default", "name": name},
            "storageClassName": "",
        },
    }


def using(*claims: str) -> Object:
    return {"volumes": [{"name": name, "persistentVolumeClaim": {"claimName": name}} for name in claims]}


def device_claim(name: str) -> Object:
    request = {"name": "one", "exactly": {"deviceClassName": "gpus", "allocationMode": "ExactCount", "count": 1}}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": name},
        "spec": {"devices": {"requests": [request]}},
    }


def devices(of: str) -> Object:
    pool = {"name": of, "generation": 1, "resourceSliceCount": 1}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {"name": f"{of}-devices"},
        "spec": {"driver": "gpus.example.com", "nodeName": of, "pool": pool, "devices": [{"name": "gpu-0"}]},
    }


def unbound(name: str, *, of: str) -> Object:
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": name},
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": "1Gi"}},
            "storageClassName": of,
        },
    }


def storage_class(name: str) -> Object:
    return {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {"name": name},
        "provisioner": "kubernetes.io/no-provisioner",
        "volumeBindingMode": "WaitForFirstConsumer",
    }


def zoned(zone: str, name: str) -> Object:
    return {"metadata": {"name": f"pv-{name}", "labels": {"topology.kubernetes.io/zone": zone}}}


def csi_node(name: str, count: int, *, driver: str = "example.com", migrated: str = "") -> Object:
    annotations = {"storage.alpha.kubernetes.io/migrated-plugins": migrated} if migrated else {}
    limits = {"name": driver, "nodeID": name, "topologyKeys": [], "allocatable": {"count": count}}
    return {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "CSINode",
        "metadata": {"name": name, "annotations": annotations},
        "spec": {"drivers": [limits]},
    }


def reaching(key: str, value: str, name: str) -> Object:
    """A volume with a node affinity for a label."""
    made = volume(name)
    term = {"matchExpressions": [{"key": key, "operator": "In", "values": [value]}]}
    made["spec"]["nodeAffinity"] = {"required": {"nodeSelectorTerms": [term]}}
    return made


def csi_driver(**spec: bool) -> Object:
    return {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "CSIDriver",
        "metadata": {"name": "example.com"},
        "spec": {"attachRequired": True, **spec},
    }


def inline(name: str) -> Object:
    """The spec of a pod with a claim and an inline CSI volume."""
    volumes = using(name)["volumes"]
    return {"volumes": [*volumes, {"name": "inline", "csi": {"driver": "example.com"}}]}


def capacity(amount: str) -> Object:
    return {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "CSIStorageCapacity",
        "metadata": {"name": "capacity"},
        "storageClassName": "slow",
        "nodeTopology": {"matchLabels": {}},
        "capacity": amount,
    }


def attachment(name: str, driver: str) -> Object:
    return {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "VolumeAttachment",
        "metadata": {"name": name},
        "spec": {"attacher": driver, "nodeName": "n", "source": {"persistentVolumeName": f"pv-{name}"}},
    }
