"""Thresholds are parsed strictly, and checked by plain arithmetic."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubestow.errors import InputError
from kubestow_lab.comparison.thresholds import Threshold

NUMBERS = st.integers(0, 1000).map(str) | st.decimals(0, 100, places=2).map(str)
LINEAR = st.recursive(
    NUMBERS | st.just("baseline"),
    lambda inner: st.one_of(
        st.tuples(inner, st.sampled_from(["+", "-"]), inner).map(" ".join),
        st.tuples(inner, NUMBERS).map(lambda pair: f"({pair[0]}) * {pair[1]}"),
        st.tuples(inner, st.integers(1, 9)).map(lambda pair: f"({pair[0]})/{pair[1]}"),
        inner.map(lambda text: f"-({text})"),
    ),
    max_leaves=4,
).filter(lambda text: len(text) < 150)


@given(LINEAR, st.integers(0, 10_000))
def test_a_limit_is_what_python_computes(limit: str, baseline: int) -> None:
    checked = Threshold.parse(f"pending > {limit}").check(0, baseline)
    expected = eval(limit, {}, {"baseline": baseline})
    assert checked.limit == pytest.approx(expected, rel=1e-9, abs=1e-6)


@pytest.mark.parametrize(
    ("text", "value", "baseline", "crossed"),
    [
        ("pending > baseline", 3, 3, False),
        ("pending > baseline", 4, 3, True),
        ("pending>=baseline", 3, 3, True),
        ("pending > baseline * 1.05", 105, 100, False),
        ("pending > baseline * 1.05", 106, 100, True),
        ("pending > baseline + 3", 6, 3, False),
        ("pending != 0", 1, 0, True),
        ("pending == 2 * (baseline - 1) / 4", 1, 3, True),
        ("utilisation.cpu < baseline - 0.01", 0.5, 0.52, True),
        ("fragmentation.nvidia.com/gpu-milli <= 0.1", 0.1, 0.0, True),
        ("  lost > -1 ", 0, 0, True),
    ],
)
def test_a_threshold_is_crossed_if_the_comparison_holds(
    text: str, value: float, baseline: float, crossed: bool
) -> None:
    assert Threshold.parse(text).check(value, baseline).crossed is crossed


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "column 1: expected a metric such as pending, got the end"),
        ("3 > pending", "column 1: expected a metric"),
        ("pending", "column 8: expected one of > >= < <= == !=, got the end"),
        ("pending = baseline", "column 9: expected one of > >= < <= == !=, got '= baseline'"),
        ("pending > ", "column 11: expected a number, baseline or (, got the end"),
        ("pending > baseline 3", "column 20: expected an operator or the end, got '3'"),
        ("pending > baseline +* 3", "column 21: expected a number"),
        ("pending > (baseline", "column 20: expected ), got the end"),
        ("pending > Baseline", "column 11: expected a number, baseline or (, got 'Baseline'"),
        ("pending > 1e9", "column 11: expected a number"),
        ("pending > 0x10", "column 11: expected a number"),
        ("pending > 1_000", "column 11: expected a number"),
        ("pending > baseline ** 2", "column 21: expected a number"),
        ("pending > baseline * baseline", "column 20: expected a product with baseline in one factor"),
        ("pending > 1 / baseline", "column 13: expected a divisor that is a number other than 0"),
        ("pending > baseline / 0", "column 20: expected a divisor"),
        ("pending > __import__('os')", "column 11: expected a number"),
        ("pending > " + "(" * 300, "expected at most 200 characters, got 310"),
    ],
)
def test_anything_else_is_refused_with_the_place(text: str, problem: str) -> None:
    with pytest.raises(InputError) as error:
        Threshold.parse(text)
    assert problem in str(error.value)


@given(st.text(max_size=60))
def test_no_text_raises_anything_but_an_input_error(text: str) -> None:
    try:
        Threshold.parse(text)
        Threshold.parse(f"pending > {text}")
    except InputError:
        pass


def test_many_parentheses_are_no_problem() -> None:
    assert Threshold.parse("pending > " + "(" * 90 + "1" + ")" * 90).check(2, 0).crossed


def test_an_unknown_metric_is_refused_with_the_metrics() -> None:
    with pytest.raises(InputError, match=r"no metric 'pendig', the metrics are: pending, placed, .* utilisation\.cpu"):
        Threshold.parse("pendig > 1")
    gpu = Threshold.parse("utilisation.gpu > 1")
    with pytest.raises(InputError, match=r"no metric 'utilisation\.gpu', .*utilisation\.cpu, utilisation\.memory"):
        gpu.require_metric(["memory", "cpu"])
    gpu.require_metric(["gpu"])
