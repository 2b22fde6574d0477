"""The clusters of the recordings: the objects that existed before the first request."""

from __future__ import annotations

from typing import Any

from devcluster_tests.client import PODS, Client
from kubestow_devcluster.apiserver.registry.registry import WriteOptions
from kubestow_devcluster.cluster import DevCluster

IMAGE = "registry.k8s.io/pause:3.10.1"
RESOURCES = {"requests": {"cpu": "100m", "memory": "64Mi"}}
CONTAINER = {"name": "c", "image": IMAGE, "resources": RESOURCES}
RUNNING = {
    "phase": "Running",
    "conditions": [
        {"type": type_, "status": "True", "lastProbeTime": None, "lastTransitionTime": None}
        for type_ in ("Ready", "ContainersReady", "Initialized")
    ],
    "podIP": "10.0.0.9",
    "podIPs": [{"ip": "10.0.0.9"}],
    "startTime": "2026-01-01T00:00:00Z",
    "containerStatuses": [
        {
            "name": "c",
            "state": {"running": {"startedAt": "2026-01-01T00:00:00Z"}},
            "lastState": {},
            "ready": True,
            "restartCount": 0,
            "image": IMAGE,
            "imageID": "",
            "started": True,
        }
    ],
    "qosClass": "Burstable",
}
UNSCHEDULABLE = {
    "type": "PodScheduled",
    "status": "False",
    "reason": "Unschedulable",
    "message": "0/3 nodes are available: 3 Insufficient cpu.",
    "lastProbeTime": None,
    "lastTransitionTime": None,
}
NODE_STATUS = {
    "capacity": {"cpu": "4", "memory": "32Gi", "pods": "110"},
    "conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "ready"}],
    "nodeInfo": {
        "architecture": "amd64",
        "operatingSystem": "linux",
        "kubeletVersion": "v1.36.2",
        "kernelVersion": "6.1.0",
        "osImage": "Test",
        "containerRuntimeVersion": "containerd://2.1.0",
    },
}


async def prepare(server: DevCluster, session: str) -> None:
    """Create the objects that existed before the first request of a session."""
    if session in _CLUSTERS:
        _CLUSTERS[session](server)
    if session in _WITH_BOUND_PODS:
        await _bind_pods(server)


def _create(server: DevCluster, resource: str, new: dict[str, Any], namespace: str = "") -> None:
    kind = server.registry.scheme[resource]
    server.registry.create(kind, namespace, kind.struct.read(new, []), WriteOptions())


def _add_pod(
    server: DevCluster,
    name: str,
    *,
    labels: dict[str, str] | None = None,
    status: dict[str, Any] | None = None,
    **spec: Any,
) -> None:
    metadata = {"name": name, "labels": labels or {"app": name}}
    _create(server, "pods", {"metadata": metadata, "spec": {"containers": [CONTAINER], **spec}}, "default")
    if status is not None:
        server.registry.update(
            server.registry.scheme["pods"],
            "default",
            name,
            lambda old: {**old, "metadata": dict(old["metadata"]), "status": {**old["status"], **status}},
            WriteOptions(),
            subresource="status",
        )


def _add_node(server: DevCluster, name: str, zone: str = "zone1") -> None:
    labels = {"kubernetes.io/hostname": name, "topology.kubernetes.io/zone": zone}
    _create(server, "nodes", {"metadata": {"name": name, "labels": labels}, "status": NODE_STATUS})
    nodes = server.registry.scheme["nodes"]
    server.registry.update(
        nodes, "", name, lambda old: {**old, "metadata": dict(old["metadata"]), "spec": {}}, WriteOptions()
    )


def _bindable_pods(server: DevCluster) -> None:
    for pod in ("b1", "b2", "b3", "b4"):
        _add_pod(server, pod)
    _add_pod(server, "gated", schedulingGates=[{"name": "example.com/g"}])


