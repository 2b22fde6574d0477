"""Memory of the scheduler's state: many nodes and bound pods, decoded from JSON as a real API server sends it.

    .venv/bin/python benchmarks/memory.py [--nodes 5000] [--pods 100000]

Objects have the fields of real ones (managed fields, conditions, container statuses, token volumes); pods belong to 200
workloads. Prints the resident memory of the process before and after. Results: docs/performance.md.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from random import Random
from typing import Any

import msgspec

from kubestow import config
from kubestow.api.core import Node, Pod
from kubestow.api.meta import decode
from kubestow.plugins import in_tree_registry
from kubestow.scheduling.environment import Environment
from kubestow.scheduling.events.resources import NODES, PODS
from kubestow.scheduling.scheduler import Scheduler
from kubestow.testing import MemoryCluster
from kubestow.testing.virtual_time import VirtualClock

WORKLOADS = 200
MANAGED = [
    {"manager": "kubelet", "operation": "Update", "apiVersion": "v1", "fieldsV1": {f"f:{n}": {} for n in "abcdefgh"}}
]


def resident_mb() -> float:
    """Resident memory of this process."""
    status = Path("/proc/self/status").read_text()
    return int(next(line for line in status.splitlines() if line.startswith("VmRSS")).split()[1]) / 1024


def node(number: int) -> bytes:
    """A node with the fields that a cloud provider's kubelet sets."""
    name = f"node-{number:05}"
    labels = {"kubernetes.io/hostname": name, "topology.kubernetes.io/zone": f"zone-{number % 3}"}
    labels |= {f"cloud.example.com/label-{n}": f"value-{n}" for n in range(12)}
    amounts = {"cpu": "32", "memory": "128Gi", "pods": "110", "ephemeral-storage": "100Gi"}
    kinds = ("Ready", "MemoryPressure", "DiskPressure", "PIDPressure")
    return msgspec.json.encode(
        {
            "metadata": {"name": name, "uid": f"uid-{name}", "labels": labels, "managedFields": MANAGED},
            "spec": {"podCIDR": "10.0.0.0/24", "providerID": f"cloud:///{name}"},
            "status": {
                "allocatable": amounts,
                "capacity": amounts,
                "conditions": [{"type": kind, "status": "False", "message": "all is well"} for kind in kinds],
                "images": [{"names": [f"registry/app-{n}:v1"], "sizeBytes": 10**8} for n in range(10)],
            },
        }
    )


def pod(number: int, nodes: int) -> bytes:
    """A running pod of one of the workloads, as returned by the API server."""
    app = f"app-{number % WORKLOADS}"
    name = f"{app}-7d9f8c6b5d-{number:06}"
    resources = {"requests": {"cpu": f"{100 + number % WORKLOADS}m", "memory": "256Mi"}}
    token = {"name": f"kube-api-access-{number:05}", "projected": {"sources": [{"serviceAccountToken": {}}]}}
    container = {
        "name": "main",
        "image": f"registry/{app}:v1",
        "resources": resources,
        "volumeMounts": [{"name": token["name"], "mountPath": "/var/run/secrets"}],
    }
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": f"{app}-7d9f8c6b5d", "uid": app, "controller": True}
    kinds = ("Initialized", "Ready", "ContainersReady", "PodScheduled")
    return msgspec.json.encode(
        {
            "metadata": {
                "name": name,
                "namespace": f"team-{number % 20}",
                "uid": f"00000000-0000-0000-0000-{number:012}",
                "resourceVersion": str(number),
                "labels": {"app": app, "pod-template-hash": "7d9f8c6b5d", "tier": "backend"},
                "ownerReferences": [owner],
                "managedFields": MANAGED,
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


def read(kind: type[Any], texts: Iterator[bytes]) -> list[Any]:
    """Decode objects one after another."""
    return [decode(kind, text) for text in texts]


async def measure(nodes: int, pods: int) -> None:
    """Fill the scheduler's state and print the memory."""
    before = resident_mb()
    scheduler = Scheduler(
        config.default_configuration(),
        registry=in_tree_registry(),
        environment=Environment(MemoryCluster(), VirtualClock(asyncio.get_running_loop()), Random(0)),
    )
    scheduler.handlers.replace(NODES, read(Node, map(node, range(nodes))))
    with_nodes = resident_mb()
    for start in range(0, pods, 1000):
        for bound_pod in read(Pod, (pod(number, nodes) for number in range(start, start + 1000))):
            scheduler.handlers.apply(PODS, "ADDED", bound_pod)
    gc.collect()
    print(f"{nodes:,} nodes and {pods:,} bound pods: {resident_mb():.0f} MB resident")
    print(f"({before:.0f} MB before, {with_nodes:.0f} MB with the nodes,")
    print(f" {(resident_mb() - with_nodes) * 2**20 / pods:,.0f} bytes per pod)")


def main() -> None:
    """Run the benchmark."""
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--nodes", type=int, default=5000)
    arguments.add_argument("--pods", type=int, default=100000)
    options = arguments.parse_args()
    asyncio.run(measure(options.nodes, options.pods))


if __name__ == "__main__":
    main()
