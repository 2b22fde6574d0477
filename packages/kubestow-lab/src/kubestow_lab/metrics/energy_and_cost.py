"""What each node had at every moment of a simulation, and what follows: power, energy, emissions, cost, fairness.

The timeline of a result has samples of the whole cluster. Here each binding and each end of a pod is an event of its
node, so that integrals over time are exact.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import msgspec
import numpy as np
from numpy.typing import NDArray

from kubestow.api.core import Node, Pod
from kubestow.engine.input.cluster_objects import ClusterObjects
from kubestow.errors import InputError
from kubestow.rules.requests import allocatable_amounts, requests_by_spec
from kubestow_lab.metrics.run_metrics import Metric, Unit
from kubestow_lab.simulation.arrivals import Arrivals
from kubestow_lab.simulation.outcomes import Origin, OutcomeState
from kubestow_lab.simulation.simulation_result import SimulationResult

V = TypeVar("V")
Floats = NDArray[np.float64]
_HOUR = 3600.0
_JOULES_PER_KWH = 3.6e6

USAGE_METRICS: Mapping[str, Metric] = {
    metric.name: metric
    for metric in (
        Metric("power", Unit.WATTS, -1, "power of all nodes at the end, by the power model", "Fan et al., ISCA 2007"),
        Metric("meanPower", Unit.WATTS, -1, "mean of the power over time", "Fan et al., ISCA 2007"),
        Metric("energy", Unit.KILOWATT_HOURS, -1, "integral of the power over time", "Fan et al., ISCA 2007"),
        Metric("emissionRate", Unit.KILOGRAMS_PER_HOUR, -1, "power of each node at the end times its carbon intensity"),
        Metric("emissions", Unit.KILOGRAMS, -1, "integral over time of the power of each node times its intensity"),
        Metric("cost", Unit.MONEY, -1, "price per hour of the nodes with pods at the end"),
        Metric("totalCost", Unit.MONEY, -1, "price of each node for the time in which it had pods"),
        Metric(
            "finishTimeFairness",
            Unit.RATIO,
            -1,
            "greatest quotient, over namespaces, of the time from first arrival to last end and of the least time that"
            " the namespace needs on an equal part of the cluster",
            "Mahajan et al. (Themis), NSDI 2020",
        ),
    )
}
"""The metrics that need the workload, and power models or prices, by name."""


class NodePrices(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The price per hour of a node in use, by the value of a label."""

    label: str
    values: dict[str, float]

    def __post_init__(self) -> None:
        if any(not 0 <= price < math.inf for price in self.values.values()):
            raise ValueError("expected prices that are not negative")

    def of_nodes(self, nodes: Sequence[Node], subject: str) -> dict[str, float]:
        """The price of each node by name. Raises InputError for a node without one; ``subject`` names the file."""
        return {node.metadata.name: _by_label(self.label, self.values, node, subject, "prices") for node in nodes}


