"""A long life: pods come and go over nodes that come, go and change, and the scheduler must not grow.

    .venv/bin/python benchmarks/soak.py [--pods 200000] [--nodes 1000]

The scheduler runs on an in-memory cluster in virtual time, without HTTP. Workloads have labels, namespaces and sizes of
their own and come and go with their pods; some spread over zones, keep apart, mount claims, cannot be placed or preempt
others. Nodes are replaced by new ones with new names, relabelled and tainted. Printed is the resident memory after
each tenth; the exit status is 1 if the last is more than 10 % above the first. Figures: docs/performance.md.
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

#: Pods that live at once, pods that come in one go, and pods of one workload.
LIVING, BATCH, WORKLOAD = 8_000, 500, 50
ALLOWED_GROWTH = 1.1


def resident_mb() -> float:
    """Resident memory of this process, once what is free has been given back."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    status = Path("/proc/self/status").read_text()
    return int(next(line for line in status.splitlines() if line.startswith("VmRSS")).split()[1]) / 1024


class Life:
    """The cluster's inhabitants."""

    def __init__(self, cluster: MemoryCluster, random: Random) -> None:
        self._cluster, self._random = cluster, random
        self._nodes: list[Node] = []
        self._pods: deque[Pod] = deque()
        self._claims: dict[str, list[Any]] = {}
        self._made = 0

    def begin(self, nodes: int) -> None:
        """Nodes to start with."""
        self._cluster.put(storage_class())
        for _ in range(nodes):
            self._add_node()

    def _add_node(self) -> None:
        self._made += 1
        made = node(
            f"node-{self._made}",
            cpu="16",
            memory="64Gi",
            zone=f"zone-{self._made % 3}",
            labels={"rack": f"r{self._made % 40}"},
        )
        self._nodes.append(made)
        self._cluster.put(made)

    def disturb(self) -> None:
        """Some nodes are replaced, some relabelled, some tainted or cleared."""
        for _ in range(5):
            leaving = self._nodes.pop(self._random.randrange(len(self._nodes)))
            self._cluster.remove(leaving)
            self._add_node()
        for number in self._random.sample(range(len(self._nodes)), 10):
            old = self._nodes[number]
            labels = old.metadata.labels | {"rack": f"r{self._random.randrange(40)}", "deploy": str(self._made)}
            taints = [] if old.spec.taints else node(taints=["dedicated=yes:NoSchedule"]).spec.taints
            new = replace(old, metadata=replace(old.metadata, labels=labels), spec=replace(old.spec, taints=taints))
            self._nodes[number] = new
            self._cluster.put(new)

    def create(self, count: int) -> None:
        """Workloads of pods, each of its own kind."""
        for first in range(0, count, WORKLOAD):
            self._made += 1
            draw, app = self._random, f"app-{self._made}"
            made = {
                "namespace": f"team-{self._made % 500}",
                "labels": {"app": app},
                "cpu": f"{draw.randrange(50, 500)}m",
                "memory": f"{draw.randrange(64, 2048)}Mi",
                "priority": draw.choice((0, 0, 0, 10)),
                "affinity": self._company(app),
                "spread": self._spread(app),
                "gates": ("later",) if draw.random() < 0.05 else (),
            }
            if draw.random() < 0.05:
                made |= {"cpu": "64"}  # fits nowhere
            for number in range(first, min(first + WORKLOAD, count)):
                self._create_pod(f"{app}-{number}", made)

    def _create_pod(self, name: str, made: dict[str, Any]) -> None:
        self._made += 1
        spec: dict[str, Any] = {}
        if self._random.random() < 0.02:
            spec = mounting(name)
            self._claims[name] = [
                volume(f"pv-{name}", claim=name, claim_uid=f"uid-{name}", phase="Bound"),
                claim(name, namespace=made["namespace"], volume=f"pv-{name}", metadata={"uid": f"uid-{name}"}),
            ]
            for obj in self._claims[name]:
                self._cluster.put(obj)
        there = pod(name, spec=spec, metadata={"uid": f"uid-{self._made}"}, **made)
        self._pods.append(there)
        self._cluster.put(there)

    def _company(self, app: str) -> dict[str, Any] | None:
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
        """The oldest pods go."""
        while len(self._pods) > count:
            gone = self._pods.popleft()
            self._cluster.remove(gone)
            for obj in self._claims.pop(gone.metadata.name, ()):
                self._cluster.remove(obj)


async def measure(pods: int, nodes: int) -> int:
    """Run once and print; the exit status."""
    cluster = MemoryCluster()
    scheduler = Scheduler(
        config.default_configuration(),
        registry=in_tree_registry(),
        environment=Environment(cluster, VirtualClock(asyncio.get_running_loop()), Random(1)),
    )
    life = Life(cluster, Random(2))
    life.begin(nodes)
    running = asyncio.create_task(scheduler.run())
    tenths: list[float] = []
    bound, began = 0, time.process_time()
    for done in range(BATCH, pods + 1, BATCH):
        life.create(BATCH)
        await asyncio.sleep(5)
        life.delete_down_to(LIVING)
        life.disturb()
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
    print(f"after the last tenth {growth:.3f} times the memory after the first")
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
