"""The tools that compare the performance of versions: ``make benchmark-guard`` and the history."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tools.performance.checkouts import ROOT, environment_of
from tools.performance.guard import excesses
from tools.performance.history import Record, levels, page, record_commits
from tools.performance.measures import UNITS, WORKLOADS, median_ratios

from kubestow_lab.scheduler_perf.test_cases import Selection, plans

COST = st.floats(0.001, 10.0)


@given(st.lists(st.tuples(COST, COST), min_size=1, max_size=9))
def test_the_ratio_is_the_median_of_the_pairs(pairs: list[tuple[float, float]]) -> None:
    ratios = median_ratios([({"w": before}, {"w": now}) for before, now in pairs])
    assert ratios == {"w": pytest.approx(statistics.median([now / before for before, now in pairs]))}


def test_one_outlier_does_not_decide() -> None:
    pairs = [({"w": 1.0}, {"w": 1.0})] * 3 + [({"w": 1.0}, {"w": 9.0})]
    assert excesses(median_ratios(pairs), 0.1) == []


def test_what_costs_more_than_the_limit_is_named() -> None:
    assert excesses({"a": 1.2, "b": 1.05, "c": 0.5}, 0.1) == ["a"]


@pytest.mark.parametrize("name", WORKLOADS)
def test_a_workload_of_the_guard_is_installed_and_its_name_selects_it_alone(name: str) -> None:
    parameters = tuple(WORKLOADS[name])
    assert [plan.name for plan in plans(Selection(name_filter=f"^{name}$", overrides=parameters))] == [name]


_PROJECT = """
[project]
name = "kubestow"
version = "0.0.1"

[project.entry-points."kubestow.commands"]
"Old:er" = "kubestow.old:command"
"""
_SHOW = """
import json, sys, importlib.metadata
found = importlib.metadata.entry_points(group="kubestow.commands")
json.dump({each.name: each.value for each in found}, sys.stdout)
"""


def commands(checkout: Path) -> object:
    """The commands that a process finds that runs the code of a checkout."""
    done = subprocess.run(
        [sys.executable, "-c", _SHOW], env=environment_of(checkout), stdout=subprocess.PIPE, check=True
    )
    return json.loads(done.stdout)


def test_a_checkout_has_its_own_entry_points_and_not_those_of_the_installed_packages(tmp_path: Path) -> None:
    (tmp_path / "packages" / "kubestow").mkdir(parents=True)
    (tmp_path / "packages" / "kubestow" / "pyproject.toml").write_text(_PROJECT)
    assert commands(tmp_path) == {"Old:er": "kubestow.old:command"}
    installed = commands(ROOT)
    assert isinstance(installed, dict)
    assert installed["bench"] == "kubestow_lab.cli.bench:bench"
    assert installed["up"] == "kubestow_devcluster.cli.up:up"


def recorded(commit: str, ratio: float | None) -> Record:
    ratios = {} if ratio is None else dict.fromkeys(UNITS, ratio)
    costs = dict.fromkeys(UNITS, 0.5)
    return Record(commit, "2026-11-29", f"Change | {commit}", "" if ratio is None else "base", 3, costs, ratios)


def test_a_level_is_the_product_of_the_ratios_since_the_first_commit() -> None:
    found = levels([recorded("a", None), recorded("b", 2.0), recorded("c", 0.75)])
    assert [each["memory"] for each in found] == [1.0, 2.0, pytest.approx(1.5)]


def test_the_page_marks_the_commit_that_made_something_dearer() -> None:
    text = page([recorded("first", None), recorded("dearer", 1.2), recorded("same", 1.01)])
    rows = [line for line in text.splitlines() if line.startswith("| 2026")]
    assert [row.split("`")[1] for row in rows] == ["same", "dearer", "first"]
    assert ["**" in row for row in rows] == [False, True, False]
    columns = {row.count(" | ") for row in rows[:2]}
    assert columns == {len(UNITS) + 1}, "a bar in a subject must not become a column"


def test_a_history_follows_main() -> None:
    with pytest.raises(SystemExit, match="does not descend from"):
        record_commits(["HEAD", "HEAD"], None, rounds=1)
