"""The core without HTTP: decide and assume, with every node scored.

    .venv/bin/python benchmarks/core.py [--nodes 5000] [--pods 20000] [--fill 100000]

Prints pods per second for identical pods, for pods of a ReplicaSet behind a Service (subject to the default topology
spread constraints), for pods with labels of their own as a StatefulSet gives them, for pods of distinct shapes, and for
pods with node affinity; the time per pod before and after many others are placed; and the memory of nodes and bound
pods. Nodes are scheduler_perf's default (4 CPUs, 32 GiB, 110 pods), pods request 100m and 500 MiB.

Measured on 2 cores of an Intel Xeon with Python 3.11.7 and NumPy 2.4.6: see docs/performance.md.
"""

from __future__ import annotations

import argparse
import resource
import time
from collections.abc import Sequence
from random import Random
from typing import Any

from kubestow.api.apps import ReplicaSet
from kubestow.api.core import Node, Pod, Service
from kubestow.api.meta import convert
from kubestow.cluster.pods.shapes import PodInfo
from kubestow.scheduling.decision.node_selection import RandomTie
from kubestow.scheduling.decision.pipeline import DecisionPipeline
from kubestow.testing import PluginHarness


def node(number: int) -> Node:
    """A default node of scheduler_perf, in one of three zones."""
    labels = {"kubernetes.io/hostname": f"node-{number:05}", "topology.kubernetes.io/zone": f"zone-{number % 3}"}
    allocatable = {"cpu": "4", "memory": "32Gi", "pods": "110"}
    return convert(
        Node, {"metadata": {"name": f"node-{number:05}", "labels": labels}, "status": {"allocatable": allocatable}}
    )


#: The node affinity of scheduler_perf's pods: two of three zones.
IN_TWO_ZONES = {
    "nodeAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": {
            "nodeSelectorTerms": [
                {
                    "matchExpressions": [
                        {"key": "topology.kubernetes.io/zone", "operator": "In", "values": ["zone-0", "zone-1"]}
                    ]
                }
            ]
        }
    }
}


#: The Service and the ReplicaSet of pods labelled ``app: a``.
SERVICE = {"metadata": {"name": "a", "namespace": "default"}, "spec": {"selector": {"app": "a"}}}
REPLICA_SET = {
    "metadata": {"name": "a", "namespace": "default", "uid": "uid-a"},
    "spec": {"selector": {"matchLabels": {"app": "a"}}},
}
OWNER = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "a", "uid": "uid-a", "controller": True}


def pod(
    number: int,
    *,
    cpu: str = "100m",
    memory: str = "500Mi",
    affinity: dict[str, Any] | None = None,
    owners: Sequence[dict[str, Any]] = (),
    indexed: bool = False,
) -> Pod:
    """A pod with small requests; with labels of its own if ``indexed``."""
    spec = {
        "affinity": affinity,
        "schedulerName": "default-scheduler",
        "containers": [{"name": "c", "image": "pause", "resources": {"requests": {"cpu": cpu, "memory": memory}}}],
    }
    metadata: dict[str, Any] = {
        "name": f"pod-{number}",
        "namespace": "default",
        "uid": f"uid-{number}",
        "labels": {"app": "a"},
    }
    if indexed:
        own = {"statefulset.kubernetes.io/pod-name": f"pod-{number}", "apps.kubernetes.io/pod-index": str(number)}
        metadata["labels"] = {"app": "a"} | own
    return convert(Pod, {"metadata": metadata | {"ownerReferences": list(owners)}, "spec": spec})


class CoreBenchmark:
    """A cluster and the default profile."""

    def __init__(self, nodes: int) -> None:
        harness = PluginHarness(node(number) for number in range(nodes))
        self.cluster = harness.cluster
        self.pipeline = DecisionPipeline(self.cluster, harness.profiles, RandomTie(Random(0)))

    def schedule(self, infos: list[PodInfo]) -> float:
        """Schedule pods one after another; the seconds per pod."""
        began = time.perf_counter()
        for info in infos:
            decision = self.pipeline.decide(info)
            assert decision.node_name is not None, decision.message
            self.cluster.assume(info, decision.node_name)
        return (time.perf_counter() - began) / len(infos)


def peak_memory() -> float:
    """Peak resident memory of this process, in MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def main() -> None:
    """Run the benchmark."""
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--nodes", type=int, default=5000)
    arguments.add_argument("--pods", type=int, default=20000)
    arguments.add_argument("--fill", type=int, default=100000)
    options = arguments.parse_args()

    benchmark = CoreBenchmark(options.nodes)
    benchmark.schedule([benchmark.cluster.shapes.info(pod(n)) for n in range(200)])
    cost = benchmark.schedule([benchmark.cluster.shapes.info(pod(1000 + n)) for n in range(options.pods)])
    print(f"identical pods, {options.nodes} nodes: {1 / cost:,.0f} pods/s ({cost * 1e6:.0f} us each)")

    benchmark = CoreBenchmark(options.nodes)
    benchmark.cluster.catalog(Service).put(convert(Service, SERVICE))
    benchmark.cluster.catalog(ReplicaSet).put(convert(ReplicaSet, REPLICA_SET))
    infos = [benchmark.cluster.shapes.info(pod(n, owners=[OWNER])) for n in range(options.pods)]
    benchmark.schedule(infos[:200])
    cost = benchmark.schedule(infos[200:])
    print(f"pods of a ReplicaSet behind a Service: {1 / cost:,.0f} pods/s ({cost * 1e6:.0f} us each)")

    benchmark = CoreBenchmark(options.nodes)
    infos = [benchmark.cluster.shapes.info(pod(n, indexed=True)) for n in range(options.pods)]
    benchmark.schedule(infos[:200])
    cost = benchmark.schedule(infos[200:])
    print(f"pods with labels of their own: {1 / cost:,.0f} pods/s ({cost * 1e6:.0f} us each)")

    benchmark = CoreBenchmark(options.nodes)
    distinct = [
        benchmark.cluster.shapes.info(pod(n, cpu=f"{100 + n % 50}m", memory=f"{500 * 1024 + n}Ki")) for n in range(3000)
    ]
    benchmark.schedule(distinct[:100])
    cost = benchmark.schedule(distinct[100:])
    print(f"distinct pods, {options.nodes} nodes: {1 / cost:,.0f} pods/s ({cost * 1e6:.0f} us each)")

    benchmark = CoreBenchmark(options.nodes)
    infos = [benchmark.cluster.shapes.info(pod(n, affinity=IN_TWO_ZONES)) for n in range(options.pods)]
    benchmark.schedule(infos[:200])
    cost = benchmark.schedule(infos[200:])
    print(f"pods with node affinity: {1 / cost:,.0f} pods/s ({cost * 1e6:.0f} us each)")

    before = peak_memory()
    benchmark = CoreBenchmark(options.nodes)
    costs = []
    for start in range(0, options.fill, 5000):
        infos = [benchmark.cluster.shapes.info(pod(n, cpu="1m", memory="1Mi")) for n in range(start, start + 5000)]
        costs.append(benchmark.schedule(infos))
    print(f"first 5,000 of {options.fill:,} pods: {costs[0] * 1e6:.0f} us each, last 5,000: {costs[-1] * 1e6:.0f} us")
    print(f"ratio last to first: {costs[-1] / costs[0]:.2f}")
    print(f"memory: {peak_memory():.0f} MB with {options.fill:,} pods ({before:.0f} MB before)")


if __name__ == "__main__":
    main()
