"""Topology spread and inter-pod affinity on 5,000 nodes.

    .venv/bin/python benchmarks/topology.py [--nodes 5000] [--pods 2000] [SCENARIO ...]

Pods are those of the scheduler_perf workloads. Each is scheduled with the default plugins, every node scored, and then
assumed, so the result is the throughput of the core: decisions per second of wall-clock and of CPU time. Every scenario
runs with few and with many existing pods, because the time per pod must not grow with them.
"""

from __future__ import annotations

import argparse
import gc
import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from random import Random
from typing import Any

from kubestow import testing
from kubestow.api.core import Service
from kubestow.api.meta import convert
from kubestow.cluster.pods.shapes import PodInfo
from kubestow.scheduling.decision.node_selection import RandomTie
from kubestow.scheduling.decision.pipeline import DecisionPipeline
from kubestow.testing import nodes, pod

ZONE, HOST = "topology.kubernetes.io/zone", "kubernetes.io/hostname"

Spec = dict[str, Any]


class TopologyBenchmark(testing.PluginHarness):
    """A cluster of scheduler_perf's default nodes in three zones."""

    def __init__(self, size: int) -> None:
        super().__init__(nodes(size, zones=3, memory="32Gi"))
        self.pipeline = DecisionPipeline(self.cluster, self.profiles, RandomTie(Random(1)))
        self._pods = 0
        for name in ("sched-0", "sched-1", *(f"devops-{number}" for number in range(100))):
            self.cluster.put_namespace(name, {"team": "devops"} if name.startswith("devops") else {})
        service = {"metadata": {"name": "web", "namespace": "served"}, "spec": {"selector": {"app": "web"}}}
        self.cluster.catalog(Service).put(convert(Service, service))

    def make(self, namespace: str, labels: dict[str, str], spec: Spec) -> PodInfo:
        """A pod with the requests of scheduler_perf's templates."""
        self._pods += 1
        name = f"pod-{self._pods}"
        return self.info(pod(name, namespace=namespace, labels=labels, cpu="100m", memory="500Mi", spec=spec))

    def fill(self, pods: Iterator[PodInfo], count: int) -> None:
        """Assume pods on the nodes in turn, feasible or not."""
        names = self.cluster.nodes.names
        for number, info in enumerate(islice(pods, count)):
            self.cluster.assume(info, names[number % len(names)])

    def place(self, pods: list[PodInfo]) -> int:
        """Schedule one pod after another; the number of placed pods."""
        placed = 0
        for info in pods:
            decision = self.pipeline.decide(info)
            if decision.node_name is not None:
                self.cluster.assume(info, decision.node_name)
                placed += 1
        return placed


def _spread(key: str, skew: int, action: str) -> Spec:
    selector = {"matchLabels": {"color": "blue"}}
    constraint = {"maxSkew": skew, "topologyKey": key, "whenUnsatisfiable": action, "labelSelector": selector}
    return {"topologySpreadConstraints": [constraint]}


def _term(color: str, key: str, **namespaces: Any) -> Spec:
    return {"labelSelector": {"matchLabels": {"color": color}}, "topologyKey": key} | (
        namespaces or {"namespaces": ["sched-1", "sched-0"]}
    )


