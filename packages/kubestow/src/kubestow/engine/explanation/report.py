"""The HTML report of an explanation: one pod, every node, every plugin."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from kubestow.engine.explanation.evaluated_nodes import NodeEvaluation, PluginVerdict, VerdictKind
from kubestow.engine.explanation.explanation import Explanation
from kubestow.reports.markup import Html, element, fragment, table
from kubestow.reports.page import figure_section, page, section
from kubestow.reports.sections import summary_cards

__all__ = ["decision_tables", "explanation_report", "reason_text"]

_MOST_GROUPS = 50
_EXAMPLES = 5
_BEST_SHOWN = 5


def explanation_report(found: Explanation) -> str:
    """The page: what the scheduler does with the pod, nodes by reason, the best ones in detail, what would help."""
    lines = [element("p", line) for line in found.headline()]
    cards = summary_cards(
        [
            ("nodes on which it fits", f"{found.feasible:,} of {len(found.evaluated):,}"),
            ("its node", found.bound_to or "none"),
            ("profile", found.profile),
        ]
    )
    remarks = [element("p", f"Remark: {remark}", class_="note") for remark in found.remarks]
    sections = [
        section("Summary", cards, *lines, *remarks),
        section("The decision", *decision_tables(found)),
    ]
    if found.searched:
        sections.append(section("What would help", _counterfactuals(found)))
    sections.append(
        figure_section("All nodes", "Nodes on which the pod fits first, the best one at the top.", "decisions")
    )
    return page(f"Pod {found.pod}", "Why it is on its node, or on none", sections, {"decisions": _decisions(found)})


def _counterfactuals(found: Explanation) -> Html:
    where = f" on {found.target}" if found.target else ""
    if not found.counterfactuals:
        return element("p", f"No small change was found with which the pod fits{where or ' on any node'}.")
    items = [element("li", counterfactual.text) for counterfactual in found.counterfactuals]
    note = element("p", f"The pod would fit{where} with one of these changes, each verified:")
    return fragment(note, element("ol", *items))


def _decisions(found: Explanation) -> dict[str, Any]:
    """Every node in columns; rejections are an index into ``reasons``, scores are weighted."""
    reasons: dict[str, int] = {}
    evaluated = found.evaluated
    feasible = [evaluated.at(row) for row in evaluated.rows.tolist()]
    plugins = [score.plugin for score in feasible[0].scores] if feasible else []
    rejected = [
        (name, reasons.setdefault("; ".join(map(reason_text, group.rejections)), len(reasons)))
        for group in found.groups()
        for name in group.nodes
    ]
    return {
        "plugins": plugins,
        "nodes": [node.node for node in feasible],
        "totals": [node.total for node in feasible],
        "scores": [[score.weighted for score in node.scores] for node in feasible],
        "rejected": [name for name, _ in rejected],
        "reason": [reason for _, reason in rejected],
        "reasons": list(reasons),
    }


def decision_tables(found: Explanation) -> Iterator[Html]:
    """The nodes that are rejected by all their reasons, then the best feasible ones in detail."""
    groups = found.groups()
    if groups:
        rows = [
            (
                f"{len(group.nodes):,}",
                element("ul", *(element("li", reason_text(verdict)) for verdict in group.rejections), class_="plain"),
                ", ".join(group.nodes[:_EXAMPLES]) + (", …" if len(group.nodes) > _EXAMPLES else ""),
            )
            for group in groups[:_MOST_GROUPS]
        ]
        yield table(("nodes", "rejected by", "examples"), rows, numbers=(0,), caption="Rejected nodes")
        if len(groups) > _MOST_GROUPS:
            yield element("p", f"… and {len(groups) - _MOST_GROUPS:,} more groups", class_="note")
    own = [found.node(found.bound_to)] if found.bound_to in found.evaluated.positions else []
    detailed = list({node.node: node for node in (*own, *found.best(_BEST_SHOWN))}.values())
    if detailed:
        headings = [f"{node.node} (its node)" if node.node == found.bound_to else node.node for node in detailed]
        yield table(("filter", *headings), _verdict_rows(detailed), caption="Verdicts")
        if any(node.scores for node in detailed):
            yield table(("score", *headings), _score_rows(detailed), caption="Scores")
            yield element("p", "raw → normalized × weight = weighted score", class_="note")


def reason_text(verdict: PluginVerdict) -> str:
    """The plugin and its reason."""
    return f"{verdict.plugin}: {verdict.status.message}"


def _verdict_rows(nodes: Sequence[NodeEvaluation]) -> Iterator[tuple[str, ...]]:
    """A row for each plugin that has anything to check."""
    columns = [{verdict.plugin: verdict for verdict in node.verdicts} for node in nodes]
    for plugin in dict.fromkeys(plugin for column in columns for plugin in column):
        verdicts = [column.get(plugin) for column in columns]
        if any(verdict is not None and verdict.kind is not VerdictKind.SKIPPED for verdict in verdicts):
            yield plugin, *(_verdict(verdict) for verdict in verdicts)


def _verdict(verdict: PluginVerdict | None) -> str:
    if verdict is None:
        return VerdictKind.SKIPPED.value
    return verdict.status.message if verdict.kind is VerdictKind.REJECTED else verdict.kind.value


def _score_rows(nodes: Sequence[NodeEvaluation]) -> Iterator[tuple[str, ...]]:
    columns = [{score.plugin: score for score in node.scores} for node in nodes]
    for plugin in dict.fromkeys(plugin for column in columns for plugin in column):
        cells = []
        for column in columns:
            score = column.get(plugin)
            text = "-" if score is None else f"{score.raw:,} → {score.normalized} × {score.weight} = {score.weighted}"
            cells.append(text)
        yield plugin, *cells
    yield "total", *(f"{node.total} (rank {node.rank:,})" if node.rank else "-" for node in nodes)
