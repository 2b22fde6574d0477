"""LoadAwareScheduling rejects nodes whose usage would exceed a threshold, and prefers nodes with little usage.

The usage of a node is what its koordlet has reported, plus what pods are estimated to use that the report does not
show, plus the estimate of the pod itself. Production pods may have thresholds of their own, which only the usage of
production pods counts for. Nodes without a report pass and score 0. Nodes whose report has expired are rejected, or
pass and score 0, as configured. Pods of DaemonSets are not rejected.
"""

from __future__ import annotations

from collections.abc import Hashable
from math import floor
from typing import NamedTuple
from weakref import WeakKeyDictionary

import msgspec
import numpy as np
from numpy.typing import NDArray

from kubestow.cluster.changes.events import Action, ClusterEvent, EventResource
from kubestow.cluster.nodes.views import NodeRow, Nodes
from kubestow.cluster.pods.shapes import PodInfo, Shape
from kubestow.config import ExtensionPoint
from kubestow.framework.cycle_state import CycleState
from kubestow.framework.event_registration import on
from kubestow.framework.interface import MAX_SCORE, FilterPlugin, Handle, ScorePlugin
from kubestow.framework.status import Status, Verdict
from kubestow_contrib.koordinator.args import LoadAwareSchedulingArgs, Percentage
from kubestow_contrib.koordinator.estimation import LABEL_KEYS, PROD, estimate, priority_class
from kubestow_contrib.koordinator.node_loads import NodeLoads
from kubestow_contrib.koordinator.node_metric import NodeMetric, Vector

_FACTORS = "scheduling.koordinator.sh/load-estimated-scaling-factors"
_EXPIRED_KEY = 1
#: Reports that have expired are noticed after at most so many seconds.
_EXPIRY_PERIOD = 30.0
_METRIC_EXPIRED = "koordinator.sh/NodeMetricExpired"


class _Traits(NamedTuple):
    """What counts of a pod: its estimate with the factors of the args, and what it is."""

    estimate: Vector
    is_prod: bool
    is_of_daemon_set: bool


