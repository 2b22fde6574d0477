"""LowRiskOverCommitment avoids nodes where pods could use more than there is, and probably do.

The risk of a resource has two parts, weighted by ``riskLimitWeights``. One is the share of the burstable amount, from
requests to limits, that exceeds the capacity. The other is the probability that the load exceeds what the pods on the
node request, under a beta distribution with the measured average and deviation. The riskier resource, CPU or memory,
decides. Pods without requests and limits score 0 everywhere.
"""

from __future__ import annotations

import math
from collections.abc import Hashable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from kubestow.cluster.changes.events import Action, EventResource
from kubestow.cluster.nodes.views import NodeRow, Nodes
from kubestow.cluster.pods.shapes import PodInfo, Shape
from kubestow.cluster.topology.counters import PodCounter
from kubestow.config import ExtensionPoint
from kubestow.framework.cycle_state import CycleState
from kubestow.framework.event_registration import on
from kubestow.framework.interface import MAX_SCORE, Handle
from kubestow_contrib.trimaran.beta_distribution import (
    LEAST_DEVIATION,
    BetaParameters,
    cumulative,
    cumulative_of_one,
    match_moments,
)
from kubestow_contrib.trimaran.measured_nodes import MeasuredNodesPlugin, TrimaranArgs, limits, requests

Floats = NDArray[np.float64]
Int64s = NDArray[np.int64]

_RESOURCES = ("cpu", "memory")
#: The deviation stays below the maximum for a beta distribution by this factor of the variance.
_VARIANCE_ALLOWANCE = 0.99


class LowRiskOverCommitmentArgs(TrimaranArgs, rename="camel", frozen=True, kw_only=True):
    """Over how many windows load is smoothed, and the weights of the limits' risk (0 to 1) by resource.

    Upstream replaces values out of range by the defaults, 5 and 0.5.
    """

    smoothing_window_size: int | None = None
    risk_limit_weights: dict[str, float] | None = None

    @property
    def window(self) -> int:
        """The number of windows."""
        return self.smoothing_window_size if self.smoothing_window_size and self.smoothing_window_size > 0 else 5

    def weight(self, resource: str) -> float:
        """The weight of the limits' risk."""
        weight = (self.risk_limit_weights or {}).get(resource, 0.5)
        return weight if 0 <= weight <= 1 else 0.5


class Amounts(NamedTuple):
    """Requests and limits of the pods on each node, and the capacity, of one resource: int64 per node."""

    requests: Int64s
    limits: Int64s
    capacity: Int64s


class _LoadDistribution(NamedTuple):
    """The load of one resource per node, as fractions of the capacity: mean and deviation, and the distribution.

    ``by_row`` has the same in Python numbers, a tuple for each row: mean, deviation, alpha, beta and log_beta.
    """

    mean: Floats
    deviation: Floats
    parameters: BetaParameters
    by_row: list[tuple[float, ...]]


