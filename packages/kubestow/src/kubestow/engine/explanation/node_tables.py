"""Nodes side by side: their verdicts and scores in tables, and why one of them is preferred to another."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from kubestow.engine.explanation.evaluated_nodes import NodeEvaluation, NodeGroup, PluginVerdict, VerdictKind
from kubestow.reports.model import Block, Paragraph, Table, counted
from kubestow.reports.text import Displayed


@dataclass(frozen=True, slots=True, repr=False)
class NodeComparison(Displayed):
    """The evaluations of two nodes for a pod: why one and not the other."""

    one: NodeEvaluation
    other: NodeEvaluation

    def differences(self) -> list[tuple[str, int]]:
        """By how much the weighted score of each plugin is higher on the one node, the largest difference first."""
        other = {score.plugin: score.weighted for score in self.other.scores}
        found = [(score.plugin, score.weighted - other.get(score.plugin, 0)) for score in self.one.scores]
        return sorted((d for d in found if d[1]), key=lambda difference: (-abs(difference[1]), difference[0]))

    @property
    def text(self) -> str:
        """The comparison in one sentence."""
        one, other = self.one, self.other
        if one.total is None or other.total is None:
            return "; ".join(
                f"{node.node} is rejected by {'; '.join(map(reason_text, node.rejections))}"
                if node.total is None
                else f"{node.node} is feasible"
                for node in (one, other)
            )
        if one.total == other.total:
            tie = f"{one.node} and {other.node} have the same total {one.total}"
            return f"{tie}; among equally good nodes the choice is random"
        winner, loser = (one, other) if one.total > other.total else (other, one)
        sign = 1 if winner is one else -1
        parts = ", ".join(f"{plugin} {sign * difference:+d}" for plugin, difference in self.differences())
        return f"{winner.node} (total {winner.total}) is preferred to {loser.node} (total {loser.total}): {parts}"

    def document(self) -> dict[str, Any]:
        """The comparison as plain data."""
        return {
            "nodes": [self.one.node, self.other.node],
            "text": self.text,
            "differences": dict(self.differences()) if self.one.feasible and self.other.feasible else {},
        }

    def blocks(self) -> Iterator[Block]:
        """The sentence, and both nodes in detail."""
        yield Paragraph(self.text)
        for table in verdicts_and_scores((self.one, self.other)):
            yield from (Paragraph(""), table)


def reason_text(verdict: PluginVerdict) -> str:
    """The plugin and its reason."""
    return f"{verdict.plugin}: {verdict.status.message}"


def rejections_table(groups: Sequence[NodeGroup], *, most: int, examples: int) -> Table:
    """At most so many groups of rejected nodes with all their reasons, each with the names of some nodes."""
    table = Table("nodes", "rejected by", "examples", right=("nodes",), caption="Rejected nodes")
    for group in groups[:most]:
        more = ", …" if len(group.nodes) > examples else ""
        names = ", ".join(group.nodes[:examples]) + more
        table.add(f"{len(group.nodes):,}", "\n".join(map(reason_text, group.rejections)), names)
    rest = groups[most:]
    if rest:
        table.add(f"{sum(len(group.nodes) for group in rest):,}", "… " + counted(len(rest), "more group"), "")
    return table


def verdicts_and_scores(nodes: Sequence[NodeEvaluation], *, own: str = "") -> Iterator[Table]:
    """All verdicts, then all scores as ``raw → normalized × weight = weighted``; the ``own`` node is marked."""
    headings = [f"{node.node} (its node)" if node.node == own else node.node for node in nodes]
    filters = Table("filter", *headings, right=(), caption="Verdicts")
    verdicts = [
        {v.plugin: v.status.message if v.kind is VerdictKind.REJECTED else v.kind.value for v in node.verdicts}
        for node in nodes
    ]
    for plugin in dict.fromkeys(plugin for column in verdicts for plugin in column):
        cells = [column.get(plugin, VerdictKind.SKIPPED.value) for column in verdicts]
        if any(cell != VerdictKind.SKIPPED.value for cell in cells):
            filters.add(plugin, *cells)
    yield filters
    if not any(node.scores for node in nodes):
        return
    table = Table("score", *headings, right=(), caption="Scores", total=True)
    scores = [
        {s.plugin: f"{s.raw} → {s.normalized} × {s.weight} = {s.weighted}" for s in node.scores} for node in nodes
    ]
    for plugin in dict.fromkeys(plugin for column in scores for plugin in column):
        table.add(plugin, *(column.get(plugin, "-") for column in scores))
    table.add("total", *(f"{node.total} (rank {node.rank:,})" if node.rank else "-" for node in nodes))
    yield table
