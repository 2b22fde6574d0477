"""The tables of docs/walkthrough.md are true: every file and name exists, every plugin has its extension points."""

from __future__ import annotations

import importlib
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kubestow.framework.profile import EXTENSION_POINTS
from kubestow.plugins import in_tree_registry

PAGE = (Path(__file__).parents[2] / "docs" / "walkthrough.md").read_text(encoding="utf-8")
NO_COUNTERPART = {"UpdateSnapshot"}


def rows(heading: str) -> Iterator[list[str]]:
    """The cells of the first table below a heading, without its header."""
    section = PAGE.split(f"## {heading}\n", 1)[1].split("\n## ", 1)[0]
    for line in [line for line in section.splitlines() if line.startswith("|")][2:]:
        yield [cell.strip() for cell in line.strip("|").split("|")]


PLACES = [
    (functions, path.strip("`"), name.strip("`"))
    for functions, path, name in rows("Where each function is")
    if functions.strip("`") not in NO_COUNTERPART
]


@pytest.mark.parametrize(("functions", "path", "name"), PLACES, ids=[functions for functions, _, _ in PLACES])
def test_a_function_is_where_the_table_says(functions: str, path: str, name: str) -> None:
    found: Any = importlib.import_module("kubestow." + path.removesuffix(".py").replace("/", "."))
    for part in name.split("."):
        found = getattr(found, part)


def test_the_functions_a_reader_looks_for_are_in_the_table() -> None:
    listed = set(re.findall(r"`([\w.]+)`", " ".join(functions for functions, *_ in rows("Where each function is"))))
    assert listed >= {
        "NewSchedulerCommand",
        "Setup",
        "ScheduleOne",
        "schedulingCycle",
        "findNodesThatFitPod",
        "prioritizeNodes",
        "selectHost",
        "assume",
        "bindingCycle",
        "handleBindingCycleError",
        "MoveAllToActiveOrBackoffQueue",
        "flushBackoffQCompleted",
        "flushUnschedulablePodsLeftover",
        "DryRunPreemption",
        "SelectVictimsOnNode",
        "pickOneNodeForPreemption",
        "UpdateSnapshot",
        "AddAllEventHandlers",
    }


def test_the_matrix_shows_every_plugin_with_its_extension_points() -> None:
    header = next(line for line in PAGE.splitlines() if line.startswith("| Plugin | PreEnqueue"))
    points = [cell.strip() for cell in header.strip("|").split("|")][1:]
    bases = {str(point).lower(): base for point, base in EXTENSION_POINTS.items()}
    shown = {
        name: {point for point, mark in zip(points, marks, strict=True) if mark}
        for name, *marks in rows("Plugins and extension points")
    }
    expected = {
        name: {point for point in points if issubclass(plugin, bases[point.lower()])}
        for name, plugin in in_tree_registry().items()
    }
    assert shown == expected
