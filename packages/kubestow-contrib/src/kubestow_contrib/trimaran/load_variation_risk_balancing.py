"""LoadVariationRiskBalancing balances the risk of high load over the nodes.

The risk of a resource is the mean of two fractions of the allocatable amount: the average usage with the pod's request
added, and the margin times the deviation to the power of 1 / sensitivity. The riskier resource, CPU or memory, decides.
"""

from __future__ import annotations

from collections.abc import Hashable

import numpy as np
from numpy.typing import NDArray

from kubestow.cluster.nodes.views import Nodes
from kubestow.cluster.pods.shapes import PodInfo
from kubestow.framework.cycle_state import CycleState
from kubestow.framework.interface import MAX_SCORE, Handle
from kubestow_contrib.trimaran.measured_nodes import MeasuredNodesPlugin, TrimaranArgs, requests

Floats = NDArray[np.float64]


class LoadVariationRiskBalancingArgs(TrimaranArgs, rename="camel", frozen=True, kw_only=True):
    """The multiplier and the root of the deviation; upstream replaces negative numbers by the default, 1."""

    safe_variance_margin: float | None = None
    safe_variance_sensitivity: float | None = None

    @property
    def margin(self) -> float:
        """The multiplier of the deviation."""
        return _or_one(self.safe_variance_margin)

    @property
    def sensitivity(self) -> float:
        """The root of the deviation."""
        return _or_one(self.safe_variance_sensitivity)


def _or_one(value: float | None) -> float:
    return 1.0 if value is None or not value >= 0 else value


class LoadVariationRiskBalancing(MeasuredNodesPlugin):
    """Prefers nodes whose load, average and deviation, is low."""

    name = "LoadVariationRiskBalancing"
    Args = LoadVariationRiskBalancingArgs

    def __init__(self, args: LoadVariationRiskBalancingArgs, handle: Handle) -> None:
        super().__init__(args, handle)
        self._margin, self._sensitivity = args.margin, args.sensitivity

    def signature(self, pod: PodInfo) -> Hashable:
        """CPU and memory that the pod requests."""
        return requests(pod.shape)

    def score(self, state: CycleState, pod: PodInfo, nodes: Nodes) -> NDArray[np.int64]:
        """The lower score of CPU and memory, of those that the node has metrics for; 0 without any."""
        columns = self._collector.usage.columns
        cpu, memory = requests(pod.shape)
        scores = [
            risk_scores(
                nodes.allocatable(resource),
                request,
                used[nodes.rows],
                deviation[nodes.rows],
                margin=self._margin,
                sensitivity=self._sensitivity,
            )
            for resource, request, used, deviation in (
                ("cpu", cpu, columns.cpu, columns.cpu_deviation),
                ("memory", memory, columns.memory, columns.memory_deviation),
            )
        ]
        lowest: Floats = np.fmin(*scores)  # NaN, a resource without metrics, loses
        return np.floor(np.nan_to_num(lowest) + 0.5).astype(np.int64)


def risk_scores(
    capacity: NDArray[np.int64], request: int, used: Floats, deviation: Floats, *, margin: float, sensitivity: float
) -> Floats:
    """The score of one resource, float64; NaN without metrics, 0 without capacity.

    ``used`` and ``deviation`` are percentages of the ``capacity``, which has the unit of the ``request``.
    """
    present = capacity > 0
    fraction = request / np.where(present, capacity, 1)
    mu = np.clip(np.clip(used / 100, 0.0, 1.0) + fraction, 0.0, 1.0)
    sigma = np.clip(deviation / 100, 0.0, 1.0)
    if sensitivity != 1:
        sigma = np.power(sigma, np.inf if sensitivity == 0 else 1 / sensitivity)
    sigma = np.clip(margin * sigma, 0.0, 1.0)
    score = (1 - (mu + sigma) / 2) * MAX_SCORE
    return np.where(present | np.isnan(used), score, 0.0)
