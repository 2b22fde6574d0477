"""Preemption throughput: the core alone, on a full cluster of low-priority pods.

Every preemptor is scheduled twice: in the first cycle DefaultPreemption nominates a node and selects victims; after
their removal, the pod is placed there. Run with ``python benchmarks/preemption.py [--nodes N] [--preemptors N]``.

With ``--scenario``, more than resources decides whether a preemptor fits: a hard topology spread constraint, a host
port that one pod of every node has, or required anti-affinity to some pods of every node. ``--shapes`` equal to
``--preemptors`` measures preemption without results cached for an identical pod.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from random import Random
from typing import Any

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

#: The CPU of the pods on a node together, in millicores; a node has 4000.
USED_CPU = 3600
#: In "ports", the host ports of the pods on a node begin here; in "anti-affinity", preemptors avoid one in ten pods.
FIRST_PORT, ONE_IN = 8000, 10

#: What preemptors have in their spec besides requests, by scenario; in "ports", also a host port.
SCENARIOS: dict[str, dict[str, Any]] = {
    "plain": {},
    "spread": {
        "topologySpreadConstraints": [
            {
                "maxSkew": 1000,
                "topologyKey": "topology.kubernetes.io/zone",
                "whenUnsatisfiable": "DoNotSchedule",
                "labelSelector": {"matchExpressions": [{"key": "app", "operator": "Exists"}]},
            }
        ]
    },
    "ports": {},
    "anti-affinity": {
        "affinity": {
            "podAntiAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": [
                    {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"noisy": "true"}}}
                ]
            }
        }
    },
}


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
    """A node with four cores."""
    allocatable = {"cpu": "4", "memory": "64Gi", "pods": "110"}
    name = f"n{number:05}"
    labels = {"topology.kubernetes.io/zone": f"z{number % 3}", "kubernetes.io/hostname": name}
    return convert(Node, {"metadata": {"name": name, "labels": labels}, "status": {"allocatable": allocatable}})


def pod(
    name: str,
    *,
    cpu: str,
    priority: int,
    node_name: str = "",
    started: str | None = None,
    labels: dict[str, str] | None = None,
    host_port: int | None = None,
    **spec: Any,
) -> Pod:
    """A pod with requests."""
    container = {"name": "c", "image": "app", "resources": {"requests": {"cpu": cpu, "memory": "500Mi"}}}
    spec |= {
        "containers": [container | {"ports": [{"hostPort": host_port}] if host_port else []}],
        "priority": priority,
        "nodeName": node_name,
        "schedulerName": "default-scheduler",
    }
    labels = {"app": name.partition("-")[0]} | (labels or {})
    metadata = {"name": name, "namespace": "default", "uid": name, "labels": labels}
    return convert(Pod, {"metadata": metadata, "spec": spec, "status": {"startTime": started}})


def full_cluster(nodes: int, pods_per_node: int, scenario: str, *, random: Random) -> Cluster:
    """Full nodes with pods of low, random priorities and random start times."""
    cluster = Cluster()
    for number in range(nodes):
        cluster.add_node(node(number))
    for number in range(nodes * pods_per_node):
        started = f"2026-01-{1 + random.randrange(28):02}T00:00:00Z"
        on_node = number // nodes
        victim = pod(
            f"low-{number}",
            cpu=f"{USED_CPU // pods_per_node}m",
            priority=random.randrange(10),
            node_name=f"n{number % nodes:05}",
            started=started,
            labels={"noisy": str(on_node % ONE_IN == 0).lower()} if scenario == "anti-affinity" else None,
            host_port=FIRST_PORT + on_node if scenario == "ports" else None,
        )
        cluster.put_pod(cluster.shapes.info(victim))
    return cluster


def preempt(
    cluster: Cluster, pipeline: DecisionPipeline, preemptors: list[PodInfo], *, at_once: bool
) -> Iterator[float]:
    """Place the preemptors; yields the CPU seconds each took.

    With ``at_once``, victims are removed before the next pod is scheduled. Otherwise they stay until all pods have
    preempted, so that thousands of nodes have nominated pods.
    """
    waiting: list[tuple[PodInfo, tuple[PodInfo, ...]]] = []
    for info in preemptors:
        begin = time.process_time()
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
        yield time.process_time() - begin


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=5000)
    parser.add_argument("--pods-per-node", type=int, default=4)
    parser.add_argument("--preemptors", type=int, default=5000)
    parser.add_argument("--shapes", type=int, default=1, help="number of distinct preemptor shapes")
    parser.add_argument("--lingering", action="store_true", help="victims stay until all pods have preempted")
    parser.add_argument("--scenario", action="append", choices=SCENARIOS, help="may be repeated; default: plain")
    options = parser.parse_args()
    for scenario in options.scenario or ["plain"]:
        run(options, scenario)


def run(options: argparse.Namespace, scenario: str) -> None:
    """Run and report one scenario."""
    cluster = full_cluster(options.nodes, options.pods_per_node, scenario, random=Random(1))
    configuration = config.default_configuration(config.FeatureGates({}))
    profile = build_profile(configuration.profiles[0], in_tree_registry(), Handle(cluster))
    pipeline = DecisionPipeline(cluster, {"default-scheduler": profile}, RandomTie(Random(2)))
    preemptors = [
        cluster.shapes.info(
            pod(
                f"high{number % options.shapes}-{number}",
                cpu="1500m",
                priority=1000,
                host_port=FIRST_PORT + number % options.pods_per_node if scenario == "ports" else None,
                **SCENARIOS[scenario],
            )
        )
        for number in range(options.preemptors)
    ]
    seconds = sorted(preempt(cluster, pipeline, preemptors, at_once=not options.lingering))
    median, slowest = seconds[len(seconds) // 2], seconds[-1]
    print(
        f"{scenario}: {options.preemptors} preemptors, {options.nodes} nodes: {len(seconds) / sum(seconds):,.0f}/s, "
        f"median {median * 1e6:,.0f} us, slowest {slowest * 1e3:.1f} ms"
    )


if __name__ == "__main__":
    main()
