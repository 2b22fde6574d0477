"""Sections that the reports of a simulation and of a comparison share."""

from __future__ import annotations

from collections.abc import Sequence

from kubestow.reports.markup import Html, element
from kubestow.reports.page import figure_section

__all__ = ["nodes_section", "pod_names", "summary_cards", "timeline_section"]

_PODS_NAMED = 50


def summary_cards(figures: Sequence[tuple[str, str]]) -> Html:
    """Large figures with their labels."""
    cards = [element("div", element("dt", label), element("dd", value)) for label, value in figures]
    return element("dl", *cards, class_="cards")


def timeline_section(note: str) -> Html:
    """The cluster over time; ``note`` says what the lines are."""
    return figure_section(
        "Over time", f"{note} With the keyboard, left and right move through the samples.", "timeline"
    )


def nodes_section() -> Html:
    """The map of the nodes."""
    note = (
        "Each cell is a node, coloured by its requested share. Choose a cell with the pointer or the arrow keys;"
        " Enter lists its pods."
    )
    return figure_section("Nodes", note, "nodes")


def pod_names(pods: Sequence[str]) -> Html:
    """The names of the pods of a group, the first ones if they are many."""
    more = f" and {len(pods) - _PODS_NAMED:,} more" if len(pods) > _PODS_NAMED else ""
    return element("p", ", ".join(pods[:_PODS_NAMED]) + more, class_="names")