class LowRiskOverCommitment(MeasuredNodesPlugin):
    """Prefers nodes where limits exceed the capacity little, and the load rarely exceeds the requests."""

    name = "LowRiskOverCommitment"
    Args = LowRiskOverCommitmentArgs
    inert_at = (ExtensionPoint.PRE_SCORE,)
    events_to_register = (
        on(EventResource.ASSIGNED_POD, Action.ALL | Action.UPDATE_POD_SCALE_UP, requeues=False),
        *MeasuredNodesPlugin.events_to_register,
    )

    def __init__(self, args: LowRiskOverCommitmentArgs, handle: Handle) -> None:
        super().__init__(args, handle)
        self._weights = [args.weight(resource) for resource in _RESOURCES]
        self._spread = float(args.window) ** 0.5
        self._counters = [
            (self._counter("requests", index), self._counter("limits", index)) for index in range(len(_RESOURCES))
        ]
        self._loads: tuple[tuple[int, int], list[_LoadDistribution]] | None = None

    def signature(self, pod: PodInfo) -> Hashable:
        """Requests and limits of CPU and memory."""
        return requests(pod.shape), limits(pod.shape)

    def score(self, state: CycleState, pod: PodInfo, nodes: Nodes) -> NDArray[np.int64]:
        """100 x (1 - risk); 0 for pods without requests and limits, and on nodes without metrics."""
        requested, limited = requests(pod.shape), limits(pod.shape)
        if not any((*requested, *limited)):
            return np.zeros(len(nodes), np.int64)
        risk = np.zeros(len(nodes))
        measured = np.zeros(len(nodes), np.bool_)
        for index, load in enumerate(self._distributions()):
            request_counter, limit_counter = self._counters[index]
            on_node = Amounts(
                request_counter.by_row[nodes.rows],
                limit_counter.by_row[nodes.rows],
                nodes.allocatable(_RESOURCES[index]),
            )
            mean, deviation = load.mean[nodes.rows], load.deviation[nodes.rows]
            of_load = np.nan_to_num(load_risk(on_node, mean, deviation, load.parameters.at(nodes.rows)))
            with_pod = Amounts(on_node.requests + requested[index], on_node.limits + limited[index], on_node.capacity)
            weight = self._weights[index]
            total = weight * limit_risk(with_pod) + (1 - weight) * of_load
            risk = np.maximum(risk, np.clip(total, 0.0, 1.0))
            measured |= ~np.isnan(mean)
        return np.where(measured, np.floor((1 - risk) * MAX_SCORE + 0.5), 0).astype(np.int64)

    def score_row(self, state: CycleState, pod: PodInfo, node: NodeRow) -> int:
        """The same for a single node."""
        requested, limited = requests(pod.shape), limits(pod.shape)
        if not any((*requested, *limited)):
            return 0
        row, risk, measured = node.row, 0.0, False
        for index, load in enumerate(self._distributions()):
            request_counter, limit_counter = self._counters[index]
            requests_there, limits_there = request_counter.by_row.item(row), limit_counter.by_row.item(row)
            capacity = node.allocatable(_RESOURCES[index])
            of_load, load_there = 0.0, load.by_row[row]
            if not math.isnan(load_there[0]):
                measured = True
                of_load = _load_risk_of_one(requests_there, limits_there, capacity, load_there)
            requests_with, limits_with = requests_there + requested[index], limits_there + limited[index]
            of_limits = 0.0
            if limits_with > capacity:
                of_limits = (limits_with - capacity) / (limits_with - min(requests_with, capacity))
            weight = self._weights[index]
            risk = max(risk, min(max(weight * of_limits + (1 - weight) * of_load, 0.0), 1.0))
        return math.floor((1 - risk) * MAX_SCORE + 0.5) if measured else 0

    def _distributions(self) -> list[_LoadDistribution]:
        """The load of each resource over all rows, as of the latest samples."""
        usage = self._collector.usage
        key = usage.table.structure, usage.version
        if self._loads is None or self._loads[0] != key:
            columns = usage.columns
            measured = ((columns.cpu, columns.cpu_deviation), (columns.memory, columns.memory_deviation))
            self._loads = key, [self._distribution(*percentages) for percentages in measured]
        return self._loads[1]

    def _distribution(self, used: Floats, deviation: Floats) -> _LoadDistribution:
        mean = np.clip(used / 100, 0.0, 1.0)
        widest = np.sqrt(np.clip(mean * (1 - mean), 0.0, None) * _VARIANCE_ALLOWANCE)
        spread = np.minimum(np.clip(deviation / 100, 0.0, 1.0) * self._spread, widest)
        spread[spread < LEAST_DEVIATION] = 0.0
        parameters = match_moments(mean, spread)
        by_row = zip(*(column.tolist() for column in (mean, spread, *parameters)), strict=True)
        return _LoadDistribution(mean, spread, parameters, list(by_row))

    def _counter(self, what: str, index: int) -> PodCounter:
        amounts = requests if what == "requests" else limits

        def amount(shape: Shape) -> int:
            return amounts(shape)[index]

        return self.handle.cluster.counter((self.name, what, index), amount, terminating=True)


def _load_risk_of_one(requests: int, limits: int, capacity: int, load: tuple[float, ...]) -> float:
    """As :func:`load_risk`, for one row with metrics."""
    mean, deviation, alpha, beta, log_beta = load
    scale, allocated = max(capacity, 1), min(requests, capacity)
    threshold = min(max(allocated / scale, 0.0), 1.0)
    limited = limits < capacity and allocated <= limits
    if limited and limits == 0:
        return 0.0
    if math.isnan(log_beta):
        return 0.0 if mean == 0 or (deviation == 0 and mean <= threshold) else 1.0
    probability = cumulative_of_one(alpha, beta, log_beta, threshold)
    if limited:
        at_limit = probability
        if limits != allocated:
            at_limit = cumulative_of_one(alpha, beta, log_beta, min(limits / scale, 1.0))
        if at_limit > 0:
            probability = min(probability / at_limit, 1.0)
    return 1 - probability


def limit_risk(amounts: Amounts) -> Floats:
    """The share of the amount between requests and limits that exceeds the capacity, float64."""
    excess = amounts.limits - amounts.capacity
    burstable = amounts.limits - np.minimum(amounts.requests, amounts.capacity)
    share = np.zeros(len(excess))
    np.divide(excess, burstable, out=share, where=excess > 0)
    return share


def load_risk(amounts: Amounts, mean: Floats, deviation: Floats, parameters: BetaParameters) -> Floats:
    """The probability that the load exceeds what is requested, float64; NaN without metrics.

    Given that it does not exceed the limits, where these are below the capacity.
    """
    capacity = np.where(amounts.capacity > 0, amounts.capacity, 1)
    allocated = np.minimum(amounts.requests, amounts.capacity)
    threshold = np.clip(allocated / capacity, 0.0, 1.0)
    certain = ((mean == 0) | ((deviation == 0) & (mean <= threshold))).astype(np.float64)
    below = cumulative(parameters, threshold)
    is_distributed = ~np.isnan(below)
    probability = np.where(is_distributed, below, certain)
    limited = (amounts.limits < amounts.capacity) & (allocated <= amounts.limits)
    if limited.any():
        at_limit = cumulative(parameters, np.clip(amounts.limits / capacity, 0.0, 1.0))
        scaled = np.ones(len(threshold))
        conditioned = limited & is_distributed & (at_limit > 0)
        np.divide(probability, at_limit, out=scaled, where=conditioned)
        probability = np.where(conditioned, np.clip(scaled, 0.0, 1.0), probability)
        probability = np.where(limited & (amounts.limits == 0), 1.0, probability)
    return np.where(np.isnan(mean), np.nan, 1 - probability)
