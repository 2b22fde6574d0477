"""What is in a cluster before anybody has asked for anything, and simulated nodes made to order.

In a cluster that goes on from where it was, only what is missing is made.
"""

from __future__ import annotations

import re

from kubestow.devcluster.apiserver.registry.admission import DEFAULT_CLASS
from kubestow.devcluster.apiserver.registry.deletion import Deletion
from kubestow.devcluster.apiserver.registry.registry import SYSTEM, Registry, Write
from kubestow.devcluster.apiserver.resources import Object
from kubestow.devcluster.apiserver.resources.scheduling import SYSTEM_PRIORITY_CLASSES

__all__ = ["add_nodes", "add_storage_class", "create_system_objects", "publish_authorities"]

_NAMESPACES = ("default", "kube-node-lease", "kube-public", "kube-system")
#: Who made what a cluster begins with.
_SELF = Write(manager="kube-apiserver")
_ZONES = ("zone-a", "zone-b", "zone-c")
_NUMBERED = re.compile(r"node-(\d+)")


def create_system_objects(registry: Registry) -> None:
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
    spec = {"clusterIP": "10.96.0.1", "ipFamilyPolicy": "SingleStack", "ports": ports}
    service = {"metadata": {"name": "kubernetes", "labels": labels}, "spec": spec}
    _create(registry, "services", service, namespace="default")


def publish_authorities(registry: Registry, authorities: str) -> None:
    """Tell other servers of the cluster, such as the scheduler's, whose certificates name users here.

    They read it, in PEM, from ``extension-apiserver-authentication``; without any there is no such config map.
    """
    kind, name = registry.catalog["configmaps"], "extension-apiserver-authentication"
    data = {"client-ca-file": authorities}
    stored = registry.store.collection(kind.storage).get(kind.key("kube-system", name))
    if stored is not None and kind.decode(stored).get("data") == data:
        return
    if stored is not None:
        registry.delete(kind, "kube-system", name, Deletion())
    if authorities:
        _create(registry, "configmaps", {"metadata": {"name": name}, "data": data}, namespace="kube-system")


def add_nodes(registry: Registry, count: int) -> None:
    """Nodes ``node-0`` ... of 32 CPUs, 128 GiB and 110 pods each, spread over three zones.

    A number that a node has already counts, with however many zeros it is written.
    """
    present = registry.store.collection("nodes").snapshot()
    taken = {int(found[1]) for stored in present if (found := _NUMBERED.fullmatch(stored.name))}
    width = len(str(max(count - 1, 0)))
    capacity = {"cpu": "32", "memory": "128Gi", "ephemeral-storage": "500Gi", "pods": "110"}
    for number in range(count):
        if number in taken:
            continue
        name = f"node-{number:0{width}d}"
        labels = {
            "kubernetes.io/arch": "amd64",
            "kubernetes.io/hostname": name,
            "kubernetes.io/os": "linux",
            "topology.kubernetes.io/region": "region-1",
            "topology.kubernetes.io/zone": _ZONES[number % len(_ZONES)],
        }
        node = {"metadata": {"name": name, "labels": labels}, "status": {"capacity": capacity}}
        _create(registry, "nodes", node, write=SYSTEM)


def add_storage_class(registry: Registry) -> None:
    """The default class ``standard``, for simulated volumes that can be reached from every node."""
    new = {
        "metadata": {"name": "standard", "annotations": {DEFAULT_CLASS: "true"}},
        "provisioner": "kubestow.dev/simulated",
        "volumeBindingMode": "WaitForFirstConsumer",
        "allowVolumeExpansion": True,
    }
    _create(registry, "storageclasses.storage.k8s.io", new)


def _create(registry: Registry, resource: str, new: Object, *, namespace: str = "", write: Write = _SELF) -> None:
    kind = registry.catalog[resource]
    if registry.store.collection(kind.storage).get(kind.key(namespace, new["metadata"]["name"])) is None:
        registry.create(kind, namespace, kind.struct.read(new, []), write)