def _required(kind: str, term: Spec) -> Spec:
    return {"affinity": {kind: {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}}


def _preferred(kind: str, term: Spec) -> Spec:
    weighted = {"weight": 1, "podAffinityTerm": term}
    return {"affinity": {kind: {"preferredDuringSchedulingIgnoredDuringExecution": [weighted]}}}


@dataclass(frozen=True)
class Scenario:
    """The scheduled pods and the existing pods of a measurement."""

    labels: dict[str, str]
    spec: Spec
    namespaces: tuple[str, ...] = ("sched-1",)
    #: Labels and spec of the existing pods; by default those of the scheduled pods.
    beside: tuple[dict[str, str], Spec] | None = None
    #: The small and the large number of existing pods; at most one per node with required anti-affinity.
    few: int = 1000
    many: int = 20000

    def pods(self, benchmark: TopologyBenchmark) -> Iterator[PodInfo]:
        """The scheduled pods, an endless iterator over the namespaces in turn."""
        number = 0
        while True:
            yield benchmark.make(self.namespaces[number % len(self.namespaces)], self.labels, self.spec)
            number += 1

    def others(self, benchmark: TopologyBenchmark) -> Iterator[PodInfo]:
        """The existing pods, an endless iterator."""
        labels, spec = self.beside or (self.labels, self.spec)
        while True:
            yield benchmark.make(self.namespaces[0] if self.namespaces[0] != "sched-1" else "sched-0", labels, spec)


_NAMESPACES = tuple(f"devops-{number}" for number in range(100))
_DEVOPS = {"namespaceSelector": {"matchLabels": {"team": "devops"}}}
_ANTI = _required("podAntiAffinity", _term("green", HOST))

SCENARIOS = {
    "plain": Scenario({}, {}),
    "plain beside anti-affinity": Scenario({}, {}, beside=({"color": "green"}, _ANTI)),
    "plain beside preferences": Scenario(
        {}, {}, beside=({"color": "red"}, _preferred("podAffinity", _term("red", HOST)))
    ),
    "hard spread over zones": Scenario({"color": "blue"}, _spread(ZONE, 5, "DoNotSchedule")),
    "hard spread over hosts": Scenario({"color": "blue"}, _spread(HOST, 1, "DoNotSchedule")),
    "soft spread over zones": Scenario({"color": "blue"}, _spread(ZONE, 5, "ScheduleAnyway")),
    "default spread of a service": Scenario({"app": "web"}, {}, namespaces=("served",)),
    "required anti-affinity": Scenario({"color": "green"}, _ANTI, many=2500),
    "required affinity": Scenario({"color": "blue"}, _required("podAffinity", _term("blue", ZONE))),
    "preferred affinity": Scenario({"color": "red"}, _preferred("podAffinity", _term("red", HOST))),
    "preferred anti-affinity": Scenario({"color": "yellow"}, _preferred("podAntiAffinity", _term("yellow", HOST))),
    "anti-affinity over namespaces": Scenario(
        {"color": "green"}, _required("podAntiAffinity", _term("green", HOST, **_DEVOPS)), _NAMESPACES, many=2500
    ),
    "preferred affinity over namespaces": Scenario(
        {"color": "green"}, _preferred("podAffinity", _term("green", HOST, **_DEVOPS)), _NAMESPACES
    ),
}


def measure(scenario: Scenario, *, size: int, pods: int, before: int) -> tuple[int, float, float]:
    """The number of placed pods, and pods per second of wall-clock time and of CPU time."""
    benchmark = TopologyBenchmark(size)
    benchmark.fill(scenario.others(benchmark), before)
    measured = list(islice(scenario.pods(benchmark), pods + 20))
    benchmark.place(measured[:20])
    gc.collect()
    wall, processor = time.perf_counter(), time.process_time()
    placed = benchmark.place(measured[20:])
    return placed, pods / (time.perf_counter() - wall), pods / (time.process_time() - processor)


def main() -> None:
    """Run the benchmark and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("scenarios", nargs="*", metavar="SCENARIO", help=f"default: all of {', '.join(SCENARIOS)}")
    parser.add_argument("--nodes", type=int, default=5000)
    parser.add_argument("--pods", type=int, default=2000)
    options = parser.parse_args()
    print(f"{'':36}{'before':>8}{'placed':>8}{'pods/s':>9}{'per CPU s':>11}")
    for name in options.scenarios or SCENARIOS:
        scenario = SCENARIOS[name]
        for before in (scenario.few, scenario.many):
            placed, wall, processor = measure(scenario, size=options.nodes, pods=options.pods, before=before)
            print(f"{name:36}{before:8}{placed:8}{wall:9.0f}{processor:11.0f}", flush=True)


if __name__ == "__main__":
    main()
