"""Which samples are used, and the columns made of them."""

from __future__ import annotations

import math

import numpy as np
import pytest

from kubestow.cluster.nodes.table import NodeTable
from kubestow.testing import node
from kubestow_contrib.node_load.usage import CLOCK_SKEW, EXPIRATION, NodeUsage, UsageSample, usable

NOW = 1_000_000.0


@pytest.mark.parametrize("age", [0, EXPIRATION, -CLOCK_SKEW])
def test_a_recent_sample_is_used(age: float) -> None:
    sample = UsageSample(NOW - age, 20, 30, 4, 5)
    assert usable(sample, NOW) == sample


@pytest.mark.parametrize("time", [NOW - EXPIRATION - 1, NOW + CLOCK_SKEW + 1, math.nan, math.inf])
def test_a_sample_of_another_time_is_not(time: float) -> None:
    assert usable(UsageSample(time, 20, 30), NOW) is None


@pytest.mark.parametrize("value", [-1, math.nan, math.inf, -math.inf])
def test_a_value_that_cannot_be_true_is_none(value: float) -> None:
    assert usable(UsageSample(NOW, value, value), NOW) is None
    found = usable(UsageSample(NOW, value, 30, value, value), NOW)
    assert found is not None
    assert math.isnan(found.cpu)
    assert found[2:] == (30, 0, 0)


def test_usage_above_the_capacity_is_possible() -> None:
    sample = UsageSample(NOW, 130, 101)
    assert usable(sample, NOW) == sample


def test_columns_follow_samples_and_nodes() -> None:
    table = NodeTable()
    for name in ("a", "b", "c"):
        table.add(node(name))
    usage = NodeUsage(table)
    assert usage.replace({"b": UsageSample(NOW, 20), "c": UsageSample(NOW, 40), "gone": UsageSample(NOW, 1)})
    np.testing.assert_array_equal(usage.columns.cpu, [math.nan, 20, 40])
    table.remove("a")
    assert dict(zip(table.names, usage.columns.cpu.tolist(), strict=True)) == {"b": 20, "c": 40}
    assert not usage.replace(dict(usage.samples))
    assert usage.replace({"b": UsageSample(NOW, 50)})
    assert usage.columns.cpu[table.rows["b"]] == 50
    assert np.isnan(usage.columns.time[table.rows["c"]])
