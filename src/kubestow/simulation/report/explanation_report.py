"""The report of an explanation: one pod, every node, every plugin."""

from __future__ import annotations

from typing import Any

from kubestow.simulation.explanation.explanation import Explanation
from kubestow.simulation.report.decision_tables import decision_tables, reason_text
from kubestow.simulation.report.markup import Html, element, fragment
from kubestow.simulation.report.page import figure_section, page, section
from kubestow.simulation.report.sections import summary_cards

__all__ = ["explanation_report"]


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
