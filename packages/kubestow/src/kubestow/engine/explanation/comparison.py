"""Why one node and not another one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from rich.console import RenderableType

from kubestow.engine.explanation import node_tables
from kubestow.engine.explanation.evaluated_nodes import NodeEvaluation
from kubestow.reports.tables import as_html

__all__ = ["Comparison"]


@dataclass(frozen=True, slots=True)
class Comparison:
    """The evaluations of two nodes for a pod."""

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
                _rejected(node) if node.total is None else f"{node.node} is feasible" for node in (one, other)
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

    def __rich__(self) -> RenderableType:
        return node_tables.nodes_side_by_side([self.one, self.other], self.text)

    def _repr_html_(self) -> str:
        return as_html(self.__rich__())


def _rejected(node: NodeEvaluation) -> str:
    reasons = "; ".join(f"{verdict.plugin}: {verdict.status.message}" for verdict in node.rejections)
    return f"{node.node} is rejected by {reasons}"
