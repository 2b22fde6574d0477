"""The load of all nodes as columns: what koordlets have reported, plus estimates of what the reports do not show.

Estimates are added up per node as pods are placed and removed. A new report of a node replaces its usage, and decides
anew for each of its pods how far the estimate exceeds what was measured.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import NamedTuple
from weakref import WeakKeyDictionary

import msgspec
import numpy as np
from numpy.typing import NDArray

from kubestow.api.core import Node
from kubestow.api.formats.duration import Duration
from kubestow.api.formats.int64 import as_int64
from kubestow.api.formats.quantity import Quantity, millis, units
from kubestow.cluster.events import Action
from kubestow.cluster.nodes.columns import Column
from kubestow.cluster.nodes.views import HypotheticalNodes, Nodes
from kubestow.cluster.pods.shapes import PodInfo, Shape
from kubestow.contrib.koordinator.args import CustomUsageThresholds, LoadAwareSchedulingArgs
from kubestow.contrib.koordinator.estimation import PROD, priority_class
from kubestow.contrib.koordinator.node_metric import NodeMetric, NodeReport, Vector, read_report
from kubestow.contrib.node_load.changed_nodes import ChangedNodes
from kubestow.contrib.node_load.usage import CLOCK_SKEW
from kubestow.errors import InvalidQuantity
from kubestow.framework.interface import Handle
from kubestow.log_fields import fields

__all__ = ["LoadView", "NodeLoad", "NodeLoads"]

_log = logging.getLogger(__name__)

_THRESHOLDS = "scheduling.koordinator.sh/usage-thresholds"
_RAW_ALLOCATABLE = "node.koordinator.sh/raw-allocatable"
_SECONDS_AFTER_SCHEDULED = "scheduling.koordinator.sh/load-estimated-seconds-after-pod-scheduled"
_SECONDS_AFTER_INITIALIZED = "scheduling.koordinator.sh/load-estimated-seconds-after-initialized"

Int64s = NDArray[np.int64]
Mask = NDArray[np.bool_]


class LoadView(NamedTuple):
    """The load of some nodes: a mask or an array per node, and lists with one array (int64) per resource.

    ``used`` is the usage that the filter looks at and ``scored`` the one that is scored; ``prod`` is the usage of
    production pods. ``limits`` are percentages, 0 for none; they are of percentiles where ``is_aggregated``.
    """

    reported: Mask
    has_usage: Mask
    update_time: NDArray[np.float64]
    allocatable: list[Int64s]
    used: list[Int64s]
    scored: list[Int64s]
    prod: list[Int64s]
    limits: list[Int64s]
    prod_limits: list[Int64s]
    is_aggregated: Mask


class NodeLoad(NamedTuple):
    """The load of a single node, with the meaning of :class:`LoadView`; vectors are by resource."""

    reported: bool
    has_usage: bool
    update_time: float
    allocatable: Vector
    used: Vector
    scored: Vector
    prod: Vector
    limits: Vector
    prod_limits: Vector
    is_aggregated: bool


class _Contribution(NamedTuple):
    """What a pod adds to the load of its node: to the usage, to the sum of estimates, and to that of production."""

    delta: Vector
    estimate: Vector
    prod: Vector


class _Sums(NamedTuple):
    """What the pods of a node contribute to its load; lists are by resource."""

    delta: list[int]
    estimated: list[int]
    prod: list[int]


class _Limits(NamedTuple):
    """The thresholds of a node, and the aggregation that those of the filter refer to; None for the latest usage."""

    limits: Vector
    prod: Vector
    aggregation: tuple[str, float] | None


class _Static(NamedTuple):
    """What is known of a node besides its pods: thresholds, capacity, its report, and the usage that this has.

    ``used`` and ``scored`` are the usage that is filtered and scored by; they are 0 if it was not reported.
    """

    limits: _Limits
    allocatable: Vector
    report: NodeReport | None
    update_time: float
    has_used: bool
    used: Vector
    has_scored: bool
    scored: Vector

    def with_report(
        self, report: NodeReport | None, scored_aggregation: tuple[str, float] | None, nothing: Vector
    ) -> _Static:
        """The same node with another report."""
        used = scored = None
        updated = -math.inf
        if report is not None:
            used, scored = _usage(report, self.limits.aggregation), _usage(report, scored_aggregation)
            updated = -math.inf if report.update_time is None else report.update_time
        return _Static(
            self.limits,
            self.allocatable,
            report,
            updated,
            used is not None,
            used or nothing,
            scored is not None,
            scored or nothing,
        )


class NodeLoads:
    """The columns. ``estimate`` is what a pod is estimated to use."""

    def __init__(
        self,
        handle: Handle,
        args: LoadAwareSchedulingArgs,
        resources: Sequence[str],
        estimate: Callable[[PodInfo], Vector],
    ) -> None:
        self._handle, self._args, self._resources, self._estimate = handle, args, resources, estimate
        self._nothing: Vector = (0,) * len(resources)
        self._limits = self._limits_of(CustomUsageThresholds())
        aggregated = args.aggregated
        self._scored_aggregation: tuple[str, float] | None = None
        if aggregated is not None and aggregated.score_aggregation_type:
            duration = Duration.parse(aggregated.score_aggregated_duration or "0").seconds
            self._scored_aggregation = aggregated.score_aggregation_type, duration
        columns = handle.cluster.nodes.columns
        self._reported, self._has_usage = columns.new(np.bool_), columns.new(np.bool_)
        self._update_time = columns.new(np.float64, fill=-math.inf)
        self._is_aggregated = columns.new(np.bool_)

        def per_resource() -> list[Column]:
            return [columns.new(np.int64) for _ in resources]

        self._allocatable, self._limit, self._prod_limit = per_resource(), per_resource(), per_resource()
        #: The usage that is filtered and scored by; without it, the sum of estimates is taken.
        self._used, self._has_used = per_resource(), columns.new(np.bool_)
        self._scored, self._has_scored = per_resource(), columns.new(np.bool_)
        self._delta, self._estimated, self._prod = per_resource(), per_resource(), per_resource()
        #: The same three by name of the node, and the nodes whose sums are not in the columns yet.
        self._sums: dict[str, _Sums] = {}
        self._unwritten: set[str] = set()

        self._reports: dict[str, NodeReport] = {}
        self._static: dict[str, _Static] = {}
        #: The load that was read last: its row, and the position of the journal.
        self._latest: tuple[int, int, NodeLoad] | None = None
        self._prod_shapes: WeakKeyDictionary[Shape, bool] = WeakKeyDictionary()
        #: When pods were placed, in seconds since the Unix epoch, and what they contribute to reported nodes; by uid.
        self._placed_at: dict[str, float] = {}
        self._contributions: dict[str, _Contribution] = {}
        self._checked = -math.inf
        self._has_warned = False
        self._changed_nodes = ChangedNodes(
            handle.cluster, Action.UPDATE_NODE_ANNOTATION | Action.UPDATE_NODE_ALLOCATABLE
        )
        handle.cluster.listen_to_placements(self)
        handle.cluster.catalog(NodeMetric).subscribe(self._metric_changed)

    # -- reading -----------------------------------------------------------------------------------------------------

    def view(self, nodes: Nodes) -> LoadView:
        """The load of some nodes, after hypothetical changes if there are any."""
        self._refresh()
        self._write_sums()
        rows = nodes.rows
        delta, estimated, prod = (
            [c.readonly[rows] for c in group] for group in (self._delta, self._estimated, self._prod)
        )
        if isinstance(nodes, HypotheticalNodes):
            delta, estimated, prod = ([column.copy() for column in group] for group in (delta, estimated, prod))
            self._apply_changes(nodes, delta, estimated, prod)
        has_used, has_scored = self._has_used.readonly[rows], self._has_scored.readonly[rows]
        used = [
            np.where(has_used, c.readonly[rows] + d, e) for c, d, e in zip(self._used, delta, estimated, strict=True)
        ]
        scored = [
            np.where(has_scored, c.readonly[rows] + d, e)
            for c, d, e in zip(self._scored, delta, estimated, strict=True)
        ]
        return LoadView(
            self._reported.readonly[rows],
            self._has_usage.readonly[rows],
            self._update_time.readonly[rows],
            [column.readonly[rows] for column in self._allocatable],
            used,
            scored,
            prod,
            [column.readonly[rows] for column in self._limit],
            [column.readonly[rows] for column in self._prod_limit],
            self._is_aggregated.readonly[rows],
        )

    def of_row(self, row: int) -> NodeLoad:
        """The load of the node at a row of the node table, without arrays of length one."""
        cluster = self._handle.cluster
        position, latest = cluster.journal.position, self._latest
        if latest is not None and latest[:2] == (row, position):
            return latest[2]  # by the filter, and now by the score
        self._refresh()
        name = cluster.nodes.names[row]
        static, sums = self._static[name], self._sums[name]
        estimated = tuple(sums.estimated)
        load = NodeLoad(
            static.report is not None,
            static.report is not None and static.report.usage is not None,
            static.update_time,
            static.allocatable,
            _sum(static.used, sums.delta) if static.has_used else estimated,
            _sum(static.scored, sums.delta) if static.has_scored else estimated,
            tuple(sums.prod),
            static.limits.limits,
            static.limits.prod,
            static.limits.aggregation is not None,
        )
        self._latest = row, position, load
        return load

    def has_expired(self) -> bool:
        """Whether a report has expired since the last call. Forgets pods that are gone, too."""
        self._refresh()
        placed_pod = self._handle.cluster.placed_pod
        self._placed_at = {uid: at for uid, at in self._placed_at.items() if placed_pod(uid) is not None}
        now, checked = self._handle.now().timestamp(), self._checked
        self._checked = now
        expiry = self._update_time.readonly + self._args.expiration
        return bool((self._reported.readonly & (checked < expiry) & (expiry <= now)).any())

    def _apply_changes(
        self, nodes: HypotheticalNodes, delta: list[Int64s], estimated: list[Int64s], prod: list[Int64s]
    ) -> None:
        for position in range(len(nodes)):
            report = self._static[nodes.name(position)].report
            if report is None:
                continue
            change = nodes.change(position)
            contributions = [(-1, self._contributions.get(info.uid)) for info in change.removed]
            contributions += [(+1, self._contribution(report, info)) for info in change.added]
            for sign, contribution in contributions:
                for group, vector in zip((delta, estimated, prod), contribution or (), strict=False):
                    for column, amount in zip(group, vector, strict=True):
                        column[position] += sign * amount

    # -- nodes and reports -------------------------------------------------------------------------------------------

    def _refresh(self) -> None:
        table = self._handle.cluster.nodes
        for row in self._changed_nodes.rows():
            self._read_node(row, table.objects[row])
            self._load(row)

    def _metric_changed(self, before: NodeMetric | None, after: NodeMetric | None) -> None:
        metric = after or before
        assert metric is not None
        name = metric.metadata.name
        if after is None:
            self._reports.pop(name, None)
        else:
            self._reports[name] = read_report(after, self._resources)
        row = self._handle.cluster.nodes.rows.get(name)
        if row is not None:
            self._refresh()
            self._load(row)

    def _read_node(self, row: int, node: Node) -> None:
        """Read the thresholds and the allocatable amounts of a node."""
        limits = self._limits
        annotation = node.metadata.annotations.get(_THRESHOLDS)
        if annotation is not None:
            try:
                limits = self._limits_of(msgspec.json.decode(annotation, type=CustomUsageThresholds))
            except (msgspec.DecodeError, ValueError) as error:
                self._warn(node.metadata.name, f"annotation {_THRESHOLDS} is ignored: {error}")
        allocatable = tuple(_amount(name, node) for name in self._resources)
        _set(self._limit, row, limits.limits)
        _set(self._prod_limit, row, limits.prod)
        _set(self._allocatable, row, allocatable)
        self._is_aggregated.values[row] = limits.aggregation is not None
        nothing = self._nothing
        self._static[node.metadata.name] = _Static(limits, allocatable, None, -math.inf, False, nothing, False, nothing)
        if len(self._static) > len(self._handle.cluster.nodes):
            rows = self._handle.cluster.nodes.rows
            self._static = {name: static for name, static in self._static.items() if name in rows}
            self._sums = {name: sums for name, sums in self._sums.items() if name in rows}

    def _load(self, row: int) -> None:
        """Take over the report of a row's node, and compute the contributions of its pods anew."""
        name = self._handle.cluster.nodes.names[row]
        pods = self._handle.cluster.nodes.pods[row]
        for uid in pods:
            self._contributions.pop(uid, None)
        static = self._static[name].with_report(self._usable_report(name), self._scored_aggregation, self._nothing)
        self._static[name], report = static, static.report
        prod = report.system_usage if report is not None and self._args.prod_usage_include_sys else self._nothing
        self._sums[name] = _Sums(list(self._nothing), list(self._nothing), list(prod))
        self._unwritten.add(name)
        self._reported.values[row] = report is not None
        self._has_usage.values[row] = report is not None and report.usage is not None
        self._update_time.values[row] = static.update_time
        self._has_used.values[row], self._has_scored.values[row] = static.has_used, static.has_scored
        _set(self._used, row, static.used)
        _set(self._scored, row, static.scored)
        if report is not None:
            for info in pods.values():
                self._contribute(row, report, info)

    def _usable_report(self, name: str) -> NodeReport | None:
        """The report of a node, unless it is from the future."""
        report = self._reports.get(name)
        if report is None or report.update_time is None:
            return report
        ahead = report.update_time - self._handle.now().timestamp()
        if ahead <= CLOCK_SKEW:
            return report
        self._warn(name, f"NodeMetric is ignored: it is from {ahead:.0f} s in the future")
        return None

    def _limits_of(self, custom: CustomUsageThresholds) -> _Limits:
        """The thresholds of a node with an annotation. Raises ValueError."""
        args, own = self._args, custom.aggregated_usage
        limits, aggregation = custom.usage_thresholds or args.thresholds, None
        if own is not None and own.usage_thresholds and own.usage_aggregation_type:
            duration = Duration.parse(own.usage_aggregated_duration or "0").seconds
            limits, aggregation = own.usage_thresholds, (own.usage_aggregation_type, duration)
        elif (default := args.aggregated) is not None and default.usage_thresholds and default.usage_aggregation_type:
            duration = Duration.parse(default.usage_aggregated_duration or "0").seconds
            limits, aggregation = default.usage_thresholds, (default.usage_aggregation_type, duration)
        prod = custom.prod_usage_thresholds or args.prod_usage_thresholds or {}
        return _Limits(
            tuple(limits.get(name, 0) for name in self._resources),
            tuple(prod.get(name, 0) for name in self._resources),
            aggregation,
        )

    def _warn(self, node: str, problem: str) -> None:
        if not self._has_warned:
            self._has_warned = True
            _log.warning("node %s: %s; others may be, too", node, problem, extra=fields(node=node, err=problem))

    # -- pods --------------------------------------------------------------------------------------------------------

    def pod_added(self, row: int, info: PodInfo) -> None:
        """Add the contribution of a pod to a reported node."""
        if info.uid not in self._placed_at:
            scheduled = _condition_time(info, "PodScheduled")
            self._placed_at[info.uid] = self._handle.now().timestamp() if scheduled is None else scheduled
        static = self._static.get(self._handle.cluster.nodes.names[row])
        if static is not None and static.report is not None:
            self._contribute(row, static.report, info)

    def pod_removed(self, row: int, info: PodInfo) -> None:
        """Subtract the contribution of a pod."""
        contribution = self._contributions.pop(info.uid, None)
        if contribution is not None:
            self._add(row, contribution, -1)

    def _contribute(self, row: int, report: NodeReport, info: PodInfo) -> None:
        contribution = self._contributions[info.uid] = self._contribution(report, info)
        self._add(row, contribution, +1)

    def _add(self, row: int, contribution: _Contribution, sign: int) -> None:
        name = self._handle.cluster.nodes.names[row]
        sums = self._sums.get(name)
        if sums is None:
            return
        for amounts, vector in zip(sums, contribution, strict=True):
            for index, amount in enumerate(vector):
                amounts[index] += sign * amount
        self._unwritten.add(name)

    def _write_sums(self) -> None:
        """Write the sums that have changed to the columns."""
        rows = self._handle.cluster.nodes.rows
        for name in self._unwritten:
            row, sums = rows.get(name), self._sums.get(name)
            if row is not None and sums is not None:
                for group, amounts in zip((self._delta, self._estimated, self._prod), sums, strict=True):
                    _set(group, row, [as_int64(amount) for amount in amounts])
        self._unwritten.clear()

    def _contribution(self, report: NodeReport, info: PodInfo) -> _Contribution:
        key = (info.namespace, info.name)
        measured, estimate = report.pods.get(key), self._estimate(info)
        is_prod = self._is_prod(info.shape)
        is_measured_as_prod = is_prod and key in report.prod_pods
        is_estimated = measured is None or self._is_recent(report, info)
        delta = _excess(estimate, measured) if is_estimated else self._nothing
        prod = measured if is_measured_as_prod and measured is not None else self._nothing
        if is_prod and not is_measured_as_prod:
            prod = estimate
        elif is_prod and is_estimated:
            prod = _sum(prod, _excess(estimate, measured))
        return _Contribution(delta, estimate, prod)

    def _is_prod(self, shape: Shape) -> bool:
        found = self._prod_shapes.get(shape)
        if found is None:
            found = self._prod_shapes[shape] = priority_class(shape) == PROD
        return found

    def _is_recent(self, report: NodeReport, info: PodInfo) -> bool:
        """Whether the report cannot show the pod in full, or the pod is to be estimated for a certain time."""
        placed_at = self._placed_at.get(info.uid)
        if placed_at is None:
            placed_at = self._handle.now().timestamp()
        updated = -math.inf if report.update_time is None else report.update_time
        return updated - report.report_interval < placed_at or self._estimated_until(info, placed_at) > updated

    def _estimated_until(self, info: PodInfo, placed_at: float) -> float:
        after_scheduled, after_initialized = (
            self._args.estimated_seconds_after_pod_scheduled or 0,
            self._args.estimated_seconds_after_initialized or 0,
        )
        if self._args.allow_customize_estimation:
            annotations = info.metadata.annotations
            after_scheduled = _seconds(annotations.get(_SECONDS_AFTER_SCHEDULED), after_scheduled)
            after_initialized = _seconds(annotations.get(_SECONDS_AFTER_INITIALIZED), after_initialized)
        if after_initialized > 0 and (initialized := _condition_time(info, "Initialized")) is not None:
            return initialized + after_initialized
        return placed_at + after_scheduled if after_scheduled > 0 else -math.inf


