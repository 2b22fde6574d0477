"""The HTML report of an explanation: one pod, every node, every plugin."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from kubestow.engine.explanation.explanation import Explanation
from kubestow.engine.explanation.node_tables import reason_text, rejections_table, verdicts_and_scores
from kubestow.reports.model import Block, Cards, Figure, Items, Paragraph, Report, Section
from kubestow.reports.page import as_page

_MOST_GROUPS = 50
_EXAMPLES = 5
_BEST_SHOWN = 5


def explanation_report(found: Explanation, versions: str = "") -> str:
    """The page: what the scheduler does with the pod, nodes by reason, the best ones in detail, what would help.

    ``versions`` are those of Kubernetes that the page names, such as "Kubernetes 1.34".
    """
    cards = Cards(
        [
            ("nodes on which it fits", f"{found.feasible:,} of {len(found.evaluated):,}"),
            ("its node", found.bound_to or "none"),
            ("profile", found.profile),
        ]
    )
    remarks = [Paragraph(f"Remark: {remark}", note=True) for remark in found.remarks]
    sections: list[Section | Figure] = [
        Section("Summary", [cards, *map(Paragraph, found.headline()), *remarks]),
        Section("The decision", list(decision_blocks(found))),
    ]
    if found.searched:
        sections.append(Section("What would help", _counterfactuals(found)))
    sections.append(Figure("All nodes", "Nodes on which the pod fits first, the best one at the top.", "decisions"))
    subtitle = "Why it is on its node, or on none" + (f"; decided as {versions}" if versions else "")
    return as_page(Report(f"Pod {found.pod}", subtitle, sections, {"decisions": _decisions(found)}))


def _counterfactuals(found: Explanation) -> list[Block]:
    where = f" on {found.target}" if found.target else ""
    if not found.counterfactuals:
        return [Paragraph(f"No small change was found with which the pod fits{where or ' on any node'}.")]
    note = f"The pod would fit{where} with one of these changes, each verified:"
    return [Paragraph(note), Items([counterfactual.text for counterfactual in found.counterfactuals])]


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


def decision_blocks(found: Explanation) -> Iterator[Block]:
    """The nodes that are rejected by all their reasons, then the best feasible ones in detail."""
    if groups := found.groups():
        yield rejections_table(groups, most=_MOST_GROUPS, examples=_EXAMPLES)
    if detailed := found.detailed(_BEST_SHOWN):
        yield from verdicts_and_scores(detailed, own=found.bound_to)
        if any(node.scores for node in detailed):
            yield Paragraph("raw → normalized × weight = weighted score", note=True)
