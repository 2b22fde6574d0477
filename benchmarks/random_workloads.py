"""Random workloads on clusters that are too small for them, and whether two drivers have the same result.

The suite compares a dozen of them; ``python -m benchmarks drivers`` compares thousands, and published traces.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from random import Random
from typing import Any

import msgspec

from kubestow.api.core import Namespace, Node, Pod
from kubestow.api.meta import ObjectMeta, convert
from kubestow.api.policy import PodDisruptionBudget
from kubestow.engine.input.cluster_objects import ClusterObjects
from kubestow.framework.interface import Plugin
from kubestow.testing import builders
from kubestow_lab.simulation.arrivals import Arrival, Arrivals
from kubestow_lab.simulation.outcomes import OutcomeState
from kubestow_lab.simulation.simulation import Simulation, SimulationOptions
from kubestow_lab.simulation.simulation_result import SimulationResult

KIND = {"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration"}
_ZONE, _HOST = "topology.kubernetes.io/zone", "kubernetes.io/hostname"


class RandomWorkload:
    """A cluster that is or becomes too small for what arrives: pods of few shapes and priorities, which come and go.

    Half of the clusters have a few nodes, which are full soon. Of the others most pods find a node at once.
    """

    def __init__(self, seed: int) -> None:
        self._random = random = Random(seed)
        is_large = random.random() < 0.5
        soft = () if is_large and random.random() < 0.7 else ("soft=x:PreferNoSchedule",)
        self._taints: tuple[tuple[str, ...], ...] = ((), (), (), ("dedicated=x:NoSchedule",), soft)
        self._requests = ("100m", "200m", "500m", "1") if is_large else ("100m", "500m", "1", "2", "8")
        self._shapes = [self._shape(number) for number in range(random.randint(2, 6))]
        nodes = [self._node(number) for number in range(random.randint(16, 60) if is_large else random.randint(2, 9))]
        placed = [self._placed(number, random.choice(nodes).metadata.name) for number in range(random.randint(0, 9))]
        pending = [msgspec.convert(self._pod(f"early-{n}"), Pod) for n in range(random.randint(0, 3))]
        self.cluster = ClusterObjects.of(nodes, [*placed, *pending], list(self._objects()))
        count, some = (random.randint(30, 200), 3) if is_large else (random.randint(3, 50), 1)
        times = sorted(random.choice((0.0, 1.0, *(random.uniform(0, 60) for _ in range(some)))) for _ in range(count))
        durations = (None, None, 0.0, 1.0, 5.0, random.uniform(0, 30), 2 * 86400.0)
        self.arrivals = Arrivals(
            [Arrival(self._pod(f"pod-{n}"), time, random.choice(durations), {}) for n, time in enumerate(times)]
        )
        timeout = random.choice((math.inf, math.inf, 45.0))
        end = random.uniform(0, 60)
        self.options = SimulationOptions(
            seed=seed,
            ties=random.choice(("random", "name")),
            until=random.choice((None, None, None, end) if math.isinf(timeout) else (end, 200.0)),
            departures=random.random() < 0.9,
            replacements=random.random() < 0.8,
            attempt_seconds=random.choice((0.001, 0.001, 0.02, 0.3)),
            unschedulable_timeout=timeout,
            samples=random.choice((100, 3)),
        )
        self.version = random.choice(("1.36", "1.36", "1.37", "1.35", "1.34"))
        backoff = {"podInitialBackoffSeconds": 2, "podMaxBackoffSeconds": 4}
        self.configuration: Any = random.choice((None, None, KIND | {"percentageOfNodesToScore": 30}, KIND | backoff))
        self.plugins: list[type[Plugin]] = []

    def _objects(self) -> Iterator[Any]:
        yield Namespace(metadata=ObjectMeta(name="default"))
        if self._random.random() < 0.4:
            selector = {"matchLabels": {"app": "app-0"}}
            budget = {"metadata": {"name": "budget", "namespace": "default"}, "spec": {"selector": selector}}
            yield convert(PodDisruptionBudget, budget | {"status": {"disruptionsAllowed": self._random.randint(0, 2)}})

    def _node(self, number: int) -> Node:
        random = self._random
        taints = random.choice(self._taints)
        return builders.node(
            f"node-{number}",
            zone=f"zone-{number % 3}",
            cpu=str(random.choice((1, 2, 4))),
            max_pods=random.choice((110, 110, 3)),
            labels={"disk": random.choice(("ssd", "hdd"))},
            taints=taints,
            unschedulable=random.random() < 0.05,
        )

    def _shape(self, number: int) -> dict[str, Any]:
        random, labels = self._random, {"app": f"app-{number}"}
        term = {"labelSelector": {"matchLabels": labels}, "topologyKey": random.choice((_ZONE, _HOST))}
        shape: dict[str, Any] = {
            "labels": labels,
            "cpu": random.choice(self._requests),
            "memory": random.choice((None, "1Gi", "4Gi")),
            "priority": random.choice((0, 0, 10, 100)),
        }
        kind = random.choice(("plain", "plain", "plain", "spread", "affinity", "apart", "ports", "select", "gated"))
        if kind == "spread":
            when = random.choice(("DoNotSchedule", "ScheduleAnyway"))
            skew = {"maxSkew": 1, "whenUnsatisfiable": when, "topologyKey": _ZONE}
            shape["spread"] = [{**skew, "labelSelector": {"matchLabels": labels}}]
        elif kind == "affinity":
            shape["affinity"] = {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
        elif kind == "apart":
            shape["affinity"] = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
        elif kind == "ports":
            shape["host_ports"] = [8080]
        elif kind == "select":
            shape["node_selector"] = {"disk": "ssd"}
        elif kind == "gated":
            shape["gates"] = ["wait"] if random.random() < 0.3 else []
        if random.random() < 0.3:
            shape["tolerations"] = [{"key": "dedicated", "operator": "Exists"}]
        if random.random() < 0.2:
            shape["spec"] = {"preemptionPolicy": "Never"}
        if random.random() < 0.6:
            owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": f"set-{number}", "uid": f"set-{number}"}
            shape["metadata"] = {"ownerReferences": [owner | {"controller": True}]}
        return shape

    def _pod(self, name: str, **more: Any) -> Pod:
        return builders.pod(name, **self._random.choice(self._shapes), **more)

    def _placed(self, number: int, node: str) -> Pod:
        started = f"2025-12-31T00:00:{number:02d}Z"
        return self._pod(f"placed-{number}", node=node, status={"startTime": started})

    def simulation(self, driver: str = "auto") -> Simulation:
        """The simulation with a driver."""
        return Simulation(
            self.cluster,
            self.arrivals,
            self.configuration,
            self.plugins,
            options=replace(self.options, driver=driver),
            emulated_version=self.version,
        )

    def run(self, driver: str) -> SimulationResult:
        """The result with a driver; the input is the same each time."""
        return self.simulation(driver).run()

    def run_on_loaded(self, configuration: Any = None) -> SimulationResult:
        """The result on the cluster as a scheduler with another configuration has listed it."""
        simulation = self.simulation()
        other = Simulation(self.cluster, configuration=configuration, gates=simulation.gates)
        loaded = other.load_cluster()
        assert loaded is not None
        return simulation.run(loaded=loaded)


def assert_same(found: SimulationResult, expected: SimulationResult) -> None:
    """The results have the same report, and left the same objects."""
    documents = [result.as_json() for result in (found, expected)]
    for document in documents:
        document["run"] = {name: value for name, value in document["run"].items() if not name.startswith("driver")}
    assert documents[0] == documents[1]
    assert _objects_at_end(found) == _objects_at_end(expected)


def _objects_at_end(result: SimulationResult) -> list[object]:
    """What is left in the cluster, without pods that were not attempted: on an event loop one may be while it stops."""
    pending = [each for each in result.outcomes if each.state is OutcomeState.PENDING]
    untried = {(each.namespace, each.name) for each in pending if not each.attempts}
    return [
        each
        for each in result.api.all_objects()
        if not isinstance(each, Pod) or (each.metadata.namespace, each.metadata.name) not in untried
    ]
