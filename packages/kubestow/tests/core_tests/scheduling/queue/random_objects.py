"""Random pods, nodes and events, with few names and values, so that events often concern pods."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

from kubestow.api.core import Node, Pod
from kubestow.api.meta import convert
from kubestow.api.resource import DeviceClass, ResourceClaim
from kubestow.api.storage import (
    CSIDriver,
    CSINode,
    CSIStorageCapacity,
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
)
from kubestow.cluster.changes.events import Action, ClusterEvent, EventResource
from kubestow.cluster.pods.shapes import PodInfo
from kubestow.testing import node, pod

GPU, NIC = "example.com/gpu", "example.com/nic"
_TOPOLOGY_KEYS = ["zone", "rack", "kubernetes.io/hostname"]


def random_pod(random: Random, name: str, *, node_name: str = "", own: dict[str, Any] | None = None) -> Pod:
    """A pod that is on a node if that has a name; ``own`` are further fields of its spec."""

    def maybe(value: Any, otherwise: Any = None) -> Any:
        return value if random.random() < 0.4 else otherwise

    term = "requiredDuringSchedulingIgnoredDuringExecution"
    affinity = {
        "nodeAffinity": maybe({term: {"nodeSelectorTerms": _some(random, _node_term)}}),
        "podAffinity": maybe({term: _some(random, _pod_term)}),
        "podAntiAffinity": maybe({term: _some(random, _pod_term)}),
    }
    requests = {"cpu": ["0", "1", "3", "9"], "memory": ["1Gi", "20Gi"], GPU: ["0", "1", "8"], NIC: ["1", "2"]}
    disk = {"pdName": random.choice("xy"), "readOnly": random.random() < 0.5}
    volumes: list[dict[str, Any]] = [
        {"name": "v", "persistentVolumeClaim": {"claimName": random.choice("xy")}},
        {"name": random.choice("vw"), "ephemeral": {"volumeClaimTemplate": {"spec": {}}}},
        {"name": "v", "gcePersistentDisk": disk},
        {"name": "v", "csi": {"driver": random.choice("xy")}},
    ]
    return pod(
        name,
        node=node_name,
        namespace=random.choice(["default", "other"]),
        requests={resource: random.choice(amounts) for resource, amounts in requests.items() if maybe(True)},
        labels={key: random.choice("ab") for key in ("app", "tier") if random.random() < 0.8},
        node_selector={key: random.choice("12") for key in ("zone", "kubernetes.io/os") if random.random() < 0.25},
        tolerations=_some(random, _toleration) if maybe(True) else (),
        spread=_some(random, _spread_constraint) if maybe(True) else (),
        host_ports=maybe([random.choice([80, 81])], ()),
        affinity={kind: found for kind, found in affinity.items() if found},
        nominated=maybe("n", ""),
        spec={
            "volumes": random.sample(volumes, random.choice([0, 1, 1])),
            "resourceClaims": [{"name": "r", "resourceClaimName": "x"}] if random.random() < 0.1 else [],
            "hostNetwork": (in_user_namespace := random.random() < 0.2),
            "hostUsers": False if in_user_namespace else None,
            **(own or {}),
        },
    )


def _some(random: Random, make: Callable[[Random], dict[str, Any]]) -> list[dict[str, Any]]:
    return [make(random) for _ in range(random.choice([1, 1, 2]))]


def _requirement(random: Random, keys: list[str], values: str, operators: list[str]) -> dict[str, Any]:
    operator = random.choice(operators)
    number = {"In": random.choice([1, 2]), "NotIn": 1, "Gt": 1, "Lt": 1}.get(operator, 0)
    return {"key": random.choice(keys), "operator": operator, "values": random.sample(values, number)}


def _node_term(random: Random) -> dict[str, Any]:
    operators = ["In", "In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"]
    keys = ["zone", "rack", "kubernetes.io/os"]
    by_label = [_requirement(random, keys, "123", operators) for _ in range(random.choice([0, 1, 1, 2]))]
    by_name = [{"key": "metadata.name", "operator": random.choice(["In", "NotIn"]), "values": [random.choice("nm")]}]
    return {"matchExpressions": by_label, "matchFields": by_name if random.random() < 0.2 else []}


def _selector(random: Random) -> dict[str, Any] | None:
    if random.random() < 0.1:
        return None
    operators = ["In", "In", "NotIn", "Exists", "DoesNotExist"]
    requirements = [_requirement(random, ["app", "tier"], "ab", operators) for _ in range(random.choice([0, 1, 1, 2]))]
    return {"matchExpressions": requirements}


def _pod_term(random: Random) -> dict[str, Any]:
    namespaces: list[dict[str, Any]] = [{}, {"namespaces": ["other", "default"]}, {"namespaceSelector": {}}]
    return {
        "labelSelector": _selector(random),
        "topologyKey": random.choice(_TOPOLOGY_KEYS),
        **random.choice(namespaces),
    }


def _spread_constraint(random: Random) -> dict[str, Any]:
    return {
        "maxSkew": 1,
        "topologyKey": random.choice(_TOPOLOGY_KEYS),
        "whenUnsatisfiable": random.choice(["DoNotSchedule", "DoNotSchedule", "ScheduleAnyway"]),
        "labelSelector": _selector(random),
        "nodeTaintsPolicy": random.choice(["Honor", "Ignore"]),
    }


def _toleration(random: Random) -> dict[str, Any]:
    return {
        "key": random.choice(["s", "t", ""]),
        "operator": random.choice(["Exists", "Equal", "", "Lt", "Gt"]),
        "value": random.choice(["", "1", "2"]),
        "effect": random.choice(["", "NoSchedule", "NoExecute", "PreferNoSchedule"]),
    }


def random_node(random: Random) -> Node:
    """A node ``n``."""
    taints = [
        f"{random.choice('st')}={random.choice(['', '1', '2'])}:{random.choice(['NoSchedule', 'NoExecute'])}"
        for _ in range(random.choice([0, 0, 1, 2]))
    ]
    offered = {GPU: ["0", "1", "8"], NIC: ["1", "4"]}
    return node(
        "n",
        cpu=random.choice(["2", "4", "16"]),
        memory=random.choice(["8Gi", "32Gi"]),
        max_pods=random.choice([0, 10, 10, 20]),
        allocatable={name: random.choice(amounts) for name, amounts in offered.items() if random.random() < 0.5},
        labels={key: random.choice("123") for key in ("zone", "rack", "kubernetes.io/os") if random.random() < 0.7},
        taints=taints,
        unschedulable=random.random() < 0.3,
        status={"declaredFeatures": ["UserNamespacesHostNetworkSupport"] if random.random() < 0.5 else []},
    )


_NODE_UPDATES = (
    Action.UPDATE_NODE_ALLOCATABLE,
    Action.UPDATE_NODE_LABEL,
    Action.UPDATE_NODE_TAINT,
    Action.UPDATE_NODE_CONDITION,
    Action.UPDATE_NODE_DECLARED_FEATURE,
)
_POD_UPDATES = (
    Action.UPDATE_POD_LABEL,
    Action.UPDATE_POD_SCALE_DOWN,
    Action.UPDATE_POD_TOLERATION,
    Action.UPDATE_POD_GENERATED_RESOURCE_CLAIM,
)
_ADDED_OR_UPDATED = (Action.ADD, Action.UPDATE)


def random_event(random: Random, info: Callable[[Pod], PodInfo]) -> tuple[ClusterEvent, Any, Any]:
    """An event with the object before and after it."""
    made = random.choice([*_MAKERS, _a_node, _a_pod, _a_pod])
    resource, actions = random.choice(_MAKERS[made])
    action = random.choice(actions)
    old, new = (made(random, info) for _ in range(2))
    if random.random() < 0.1:
        old = new
    return (
        ClusterEvent(resource, action),
        None if action == Action.ADD else old,
        None if action == Action.DELETE else new,
    )


def _a_node(random: Random, info: Callable[[Pod], PodInfo]) -> Node:
    return random_node(random)


def _a_pod(random: Random, info: Callable[[Pod], PodInfo]) -> PodInfo:
    return info(random_pod(random, "placed", node_name=random.choice(["n", "n", ""])))


def _claim(random: Random, info: Callable[[Pod], PodInfo]) -> PersistentVolumeClaim:
    return convert(PersistentVolumeClaim, {"metadata": _claim_names(random, ["x", "y", "p1-v"])})


def _claim_names(random: Random, names: list[str]) -> dict[str, str]:
    return {"name": random.choice(names), "namespace": random.choice(["default", "other"]), "uid": "claim"}


def _resource_claim(random: Random, info: Callable[[Pod], PodInfo]) -> ResourceClaim:
    status: dict[str, Any] = {"allocation": {"devices": {}}} if random.random() < 0.5 else {}
    return convert(ResourceClaim, {"metadata": _claim_names(random, ["x", "y"]), "status": status})


def _storage_class(random: Random, info: Callable[[Pod], PodInfo]) -> StorageClass:
    mode = random.choice(["WaitForFirstConsumer", "Immediate"])
    topologies = [{"matchLabelExpressions": [{"key": "zone", "values": [random.choice("12")]}]}]
    return convert(
        StorageClass, {"metadata": {"name": "c"}, "volumeBindingMode": mode, "allowedTopologies": topologies}
    )


def _volume(random: Random, info: Callable[[Pod], PodInfo]) -> PersistentVolume:
    labels = {"topology.kubernetes.io/zone": random.choice("12")}
    return convert(PersistentVolume, {"metadata": {"name": "v", "labels": labels}, "spec": {}})


def _csi_node(random: Random, info: Callable[[Pod], PodInfo]) -> CSINode:
    drivers = [{"name": "x", "nodeID": "n", "allocatable": {"count": random.choice([1, 2])}}]
    annotations = {"storage.alpha.kubernetes.io/migrated-plugins": random.choice(["", "kubernetes.io/gce-pd"])}
    return convert(CSINode, {"metadata": {"name": "n", "annotations": annotations}, "spec": {"drivers": drivers}})


def _csi_driver(random: Random, info: Callable[[Pod], PodInfo]) -> CSIDriver:
    spec = {"storageCapacity": random.random() < 0.5}
    return convert(CSIDriver, {"metadata": {"name": random.choice("xy")}, "spec": spec})


def _capacity(random: Random, info: Callable[[Pod], PodInfo]) -> CSIStorageCapacity:
    metadata, limit = {"name": "c", "namespace": "default"}, random.choice(["1Gi", "2Gi"])
    return convert(CSIStorageCapacity, {"metadata": metadata, "storageClassName": "c", "maximumVolumeSize": limit})


def _device_class(random: Random, info: Callable[[Pod], PodInfo]) -> DeviceClass:
    spec = {"extendedResourceName": random.choice([GPU, NIC, ""])}
    return convert(DeviceClass, {"metadata": {"name": "d"}, "spec": spec})


_PODS = (Action.ADD, Action.DELETE, *_POD_UPDATES)
_MAKERS: dict[Callable[[Random, Callable[[Pod], PodInfo]], Any], list[tuple[EventResource, tuple[Action, ...]]]] = {
    _a_node: [(EventResource.NODE, (Action.ADD, Action.DELETE, *_NODE_UPDATES))],
    _a_pod: [(EventResource.ASSIGNED_POD, _PODS), (EventResource.UNSCHEDULABLE_POD, _PODS)],
    _claim: [(EventResource.PERSISTENT_VOLUME_CLAIM, _ADDED_OR_UPDATED)],
    _resource_claim: [(EventResource.RESOURCE_CLAIM, _ADDED_OR_UPDATED)],
    _storage_class: [(EventResource.STORAGE_CLASS, _ADDED_OR_UPDATED)],
    _volume: [(EventResource.PERSISTENT_VOLUME, _ADDED_OR_UPDATED)],
    _csi_node: [(EventResource.CSI_NODE, _ADDED_OR_UPDATED)],
    _csi_driver: [(EventResource.CSI_DRIVER, _ADDED_OR_UPDATED)],
    _capacity: [(EventResource.CSI_STORAGE_CAPACITY, _ADDED_OR_UPDATED)],
    _device_class: [(EventResource.DEVICE_CLASS, _ADDED_OR_UPDATED)],
}
