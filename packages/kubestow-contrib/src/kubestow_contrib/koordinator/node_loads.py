"""The load of all nodes as columns: what koordlets have reported, plus estimates of what the reports do not show.

Estimates are added up per node as pods are placed and removed. A new report of a node replaces its usage, and decides
anew for each of its pods how far the estimate exceeds what was measured.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Sequence
from operator import add, sub
from typing import NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from kubestow.api.core import Node
from kubestow.api.formats.duration import Duration
from kubestow.api.formats.int64 import as_int64
from kubestow.api.formats.quantity import Quantity
from kubestow.cluster.changes.events import Action
from kubestow.cluster.nodes.columns import Column
from kubestow.cluster.nodes.views import HypotheticalNodes, Nodes
from kubestow.cluster.pods.shapes import PodInfo
from kubestow.framework.interface import Handle
from kubestow.log_fields import fields
from kubestow_contrib.koordinator.args import CustomUsageThresholds, LoadAwareSchedulingArgs
from kubestow_contrib.koordinator.node_metric import AggregationKey, NodeMetric, NodeReport, Vector, read_report
from kubestow_contrib.koordinator.node_usage import NodeLoad, PodContributions
from kubestow_contrib.node_load.usage import CLOCK_SKEW, ChangedNodes, amount_of

_log = logging.getLogger(__name__)

_THRESHOLDS = "scheduling.koordinator.sh/usage-thresholds"
_RAW_ALLOCATABLE = "node.koordinator.sh/raw-allocatable"

Int64s = NDArray[np.int64]
Mask = NDArray[np.bool_]


class LoadView(NamedTuple):
    """The load of some nodes: a mask or an array per node, and lists with one array (int64) per resource.

    ``used`` is the usage that the filter looks at and ``scored`` the one that is scored; ``prod`` is the usage of
    production pods. ``limits`` are percentages, 0 for none; they are of percentiles where ``is_aggregated``.
    """

    reported: Mask
    has_usage: Mask
    expired: Mask
    allocatable: list[Int64s]
    used: list[Int64s]
    scored: list[Int64s]
    prod: list[Int64s]
    limits: list[Int64s]
    prod_limits: list[Int64s]
    is_aggregated: Mask


class NodeLoads:
    """The columns. ``estimate`` is what a pod is estimated to use."""

    def __init__(
        self,
        handle: Handle,
        args: LoadAwareSchedulingArgs,
        resources: Sequence[str],
        estimate: Callable[[PodInfo], Vector],
    ) -> None:
        self._handle, self._args, self._resources = handle, args, resources
        self._nothing: Vector = (0,) * len(resources)
        aggregated = args.aggregated
        self._scored_aggregation: AggregationKey | None = None
        if aggregated is not None and aggregated.score_aggregation_type:
            duration = Duration.parse(aggregated.score_aggregated_duration or "0").seconds
            self._scored_aggregation = aggregated.score_aggregation_type, duration
        columns = handle.cluster.nodes.columns
        self._reported, self._has_usage, self._expired = (columns.new(np.bool_) for _ in range(3))
        #: Seconds since the Unix epoch.
        self._update_time = columns.new(np.float64, fill=-math.inf)
        self._is_aggregated = columns.new(np.bool_)

        def per_resource() -> list[Column]:
            return [columns.new(np.int64) for _ in resources]

        self._allocatable, self._limit, self._prod_limit = per_resource(), per_resource(), per_resource()
        self._used, self._scored, self._prod = per_resource(), per_resource(), per_resource()
        self._usage = [*self._used, *self._scored, *self._prod]
        #: The same of each node by its name, and the nodes whose usage is not in the columns yet.
        self._loads: dict[str, NodeLoad] = {}
        self._unwritten: set[str] = set()

        self._reports: dict[str, NodeReport] = {}
        self._contributions = PodContributions(handle, args, self._nothing, estimate)
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
        self._write_usage()
        rows = nodes.rows
        usage = [column.readonly[rows] for column in self._usage]
        if isinstance(nodes, HypotheticalNodes):
            usage = [column.copy() for column in usage]
            self._apply_changes(nodes, usage)
        count = len(self._resources)
        return LoadView(
            self._reported.readonly[rows],
            self._has_usage.readonly[rows],
            self._expired.readonly[rows],
            [column.readonly[rows] for column in self._allocatable],
            usage[:count],
            usage[count : 2 * count],
            usage[2 * count :],
            [column.readonly[rows] for column in self._limit],
            [column.readonly[rows] for column in self._prod_limit],
            self._is_aggregated.readonly[rows],
        )

    def of_row(self, row: int) -> NodeLoad:
        """The load of the node at a row of the node table."""
        table = self._handle.cluster.nodes
        load = self._loads.get(table.names[row])
        if load is None or load.node is not table.objects[row]:
            self._refresh()
            load = self._loads[table.names[row]]
            load.node = table.objects[row]  # a heartbeat has changed nothing that matters here
        return load

    def check_expiry(self) -> bool:
        """Find the reports that have expired; whether that changed any node."""
        self._refresh()
        age = self._handle.now().timestamp() - self._update_time.readonly
        expired = self._reported.readonly & (age >= self._args.expiration)
        changed = np.flatnonzero(expired != self._expired.readonly).tolist()
        for row in changed:
            self._loads[self._handle.cluster.nodes.names[row]].expired = self._expired.values[row] = expired[row].item()
        return bool(changed)

    def _apply_changes(self, nodes: HypotheticalNodes, usage: list[Int64s]) -> None:
        for position in range(len(nodes)):
            load = self._loads[nodes.name(position)]
            if load.report is None:
                continue
            change = nodes.change(position)
            contributions = [(-1, self._contributions.recorded(info)) for info in change.removed]
            contributions += [(+1, self._contributions.compute(load, load.report, info)) for info in change.added]
            for sign, contribution in contributions:
                for column, amount in zip(usage, contribution, strict=True):
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
        load = None
        annotation = node.metadata.annotations.get(_THRESHOLDS)
        if annotation is not None:
            try:
                load = self._new_load(msgspec.json.decode(annotation, type=CustomUsageThresholds))
            except (msgspec.DecodeError, ValueError) as error:
                self._warn(node.metadata.name, f"annotation {_THRESHOLDS} is ignored: {error}")
        load = self._loads[node.metadata.name] = load or self._new_load(CustomUsageThresholds())
        load.node, load.allocatable = node, tuple(_amount(name, node) for name in self._resources)
        _set(self._limit, row, load.limits)
        _set(self._prod_limit, row, load.prod_limits)
        _set(self._allocatable, row, load.allocatable)
        self._is_aggregated.values[row] = load.aggregation is not None
        if len(self._loads) > len(self._handle.cluster.nodes):
            rows = self._handle.cluster.nodes.rows
            self._loads = {name: load for name, load in self._loads.items() if name in rows}

    def _load(self, row: int) -> None:
        """Take over the report of a row's node, and compute the contributions of its pods anew."""
        name = self._handle.cluster.nodes.names[row]
        pods = self._handle.cluster.nodes.pods[row]
        for uid in pods:
            self._contributions.forget(uid)
        report, load = self._usable_report(name), self._loads[name]
        prod = report.system_usage if report is not None and self._args.prod_usage_include_sys else self._nothing
        load.take_report(report, self._scored_aggregation, prod)
        self._unwritten.add(name)
        updated = -math.inf if report is None or report.update_time is None else report.update_time
        load.expired = report is not None and self._handle.now().timestamp() - updated >= self._args.expiration
        self._reported.values[row], self._has_usage.values[row] = report is not None, load.has_usage
        self._update_time.values[row], self._expired.values[row] = updated, load.expired
        if report is not None:
            for info in pods.values():
                load.usage = list(map(add, load.usage, self._contributions.record(load, report, info)))

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

    def _new_load(self, custom: CustomUsageThresholds) -> NodeLoad:
        """The load of a node with an annotation, without a report. Raises ValueError."""
        args, own = self._args, custom.aggregated_usage
        limits, aggregation = custom.usage_thresholds or args.thresholds, None
        if own is not None and own.usage_thresholds and own.usage_aggregation_type:
            duration = Duration.parse(own.usage_aggregated_duration or "0").seconds
            limits, aggregation = own.usage_thresholds, (own.usage_aggregation_type, duration)
        elif (default := args.aggregated) is not None and default.usage_thresholds and default.usage_aggregation_type:
            duration = Duration.parse(default.usage_aggregated_duration or "0").seconds
            limits, aggregation = default.usage_thresholds, (default.usage_aggregation_type, duration)
        prod = custom.prod_usage_thresholds or args.prod_usage_thresholds or {}
        return NodeLoad(
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
        name = self._handle.cluster.nodes.names[row]
        load = self._loads.get(name)
        if load is not None and load.report is not None:
            load.usage = list(map(add, load.usage, self._contributions.record(load, load.report, info)))
            self._unwritten.add(name)

    def pod_removed(self, row: int, info: PodInfo) -> None:
        """Subtract the contribution of a pod."""
        name = self._handle.cluster.nodes.names[row]
        load = self._loads.get(name)
        if load is not None and load.report is not None:
            load.usage = list(map(sub, load.usage, self._contributions.recorded(info)))
            self._contributions.forget(info.uid)
            self._unwritten.add(name)

    def _write_usage(self) -> None:
        """Write what pods have changed to the columns."""
        rows = self._handle.cluster.nodes.rows
        for name in self._unwritten:
            row, load = rows.get(name), self._loads.get(name)
            if row is not None and load is not None:
                _set(self._usage, row, [as_int64(amount) for amount in load.usage])
        self._unwritten.clear()


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
    return amount_of(resource, quantities.get(resource, 0))
