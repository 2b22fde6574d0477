"""The tables of a comparison for a terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from kubestow.reports.tables import plain_table
from kubestow_lab.comparison import figures
from kubestow_lab.comparison.metrics import MetricChange
from kubestow_lab.comparison.pods import DifferenceGroup, PodDifference, difference_groups
from kubestow_lab.comparison.thresholds import CheckedThreshold

__all__ = ["render"]

_MOST_GROUPS = 15


def render(
    names: tuple[str, str],
    pods: Sequence[PodDifference],
    metrics: Mapping[str, MetricChange],
    checked: Sequence[CheckedThreshold] = (),
) -> RenderableType:
    """What differs, the metrics that move, the pods by change and owner, and the thresholds.

    ``names`` are those of the baseline and the candidate.
    """
    title = f"{names[0]} (baseline) and {names[1]} (candidate)"
    parts: list[RenderableType] = [Text(title), Text(figures.headline(pods)), _metrics(metrics, checked)]
    if pods:
        parts.append(_groups(difference_groups(pods)))
    if checked:
        parts.append(_thresholds(checked))
    return Group(*parts)


def _metrics(metrics: Mapping[str, MetricChange], checked: Sequence[CheckedThreshold]) -> Table:
    table = plain_table("metric", "baseline", "candidate", "change", "")
    for found in figures.metric_rows(metrics, checked):
        values = (figures.value_text(found, value) for value in (found.baseline, found.candidate))
        table.add_row(found.name, *values, figures.change_text(found), found.verdict)
    return table


def _groups(groups: Sequence[DifferenceGroup]) -> Table:
    table = plain_table("pods", "change", "owner", "names", "why", right=("pods",))
    for group in groups[:_MOST_GROUPS]:
        owner = f"{group.namespace} {group.owner or 'pods without owner'}"
        names = ", ".join(figures.group_pods(group))
        table.add_row(f"{len(group.pods):,}", group.change.value, owner, names, group.reason)
    rest = groups[_MOST_GROUPS:]
    if rest:
        table.add_row(f"{sum(len(group.pods) for group in rest):,}", f"… {len(rest):,} more groups", "", "", "")
    return table


def _thresholds(checked: Sequence[CheckedThreshold]) -> Table:
    table = plain_table("threshold", "", right=())
    for found in checked:
        table.add_row(figures.crossed_text(found), "crossed" if found.crossed else "ok")
    return table