def _usage(report: NodeReport, aggregation: tuple[str, float] | None) -> Vector | None:
    """The usage that a report has, latest or aggregated; without a duration, percentiles fall back to the latest."""
    if aggregation is None:
        return report.usage
    found = report.aggregated.get(aggregation)
    return report.usage if found is None and aggregation[1] == 0 else found


def _sum(one: Vector, other: Sequence[int]) -> Vector:
    return tuple([amount + more for amount, more in zip(one, other, strict=True)])


def _excess(estimate: Vector, measured: Vector | None) -> Vector:
    if measured is None:
        return estimate
    return tuple(max(0, more - less) for more, less in zip(estimate, measured, strict=True))


def _set(group: Sequence[Column], row: int, vector: Sequence[int]) -> None:
    for column, amount in zip(group, vector, strict=True):
        column.values[row] = amount


def _amount(resource: str, node: Node) -> int:
    """What of a resource is allocatable, not amplified; 0 if absent or malformed."""
    quantities: dict[str, Quantity] = node.status.allocatable
    raw = node.metadata.annotations.get(_RAW_ALLOCATABLE)
    try:
        if raw is not None:
            quantities = {**quantities, **msgspec.json.decode(raw, type=dict[str, str | int | float])}
    except msgspec.DecodeError:
        pass  # as without the annotation
    try:
        quantity = quantities.get(resource, 0)
        return millis(quantity) if resource == "cpu" else units(quantity)
    except InvalidQuantity:
        return 0


def _condition_time(info: PodInfo, kind: str) -> float | None:
    """Since when a condition of a pod is true, in seconds since the Unix epoch; None if it is not."""
    for condition in info.status.conditions:
        if condition.type == kind and condition.status == "True" and condition.last_transition_time:
            try:
                return datetime.fromisoformat(condition.last_transition_time).timestamp()
            except ValueError:
                return None
    return None


def _seconds(annotation: str | None, otherwise: int) -> int:
    try:
        seconds = int(annotation or "")
    except ValueError:
        return otherwise
    return seconds if seconds >= 0 else otherwise
