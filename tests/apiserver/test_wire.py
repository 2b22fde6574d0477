"""The recordings of a real kube-apiserver, replayed: same status, same body but for uids, times and versions."""

from __future__ import annotations

from typing import Any

import pytest

from kubestow.apiserver import Server
from kubestow.apiserver.registry import Write

from .wire import Exchange, Player, alike, folder, scenario

pytestmark = pytest.mark.skipif(folder() is None, reason="the recordings (../shared/wire) are not there")

SCENARIOS = [
    "binding",
    "delete-evict",
    "errors",
    "events",
    "kubectl-annotate",
    "kubectl-run",
    "kubectl-scale-deployment",
    "kubectl-scale-replicaset",
    "kubectl-taint",
    "leases",
    "list-watch",
    "nodes",
    "patch",
    "pods-create",
    "resourceclaims",
    "scheduler-bind",
    "scheduler-preemption",
    "scheduler-resourceclaim",
    "scheduler-unschedulable",
    "volumes",
]
#: What is known to differ, and why.
DIFFERENT = {
    ("errors", 20): "the recorded body is abbreviated",
    ("errors", 21): "the size limit is the HTTP layer's, tested there",
    ("errors", 22): "everybody may do everything, so the review has no RBAC reason",
    ("errors", 23): "users are those of the token file",
    ("leases", 11): "there is no authorization",
    ("list-watch", 9): "the words of Go's JSON decoder",
    ("list-watch", 10): "names the current version",
    ("list-watch", 36): "what is watched was written by requests that were not recorded",
    ("list-watch", 38): "recorded as text",
    ("list-watch", 40): "nothing was compacted yet, so the watch goes on",
    ("list-watch", 41): "nothing was compacted yet",
    ("list-watch", 42): "nothing was compacted yet",
    ("pods-create", 26): "no protobuf",
    ("pods-create", 29): "the message ends in a diff of Go structs",
}

IMAGE = "registry.k8s.io/pause:3.10.1"
CONTAINER = {"name": "c", "image": IMAGE, "resources": {"requests": {"cpu": "100m", "memory": "64Mi"}}}
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


def create(server: Server, resource: str, new: dict[str, Any], namespace: str = "") -> None:
    kind = server.registry.catalog[resource]
    server.registry.create(kind, namespace, kind.struct.read(new, []), Write())


def add_pod(
    server: Server, name: str, *, running: bool = False, labels: dict[str, str] | None = None, **spec: Any
) -> None:
    metadata = {"name": name, "labels": labels or {"app": name}}
    create(server, "pods", {"metadata": metadata, "spec": {"containers": [CONTAINER], **spec}}, "default")
    if running:
        pods = server.registry.catalog["pods"]
        server.registry.update(
            pods,
            "default",
            name,
            lambda old: {**old, "metadata": dict(old["metadata"]), "status": RUNNING},
            Write(),
            subresource="status",
        )


def add_node(server: Server, name: str) -> None:
    labels = {"kubernetes.io/hostname": name, "topology.kubernetes.io/zone": "zone1"}
    create(server, "nodes", {"metadata": {"name": name, "labels": labels}, "status": NODE_STATUS})
    nodes = server.registry.catalog["nodes"]
    server.registry.update(nodes, "", name, lambda old: {**old, "metadata": dict(old["metadata"]), "spec": {}}, Write())


def prepare(server: Server, name: str) -> None:
    """What the recorder had made before the first request of a scenario."""
    if name == "binding":
        for pod in ("b1", "b2", "b3", "b4"):
            add_pod(server, pod)
        add_pod(server, "gated", schedulingGates=[{"name": "example.com/g"}])
    elif name == "patch":
        add_pod(server, "u1")
        add_pod(server, "u2")
    elif name == "events":
        add_pod(server, "ev")
    elif name == "delete-evict":
        add_pod(server, "d1", labels={"app": "d"})
        for pod in ("d2", "d3", "d4", "c1", "c2"):
            add_pod(server, pod, labels={"app": pod[0]}, nodeName="node-a")
        for pod in ("e1", "e2", "e3", "e4"):
            add_pod(server, pod, labels={"app": "e"}, nodeName="node-a", running=True)
    elif name == "list-watch":
        for node in ("node-a", "node-b", "node-c"):
            add_node(server, node)
        for index in range(6):
            spec: dict[str, Any] = (
                {"nodeName": "node-a"} if index < 2 else {"schedulerName": "other"} if index == 5 else {}
            )
            add_pod(server, f"p{index}", labels={"app": "web", "idx": str(index)}, **spec)


def applies(exchange: Exchange) -> bool:
    """Not those of users without rights, nor watches that a client ended at a time of its own."""
    is_watch = "watch=" in exchange.path
    return exchange.user in ("admin", "system:kube-scheduler") and (
        not is_watch or exchange.end == "server" or exchange.status != 200
    )


@pytest.mark.parametrize("name", SCENARIOS)
async def test_a_recorded_scenario_is_answered_alike(name: str, server: Server) -> None:
    exchanges = list(scenario(name))
    player = Player(server)
    prepare(server, name)
    player.recognise(exchanges)
    if name.startswith(("scheduler", "kubectl")):
        player.seed(exchanges)
    for exchange in filter(applies, exchanges):
        if (name, exchange.number) in DIFFERENT:
            if exchange.method != "GET":
                await player.play(exchange)
            continue
        status, answer, headers = await player.play(exchange)
        about = f"{name} #{exchange.number} {exchange.method} {exchange.path}: {exchange.note}"
        recorded = exchange.stream if exchange.stream is not None else exchange.answer
        assert status == exchange.status, f"{about}: {answer}"
        assert alike(answer) == alike(recorded), about
        for header in ("Warning", "Retry-After"):
            assert headers.get(header) == exchange.answer_headers.get(header), about
