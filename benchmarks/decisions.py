"""The core alone, without queue, binding and HTTP: decide and assume, every node scored."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import count, islice
from statistics import median
from time import process_time, thread_time
from typing import Any

import numpy as np

from benchmarks.clusters import HOSTNAME, ZONE, Engine, pod
from benchmarks.harness import Rows, chosen
from benchmarks.measurement import measured, peak_mb
from kubestow.api.apps import ReplicaSet
from kubestow.api.core import Pod, Service
from kubestow.api.meta import convert
from kubestow.api.storage import CSIStorageCapacity
from kubestow.cluster.pods.shapes import PodInfo
from kubestow.testing import builders
from kubestow.testing import nodes as make_nodes

Spec = dict[str, Any]

# -- core --------------------------------------------------------------------------------------------------------------

#: The node affinity of scheduler_perf's pods: two of three zones.
_IN_TWO_ZONES = {
    "nodeAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": {
            "nodeSelectorTerms": [
                {"matchExpressions": [{"key": ZONE, "operator": "In", "values": ["zone-0", "zone-1"]}]}
            ]
        }
    }
}
#: The Service and the ReplicaSet of pods labelled ``app: a``.
_SERVICE = {"metadata": {"name": "a", "namespace": "default"}, "spec": {"selector": {"app": "a"}}}
_REPLICA_SET = {
    "metadata": {"name": "a", "namespace": "default", "uid": "uid-a"},
    "spec": {"selector": {"matchLabels": {"app": "a"}}},
}
_OWNER = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "a", "uid": "uid-a", "controller": True}


def core(nodes: int = 5000, pods: int = 20_000, fill: int = 100_000) -> Rows:
    """Throughput of decisions for pods of five kinds, and their cost and memory as a cluster fills.

    Identical pods; pods of a ReplicaSet behind a Service (subject to the default topology spread constraints); pods
    with labels of their own as a StatefulSet gives them; pods of distinct shapes; pods with node affinity. Then the
    time per pod before and after many others are placed, and the memory of nodes and bound pods. Nodes are
    scheduler_perf's default (4 CPUs, 32 GiB, 110 pods), pods request 100m and 500 MiB.
    """
    kinds: dict[str, tuple[Callable[[int], Pod], int]] = {
        "identical pods": (pod, pods),
        "pods of a ReplicaSet behind a Service": (lambda n: pod(n, owners=[_OWNER]), pods),
        "pods with labels of their own": (lambda n: pod(n, indexed=True), pods),
        "distinct pods": (lambda n: pod(n, cpu=f"{100 + n % 50}m", memory=f"{500 * 1024 + n}Ki"), 3000),
        "pods with node affinity": (lambda n: pod(n, affinity=_IN_TWO_ZONES), pods),
    }
    for kind, (make, number) in kinds.items():
        engine = Engine(nodes)
        if "ReplicaSet" in kind:
            engine.cluster.catalog(Service).put(convert(Service, _SERVICE))
            engine.cluster.catalog(ReplicaSet).put(convert(ReplicaSet, _REPLICA_SET))
        infos = engine.infos(map(make, range(number)))
        warm_up = min(200, number // 10)
        engine.schedule(infos[:warm_up])
        yield kind, engine.schedule(infos[warm_up:]).rates(number - warm_up)
    before, engine, costs, batch = peak_mb(), Engine(nodes), [], min(5000, fill)
    for start in range(0, fill, batch):
        infos = engine.infos(pod(n, cpu="1m", memory="1Mi") for n in range(start, start + batch))
        costs.append(engine.schedule(infos).elapsed / batch * 1e6)
    yield (
        f"the last {batch:,} of {fill:,} pods",
        {"µs each": costs[-1], "µs for each of the first": costs[0], "times the first": costs[-1] / costs[0]},
    )
    yield f"memory with {fill:,} pods", {"MB at most": peak_mb(), "MB before": before}


# -- passes ------------------------------------------------------------------------------------------------------------

_PASSES, _WARM_UP = 50, 50
_KINDS: dict[str, Callable[[int], Pod]] = {
    "seen shape": pod,
    "seen shape, labels of their own": lambda number: pod(number, indexed=True),
    "ten shapes in turn": lambda number: pod(number, cpu=f"{100 + number % 10}m"),
    "new shapes": lambda number: pod(number, cpu=f"{100 + number % 50}m", memory=f"{500 * 1024 + number}Ki"),
}


def passes(nodes: int = 5000, pods: int = 2000) -> Rows:
    """The cost of a decision in passes over one column, which says more than pods/s on a shared machine.

    A pass is ``np.add`` of two int64 arrays with an entry per node, timed between the decisions. Pods of a *seen shape*
    follow copies of themselves, each of which has changed its node; each pod of a *new shape* requests something else.
    CPU time, lower quartile of all decisions.
    """
    left, right = np.arange(nodes), np.arange(nodes)
    for kind, make in _KINDS.items():
        engine = Engine(nodes)
        infos = engine.infos(map(make, range(_WARM_UP + pods)))
        engine.schedule(infos[:_WARM_UP])
        timed, decisions, placements = [], [], []
        for number, info in enumerate(infos[_WARM_UP:]):
            if number % 10 == 0:
                began = thread_time()
                for _ in range(_PASSES):
                    np.add(left, right)
                timed.append((thread_time() - began) / _PASSES)
            began = thread_time()
            node_name = engine.pipeline.decide_by_plugins(info).node_name
            decided = thread_time()
            engine.cluster.assume(info, node_name)
            decisions.append(decided - began)
            placements.append(thread_time() - decided)
        one_pass, decision, placement = (float(np.quantile(each, 0.25)) for each in (timed, decisions, placements))
        yield (
            kind,
            {
                "µs for a decision": decision * 1e6,
                "passes": decision / one_pass,
                "µs for the placement": placement * 1e6,
                "pods/s": 1 / (decision + placement),
            },
        )


# -- topology ----------------------------------------------------------------------------------------------------------


class _TopologyEngine(Engine):
    """A cluster of scheduler_perf's default nodes in three zones."""

    def __init__(self, size: int) -> None:
        super().__init__(make_nodes(size, zones=3, memory="32Gi"))
        self._numbers = count(1)
        for name in ("sched-0", "sched-1", *_NAMESPACES):
            self.cluster.put_namespace(name, {"team": "devops"} if name.startswith("devops") else {})
        service = {"metadata": {"name": "web", "namespace": "served"}, "spec": {"selector": {"app": "web"}}}
        self.cluster.catalog(Service).put(convert(Service, service))

    def pods(self, namespaces: tuple[str, ...], labels: dict[str, str], spec: Spec) -> Iterator[PodInfo]:
        """Pods with the requests of scheduler_perf's templates in the namespaces in turn, without end."""
        for number in count():
            created = builders.pod(
                f"pod-{next(self._numbers)}",
                namespace=namespaces[number % len(namespaces)],
                labels=labels,
                cpu="100m",
                memory="500Mi",
                spec=spec,
            )
            yield self.harness.info(created)

    def place_all(self, infos: list[PodInfo]) -> int:
        """Schedule one pod after another; the number of placed pods."""
        placed = 0
        for info in infos:
            decision = self.pipeline.decide_by_plugins(info)
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
class _Workload:
    """Labels, spec and namespaces of the scheduled pods, and the existing pods beside them."""

    labels: dict[str, str]
    spec: Spec
    namespaces: tuple[str, ...] = ("sched-1",)
    #: Labels and spec of the existing pods; by default those of the scheduled pods.
    beside: tuple[dict[str, str], Spec] | None = None
    #: The larger number of existing pods; at most one per node with required anti-affinity.
    many: int = 20_000


