"""Tables of the verdicts and scores of some nodes, one column per node."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.console import Group, RenderableType
from rich.text import Text

from kubestow.engine.explanation.evaluated_nodes import NodeEvaluation, PluginVerdict, VerdictKind
from kubestow.reports.tables import plain_table

__all__ = ["nodes_side_by_side"]


def nodes_side_by_side(nodes: Sequence[NodeEvaluation], title: str, *, own: str = "") -> RenderableType:
    """All verdicts, then all scores as ``raw → normalized × weight = weighted``; the ``own`` node is marked."""
    parts: list[RenderableType] = [Text(title)]
    headings = [f"{node.node} (its node)" if node.node == own else node.node for node in nodes]
    verdicts = plain_table("filter", *headings, right=())
    for plugin in dict.fromkeys(verdict.plugin for node in nodes for verdict in node.verdicts):
        cells = [_verdict(node, plugin) for node in nodes]
        if any(cell != VerdictKind.SKIPPED.value for cell in cells):
            verdicts.add_row(plugin, *cells)
    parts += [Text(""), verdicts]
    if any(node.scores for node in nodes):
        parts += [Text(""), _scores(nodes, headings)]
    return Group(*parts)


def _scores(nodes: Sequence[NodeEvaluation], headings: Sequence[str]) -> RenderableType:
    table = plain_table("score", *headings, right=())
    for plugin in dict.fromkeys(score.plugin for node in nodes for score in node.scores):
        table.add_row(plugin, *(next(_score(node, plugin), "-") for node in nodes))
    ranks = (f"{node.total} (rank {node.rank:,})" if node.rank else "-" for node in nodes)
    table.add_row("total", *ranks, style="bold")
    return table


def _verdict(node: NodeEvaluation, plugin: str) -> str:
    found: PluginVerdict | None = next((verdict for verdict in node.verdicts if verdict.plugin == plugin), None)
    if found is None:
        return VerdictKind.SKIPPED.value
    return found.status.message if found.kind is VerdictKind.REJECTED else found.kind.value


def _score(node: NodeEvaluation, plugin: str) -> Iterator[str]:
    for score in node.scores:
        if score.plugin == plugin:
            yield f"{score.raw} → {score.normalized} × {score.weight} = {score.weighted}"
