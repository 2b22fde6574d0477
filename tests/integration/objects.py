"""Objects as clients send them: volumes, claims and devices."""

from __future__ import annotations

from tests.integration.stage import Object

__all__ = [
    "DEVICE_CLASS",
    "claim",
    "csi_node",
    "device_claim",
    "devices",
    "storage_class",
    "unbound",
    "using",
    "volume",
    "zoned",
]

DEVICE_CLASS: Object = {
    "apiVersion": "resource.k8s.io/v1",
    "kind": "DeviceClass",
    "metadata": {"name": "gpus"},
    "spec": {},
}


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


def csi_node(name: str, count: int) -> Object:
    driver = {"name": "example.com", "nodeID": name, "topologyKeys": [], "allocatable": {"count": count}}
    return {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "CSINode",
        "metadata": {"name": name},
        "spec": {"drivers": [driver]},
    }