_NAMESPACES = tuple(f"devops-{number}" for number in range(100))
_DEVOPS = {"namespaceSelector": {"matchLabels": {"team": "devops"}}}
_ANTI = _required("podAntiAffinity", _term("green", HOSTNAME))
_LIKES_RED = _preferred("podAffinity", _term("red", HOSTNAME))
_ACROSS = _required("podAntiAffinity", _term("green", HOSTNAME, **_DEVOPS))
_PREFERS_ACROSS = _preferred("podAffinity", _term("green", HOSTNAME, **_DEVOPS))
_WORKLOADS = {
    "plain": _Workload({}, {}),
    "plain beside anti-affinity": _Workload({}, {}, beside=({"color": "green"}, _ANTI)),
    "plain beside preferences": _Workload({}, {}, beside=({"color": "red"}, _LIKES_RED)),
    "hard spread over zones": _Workload({"color": "blue"}, _spread(ZONE, 5, "DoNotSchedule")),
    "hard spread over hosts": _Workload({"color": "blue"}, _spread(HOSTNAME, 1, "DoNotSchedule")),
    "soft spread over zones": _Workload({"color": "blue"}, _spread(ZONE, 5, "ScheduleAnyway")),
    "default spread of a service": _Workload({"app": "web"}, {}, namespaces=("served",)),
    "required anti-affinity": _Workload({"color": "green"}, _ANTI, many=2500),
    "required affinity": _Workload({"color": "blue"}, _required("podAffinity", _term("blue", ZONE))),
    "preferred affinity": _Workload({"color": "red"}, _LIKES_RED),
    "preferred anti-affinity": _Workload({"color": "yellow"}, _preferred("podAntiAffinity", _term("yellow", HOSTNAME))),
    "anti-affinity over namespaces": _Workload({"color": "green"}, _ACROSS, _NAMESPACES, many=2500),
    "preferred affinity over namespaces": _Workload({"color": "green"}, _PREFERS_ACROSS, _NAMESPACES),
}


