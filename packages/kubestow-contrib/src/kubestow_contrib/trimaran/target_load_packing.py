"""TargetLoadPacking packs nodes up to a target utilization of CPU, and spreads pods above it.

The utilization of a node is what its metrics say, plus estimates of the pod and of the pods that the metrics do not
show yet: a container uses its CPU limit, or 1.5 times its request, or 1 core. Up to the target T, a utilization of U
scores T + (100 - T) U / T; above it, T (100 - U) / (100 - T).
"""

from __future__ import annotations

import math
from collections.abc import Hashable
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from kubestow.api.formats.quantity import Quantity, millis
from kubestow.cluster.changes.events import Action, EventResource
from kubestow.cluster.nodes.views import NodeRow, Nodes
from kubestow.cluster.pods.shapes import PodInfo, Shape, ShapeFamily
from kubestow.errors import InvalidQuantity
from kubestow.framework.cycle_state import CycleState
from kubestow.framework.event_registration import on
from kubestow.framework.interface import MAX_SCORE, Handle
from kubestow_contrib.node_load.recent_pods import RecentPods
from kubestow_contrib.node_load.usage import NodeCapacity
from kubestow_contrib.trimaran.measured_nodes import MeasuredNodesPlugin, TrimaranArgs, cpu_and_memory

#: How long it takes until metrics show a pod, in seconds.
_REPORTING_INTERVAL = 60.0


class TargetLoadPackingArgs(TrimaranArgs, rename="camel", frozen=True, kw_only=True):
    """The target in percent, and what a container without a CPU limit is estimated to use."""

    target_utilization: int | None = None
    default_requests: dict[str, Quantity] | None = None
    default_requests_multiplier: str | float | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.target > 100:
            raise ValueError(f"targetUtilization is {self.target}, expected 1 to 100")
        try:
            valid = math.isfinite(self.multiplier) and self.multiplier >= 0
        except ValueError:
            valid = False
        if not valid:
            multiplier = self.default_requests_multiplier
            raise ValueError(f'defaultRequestsMultiplier is "{multiplier}", expected a number such as "1.5"')
        try:
            millis((self.default_requests or {}).get("cpu", 0))
        except InvalidQuantity as error:
            raise ValueError(f"defaultRequests.cpu: {error}") from None

    @property
    def target(self) -> int:
        """The target in percent; upstream replaces 0 and negative numbers by the default."""
        return self.target_utilization if self.target_utilization and self.target_utilization > 0 else 40

    @property
    def multiplier(self) -> float:
        """By what requests are multiplied. Raises ValueError."""
        return 1.5 if self.default_requests_multiplier is None else float(self.default_requests_multiplier)

    @property
    def default_cpu(self) -> int:
        """What a container without requests and limits uses, in millicores."""
        return 1000 if self.default_requests is None else cpu_and_memory(self.default_requests)[0]


class TargetLoadPacking(MeasuredNodesPlugin):
    """Scores the CPU utilization that a node is expected to have with the pod."""

    name = "TargetLoadPacking"
    Args = TargetLoadPackingArgs
    events_to_register = (
        on(EventResource.ASSIGNED_POD, Action.ALL | Action.UPDATE_POD_SCALE_UP, requeues=False),
        *MeasuredNodesPlugin.events_to_register,
    )

    def __init__(self, args: TargetLoadPackingArgs, handle: Handle) -> None:
        super().__init__(args, handle)
        self._target, self._multiplier, self._default_cpu = args.target, args.multiplier, args.default_cpu
        self._estimates: WeakKeyDictionary[ShapeFamily, tuple[int]] = WeakKeyDictionary()
        self._capacity = NodeCapacity(self._collector.usage)
        self._recent_pods = RecentPods(handle, self._estimate, 1, self._shown_until)

    def signature(self, pod: PodInfo) -> Hashable:
        """The CPU that the pod is estimated to use."""
        return self._estimate(pod.shape)

    def score(self, state: CycleState, pod: PodInfo, nodes: Nodes) -> NDArray[np.int64]:
        """0 above 100 % and without metrics."""
        used = self._collector.usage.columns.cpu[nodes.rows]
        capacity = self._capacity.cpu(nodes)
        (recent,) = self._recent_pods.sums(nodes)
        (estimate,) = self._estimate(pod.shape)
        predicted = np.zeros(len(nodes))
        millicores = used / 100 * capacity + (recent + estimate)
        np.divide(100 * millicores, capacity, out=predicted, where=capacity != 0)
        target = float(self._target)
        below = (MAX_SCORE - target) * predicted / target + target
        above = target * (MAX_SCORE - predicted) / max(MAX_SCORE - target, 1e-9)
        score = np.where(predicted <= target, below, np.where(predicted <= MAX_SCORE, above, 0.0))
        score[np.isnan(used)] = 0.0
        return np.floor(score + 0.5).astype(np.int64)

    def score_row(self, state: CycleState, pod: PodInfo, node: NodeRow) -> int:
        """The same for a single node."""
        used, capacity = self._collector.usage.columns.cpu.item(node.row), self._capacity.cpu_of_row(node)
        if math.isnan(used):
            return 0
        (recent,) = self._recent_pods.sums_of_row(node)
        (estimate,) = self._estimate(pod.shape)
        target = float(self._target)
        millicores = used / 100 * capacity + (recent + estimate)
        predicted = 100 * millicores / capacity if capacity else 0.0
        if predicted <= target:
            score = (MAX_SCORE - target) * predicted / target + target
        else:
            score = target * (MAX_SCORE - predicted) / max(MAX_SCORE - target, 1e-9) if predicted <= MAX_SCORE else 0.0
        return math.floor(score + 0.5)

    def _react_to_collection(self) -> bool:
        return self._recent_pods.refresh()

    def _shown_until(self, node_name: str) -> float:
        sample = self._collector.usage.samples.get(node_name)
        return -math.inf if sample is None else sample.time - _REPORTING_INTERVAL

    def _estimate(self, shape: Shape) -> tuple[int]:
        """The CPU that a pod is estimated to use, in millicores."""
        estimate = self._estimates.get(shape.family)
        if estimate is None:
            estimate = self._estimates[shape.family] = (self._estimated_cpu(shape),)
        return estimate

    def _estimated_cpu(self, shape: Shape) -> int:
        total = cpu_and_memory(shape.spec.overhead)[0]
        for container in shape.spec.containers:
            limits, requests = container.resources.limits, container.resources.requests
            if "cpu" in limits:
                total += cpu_and_memory(limits)[0]
            elif "cpu" in requests:
                total += math.floor(cpu_and_memory(requests)[0] * self._multiplier + 0.5)
            else:
                total += self._default_cpu
        return total
