"""A comparison in tables: values of metrics as text, and the rows that all forms for people have in common."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from kubestow.reports.model import Span, Table, counted
from kubestow_lab.comparison.minor_changes import Cause
from kubestow_lab.comparison.pod_differences import DifferenceGroup, PodChange, PodDifference
from kubestow_lab.comparison.thresholds import CheckedThreshold
from kubestow_lab.metrics.run_metrics import MetricChange, Unit

#: Shown even if they are equal.
_ALWAYS_SHOWN = ("pending", "placed")
#: So many pods of a group are named.
_PODS_NAMED = 3
_WORDING = {
    PodChange.LOST: "{} pending in the candidate only",
    PodChange.WON: "{} pending in the baseline only",
    PodChange.PREEMPTED: "{} preempted in the candidate only",
    PodChange.SPARED: "{} preempted in the baseline only",
    PodChange.MOVED: "{} on another node",
    PodChange.REWORDED: "{} pending with another message",
    PodChange.ADDED: "{} in the candidate only",
    PodChange.MISSING: "{} in the baseline only",
}


def headline(pods: Iterable[PodDifference]) -> str:
    """How many pods differ, in one sentence."""
    counts = Counter(difference.change for difference in pods)
    parts = []
    for change, wording in _WORDING.items():
        if count := counts[change]:
            parts.append(wording.format(counted(count, "pod")))
    return "; ".join(parts) or "no pod differs"


def metrics_table(metrics: Mapping[str, MetricChange], checked: Iterable[CheckedThreshold] = ()) -> Table:
    """The metrics that differ, those that thresholds are about, and the most important ones."""
    shown = {*_ALWAYS_SHOWN, *(found.threshold.metric for found in checked)}
    table = Table("metric", "baseline", "candidate", "change", "")
    for name, found in metrics.items():
        if name in shown or differs(found):
            values = (value_text(found, value) for value in (found.baseline, found.candidate))
            table.add(Span(found.name, "code"), *values, change_text(found), found.verdict)
    return table


def groups_table(groups: Sequence[DifferenceGroup], *, most: int) -> Table:
    """At most so many groups of pods that differ, each with the names of its first pods."""
    table = Table("pods", "change", "owner", "names", "why", right=("pods",))
    for group in groups[:most]:
        owner = f"{group.namespace} {group.owner or 'pods without owner'}"
        names = [pod.partition("/")[2] for pod in group.pods[:_PODS_NAMED]]
        more = ["…"] if len(group.pods) > _PODS_NAMED else []
        spans = (Span(text, "code") for text in (owner, ", ".join((*names, *more)), group.reason))
        table.add(f"{len(group.pods):,}", group.change.value, *spans)
    rest = groups[most:]
    if rest:
        table.add(f"{sum(len(group.pods) for group in rest):,}", "… " + counted(len(rest), "more group"), "", "", "")
    return table


def causes_table(causes: Iterable[Cause]) -> Table:
    """The changes between two minor versions that are causes of differences, and some of their pods.

    Each of several changes that are needed together has a row; those after the first have no number of pods.
    """
    table = Table("pods", "cause", "in", "before", "after", "such as", right=("pods",))
    for cause in causes:
        pods = ", ".join(difference.outcome.name for difference in cause.pods[:_PODS_NAMED])
        names = Span(f"{pods}, …" if len(cause.pods) > _PODS_NAMED else pods, "code")
        count: str = f"{len(cause.pods):,}"
        if not cause.changes:
            table.add(count, "no change alone or with few others", "", "", "", names)
        for change in cause.changes:
            table.add(count, Span(change.name, "code"), change.subject, change.before, change.after, names)
            count, names = "", Span("together with that above")
    return table


def thresholds_table(checked: Iterable[CheckedThreshold]) -> Table:
    """The thresholds with their values, and whether they are crossed."""
    values_of = ("candidate", "baseline", "limit")
    table = Table("threshold", *values_of, "", right=values_of, caption="Thresholds")
    for found in checked:
        values = (f"{value:g}" for value in (found.value, found.baseline, found.limit))
        verdict = Span("crossed", "failed") if found.crossed else Span("ok", "passed")
        table.add(Span(found.threshold.text, "code"), *values, verdict)
    return table


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


def _seconds(value: float) -> str:
    return f"{value:,.0f} s" if abs(value) >= 1000 else f"{value:.3g} s"