def topology(nodes: int = 5000, pods: int = 2000, few: int = 1000, workloads: Sequence[str] = ()) -> Rows:
    """Topology spread and inter-pod affinity, with few and with many existing pods.

    Pods are those of the scheduler_perf workloads, scheduled with the default plugins: decisions per second of elapsed
    and of CPU time. The time per pod must not grow with the existing pods.
    """
    for name in chosen(list(_WORKLOADS), workloads):
        workload = _WORKLOADS[name]
        for before in (few, workload.many):
            engine = _TopologyEngine(nodes)
            home = workload.namespaces[0] if workload.namespaces[0] != "sched-1" else "sched-0"
            existing = engine.pods((home,), *(workload.beside or (workload.labels, workload.spec)))
            names = engine.cluster.nodes.names
            for number, info in enumerate(islice(existing, before)):
                engine.cluster.assume(info, names[number % len(names)])  # feasible or not
            infos = list(islice(engine.pods(workload.namespaces, workload.labels, workload.spec), pods + 20))
            engine.place_all(infos[:20])
            gc.collect()
            with measured() as spent:
                placed = engine.place_all(infos[20:])
            rates = {"placed": placed, "pods/s": pods / spent.elapsed, "pods per CPU second": pods / spent.cpu}
            yield f"{name}, {before:,} before", rates


# -- catching up -------------------------------------------------------------------------------------------------------

_ENTRIES = (1, 20, 300, 2000, 8000, 16_000)


class _ChangingEngine(Engine):
    """A cluster, one shape whose evaluation is cached, and ways to change the cluster."""

    def __init__(self, size: int) -> None:
        super().__init__(make_nodes(size, zones=3, memory="32Gi"))
        self._numbers = count()
        self._names = list(self.cluster.nodes.names)
        self.known = self.of_cpu("100m")
        self._other = self.of_cpu("1m")

    def of_cpu(self, cpu: str) -> PodInfo:
        """A pod whose shape is determined by its CPU request."""
        metadata = {"uid": f"uid-{next(self._numbers)}"}
        return self.harness.info(builders.pod("p", cpu=cpu, memory="500Mi", metadata=metadata))

    def decision_us(self, info: PodInfo) -> float:
        """Decide about a pod; the CPU time in microseconds."""
        began = process_time()
        self.harness.pipeline.decide_by_plugins(info)
        return (process_time() - began) * 1e6

    def place_on_many(self, entries: int) -> None:
        """Place and forget pods on one node after another."""
        for number in range(max(entries, 2) // 2):
            self._place(self._names[number % len(self._names)])

    def place_on_one(self, entries: int) -> None:
        """Place and forget pods on the same node."""
        for _ in range(max(entries, 2) // 2):
            self._place(self._names[0])

    def place_on_trial(self, entries: int) -> None:
        """Try gangs of a hundred pods, and roll back."""
        for start in range(0, max(entries, 2), 100):
            with self.cluster.simulate():
                for number in range(start, min(start + 100, max(entries, 2))):
                    self.cluster.assume(self.of_cpu("1m"), self._names[number % len(self._names)])
                    if number == start:
                        self.decision_us(self.known)

    def change_others(self, entries: int) -> None:
        """Change objects that no result for the pod depends on."""
        for number in range(entries):
            version = str(next(self._numbers))
            metadata = {"name": f"c-{number % 100}", "namespace": "default", "resourceVersion": version}
            capacity = convert(CSIStorageCapacity, {"metadata": metadata, "storageClassName": "s"})
            self.cluster.catalog(CSIStorageCapacity).put(capacity)

    def _place(self, node_name: str) -> None:
        self.cluster.assume(self._other, node_name)
        self.cluster.forget(self._other.uid)


def catch_up(nodes: int = 5000, rounds: int = 15, entries: Sequence[int] = _ENTRIES) -> Rows:
    """What it costs to use an evaluation again after many changes of the cluster.

    An evaluation is cached; then the journal grows by a number of entries; then the next pod of the same shape is
    decided. The entries are pods placed and forgotten on many nodes, on one node, or in a simulation that is rolled
    back (as gangs are tried), and changes that no result depends on. For comparison, a decision for a new shape.
    Medians of the CPU time, without garbage collection.
    """
    engine = _ChangingEngine(nodes)
    changes = {
        "pods on many nodes": engine.place_on_many,
        "pods on one node": engine.place_on_one,
        "gangs on trial": engine.place_on_trial,
        "irrelevant changes": engine.change_others,
    }
    gc.disable()
    engine.decision_us(engine.known)
    fresh = median(engine.decision_us(engine.of_cpu(f"{200 + n}m")) for n in range(5 * rounds))
    yield "a new shape", {"µs": fresh}
    for name, change in changes.items():
        costs = {}
        for size in entries:
            samples = []
            for _ in range(rounds):
                gc.collect()
                engine.decision_us(engine.known)
                change(size)
                samples.append(engine.decision_us(engine.known))
            costs[f"µs after {size:,}"] = median(samples)
        yield name, costs
    gc.enable()
