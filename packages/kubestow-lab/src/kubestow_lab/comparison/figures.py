"""Values of metrics as text, and the rows of a comparison's tables, the same in all forms for people."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

from kubestow_lab.comparison.metrics import MetricChange, Unit
from kubestow_lab.comparison.pods import Change, DifferenceGroup, PodDifference
from kubestow_lab.comparison.thresholds import CheckedThreshold

__all__ = ["change_text", "crossed_text", "differs", "group_pods", "headline", "metric_rows", "value_text"]

#: Shown even if they are equal.
_ALWAYS_SHOWN = ("pending", "placed")
#: So many pods of a group are named.
_PODS_NAMED = 3
_WORDING = {
    Change.LOST: "{} pending in the candidate only",
    Change.WON: "{} pending in the baseline only",
    Change.PREEMPTED: "{} preempted in the candidate only",
    Change.SPARED: "{} preempted in the baseline only",
    Change.MOVED: "{} on another node",
    Change.ADDED: "{} in the candidate only",
    Change.MISSING: "{} in the baseline only",
}


def headline(pods: Iterable[PodDifference]) -> str:
    """How many pods differ, in one sentence."""
    counts = Counter(difference.change for difference in pods)
    parts = []
    for change, wording in _WORDING.items():
        if count := counts[change]:
            parts.append(wording.format("1 pod" if count == 1 else f"{count:,} pods"))
    return "; ".join(parts) or "no pod differs"


def metric_rows(
    metrics: Mapping[str, MetricChange], checked: Iterable[CheckedThreshold] = ()
) -> Iterator[MetricChange]:
    """The metrics that differ, those that thresholds are about, and the most important ones."""
    shown = {*_ALWAYS_SHOWN, *(found.threshold.metric for found in checked)}
    for name, found in metrics.items():
        if name in shown or differs(found):
            yield found


def value_text(metric: MetricChange, value: float) -> str:
    """A value with its unit."""
    match metric.metric.unit:
        case Unit.SHARE:
            return f"{value:.1%}"
        case Unit.SECONDS:
            return _seconds(value)
    return f"{value:,.0f}" if value == round(value) else f"{value:,.2f}"


def differs(metric: MetricChange) -> bool:
    """Whether the values are different as they are shown."""
    return value_text(metric, metric.baseline) != value_text(metric, metric.candidate)


def change_text(metric: MetricChange) -> str:
    """The change with its sign; of shares in percentage points."""
    change = metric.change
    match metric.metric.unit:
        case Unit.SHARE:
            return f"{100 * change:+.1f} pp"
        case Unit.SECONDS:
            return ("+" if change >= 0 else "") + _seconds(change)
    return f"{change:+,.0f}" if change == round(change) else f"{change:+,.2f}"


def crossed_text(found: CheckedThreshold) -> str:
    """Why a threshold is crossed."""
    metric = found.threshold.metric
    return (
        f"{found.threshold.text}: {metric} is {found.value:g}, the limit {found.limit:g} (baseline {found.baseline:g})"
    )


def group_pods(group: DifferenceGroup) -> Sequence[str]:
    """The names of the first pods of a group, without the namespace."""
    names = [pod.partition("/")[2] for pod in group.pods[:_PODS_NAMED]]
    return [*names, "…"] if len(group.pods) > _PODS_NAMED else names


def _seconds(value: float) -> str:
    return f"{value:,.0f} s" if abs(value) >= 1000 else f"{value:.3g} s"
