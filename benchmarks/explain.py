"""What an explanation costs in a large cluster.

    .venv/bin/python benchmarks/explain.py [--nodes 5000] [--pods 50000] [--rounds 3]

The time includes building the scheduler cache from decoded objects; reading a dump comes on top. All figures are
medians of the CPU time in seconds: with counterfactuals, without, and for the document with every node.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from random import Random
from statistics import median
from typing import Any

from kubestow.api.core import Pod
from kubestow.engine.explanation.explain import explain
from kubestow.engine.input.cluster import Cluster
from kubestow.testing import builders

ZONE, HOSTNAME = "topology.kubernetes.io/zone", "kubernetes.io/hostname"
WEB = {"matchLabels": {"app": "web-1"}}
ANTI_AFFINITY = {"requiredDuringSchedulingIgnoredDuringExecution": [{"topologyKey": HOSTNAME, "labelSelector": WEB}]}
SPREAD = {"maxSkew": 1, "topologyKey": ZONE, "whenUnsatisfiable": "DoNotSchedule", "labelSelector": WEB}

PROBES: dict[str, dict[str, Any]] = {
    "fits": {"cpu": "1"},
    "too large": {"cpu": "14", "memory": "4Gi", "node_selector": {"disk": "ssd"}},
    "preempts": {"cpu": "14", "memory": "4Gi", "priority": 10},
    "constraints": {
        "cpu": "12",
        "labels": {"app": "web-1"},
        "affinity": {"podAntiAffinity": ANTI_AFFINITY},
        "spread": [SPREAD],
        "host_ports": [80],
    },
    "wrong label": {"cpu": "1", "node_selector": {"disk": "tape"}},
}


def cluster(nodes: int, pods: int, probe: Pod) -> Cluster:
    """Nodes of which some are tainted or cordoned, and pods of 50 applications on them."""
    random = Random(1)
    return Cluster.of(
        [
            builders.node(
                f"node-{number:05}",
                cpu="16",
                memory="64Gi",
                zone=f"zone-{number % 3}",
                labels={"disk": random.choice(["ssd", "hdd"])},
                taints=["dedicated=gpu:NoSchedule"] if number % 10 == 0 else [],
                unschedulable=number % 97 == 0,
            )
            for number in range(nodes)
        ],
        [
            *(
                builders.pod(
                    f"pod-{number}",
                    node=f"node-{number % nodes:05}",
                    cpu=f"{random.randint(5, 15) * 100}m",
                    memory="2Gi",
                    labels={"app": f"web-{number % 50}"},
                )
                for number in range(pods)
            ),
            probe,
        ],
    )


def cpu_seconds(rounds: int, work: Callable[[], Any]) -> float:
    """The median CPU time of some calls."""
    times = []
    for _ in range(rounds):
        began = time.process_time()
        work()
        times.append(time.process_time() - began)
    return median(times)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=5000)
    parser.add_argument("--pods", type=int, default=50000)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    for name, fields in PROBES.items():
        within = cluster(options.nodes, options.pods, builders.pod("probe", **fields))
        found = explain(within, "probe")
        full = cpu_seconds(options.rounds, lambda within=within: explain(within, "probe"))
        bare = cpu_seconds(options.rounds, lambda within=within: explain(within, "probe", counterfactuals=False))
        document = cpu_seconds(options.rounds, found.document)
        changes = len(found.counterfactuals)
        print(
            f"{name:12} {full:5.2f} s with {changes} counterfactuals, {bare:5.2f} s without, document {document:.2f} s"
        )


if __name__ == "__main__":
    main()
