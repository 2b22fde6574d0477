"""What it costs to use an evaluation again after many changes of the cluster.

    .venv/bin/python benchmarks/catch_up.py [--nodes 5000] [--rounds 15]

An evaluation is cached; then the journal grows by a number of entries; then the next pod of the same shape is decided.
The entries are pods placed and forgotten on many nodes, on one node, or in a simulation that is rolled back (as gangs
are tried), and changes that no result depends on. For comparison, the cost of a decision for a new shape. All figures
are medians of the CPU time in microseconds, without garbage collection.
"""

from __future__ import annotations

import argparse
import gc
import time
from collections.abc import Callable
from itertools import count
from statistics import median

from kubestow.api.core import Pod
from kubestow.api.meta import convert
from kubestow.api.storage import CSIStorageCapacity
from kubestow.cluster.pods.shapes import PodInfo
from kubestow.scheduling.decision.node_selection import FirstByName
from kubestow.scheduling.decision.pipeline import DecisionPipeline
from kubestow.testing import PluginHarness, nodes

SIZES = (1, 20, 300, 2000, 8000, 16000)


class CatchUp:
    """A cluster, one shape whose evaluation is cached, and ways to change the cluster."""

    def __init__(self, size: int) -> None:
        harness = PluginHarness(nodes(size, zones=3, memory="32Gi"))
        self.cluster = harness.cluster
        self._pipeline = DecisionPipeline(self.cluster, harness.profiles, FirstByName())
        self._numbers = count()
        self._names = list(self.cluster.nodes.names)
        self.known = self.pod("100m")
        self._other = self.pod("1m")

    def pod(self, cpu: str) -> PodInfo:
        """A pod whose shape is determined by its CPU request."""
        requests = {"cpu": cpu, "memory": "500Mi"}
        spec = {
            "schedulerName": "default-scheduler",
            "containers": [{"name": "c", "resources": {"requests": requests}}],
        }
        metadata = {"name": "p", "namespace": "default", "uid": f"uid-{next(self._numbers)}"}
        return self.cluster.shapes.info(convert(Pod, {"metadata": metadata, "spec": spec}))

    def decide(self, pod: PodInfo) -> float:
        """Decide about a pod; the CPU time in microseconds."""
        began = time.process_time()
        self._pipeline.decide(pod)
        return (time.process_time() - began) * 1e6

    def place_on_many(self, entries: int) -> None:
        """Place and forget pods on one node after another."""
        for number in range(entries // 2):
            self._place(self._names[number % len(self._names)])

    def place_on_one(self, entries: int) -> None:
        """Place and forget pods on the same node."""
        for _ in range(entries // 2):
            self._place(self._names[0])

    def place_on_trial(self, entries: int) -> None:
        """Try gangs of a hundred pods, and roll back."""
        for start in range(0, entries, 100):
            with self.cluster.simulate():
                for number in range(start, min(start + 100, entries)):
                    self.cluster.assume(self.pod("1m"), self._names[number % len(self._names)])
                    if number == start:
                        self.decide(self.known)

    def change_others(self, entries: int) -> None:
        """Change objects that no result for the pod depends on."""
        for number in range(entries):
            metadata = {
                "name": f"c-{number % 100}",
                "namespace": "default",
                "resourceVersion": str(next(self._numbers)),
            }
            capacity = {"metadata": metadata, "storageClassName": "s"}
            self.cluster.catalog(CSIStorageCapacity).put(convert(CSIStorageCapacity, capacity))

    def _place(self, node_name: str) -> None:
        self.cluster.assume(self._other, node_name)
        self.cluster.forget(self._other.uid)


def main() -> None:
    """Run the benchmark."""
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--nodes", type=int, default=5000)
    arguments.add_argument("--rounds", type=int, default=15)
    options = arguments.parse_args()

    bench = CatchUp(options.nodes)
    changes: dict[str, Callable[[int], None]] = {
        "pods on many nodes": bench.place_on_many,
        "pods on one node": bench.place_on_one,
        "gangs on trial": bench.place_on_trial,
        "irrelevant changes": bench.change_others,
    }
    gc.disable()
    bench.decide(bench.known)
    fresh = [bench.decide(bench.pod(f"{200 + n}m")) for n in range(5 * options.rounds)]
    print(f"a new shape: {median(fresh):,.0f} us")
    print(f"{'entries':<20}" + "".join(f"{size:>10,}" for size in SIZES))
    for name, change in changes.items():
        costs = []
        for size in SIZES:
            samples = []
            for _ in range(options.rounds):
                gc.collect()
                bench.decide(bench.known)
                change(max(size, 2) if change != bench.change_others else size)
                samples.append(bench.decide(bench.known))
            costs.append(median(samples))
        print(f"{name:<20}" + "".join(f"{cost:>10,.0f}" for cost in costs))


if __name__ == "__main__":
    main()
