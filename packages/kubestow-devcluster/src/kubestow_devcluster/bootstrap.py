"""The initial objects of a cluster: system objects, simulated nodes and the default storage class.

Existing objects are not changed, so bootstrapping a resumed cluster creates only what is missing.
"""

from __future__ import annotations

import re
from copy import deepcopy

from kubestow.api.storage import IS_DEFAULT_CLASS
from kubestow_devcluster.apiserver.authorization.bootstrap_policy import (
    CLUSTER_ROLE_BINDINGS,
    CLUSTER_ROLES,
    METRICS_READER,
    ROLE_BINDINGS,
    ROLES,
)
from kubestow_devcluster.apiserver.registry.deletion import DeleteOptions
from kubestow_devcluster.apiserver.registry.registry import SYSTEM, Registry, WriteOptions
from kubestow_devcluster.apiserver.resources import Object
from kubestow_devcluster.apiserver.resources.strategies.scheduling import SYSTEM_PRIORITY_CLASSES
from kubestow_devcluster.node_heartbeats import LEASE_NAMESPACE

__all__ = [
    "create_default_roles",
    "create_default_storage_class",
    "create_nodes",
    "create_system_objects",
    "publish_client_ca",
]

_NAMESPACES = ("default", LEASE_NAMESPACE, "kube-public", "kube-system")
#: The field manager of system objects.
_API_SERVER = WriteOptions(field_manager="kube-apiserver")
_ZONES = ("zone-a", "zone-b", "zone-c")
_NODE_NAME = re.compile(r"node-(\d+)")


def create_system_objects(registry: Registry) -> None:
    """Create the four system namespaces, the two system priority classes and the service ``kubernetes``."""
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


def create_default_roles(registry: Registry) -> None:
    """Create the default roles and bindings of RBAC."""
    for resource, objects in (
        ("clusterroles", CLUSTER_ROLES),
        ("clusterrolebindings", CLUSTER_ROLE_BINDINGS),
        ("roles", ROLES),
        ("rolebindings", ROLE_BINDINGS),
    ):
        for new in objects:
            namespace = new["metadata"].get("namespace", "")
            _create(registry, f"{resource}.rbac.authorization.k8s.io", deepcopy(new), namespace=namespace)


def create_metrics_reader(registry: Registry) -> None:
    """Create the cluster role that lets all users read metrics.k8s.io, as far as they can read pods."""
    _create(registry, "clusterroles.rbac.authorization.k8s.io", deepcopy(METRICS_READER))


def publish_client_ca(registry: Registry, client_ca: str) -> None:
    """Publish the client CA bundle in kube-system/extension-apiserver-authentication.

    Other servers of the cluster, such as the scheduler's secure port, authenticate client certificates with it.
    ``client_ca`` is PEM; if it is empty, the config map does not exist.
    """
    kind, name = registry.scheme["configmaps"], "extension-apiserver-authentication"
    data = {"client-ca-file": client_ca}
    stored = registry.store.collection(kind.storage).get(kind.key("kube-system", name))
    if stored is not None and kind.decode(stored).get("data") == data:
        return
    if stored is not None:
        registry.delete(kind, "kube-system", name, DeleteOptions())
    if client_ca:
        _create(registry, "configmaps", {"metadata": {"name": name}, "data": data}, namespace="kube-system")


def create_nodes(registry: Registry, count: int) -> None:
    """Create ``node-0`` to ``node-{count - 1}``: 32 CPUs, 128 GiB and 110 pods each, spread over three zones.

    Numbers are zero-padded to one width. A number is skipped if a node has it, with any padding.
    """
    existing = registry.store.collection("nodes").snapshot()
    taken = {int(match[1]) for stored in existing if (match := _NODE_NAME.fullmatch(stored.name))}
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


def create_default_storage_class(registry: Registry) -> None:
    """Create the default class ``standard``; its simulated volumes are accessible from every node."""
    new = {
        "metadata": {"name": "standard", "annotations": {IS_DEFAULT_CLASS: "true"}},
        "provisioner": "kubestow.dev/simulated",
        "volumeBindingMode": "WaitForFirstConsumer",
        "allowVolumeExpansion": True,
    }
    _create(registry, "storageclasses.storage.k8s.io", new)


def _create(
    registry: Registry, resource: str, new: Object, *, namespace: str = "", write: WriteOptions = _API_SERVER
) -> None:
    kind = registry.scheme[resource]
    if registry.store.collection(kind.storage).get(kind.key(namespace, new["metadata"]["name"])) is None:
        registry.create(kind, namespace, kind.struct.read(new, []), write)
