"""The decision of ``make benchmark-guard``."""

from __future__ import annotations

import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tools.benchmark_guard import WORKLOADS, excesses, median_ratios

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