class NodePower(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """The power of a node in watts.

    ``idle`` is that of the node without pods, ``busy`` with all its CPU requested, and linear in between (Fan, Weber
    and Barroso, "Power Provisioning for a Warehouse-sized Computer", ISCA 2007). Each GPU adds ``gpu_idle``, and up to
    ``gpu_busy`` in proportion to what is requested of it. A node that ``sleeps`` without pods then has no power.
    """

    idle: float
    busy: float
    gpu_idle: float = 0.0
    gpu_busy: float = 0.0
    sleeps: bool = False

    def __post_init__(self) -> None:
        if not (0 <= self.idle <= self.busy < math.inf and 0 <= self.gpu_idle <= self.gpu_busy < math.inf):
            raise ValueError("expected 0 <= idle <= busy and 0 <= gpuIdle <= gpuBusy")


class NodePowers(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """The power of nodes by the value of a label; ``gpu_resource`` is the resource whose requests make GPUs busy.

    ``gpus_per_unit`` is how many GPUs one of it is, 0.001 for thousandths.
    """

    label: str
    values: dict[str, NodePower]
    gpu_resource: str = "nvidia.com/gpu"
    gpus_per_unit: float = 1.0

    def of_nodes(self, nodes: Sequence[Node], subject: str) -> dict[str, NodePower]:
        """The power of each node by name. Raises InputError for a node without one; ``subject`` names the file."""
        return {node.metadata.name: _by_label(self.label, self.values, node, subject, "power") for node in nodes}


class CarbonIntensities(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Grams of CO2 equivalent per kilowatt-hour, by the value of a node label, such as the zone."""

    values: dict[str, float]
    label: str = "topology.kubernetes.io/zone"

    def __post_init__(self) -> None:
        if any(not 0 <= intensity < math.inf for intensity in self.values.values()):
            raise ValueError("expected intensities that are not negative")

    def of_nodes(self, nodes: Sequence[Node], subject: str) -> dict[str, float]:
        """The intensity of each node by name. Raises InputError for a node without one; ``subject`` names the file."""
        return {node.metadata.name: _by_label(self.label, self.values, node, subject, "carbon") for node in nodes}


def _by_label(label: str, values: Mapping[str, V], node: Node, subject: str, place: str) -> V:
    value = node.metadata.labels.get(label, "")
    if value not in values:
        has = f"has the label {label}={value}" if value else f"has no label {label}"
        what = {"prices": "price", "power": "power", "carbon": "carbon intensity"}[place]
        raise InputError(subject, f"no {what} for node {node.metadata.name}, which {has}", place=f"{place}.values")
    return values[value]


@dataclass(frozen=True, slots=True)
class _Changes:
    """Changes of nodes in order of the node, then of time; the arrays have one entry per change.

    ``first`` marks the first change of a node: its state before all events. ``pods`` and ``requested`` are the state
    after the change.
    """

    node: NDArray[np.intp]
    time: Floats
    first: NDArray[np.bool_]
    pods: NDArray[np.int64]
    requested: Mapping[str, Floats]


class NodeUsage:
    """What each node of a simulation had over time: its pods, and what they request."""

    def __init__(self, cluster: ClusterObjects, arrivals: Arrivals, result: SimulationResult) -> None:
        """``cluster`` and ``arrivals`` are those that were simulated with this result."""
        self._cluster, self._result = cluster, result
        self._names = [node.metadata.name for node in cluster.nodes]
        self._row = {name: row for row, name in enumerate(self._names)}
        amounts = [allocatable_amounts(node.status.allocatable) for node in cluster.nodes]
        self._allocatable = {
            name: np.array([each.get(name, 0) for each in amounts], dtype=float) for name in result.resources
        }
        self._requests = _requests_by_pod(cluster, arrivals, result)
        self._end = result.timeline[-1].time
        self._changes = self._changes_of_nodes()

    # -- metrics -----------------------------------------------------------------------------------------------------

    def metrics(
        self,
        *,
        prices: NodePrices | None = None,
        powers: NodePowers | None = None,
        intensities: CarbonIntensities | None = None,
        subject: str = "metrics",
    ) -> dict[str, float]:
        """The metrics of :data:`USAGE_METRICS`: those of cost with ``prices``, of power with ``powers``.

        Those of emissions need ``powers`` and ``intensities``. ``finishTimeFairness`` is missing if no namespace has
        completed all its pods. Raises InputError for nodes without a price, power or intensity; ``subject`` is where
        these come from.
        """
        values: dict[str, float] = {}
        if powers is not None:
            of_nodes = self._watts(powers, subject)
            times, watts = self._total(of_nodes)
            energy = _integral(times, watts, self._end)
            values |= {"power": float(watts[-1]), "energy": energy / _JOULES_PER_KWH}
            values["meanPower"] = energy / self._end if self._end else float(watts[-1])
            if intensities is not None:
                grams = intensities.of_nodes(self._cluster.nodes, subject)
                kilograms = np.array([grams[name] for name in self._names])[self._changes.node] / 1000
                times, rate = self._total(of_nodes / 1000 * kilograms)
                values |= {"emissionRate": float(rate[-1]), "emissions": _integral(times, rate, self._end) / _HOUR}
        if prices is not None:
            by_name = prices.of_nodes(self._cluster.nodes, subject)
            values["cost"] = node_cost(self._result, by_name)
            of_rows = np.array([by_name[name] for name in self._names])
            times, rate = self._total(np.where(self._changes.pods > 0, of_rows[self._changes.node], 0.0))
            values["totalCost"] = _integral(times, rate, self._end) / _HOUR
        fairness = self._finish_time_fairness()
        return values if fairness is None else values | {"finishTimeFairness": fairness}

    def power_over_time(self, powers: NodePowers, subject: str = "metrics") -> tuple[Floats, Floats]:
        """Times in seconds at which the power of the cluster changes, and the power in watts from each of them on."""
        return self._total(self._watts(powers, subject))

    def requested_over_time(self, resource: str) -> tuple[Floats, Floats]:
        """Times in seconds, and the requested share of a resource of the whole cluster from each of them on, 0 to 1."""
        total = float(self._allocatable[resource].sum())
        return self._total(self._changes.requested[resource] / total)

    def partial_nodes_over_time(self, resource: str) -> tuple[Floats, Floats]:
        """Times in seconds, and the metric ``partialNodes`` of a resource from each of them on: a share, 0 to 1."""
        allocatable, requested = self._allocatable[resource], self._changes.requested[resource]
        partial = (requested > 0) & (requested < allocatable[self._changes.node])
        return self._total(partial / float(np.count_nonzero(allocatable)))

    def _watts(self, powers: NodePowers, subject: str) -> Floats:
        """The power of the changed node after each change."""
        by_name = powers.of_nodes(self._cluster.nodes, subject)
        models = [by_name[name] for name in self._names]
        changes = self._changes
        idle, busy, gpu_idle, gpu_busy = (
            np.array([getattr(model, field) for model in models])[changes.node]
            for field in ("idle", "busy", "gpu_idle", "gpu_busy")
        )
        nothing = np.zeros(len(self._names))
        cpu = self._allocatable.get("cpu", nothing)[changes.node]
        used = np.divide(changes.requested.get("cpu", 0.0 * cpu), cpu, out=0.0 * cpu, where=cpu > 0)
        gpus = self._allocatable.get(powers.gpu_resource, nothing)[changes.node] * powers.gpus_per_unit
        busy_gpus = changes.requested.get(powers.gpu_resource, 0.0 * cpu) * powers.gpus_per_unit
        watts = idle + (busy - idle) * np.minimum(used, 1.0)
        watts += gpus * gpu_idle + np.minimum(busy_gpus, gpus) * (gpu_busy - gpu_idle)
        asleep = np.array([model.sleeps for model in models])[changes.node] & (changes.pods == 0)
        return np.where(asleep, 0.0, watts)

    def _finish_time_fairness(self) -> float | None:
        """Themis' rho, whose ideal time is here a lower bound: the work fits perfectly, the longest pod is not cut."""
        groups: dict[str, list[int]] = {}
        outcomes = [outcome for outcome in self._result.outcomes if outcome.origin is not Origin.CLUSTER]
        for index, outcome in enumerate(outcomes):
            groups.setdefault(outcome.namespace, []).append(index)
        ratios = []
        for indexes in groups.values():
            of_group = [outcomes[index] for index in indexes]
            final = [each for each in of_group if each.state is not OutcomeState.PREEMPTED]
            if not final or any(each.state is not OutcomeState.COMPLETED for each in final):
                continue
            runs = [(each.ended or 0.0) - (each.bound or 0.0) for each in final]
            needed = max(runs)
            for name, allocatable in self._allocatable.items():
                work = sum(
                    run * self._requests.get(each.key, {}).get(name, 0) for run, each in zip(runs, final, strict=True)
                )
                if allocatable.sum():
                    needed = max(needed, len(groups) * work / float(allocatable.sum()))
            taken = max(each.ended or 0.0 for each in final) - min(each.arrived for each in of_group)
            if needed:
                ratios.append(taken / needed)
        return max(ratios, default=None)

    # -- events ------------------------------------------------------------------------------------------------------

    def _changes_of_nodes(self) -> _Changes:
        rows, times, signs, keys = [], [], [], []
        for pod in self._cluster.pods:
            if pod.spec.node_name in self._row:
                rows.append(self._row[pod.spec.node_name])
                times.append(0.0)
                signs.append(1)
                keys.append(f"{pod.metadata.namespace}/{pod.metadata.name}")
        for outcome in self._result.outcomes:
            row = self._row.get(outcome.node)
            if row is None:
                continue
            if outcome.origin is not Origin.CLUSTER and outcome.bound is not None:
                rows.append(row)
                times.append(outcome.bound)
                signs.append(1)
                keys.append(outcome.key)
            if outcome.ended is not None and (outcome.origin is Origin.CLUSTER or outcome.bound is not None):
                rows.append(row)
                times.append(outcome.ended)
                signs.append(-1)
                keys.append(outcome.key)
        count, nodes = len(rows), len(self._names)
        # Each node starts with an event that changes nothing, before all others.
        node = np.array([*range(nodes), *rows], dtype=np.intp)
        time = np.array([*([0.0] * nodes), *times])
        order = np.lexsort((np.r_[np.zeros(nodes, int), np.arange(1, count + 1)], time, node))
        first = np.zeros(nodes + count, dtype=bool)
        first[:nodes] = True
        sign = np.array([*([0] * nodes), *signs], dtype=np.int64)
        requested = {}
        for name in self._result.resources:
            amounts = [0.0] * nodes
            amounts += [
                float(part * self._requests.get(key, {}).get(name, 0)) for part, key in zip(signs, keys, strict=True)
            ]
            requested[name] = _running_sums(np.array(amounts)[order], first[order])
        pods = _running_sums(sign[order].astype(float), first[order]).astype(np.int64)
        return _Changes(node[order], time[order], first[order], pods, requested)

    def _total(self, values: Floats) -> tuple[Floats, Floats]:
        """The sum over nodes of a value after each change, as times and the sums from each of them on."""
        before = np.where(self._changes.first, 0.0, np.roll(values, 1))
        order = np.argsort(self._changes.time, kind="stable")
        times, sums = self._changes.time[order], np.cumsum((values - before)[order])
        last = np.append(times[1:] != times[:-1], True)  # of several changes at one time
        return times[last], sums[last]


def node_cost(result: SimulationResult, prices: Mapping[str, float]) -> float:
    """The metric ``cost``: the price per hour of the nodes with pods at the end, given that of each node by name."""
    return float(sum(prices[state.name] for state in result.nodes if state.pods))


def _requests_by_pod(
    cluster: ClusterObjects, arrivals: Arrivals, result: SimulationResult
) -> Mapping[str, Mapping[str, int]]:
    """The requests of each pod by namespace/name; a replacement that is gone has those of its owner's other pods."""
    known: dict[int, Mapping[str, int]] = {}
    by_key: dict[str, Mapping[str, int]] = {}
    by_owner: dict[tuple[str, str], Mapping[str, int]] = {}
    arrived = (arrival.pod for arrival in arrivals.pods)
    for pod in (*cluster.pods, *arrived, *result.api.objects(Pod).values()):
        requests = known.get(id(pod.spec))
        if requests is None:
            requests = known[id(pod.spec)] = requests_by_spec(pod)
        by_key[f"{pod.metadata.namespace}/{pod.metadata.name}"] = requests
        if controller := pod.metadata.controller:
            by_owner[pod.metadata.namespace, f"{controller.kind}/{controller.name}"] = requests
    for outcome in result.outcomes:
        if outcome.key not in by_key:
            by_key[outcome.key] = by_owner.get((outcome.namespace, outcome.owner), {})
    return by_key


def _running_sums(values: Floats, first: NDArray[np.bool_]) -> Floats:
    """Sums from the first value of each group to each value; ``first`` marks the first of a group."""
    sums = np.cumsum(values)
    starts = np.flatnonzero(first)
    before = np.repeat(sums[starts] - values[starts], np.diff(np.append(starts, len(values))))
    return sums - before


def mean_between(times: Floats, values: Floats, start: float, end: float) -> float:
    """The mean over a span of time of a value that stays from each time until the next."""
    return float((values * _seconds_within(times, start, end)).sum() / (end - start))


def median_between(times: Floats, values: Floats, start: float, end: float) -> float:
    """The value that such a value is at most for half of a span of time."""
    order = np.argsort(values, kind="stable")
    reached = np.cumsum(_seconds_within(times, start, end)[order])
    return float(values[order][np.searchsorted(reached, (end - start) / 2)])


def _seconds_within(times: Floats, start: float, end: float) -> Floats:
    """For how long of the span each value is valid."""
    return np.diff(np.clip(np.append(times, np.inf), start, end))


def _integral(times: Floats, values: Floats, end: float) -> float:
    """The integral of a value that stays from each time until the next, and until the end."""
    return float((values * np.diff(np.append(times, end))).sum())
