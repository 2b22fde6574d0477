"""The clusters that scenarios share: scheduler_perf's nodes and pods, and objects with the fields of real ones."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from random import Random
from typing import Any

import msgspec

from benchmarks.measurement import Spent, measured
from kubestow import config
from kubestow.api.core import Node, Pod
from kubestow.cluster.pods.shapes import PodInfo
from kubestow.plugins import in_tree_registry
from kubestow.scheduling.decision.node_selection import RandomTie
from kubestow.scheduling.decision.pipeline import DecisionPipeline
from kubestow.scheduling.environment import Environment
from kubestow.scheduling.interfaces import Clock, ClusterAPI
from kubestow.scheduling.scheduler import Scheduler
from kubestow.testing import PluginHarness, builders

ZONE, HOSTNAME = "topology.kubernetes.io/zone", "kubernetes.io/hostname"
_WORKLOADS = 200
_MANAGED = [
    {"manager": "kubelet", "operation": "Update", "apiVersion": "v1", "fieldsV1": {f"f:{n}": {} for n in "abcdefgh"}}
]


def node(number: int, **fields: Any) -> Node:
    """A default node of scheduler_perf, in one of three zones."""
    return builders.node(f"node-{number:05}", **{"memory": "32Gi", "zone": f"zone-{number % 3}", **fields})


def pod(
    number: int,
    *,
    cpu: str = "100m",
    memory: str = "500Mi",
    owners: Sequence[dict[str, Any]] = (),
    indexed: bool = False,
    **fields: Any,
) -> Pod:
    """A pod with small requests; with labels of its own, as a StatefulSet gives them, if ``indexed``."""
    labels = {"app": "a"}
    if indexed:
        labels |= {"statefulset.kubernetes.io/pod-name": f"pod-{number}", "apps.kubernetes.io/pod-index": str(number)}
    metadata = {"uid": f"uid-{number}", "ownerReferences": list(owners)}
    return builders.pod(f"pod-{number}", cpu=cpu, memory=memory, labels=labels, metadata=metadata, **fields)


class Engine:
    """The decision pipeline on a cluster, every node scored; ties are broken at random, with a fixed seed."""

    def __init__(self, nodes: int | Iterable[Node], **harness: Any) -> None:
        self.harness = PluginHarness(map(node, range(nodes)) if isinstance(nodes, int) else nodes, **harness)
        self.cluster = self.harness.cluster
        self.pipeline = DecisionPipeline(self.cluster, self.harness.profiles, RandomTie(Random(0)))

    def infos(self, pods: Iterable[Pod]) -> list[PodInfo]:
        """Pods with their shapes."""
        return [self.cluster.shapes.info(each) for each in pods]

    def place(self, info: PodInfo) -> None:
        """Decide about a pod that fits, and assume it."""
        decision = self.pipeline.decide_by_plugins(info)
        assert decision.node_name is not None, decision.message
        self.cluster.assume(info, decision.node_name)

    def schedule(self, infos: Iterable[PodInfo]) -> Spent:
        """Place pods one after another."""
        with measured() as spent:
            for info in infos:
                self.place(info)
        return spent


def new_scheduler(api: ClusterAPI, clock: Clock, seed: int = 0) -> Scheduler:
    """A scheduler with default configuration."""
    return Scheduler(
        config.default_configuration(), registry=in_tree_registry(), environment=Environment(api, clock, Random(seed))
    )


def real_node(number: int) -> bytes:
    """The JSON of a node with the fields that a cloud provider's kubelet sets."""
    name = f"node-{number:05}"
    labels = {HOSTNAME: name, ZONE: f"zone-{number % 3}"}
    labels |= {f"cloud.example.com/label-{n}": f"value-{n}" for n in range(12)}
    amounts = {"cpu": "32", "memory": "128Gi", "pods": "110", "ephemeral-storage": "100Gi"}
    kinds = ("Ready", "MemoryPressure", "DiskPressure", "PIDPressure")
    return msgspec.json.encode(
        {
            "metadata": {"name": name, "uid": f"uid-{name}", "labels": labels, "managedFields": _MANAGED},
            "spec": {"podCIDR": "10.0.0.0/24", "providerID": f"cloud:///{name}"},
            "status": {
                "allocatable": amounts,
                "capacity": amounts,
                "conditions": [{"type": kind, "status": "False", "message": "all is well"} for kind in kinds],
                "images": [{"names": [f"registry/app-{n}:v1"], "sizeBytes": 10**8} for n in range(10)],
            },
        }
    )


def real_pod(number: int, nodes: int) -> bytes:
    """The JSON of a running pod of one of 200 workloads, as the API server returns it."""
    app = f"app-{number % _WORKLOADS}"
    token = {"name": f"kube-api-access-{number:05}", "projected": {"sources": [{"serviceAccountToken": {}}]}}
    container = {
        "name": "main",
        "image": f"registry/{app}:v1",
        "resources": {"requests": {"cpu": f"{100 + number % _WORKLOADS}m", "memory": "256Mi"}},
        "volumeMounts": [{"name": token["name"], "mountPath": "/var/run/secrets"}],
    }
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": f"{app}-7d9f8c6b5d", "uid": app, "controller": True}
    kinds = ("Initialized", "Ready", "ContainersReady", "PodScheduled")
    return msgspec.json.encode(
        {
            "metadata": {
                "name": f"{app}-7d9f8c6b5d-{number:06}",
                "namespace": f"team-{number % 20}",
                "uid": f"00000000-0000-0000-0000-{number:012}",
                "resourceVersion": str(number),
                "labels": {"app": app, "pod-template-hash": "7d9f8c6b5d", "tier": "backend"},
                "ownerReferences": [owner],
                "managedFields": _MANAGED,
            },
            "spec": {
                "nodeName": f"node-{number % nodes:05}",
                "schedulerName": "default-scheduler",
                "containers": [container],
                "volumes": [token],
                "tolerations": [{"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute"}],
            },
            "status": {
                "phase": "Running",
                "startTime": datetime(2026, 1, 1, tzinfo=UTC),
                "conditions": [{"type": kind, "status": "True"} for kind in kinds],
                "containerStatuses": [{"name": "main", "ready": True, "image": f"registry/{app}:v1"}],
            },
        }
    )