class LoadAwareScheduling(FilterPlugin, ScorePlugin):
    """Limits and balances the usage that koordlets report."""

    name = "LoadAwareScheduling"
    Args = LoadAwareSchedulingArgs
    #: Pods count on their nodes as soon as they are assumed, so there is nothing to reserve.
    inert_at = (ExtensionPoint.PRE_FILTER, ExtensionPoint.RESERVE)
    label_keys = LABEL_KEYS
    events_to_register = (
        on(EventResource.ASSIGNED_POD, Action.DELETE),
        on(EventResource.ASSIGNED_POD, Action.ALL | Action.UPDATE_POD_SCALE_UP, requeues=False),
        on(EventResource.NODE, Action.ADD | Action.UPDATE_NODE_ALLOCATABLE | Action.UPDATE_NODE_ANNOTATION),
        on(NodeMetric, Action.ADD | Action.UPDATE | Action.DELETE),
        # Reported for all nodes. Custom events share a bit of the journal, so ALL would go for reports, too.
        on(_METRIC_EXPIRED, Action.UPDATE),
    )

    def __init__(self, args: LoadAwareSchedulingArgs, handle: Handle) -> None:
        super().__init__(args, handle)
        self._factors, self._resources = args.factors, args.resources
        self._width = len(self._resources)
        self._traits: WeakKeyDictionary[Shape, _Traits] = WeakKeyDictionary()
        self._rejects_expired = args.enable_schedule_when_node_metrics_expired is not True
        self._filters_expired = args.filter_expired_node_metrics is not False
        self._weights = [args.weights.get(name, 0) for name in self._resources]
        self._dominant_weight = args.dominant_resource_weight
        self._total_weight = sum(self._weights) + self._dominant_weight
        self._scores_prod = args.score_according_prod_usage is True
        self._statuses = {_EXPIRED_KEY: Status.unschedulable("node(s) nodeMetric expired")}
        for index, name in enumerate(self._resources):
            for aggregated, text in enumerate(("usage", "aggregated usage")):
                reason = f"node(s) {name} {text} exceed threshold"
                self._statuses[_exceeded_key(index, aggregated)] = Status.unschedulable(reason)
        self._loads = NodeLoads(handle, args, self._resources, lambda pod: self._traits_of(pod).estimate)
        handle.run_periodically(_EXPIRY_PERIOD, self._check_expiry)

    def signature(self, pod: PodInfo) -> Hashable | None:
        """The estimate, and what the pod is; None if pods may have factors of their own, in annotations."""
        if self.args.allow_customize_estimation:
            return None
        return self._traits_of(pod)

    def filter(self, state: CycleState, pod: PodInfo, nodes: Nodes) -> Verdict | None:
        """Rejects by the first resource above its threshold."""
        traits = self._traits_of(pod)
        if traits.is_of_daemon_set:
            return None
        load = self._loads.view(nodes)
        for_prod = np.zeros(len(nodes), np.bool_)
        if traits.is_prod:
            for limit in load.prod_limits:
                for_prod |= limit > 0
        limits = [np.where(for_prod, *pair) for pair in zip(load.prod_limits, load.limits, strict=True)]
        considered = load.reported & (sum(limits) > 0)
        keys = np.zeros(len(nodes), np.int32)
        if self._filters_expired:
            expired = considered & load.expired
            if self._rejects_expired:
                keys[expired] = _EXPIRED_KEY
            considered &= ~expired
        considered &= load.has_usage
        for index, amount in enumerate(traits.estimate):
            used = np.where(for_prod, load.prod[index], load.used[index]) + amount
            capacity = load.allocatable[index]
            percent = np.floor(used / np.where(capacity > 0, capacity, 1) * 100 + 0.5)
            exceeded = considered & (keys == 0) & (limits[index] > 0) & (capacity > 0) & (percent > limits[index])
            aggregated = load.is_aggregated & ~for_prod
            keys[exceeded] = np.where(aggregated, _exceeded_key(index, 1), _exceeded_key(index, 0))[exceeded]
        return Verdict(keys, self._statuses.__getitem__)

    def filter_row(self, state: CycleState, pod: PodInfo, node: NodeRow) -> int:
        """The same for a single node."""
        load, traits = self._loads.of_row(node.row), self._traits_of(pod)
        for_prod = traits.is_prod and load.limits_prod
        limits = load.prod_limits if for_prod else load.limits
        if load.report is None or traits.is_of_daemon_set or not (for_prod or load.limits_usage):
            return 0
        if load.expired and self._filters_expired:
            return _EXPIRED_KEY if self._rejects_expired else 0
        if not load.has_usage:
            return 0
        usage, offset = load.usage, 2 * self._width if for_prod else 0
        for index, amount in enumerate(traits.estimate):
            limit, capacity = limits[index], load.allocatable[index]
            if limit > 0 and capacity > 0 and floor((usage[offset + index] + amount) / capacity * 100 + 0.5) > limit:
                return _exceeded_key(index, int(load.aggregation is not None and not for_prod))
        return 0

    def score(self, state: CycleState, pod: PodInfo, nodes: Nodes) -> NDArray[np.int64]:
        """The weighted mean of what is left of each resource, in percent, and of the scarcest one."""
        load, traits = self._loads.view(nodes), self._traits_of(pod)
        usage = load.prod if self._scores_prod and traits.is_prod else load.scored
        total = np.zeros(len(nodes), np.int64)
        scarcest = np.full(len(nodes), MAX_SCORE, np.int64)
        for index, amount in enumerate(traits.estimate):
            capacity = load.allocatable[index]
            left = np.maximum(capacity - usage[index] - amount, 0) * MAX_SCORE // np.where(capacity > 0, capacity, 1)
            total += left * self._weights[index]
            np.minimum(scarcest, left, out=scarcest)
        scores = (total + scarcest * self._dominant_weight) // self._total_weight
        return np.where(load.has_usage & ~load.expired, scores, 0)

    def score_row(self, state: CycleState, pod: PodInfo, node: NodeRow) -> int:
        """The same for a single node."""
        load = self._loads.of_row(node.row)
        if load.expired or not load.has_usage:
            return 0
        traits = self._traits_of(pod)
        usage, offset = load.usage, (2 if self._scores_prod and traits.is_prod else 1) * self._width
        total, scarcest = 0, MAX_SCORE
        for index, amount in enumerate(traits.estimate):
            capacity = load.allocatable[index]
            free = capacity - usage[offset + index] - amount
            left = free * MAX_SCORE // capacity if free > 0 and capacity > 0 else 0
            total += left * self._weights[index]
            if left < scarcest:
                scarcest = left
        return (total + scarcest * self._dominant_weight) // self._total_weight

    def _traits_of(self, pod: PodInfo) -> _Traits:
        shape = pod.shape
        found = self._traits.get(shape)
        if found is None:
            controller = shape.controller
            found = self._traits[shape] = _Traits(
                estimate(shape, self._resources, self._factors),
                priority_class(shape) == PROD,
                controller is not None and controller.kind == "DaemonSet",
            )
        annotation = pod.metadata.annotations.get(_FACTORS) if self.args.allow_customize_estimation else None
        if not annotation:
            return found
        try:
            own = msgspec.json.decode(annotation, type=dict[str, Percentage])
        except msgspec.DecodeError:
            return found
        return found._replace(estimate=estimate(shape, self._resources, {**self._factors, **own}))

    async def _check_expiry(self) -> None:
        if self._loads.check_expiry():
            self.handle.report_change(ClusterEvent(_METRIC_EXPIRED, Action.UPDATE))


def _exceeded_key(resource: int, aggregated: int) -> int:
    return _EXPIRED_KEY + 1 + 2 * resource + aggregated
