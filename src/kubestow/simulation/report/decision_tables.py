"""The decision about a pod as tables: rejected nodes by reason, and the verdicts and scores of the best nodes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from kubestow.simulation.explanation.evaluated_nodes import NodeEvaluation, PluginVerdict, VerdictKind
from kubestow.simulation.explanation.explanation import Explanation
from kubestow.simulation.report.markup import Html, element, table

__all__ = ["decision_tables", "reason_text"]

_MOST_GROUPS = 50
_EXAMPLES = 5
_BEST_SHOWN = 5


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
