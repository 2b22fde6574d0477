"""What is in a cluster before anybody has asked for anything, and simulated nodes made to order."""

from __future__ import annotations

from kubestow.apiserver.registry import Registry
from kubestow.apiserver.resources import Object
from kubestow.apiserver.resources.scheduling import SYSTEM_PRIORITY_CLASSES

__all__ = ["add_nodes", "found"]

_NAMESPACES = ("default", "kube-node-lease", "kube-public", "kube-system")
_ZONES = ("zone-a", "zone-b", "zone-c")


def found(registry: Registry) -> None:
    """The four namespaces, the two system priority classes and the service ``kubernetes``."""
    for name in _NAMESPACES:
        _create(registry, "namespaces", {"metadata": {"name": name}})
    for name, (value, description) in SYSTEM_PRIORITY_CLASSES.items():
        _create(
            registry,
            "priorityclasses.scheduling.k8s.io",
            {"metadata": {"name": name}, "value": value, "description": description},
        )
    ports = [{"name": "https", "protocol": "TCP", "port": 443, "targetPort": 6443}]
    labels = {"component": "apiserver", "provider": "kubernetes"}
    service = {"metadata": {"name": "kubernetes", "labels": labels}, "spec": {"clusterIP": "10.96.0.1", "ports": ports}}
    _create(registry, "services", service, namespace="default")


def add_nodes(registry: Registry, count: int) -> None:
    """Nodes ``node-0`` ... of 32 CPUs, 128 GiB and 110 pods each, spread over three zones."""
    width = len(str(max(count - 1, 0)))
    capacity = {"cpu": "32", "memory": "128Gi", "ephemeral-storage": "500Gi", "pods": "110"}
    for number in range(count):
        name = f"node-{number:0{width}d}"
        labels = {
            "kubernetes.io/arch": "amd64",
            "kubernetes.io/hostname": name,
            "kubernetes.io/os": "linux",
            "topology.kubernetes.io/region": "region-1",
            "topology.kubernetes.io/zone": _ZONES[number % len(_ZONES)],
        }
        _create(registry, "nodes", {"metadata": {"name": name, "labels": labels}, "status": {"capacity": capacity}})


def _create(registry: Registry, resource: str, new: Object, *, namespace: str = "") -> None:
    kind = registry.catalog[resource]
    registry.create(kind, namespace, kind.struct.read(new, []))
