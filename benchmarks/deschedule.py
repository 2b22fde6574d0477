"""How long one descheduling loop takes: LowNodeUtilization and topology spread on 1,000 nodes with 50,000 pods.

    python benchmarks/deschedule.py [--nodes 1000] [--pods 50000]

The loop starts from decoded objects, as a live descheduler has them after its lists. A tenth of the nodes is nearly
empty and a fifth is full; the pods of a third of the workloads have drifted into one zone.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

from kubestow.api.meta import convert
from kubestow.descheduling.budgets import DryRunEvictions
from kubestow.descheduling.loop import Descheduler, LoopResult
from kubestow.descheduling.objects import Node, Pod
from kubestow.descheduling.policy import load_policy, with_priority_thresholds
from kubestow.descheduling.registry import find_plugins
from kubestow.descheduling.snapshot import Snapshot

_NOW = datetime(2026, 7, 1, tzinfo=UTC)
_ZONE = "topology.kubernetes.io/zone"
_ZONES = 3
_REPLICAS = 100
_POLICY: dict[str, Any] = {
    "apiVersion": "descheduler/v1alpha2",
    "kind": "DeschedulerPolicy",
    "profiles": [
        {
            "name": "benchmark",
            "pluginConfig": [
                {
                    "name": "LowNodeUtilization",
                    "args": {"thresholds": {"cpu": 30, "pods": 40}, "targetThresholds": {"cpu": 60, "pods": 70}},
                },
                {"name": "RemovePodsViolatingTopologySpreadConstraint", "args": {}},
            ],
            "plugins": {"balance": {"enabled": ["RemovePodsViolatingTopologySpreadConstraint", "LowNodeUtilization"]}},
        }
    ],
}


def main() -> None:
    """Measure a few loops and print their times."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--nodes", type=int, default=1000)
    parser.add_argument("--pods", type=int, default=50_000)
    parser.add_argument("--loops", type=int, default=3)
    options = parser.parse_args()
    registry = find_plugins()
    policy = with_priority_thresholds(load_policy(_POLICY, registry=registry), ())
    descheduler = Descheduler(policy, registry)
    snapshot = Snapshot.of([*_nodes(options.nodes), *_pods(options.pods, options.nodes)])
    for _ in range(options.loops):
        started, cpu = time.perf_counter(), time.process_time()
        result = descheduler.run(snapshot, now=_NOW, backend=DryRunEvictions(()))
        seconds, cpu = time.perf_counter() - started, time.process_time() - cpu
        print(f"{seconds:.2f} s ({cpu:.2f} s of CPU time): {_summary(result)}")


def _summary(result: LoopResult) -> str:
    by_plugin: dict[str, int] = {}
    for eviction in result.evicted:
        by_plugin[eviction.plugin] = by_plugin.get(eviction.plugin, 0) + 1
    return ", ".join(f"{plugin} evicted {count:,} pods" for plugin, count in by_plugin.items())


def _nodes(count: int) -> Iterator[Node]:
    for number in range(count):
        labels = {"kubernetes.io/hostname": f"node-{number}", _ZONE: f"zone-{number % _ZONES}"}
        amounts = {"cpu": "16", "memory": "64Gi", "pods": "110"}
        status = {"allocatable": amounts, "capacity": amounts, "conditions": [{"type": "Ready", "status": "True"}]}
        yield convert(Node, {"metadata": {"name": f"node-{number}", "labels": labels}, "status": status})


def _pods(count: int, nodes: int) -> Iterator[Pod]:
    """Pods of workloads with a spread constraint each; every tenth node gets few pods, every fifth twice as many."""
    slots = [row for row in range(nodes) for _ in range(_weight(row))]
    for number in range(count):
        workload = number // _REPLICAS
        row = slots[number * 7919 % len(slots)]
        if workload % 3 == 0 and number % 4 == 0:
            row -= row % _ZONES  # drifted into the first zone
        yield convert(Pod, _pod(number, workload, f"node-{row}"))


def _weight(row: int) -> int:
    return 1 if row % 10 == 0 else 20 if row % 5 == 1 else 10


def _pod(number: int, workload: int, node: str) -> dict[str, Any]:
    name = f"app-{workload}"
    labels = {"app": name}
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": name, "uid": name, "controller": True}
    requests = {"cpu": "150m", "memory": "256Mi"}
    constraint = {
        "maxSkew": 1,
        "topologyKey": _ZONE,
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": labels},
    }
    return {
        "metadata": {
            "name": f"{name}-{number}",
            "namespace": f"team-{workload % 20}",
            "uid": str(number),
            "labels": labels,
            "creationTimestamp": "2026-06-01T00:00:00Z",
            "ownerReferences": [owner],
        },
        "spec": {
            "nodeName": node,
            "schedulerName": "default-scheduler",
            "containers": [{"name": "main", "image": "app", "resources": {"requests": requests}}],
            "topologySpreadConstraints": [constraint],
        },
        "status": {"phase": "Running", "qosClass": "Burstable", "startTime": "2026-06-01T00:00:05Z"},
    }


if __name__ == "__main__":
    main()
