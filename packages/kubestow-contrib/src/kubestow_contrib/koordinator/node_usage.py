"""The usage of a single node: what its koordlet has reported, plus what each of its pods contributes beyond that."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from operator import add
from weakref import WeakKeyDictionary

from kubestow.api.core import Node
from kubestow.cluster.pods.shapes import PodInfo, Shape
from kubestow.framework.interface import Handle
from kubestow_contrib.koordinator.args import LoadAwareSchedulingArgs
from kubestow_contrib.koordinator.estimation import PROD, priority_class
from kubestow_contrib.koordinator.node_metric import AggregationKey, NodeReport, Vector
from kubestow_contrib.preemption_toleration import condition_time

_SECONDS_AFTER_SCHEDULED = "scheduling.koordinator.sh/load-estimated-seconds-after-pod-scheduled"
_SECONDS_AFTER_INITIALIZED = "scheduling.koordinator.sh/load-estimated-seconds-after-initialized"


class NodeLoad:
    """The load of a single node in Python numbers, with the meaning of ``LoadView``; vectors are by resource.

    ``aggregation`` is the one that ``limits`` refer to, None for the latest usage. ``limits_usage`` and ``limits_prod``
    say whether there are any limits. ``usage`` is ``used``, ``scored`` and ``prod``, one after the other in one list,
    so that the contribution of a pod is added to it in one operation.
    """

    __slots__ = (
        "aggregation",
        "allocatable",
        "expired",
        "has_usage",
        "limits",
        "limits_prod",
        "limits_usage",
        "measures_scored",
        "measures_used",
        "node",
        "prod_limits",
        "report",
        "usage",
    )

    def __init__(self, limits: Vector, prod_limits: Vector, aggregation: AggregationKey | None) -> None:
        #: The node whose limits and allocatable amounts these are.
        self.node: Node | None = None
        self.limits, self.prod_limits, self.aggregation = limits, prod_limits, aggregation
        self.limits_usage, self.limits_prod = any(limits), any(prod_limits)
        self.allocatable: Vector = (0,) * len(limits)
        self.take_report(None, None, self.allocatable)

    def take_report(
        self, report: NodeReport | None, scored_aggregation: AggregationKey | None, prod: Sequence[int]
    ) -> None:
        """Take over a report, None if there is no usable one; no pods contribute any more.

        ``prod`` is what production uses without its pods.
        """
        used = scored = None
        if report is not None:
            used, scored = _usage(report, self.aggregation), _usage(report, scored_aggregation)
        nothing = (0,) * len(self.limits)
        self.report, self.expired = report, False
        self.has_usage = report is not None and report.usage is not None
        #: Whether the usage was reported; otherwise it is the sum of estimates.
        self.measures_used, self.measures_scored = used is not None, scored is not None
        self.usage: list[int] = [*(used or nothing), *(scored or nothing), *prod]


class PodContributions:
    """What pods contribute to the usage of their nodes. ``estimate`` is what a pod is estimated to use, by resource.

    ``nothing`` is a 0 for each resource. A contribution has the layout of ``NodeLoad.usage``. To ``used`` and
    ``scored`` a pod adds its estimate, but where the node's usage was reported, only what that exceeds the pod's
    measured usage by, and nothing once the report shows the pod in full.
    """

    def __init__(
        self,
        handle: Handle,
        args: LoadAwareSchedulingArgs,
        nothing: Vector,
        estimate: Callable[[PodInfo], Vector],
    ) -> None:
        self._handle, self._args, self._nothing, self._estimate = handle, args, nothing, estimate
        #: What pods contribute that no report shows, unless their estimates are their own.
        self._unmeasured: WeakKeyDictionary[Shape, Vector] = WeakKeyDictionary()
        self._prod_shapes: WeakKeyDictionary[Shape, bool] = WeakKeyDictionary()
        #: What pods contribute to the usage of reported nodes, by uid, of those that do not contribute as unmeasured.
        self._contributions: dict[str, Vector] = {}

    def record(self, load: NodeLoad, report: NodeReport, info: PodInfo) -> Vector:
        """What a pod adds to the usage of a node, from now on until :meth:`forget`."""
        if (info.namespace, info.name) not in report.pods and not self._args.allow_customize_estimation:
            return self._of_unmeasured(info)
        found = self._contributions[info.uid] = self.compute(load, report, info)
        return found

    def recorded(self, info: PodInfo) -> Vector:
        """What a pod on a reported node has contributed."""
        return self._contributions.get(info.uid) or self._of_unmeasured(info)

    def forget(self, uid: str) -> None:
        """Drop what is recorded of a pod."""
        self._contributions.pop(uid, None)

    def compute(self, load: NodeLoad, report: NodeReport, info: PodInfo) -> Vector:
        """What a pod would add to the usage of a node, be it on the node or not."""
        key = (info.namespace, info.name)
        measured = report.pods.get(key)
        estimate, is_prod = self._estimate(info), self._is_prod(info.shape)
        is_measured_as_prod = is_prod and key in report.prod_pods
        is_estimated = measured is None or self._is_recent(report, info)
        delta = _excess(estimate, measured) if is_estimated else self._nothing
        prod = measured if is_measured_as_prod and measured is not None else self._nothing
        if is_prod and not is_measured_as_prod:
            prod = estimate
        elif is_prod and is_estimated:
            prod = tuple(map(add, prod, _excess(estimate, measured)))
        used, scored = delta if load.measures_used else estimate, delta if load.measures_scored else estimate
        return (*used, *scored, *prod)

    def _of_unmeasured(self, info: PodInfo) -> Vector:
        found = self._unmeasured.get(info.shape)
        if found is None:
            estimate = self._estimate(info)
            prod = estimate if self._is_prod(info.shape) else self._nothing
            found = self._unmeasured[info.shape] = (*estimate, *estimate, *prod)
        return found

    def _is_prod(self, shape: Shape) -> bool:
        found = self._prod_shapes.get(shape)
        if found is None:
            found = self._prod_shapes[shape] = priority_class(shape) == PROD
        return found

    def _is_recent(self, report: NodeReport, info: PodInfo) -> bool:
        """Whether the report cannot show the pod in full, or the pod is to be estimated for a certain time."""
        placed_at, started = condition_time(info, "PodScheduled"), info.status.start_time
        if placed_at is None:  # now, if the API server has not confirmed it yet
            placed_at = self._handle.now().timestamp() if started is None else started.timestamp()
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
        if after_initialized > 0 and (initialized := condition_time(info, "Initialized")) is not None:
            return initialized + after_initialized
        return placed_at + after_scheduled if after_scheduled > 0 else -math.inf


def _usage(report: NodeReport, aggregation: AggregationKey | None) -> Vector | None:
    """The usage that a report has, latest or aggregated; without a duration, percentiles fall back to the latest."""
    if aggregation is None:
        return report.usage
    found = report.aggregated.get(aggregation)
    return report.usage if found is None and aggregation[1] == 0 else found


def _excess(estimate: Vector, measured: Vector | None) -> Vector:
    if measured is None:
        return estimate
    return tuple(max(0, more - less) for more, less in zip(estimate, measured, strict=True))


def _seconds(annotation: str | None, otherwise: int) -> int:
    try:
        seconds = int(annotation or "")
    except ValueError:
        return otherwise
    return seconds if 0 <= seconds < 2**63 else otherwise
