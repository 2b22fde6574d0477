"""The decision of ``make benchmark-guard``."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tools.benchmark_guard import ROOT, WORKLOADS, environment_of, excesses, median_ratios

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