def _unbound_pods(server: DevCluster) -> None:
    _add_pod(server, "u1")
    _add_pod(server, "u2")


def _deletable_pods(server: DevCluster) -> None:
    _add_pod(server, "d1", labels={"app": "d"})
    for pod in ("d2", "d3", "d4", "c1", "c2"):
        _add_pod(server, pod, labels={"app": pod[0]}, nodeName="node-a")
    for pod in ("e1", "e2", "e3", "e4"):
        _add_pod(server, pod, labels={"app": "e"}, nodeName="node-a", status=RUNNING)


def _listed_pods(server: DevCluster) -> None:
    for node in ("node-a", "node-b", "node-c"):
        _add_node(server, node)
    for index in range(6):
        spec: dict[str, Any] = {"nodeName": "node-a"} if index < 2 else {}
        if index == 5:
            spec["schedulerName"] = "other"
        _add_pod(server, f"p{index}", labels={"app": "web", "idx": str(index)}, **spec)


def _printed_objects(server: DevCluster) -> None:
    """The nodes and unbound pods of the cluster whose tables and kubectl output were recorded."""
    for node, zone in (("node-a", "zone1"), ("node-b", "zone2"), ("node-c", "zone3")):
        _add_node(server, node, zone)
    web = {"app": "web"}
    for pod in ("web-0", "web-1", "web-2"):
        _add_pod(server, pod, labels=web)


async def _bind_pods(server: DevCluster) -> None:
    """Bind the pods, run two of them, and add an unschedulable pod with its event, and two workloads."""
    client = Client(server)
    for pod, node in (("web-0", "node-a"), ("web-1", "node-b"), ("web-2", "node-a")):
        target = {"kind": "Node", "name": node}
        await client.post(f"{PODS}/{pod}/binding", {"metadata": {"name": pod}, "target": target})
    for pod in ("web-0", "web-1"):
        await client.patch(f"{PODS}/{pod}/status", {"status": RUNNING}, "strategic-merge-patch+json")
    status = {"conditions": [UNSCHEDULABLE], "nominatedNodeName": "node-c"}
    huge = {**CONTAINER, "resources": {"requests": {"cpu": "99", "memory": "64Mi"}}}
    _add_pod(server, "pending", containers=[huge], status=status)
    _create(server, "events.events.k8s.io", _event(server), "default")
    template = {"metadata": {"labels": {"app": "dep"}}, "spec": {"containers": [{"name": "c", "image": "x:1"}]}}
    spec = {"replicas": 2, "selector": {"matchLabels": {"app": "dep"}}, "template": template}
    for resource, name in (("deployments.apps", "dep"), ("replicasets.apps", "rs")):
        _create(server, resource, {"metadata": {"name": name}, "spec": spec}, "default")


def _event(server: DevCluster) -> dict[str, Any]:
    pending = server.registry.get(server.registry.scheme["pods"], "default", "pending")
    uid = server.registry.scheme["pods"].decode(pending)["metadata"]["uid"]
    regarding = {"kind": "Pod", "namespace": "default", "name": "pending", "uid": uid, "apiVersion": "v1"}
    return {
        "metadata": {"name": "pending.1875f0a1b2c3d4e5"},
        "eventTime": "2026-01-01T00:00:00.000000Z",
        "reportingController": "default-scheduler",
        "reportingInstance": "default-scheduler-host-1",
        "action": "Scheduling",
        "reason": "FailedScheduling",
        "regarding": regarding,
        "note": UNSCHEDULABLE["message"],
        "type": "Warning",
    }


_CLUSTERS = {
    "binding": _bindable_pods,
    "patch": _unbound_pods,
    "events": lambda server: _add_pod(server, "ev"),
    "delete-evict": _deletable_pods,
    "list-watch": _listed_pods,
    "tables": _printed_objects,
    "kubectl": _printed_objects,
}
_WITH_BOUND_PODS = ("tables", "kubectl")
