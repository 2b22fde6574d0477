"""The report of a comparison of two simulations."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from kubestow.reports.markup import Html, element, table
from kubestow.reports.page import figure_section, page, section
from kubestow.reports.sections import nodes_section, pod_names, summary_cards, timeline_section
from kubestow_lab.comparison import figures
from kubestow_lab.comparison.comparison import Comparison
from kubestow_lab.comparison.pods import Change
from kubestow_lab.comparison.thresholds import CheckedThreshold
from kubestow_lab.reports.figures import MOST_PODS, nodes_data, pods_data, timeline_data
from kubestow_lab.simulation.results.outcomes import PodState
from kubestow_lab.simulation.results.result import SimulationResult

__all__ = ["comparison_report"]

_MOST_GROUPS = 300


def comparison_report(comparison: Comparison, checked: Sequence[CheckedThreshold] = ()) -> str:
    """The page: thresholds, metrics, both clusters over time and at the end, and the pods that differ."""
    baseline, candidate = comparison.baseline, comparison.candidate
    sections = [section("Summary", *_summary(comparison))]
    if checked:
        sections.append(section("Thresholds", _thresholds(checked)))
    sections += [
        section("Metrics", _metrics(comparison)),
        timeline_section(f"Solid: {baseline.name} (baseline); dashed: {candidate.name} (candidate)."),
        nodes_section(),
    ]
    if comparison.pods:
        sections.append(section("Pods that differ, by owner", *_groups(comparison)))
        note = f"The outcomes in the candidate of the first {MOST_PODS:,}." if len(comparison.pods) > MOST_PODS else ""
        sections.append(figure_section("Pods that differ", note or "In order of arrival.", "pods", id="pods"))
    shown = comparison.pods[:MOST_PODS]
    sides = [("baseline", baseline.result), ("candidate", candidate.result)]
    data = {
        "resources": baseline.result.resources,
        "timelines": [timeline_data(role, result) for role, result in sides],
        "clusters": [_node_map(role, result) for role, result in sides],
        "pods": pods_data([difference.outcome for difference in shown])
        | {
            "change": [difference.change.value for difference in shown],
            "before": ["" if difference.baseline is None else difference.baseline.node for difference in shown],
        },
    }
    run = baseline.result.run
    subtitle = (
        f"{baseline.name} (baseline) and {candidate.name} (candidate): {len(baseline.result.outcomes):,} pods,"
        f" {len(baseline.result.nodes):,} nodes, seed {run['seed']}, ties {run['ties']}"
    )
    return page("Comparison of two simulations", subtitle, sections, data)


def _node_map(role: str, result: SimulationResult) -> dict[str, Any]:
    busiest = result.busiest
    if busiest is None:
        return nodes_data(f"{role} at the end", result, result.nodes)
    return nodes_data(f"{role} with most pods, after {busiest.time:,.0f} s", result, busiest.nodes)


def _summary(comparison: Comparison) -> Iterator[Html]:
    pending = [side.result.count(PodState.PENDING) for side in (comparison.baseline, comparison.candidate)]
    yield summary_cards(
        [
            ("pods pending, baseline", f"{pending[0]:,}"),
            ("pods pending, candidate", f"{pending[1]:,}"),
            ("pods that lose", f"{comparison.count(Change.LOST):,}"),
            ("pods that win", f"{comparison.count(Change.WON):,}"),
            ("pods on another node", f"{comparison.count(Change.MOVED):,}"),
        ]
    )
    yield element("p", figures.headline(comparison.pods) + ".")
    for side in (comparison.baseline, comparison.candidate):
        for remark in side.result.remarks:
            yield element("p", f"Remark: {side.name}: {remark}", class_="note")


def _thresholds(checked: Sequence[CheckedThreshold]) -> Html:
    rows = [
        (
            found.threshold.text,
            *(f"{value:g}" for value in (found.value, found.baseline, found.limit)),
            element("b", "crossed", class_="worse") if found.crossed else element("span", "ok", class_="better"),
        )
        for found in checked
    ]
    header = ("threshold", "candidate", "baseline", "limit", "")
    return table(header, rows, numbers=(1, 2, 3), caption="Thresholds")


def _metrics(comparison: Comparison) -> Html:
    rows = [
        (
            element("span", found.name, title=found.metric.meaning),
            figures.value_text(found, found.baseline),
            figures.value_text(found, found.candidate),
            figures.change_text(found) if figures.differs(found) else "",
            element("span", found.verdict, class_=found.verdict) if figures.differs(found) else "",
        )
        for found in comparison.metrics.values()
    ]
    return table(("metric", "baseline", "candidate", "change", ""), rows, numbers=(1, 2, 3), caption="Metrics")


def _groups(comparison: Comparison) -> Iterator[Html]:
    groups = comparison.groups()
    for group in groups[:_MOST_GROUPS]:
        count = "1 pod" if len(group.pods) == 1 else f"{len(group.pods):,} pods"
        owner = f"{group.namespace} {group.owner or 'pods without owner'}"
        title = [element("b", f"{count} {group.change.value}"), " ", element("code", owner)]
        if group.reason:
            title.append(element("p", group.reason))
        yield element("details", element("summary", *title), pod_names(group.pods))
    if len(groups) > _MOST_GROUPS:
        yield element("p", f"… and {len(groups) - _MOST_GROUPS:,} more groups", class_="note")
