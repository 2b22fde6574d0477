"""Preemption and elastic quotas, the core alone."""

from __future__ import annotations

import cProfile
from collections.abc import Iterator, Sequence
from random import Random
from statistics import median
from time import process_time
from typing import Any

from msgspec import structs

from benchmarks.clusters import HOSTNAME, ZONE, Engine, node, pod
from benchmarks.harness import Rows, chosen
from benchmarks.measurement import print_profile
from kubestow.api.core import Node, Pod
from kubestow.api.meta import convert
from kubestow.cluster.pods.shapes import PodInfo
from kubestow.scheduling.decision.result import Unschedulable
from kubestow.testing import builders
from kubestow_contrib.capacity_scheduling import CapacityScheduling, ElasticQuota

# -- preemption --------------------------------------------------------------------------------------------------------

#: The CPU of the pods on a node together, in millicores; a node has 4000.
_USED_CPU = 3600
#: In "ports", the host ports of the pods on a node begin here; in "anti-affinity", preemptors avoid one in ten pods.
_FIRST_PORT, _ONE_IN = 8000, 10
_EXISTS = {"matchExpressions": [{"key": "app", "operator": "Exists"}]}
_QUIET = {"topologyKey": HOSTNAME, "labelSelector": {"matchLabels": {"noisy": "true"}}}
#: What preemptors have besides requests; in "ports", also a host port.
_CONSTRAINTS: dict[str, dict[str, Any]] = {
    "plain": {},
    "spread": {
        "spread": [
            {"maxSkew": 1000, "topologyKey": ZONE, "whenUnsatisfiable": "DoNotSchedule", "labelSelector": _EXISTS}
        ]
    },
    "ports": {},
    "anti-affinity": {"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [_QUIET]}}},
}


def preemption(
    nodes: int = 5000,
    pods_per_node: int = 4,
    preemptors: int = 5000,
    shapes: int = 1,
    lingering: bool = False,
    cases: Sequence[str] = ("plain",),
    seed: int = 1,
) -> Rows:
    """Preemption throughput on a full cluster of low-priority pods.

    Every preemptor is scheduled twice: in the first cycle DefaultPreemption nominates a node and selects victims; after
    their removal, the pod is placed there. CPU time. In the cases besides ``plain``, more than resources decides
    whether a preemptor fits: a hard topology ``spread`` constraint, a host port that one pod of every node has
    (``ports``), or required ``anti-affinity`` to some pods of every node. ``--shapes`` equal to ``--preemptors``
    measures preemption without results cached for an identical pod. With ``--lingering`` victims stay until all pods
    have preempted, so that thousands of nodes have nominated pods.
    """
    for case in chosen(list(_CONSTRAINTS), cases):
        engine = _full_cluster(nodes, pods_per_node, case, Random(seed))
        infos = engine.infos(
            builders.pod(
                f"high{number % shapes}-{number}",
                cpu="1500m",
                memory="500Mi",
                priority=1000,
                labels={"app": f"high{number % shapes}"},
                host_ports=[_FIRST_PORT + number % pods_per_node] if case == "ports" else [],
                **_CONSTRAINTS[case],
            )
            for number in range(preemptors)
        )
        seconds = list(_preempt(engine, infos, at_once=not lingering))
        yield (
            case,
            {
                "preemptors/s": preemptors / sum(seconds),
                "µs in the median": median(seconds) * 1e6,
                "ms for the slowest": max(seconds) * 1e3,
            },
        )


def _full_cluster(nodes: int, pods_per_node: int, case: str, random: Random) -> Engine:
    """Full nodes with pods of low, random priorities and random start times."""
    engine = Engine(node(number, memory="64Gi") for number in range(nodes))
    for number in range(nodes * pods_per_node):
        started = f"2026-01-{1 + random.randrange(28):02}T00:00:00Z"
        on_node = number // nodes
        victim = builders.pod(
            f"low-{number}",
            cpu=f"{_USED_CPU // pods_per_node}m",
            memory="500Mi",
            priority=random.randrange(10),
            node=f"node-{number % nodes:05}",
            labels={"app": "low"} | ({"noisy": str(on_node % _ONE_IN == 0).lower()} if case == "anti-affinity" else {}),
            host_ports=[_FIRST_PORT + on_node] if case == "ports" else [],
            status={"startTime": started},
        )
        engine.cluster.put_pod(engine.harness.info(victim))
    return engine


def _preempt(engine: Engine, preemptors: list[PodInfo], *, at_once: bool) -> Iterator[float]:
    """Place the preemptors; yields the CPU seconds each took."""
    for info in preemptors:
        began = process_time()
        decision = engine.pipeline.decide_by_plugins(info)
        assert isinstance(decision, Unschedulable)
        nomination = decision.post_filter.nominating_result
        assert nomination is not None and nomination.nominated_node_name, decision.message
        engine.cluster.nominate(info, nomination.nominated_node_name)
        if at_once:
            for victim in nomination.victims:
                engine.cluster.remove_pod(victim.uid)
            engine.place(info)
        yield process_time() - began


# -- quotas ------------------------------------------------------------------------------------------------------------

_CASES = ("room", "max", "min", "own-victims", "borrowed")
_PREEMPTING = ("own-victims", "borrowed")
_PROFILE = {
    "plugins": {
        "preFilter": {"enabled": [{"name": "CapacityScheduling"}]},
        "postFilter": {"enabled": [{"name": "CapacityScheduling"}], "disabled": [{"name": "*"}]},
        "reserve": {"enabled": [{"name": "CapacityScheduling"}]},
    }
}
#: What a pod requests, in millicores and MiB.
_CPU, _MEMORY = 100, 500
_BATCH = 100


def quotas(
    nodes: int = 5000, pods: int = 10_000, quotas: int = 100, cases: Sequence[str] = (), profile: bool = False
) -> Rows:
    """What elastic quotas cost: with CapacityScheduling and with the default profile, batches in turn.

    The pods of all namespaces take turns, and all nodes together have room for them. In the case ``room`` so have the
    quotas. In the others the last fifth of the pods is above them, as long as each namespace gets a multiple of five:

    - ``max``: above the maximum of their namespace, whose pods all have the same priority, so that there are no
      victims;
    - ``min``: beyond what all namespaces are guaranteed together, likewise without victims;
    - ``own-victims``: as ``max``, but these pods have a higher priority, and preempt pods of their namespace;
    - ``borrowed``: half of the namespaces use more than they are guaranteed, and the others preempt their pods.

    In the last two, the default profile has no room for the last fifth either and preempts by priority, so that both
    profiles do the same. A pod that preempts is scheduled twice, as in ``preemption``. CPU time. ``--profile`` prints
    where the time with CapacityScheduling goes as well.
    """
    for case in chosen(_CASES, cases):
        inventory = [node(number) for number in range(nodes)]
        limited = _QuotaEngine(inventory, profile=_PROFILE, plugins=[CapacityScheduling])
        if case in _PREEMPTING:
            inventory = list(_with_room_for(inventory, _within(pods)))
        plain = _QuotaEngine(inventory, plugins=[CapacityScheduling])
        for each in _quotas(case, quotas, pods // quotas):
            limited.cluster.catalog(ElasticQuota).put(each)
        created, profiler = list(_pods(case, quotas, pods)), cProfile.Profile()
        for first in range(0, len(created), _BATCH):
            plain.schedule_or_preempt(created[first : first + _BATCH])
            if profile:
                profiler.enable()
            limited.schedule_or_preempt(created[first : first + _BATCH])
            profiler.disable()
        if profile:
            print_profile(profiler)
        assert plain.preempted == limited.preempted
        yield (
            case,
            {
                "s without": plain.seconds,
                "s with quotas": limited.seconds,
                "times": limited.seconds / plain.seconds,
                "rejected": limited.rejected,
                "of them preempted": limited.preempted,
                "ms each": limited.seconds_of_rejected / max(limited.rejected, 1) * 1e3,
            },
        )


class _QuotaEngine(Engine):
    """The engine, and what it has decided; CPU seconds of all pods, and of those that were rejected at first."""

    seconds = seconds_of_rejected = 0.0
    rejected = preempted = 0

    def schedule_or_preempt(self, created: list[Pod]) -> None:
        """Schedule pods one after another."""
        for info in self.infos(created):
            began, rejected = process_time(), self.rejected
            self._schedule(info)
            seconds = process_time() - began
            self.seconds += seconds
            if self.rejected > rejected:
                self.seconds_of_rejected += seconds

    def _schedule(self, info: PodInfo) -> None:
        decision = self.pipeline.decide_by_plugins(info)
        if isinstance(decision, Unschedulable):
            self.rejected += 1
            nomination = decision.post_filter.nominating_result
            if nomination is None or not nomination.nominated_node_name:
                return
            self.preempted += 1
            self.cluster.nominate(info, nomination.nominated_node_name)
            for victim in nomination.victims:
                self.cluster.remove_pod(victim.uid)
            self.place(info)
            return
        assert decision.node_name is not None, decision.message
        self.cluster.assume(info, decision.node_name)


def _quotas(case: str, namespaces: int, pods: int) -> Iterator[ElasticQuota]:
    """The quotas of all namespaces, each of which gets ``pods`` pods."""
    for number in range(namespaces):
        if case == "borrowed":
            minimum = pods * 3 // 5 if _borrows(number, namespaces) else pods
        else:
            minimum = pods if case == "room" else _within(pods)
        maximum = minimum if case in ("max", "own-victims") else pods
        amounts = ({"cpu": f"{_CPU * count}m", "memory": f"{_MEMORY * count}Mi"} for count in (minimum, maximum))
        spec = dict(zip(("min", "max"), amounts, strict=True))
        yield convert(ElasticQuota, {"metadata": {"name": "quota", "namespace": f"team-{number}"}, "spec": spec})


def _borrows(namespace: int, namespaces: int) -> bool:
    """Whether a namespace uses more than it is guaranteed in ``borrowed``."""
    return namespace < namespaces // 2


def _within(count: int) -> int:
    """How many of so many pods come before those above the quotas."""
    return count * 4 // 5


def _pods(case: str, namespaces: int, count: int) -> Iterator[Pod]:
    """The pods in their order; in ``borrowed``, those that borrow come first."""
    numbers: Sequence[int] = range(count)
    if case == "borrowed":
        numbers = sorted(numbers, key=lambda number: not _borrows(number % namespaces, namespaces))
    for position, number in enumerate(numbers):
        preempts = case in _PREEMPTING and position >= _within(count)
        yield pod(number, namespace=f"team-{number % namespaces}", priority=10 if preempts else 0)


def _with_room_for(nodes: Sequence[Node], pods: int) -> Iterator[Node]:
    """The nodes with room for so many pods together."""
    for number, each in enumerate(nodes):
        allowed = str(pods // len(nodes) + (number < pods % len(nodes)))
        status = structs.replace(each.status, allocatable={**each.status.allocatable, "pods": allowed})
        yield structs.replace(each, status=status)
