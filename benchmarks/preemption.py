"""Preemption throughput: the core alone, on a full cluster of low-priority pods.

Every preemptor is scheduled twice: in the first cycle DefaultPreemption nominates a node and selects victims; after
their removal, the pod is placed there. Run with ``python benchmarks/preemption.py [--nodes N] [--preemptors N]``.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from random import Random

from kubestow import config
from kubestow.api.core import Node, Pod
from kubestow.api.meta import convert
from kubestow.cluster.cache import Cluster
from kubestow.cluster.pods.shapes import PodInfo
from kubestow.framework.profile import build_profile
from kubestow.plugins import in_tree_registry
from kubestow.scheduling.decision.node_selection import RandomTie
from kubestow.scheduling.decision.pipeline import DecisionPipeline
from kubestow.scheduling.decision.result import Unschedulable

PODS_PER_NODE = 4


class Handle:
    """The plugin handle of this benchmark."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.random = Random(0)
        self._gates = config.FeatureGates({})

    def feature_enabled(self, gate: str) -> bool:
        """The default of the gate."""
        return self._gates.enabled(gate)

    def is_preempting(self, uid: str) -> bool:
        """Always False: victims are removed immediately."""
        return False

    def waiting_pods(self) -> tuple[()]:
        """Always empty."""
        return ()

    async def bind(self, pod: PodInfo, node_name: str) -> None:
        """No effect."""


def node(number: int) -> Node:
    """A node with capacity for four pods of 900 millicores."""
    allocatable = {"cpu": "4", "memory": "32Gi", "pods": "110"}
    name = f"n{number:05}"
    labels = {"topology.kubernetes.io/zone": f"z{number % 3}", "kubernetes.io/hostname": name}
    return convert(Node, {"metadata": {"name": name, "labels": labels}, "status": {"allocatable": allocatable}})


def pod(name: str, *, cpu: str, priority: int, node_name: str = "", started: str | None = None) -> Pod:
    """A pod with requests."""
    containers = [{"name": "c", "image": "app", "resources": {"requests": {"cpu": cpu, "memory": "500Mi"}}}]
    spec = {
        "containers": containers,
        "priority": priority,
        "nodeName": node_name,
        "schedulerName": "default-scheduler",
    }
    metadata = {"name": name, "namespace": "default", "uid": name, "labels": {"app": name.partition("-")[0]}}
    return convert(Pod, {"metadata": metadata, "spec": spec, "status": {"startTime": started}})


def full_cluster(nodes: int, *, random: Random) -> Cluster:
    """Full nodes with pods of low, random priorities and random start times."""
    cluster = Cluster()
    for number in range(nodes):
        cluster.add_node(node(number))
    for number in range(nodes * PODS_PER_NODE):
        started = f"2026-01-{1 + random.randrange(28):02}T00:00:00Z"
        victim = pod(
            f"low-{number}",
            cpu="900m",
            priority=random.randrange(10),
            node_name=f"n{number % nodes:05}",
            started=started,
        )
        cluster.put_pod(cluster.shapes.info(victim))
    return cluster


def preempt(
    cluster: Cluster, pipeline: DecisionPipeline, preemptors: list[PodInfo], *, at_once: bool
) -> Iterator[float]:
    """Place the preemptors; yields the seconds each took.

    With ``at_once``, victims are removed before the next pod is scheduled. Otherwise they stay until all pods have
    preempted, so that thousands of nodes have nominated pods.
    """
    waiting: list[tuple[PodInfo, tuple[PodInfo, ...]]] = []
    for info in preemptors:
        begin = time.perf_counter()
        decision = pipeline.decide(info)
        assert isinstance(decision, Unschedulable)
        result = decision.post_filter.nomination
        assert result is not None and result.nominated_node_name, decision.message
        cluster.nominate(info, result.nominated_node_name)
        if at_once:
            for victim in result.victims:
                cluster.remove_pod(victim.uid)
            placed = pipeline.decide(info)
            assert placed.node_name == result.nominated_node_name
            cluster.assume(info, placed.node_name)
        else:
            waiting.append((info, result.victims))
        yield time.perf_counter() - begin


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=5000)
    parser.add_argument("--preemptors", type=int, default=5000)
    parser.add_argument("--shapes", type=int, default=1, help="number of distinct preemptor shapes")
    parser.add_argument("--lingering", action="store_true", help="victims stay until all pods have preempted")
    options = parser.parse_args()
    cluster = full_cluster(options.nodes, random=Random(1))
    configuration = config.default_configuration(config.FeatureGates({}))
    profile = build_profile(configuration.profiles[0], in_tree_registry(), Handle(cluster))
    pipeline = DecisionPipeline(cluster, {"default-scheduler": profile}, RandomTie(Random(2)))
    preemptors = [
        cluster.shapes.info(pod(f"high{number % options.shapes}-{number}", cpu="1500m", priority=1000))
        for number in range(options.preemptors)
    ]
    seconds = sorted(preempt(cluster, pipeline, preemptors, at_once=not options.lingering))
    median, slowest = seconds[len(seconds) // 2], seconds[-1]
    print(
        f"{options.preemptors} preemptors, {options.nodes} nodes: {len(seconds) / sum(seconds):,.0f}/s, "
        f"median {median * 1e6:,.0f} us, slowest {slowest * 1e3:.1f} ms"
    )


if __name__ == "__main__":
    main()
