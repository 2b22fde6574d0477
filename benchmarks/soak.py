"""A soak test: pods and nodes are created, updated and deleted, and the scheduler's memory must not grow.

    .venv/bin/python benchmarks/soak.py [--pods 200000] [--nodes 1000]

The scheduler runs on an in-memory cluster in virtual time, without HTTP. Workloads have distinct labels, namespaces and
requests, and are deleted with their pods; some have topology spread or inter-pod affinity, mount claims, are
infeasible, or preempt others. Nodes are replaced by new ones with new names, relabelled and tainted. Prints the
resident memory after each tenth; the exit status is 1 if the last is more than 10 % above the first. Results:
docs/performance.md.
"""

from __future__ import annotations

import argparse
import asyncio
import ctypes
import gc
import sys
import time
from collections import deque
from pathlib import Path
from random import Random
from typing import Any

from msgspec.structs import replace

from kubestow import config
from kubestow.api.core import Node, Pod
from kubestow.plugins import in_tree_registry
from kubestow.scheduling.environment import Environment
from kubestow.scheduling.scheduler import Scheduler
from kubestow.testing import MemoryCluster, node, pod
from kubestow.testing.storage import claim, mounting, storage_class, volume
from kubestow.testing.virtual_time import VirtualClock, run

#: Existing pods, pods per batch, and pods per workload.
EXISTING, BATCH, WORKLOAD = 8_000, 500, 50
ALLOWED_GROWTH = 1.1


def resident_mb() -> float:
    """Resident memory of this process after returning free memory to the system."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    status = Path("/proc/self/status").read_text()
    return int(next(line for line in status.splitlines() if line.startswith("VmRSS")).split()[1]) / 1024


class Churn:
    """Creates, updates and deletes the objects of a cluster."""

    def __init__(self, cluster: MemoryCluster, random: Random) -> None:
        self._cluster, self._random = cluster, random
        self._nodes: list[Node] = []
        self._pods: deque[Pod] = deque()
        self._claims: dict[str, list[Any]] = {}
        self._created = 0

    def create_nodes(self, nodes: int) -> None:
        """Create the initial nodes."""
        self._cluster.put(storage_class())
        for _ in range(nodes):
            self._add_node()

    def _add_node(self) -> None:
        self._created += 1
        created = node(
            f"node-{self._created}",
            cpu="16",
            memory="64Gi",
            zone=f"zone-{self._created % 3}",
            labels={"rack": f"r{self._created % 40}"},
        )
        self._nodes.append(created)
        self._cluster.put(created)

    def update_nodes(self) -> None:
        """Replace some nodes, relabel some, and taint or untaint some."""
        for _ in range(5):
            removed = self._nodes.pop(self._random.randrange(len(self._nodes)))
            self._cluster.remove(removed)
            self._add_node()
        for number in self._random.sample(range(len(self._nodes)), 10):
            old = self._nodes[number]
            labels = old.metadata.labels | {"rack": f"r{self._random.randrange(40)}", "deploy": str(self._created)}
            taints = [] if old.spec.taints else node(taints=["dedicated=yes:NoSchedule"]).spec.taints
            new = replace(old, metadata=replace(old.metadata, labels=labels), spec=replace(old.spec, taints=taints))
            self._nodes[number] = new
            self._cluster.put(new)

    def create(self, count: int) -> None:
        """Create workloads with distinct properties, ``count`` pods in total."""
        for first in range(0, count, WORKLOAD):
            self._created += 1
            random, app = self._random, f"app-{self._created}"
            template = {
                "namespace": f"team-{self._created % 500}",
                "labels": {"app": app},
                "cpu": f"{random.randrange(50, 500)}m",
                "memory": f"{random.randrange(64, 2048)}Mi",
                "priority": random.choice((0, 0, 0, 10)),
                "affinity": self._pod_affinity(app),
                "spread": self._spread(app),
                "gates": ("later",) if random.random() < 0.05 else (),
            }
            if random.random() < 0.05:
                template |= {"cpu": "64"}  # infeasible
            for number in range(first, min(first + WORKLOAD, count)):
                self._create_pod(f"{app}-{number}", template)

    def _create_pod(self, name: str, template: dict[str, Any]) -> None:
        self._created += 1
        spec: dict[str, Any] = {}
        if self._random.random() < 0.02:
            spec = mounting(name)
            self._claims[name] = [
                volume(f"pv-{name}", claim=name, claim_uid=f"uid-{name}", phase="Bound"),
                claim(name, namespace=template["namespace"], volume=f"pv-{name}", metadata={"uid": f"uid-{name}"}),
            ]
            for obj in self._claims[name]:
                self._cluster.put(obj)
        created = pod(name, spec=spec, metadata={"uid": f"uid-{self._created}"}, **template)
        self._pods.append(created)
        self._cluster.put(created)

    def _pod_affinity(self, app: str) -> dict[str, Any] | None:
        if self._random.random() > 0.1:
            return None
        kind = self._random.choice(("podAffinity", "podAntiAffinity"))
        key = "topology.kubernetes.io/zone" if kind == "podAffinity" else "kubernetes.io/hostname"
        term = {"topologyKey": key, "labelSelector": {"matchLabels": {"app": app}}}
        return {kind: {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}

    def _spread(self, app: str) -> list[dict[str, Any]]:
        if self._random.random() > 0.2:
            return []
        key = self._random.choice(("topology.kubernetes.io/zone", "kubernetes.io/hostname", "rack"))
        selector = {"matchLabels": {"app": app}}
        return [{"topologyKey": key, "maxSkew": 5, "whenUnsatisfiable": "DoNotSchedule", "labelSelector": selector}]

    def delete_down_to(self, count: int) -> None:
        """Delete the oldest pods until ``count`` remain."""
        while len(self._pods) > count:
            deleted = self._pods.popleft()
            self._cluster.remove(deleted)
            for obj in self._claims.pop(deleted.metadata.name, ()):
                self._cluster.remove(obj)


async def measure(pods: int, nodes: int) -> int:
    """Run the soak test and print the memory; the exit status."""
    cluster = MemoryCluster()
    scheduler = Scheduler(
        config.default_configuration(),
        registry=in_tree_registry(),
        environment=Environment(cluster, VirtualClock(asyncio.get_running_loop()), Random(1)),
    )
    churn = Churn(cluster, Random(2))
    churn.create_nodes(nodes)
    running = asyncio.create_task(scheduler.run())
    tenths: list[float] = []
    bound, began = 0, time.process_time()
    for done in range(BATCH, pods + 1, BATCH):
        churn.create(BATCH)
        await asyncio.sleep(5)
        churn.delete_down_to(EXISTING)
        churn.update_nodes()
        await asyncio.sleep(5)
        bound += len(cluster.bindings)
        cluster.bindings.clear()
        cluster.events.clear()
        if done * 10 // pods > len(tenths):
            tenths.append(resident_mb())
            seconds = time.process_time() - began
            print(
                f"{done:>9,} pods created, {bound:>9,} bound, {tenths[-1]:6.1f} MB, {seconds:6.1f} s of CPU time",
                flush=True,
            )
    running.cancel()
    await asyncio.wait([running])
    growth = tenths[-1] / tenths[0]
    print(f"memory growth from the first to the last tenth: {growth:.3f}")
    return 1 if growth > ALLOWED_GROWTH else 0


def main() -> None:
    """Run the benchmark."""
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--pods", type=int, default=200_000)
    arguments.add_argument("--nodes", type=int, default=1_000)
    options = arguments.parse_args()
    sys.exit(run(measure(options.pods, options.nodes)))


if __name__ == "__main__":
    main()
