"""The statistics of a report, against simple code."""

from __future__ import annotations

import math
import statistics

from hypothesis import given
from hypothesis import strategies as st

from kubestow_lab.scheduler_perf.phase import distribution, percentile, scheduler_perf_samples, windows
from kubestow_lab.scheduler_perf.scheduler_metrics import durations_between, histogram_quantile, parse_metrics

VALUES = st.lists(st.floats(0, 1e6), min_size=1, max_size=50)
#: Times within 20 seconds of the start, in steps that floating-point numbers represent exactly.
TIMES = st.lists(st.integers(0, 20 * 64).map(lambda number: number / 64), max_size=60).map(sorted)


@given(VALUES, st.integers(1, 100))
def test_a_percentile_is_the_smallest_value_that_enough_values_do_not_exceed(values: list[float], percent: int) -> None:
    result = percentile(sorted(values), percent)
    assert result == min(v for v in values if sum(other <= v for other in values) * 100 >= percent * len(values))


@given(VALUES)
def test_a_distribution_has_the_mean_and_ordered_percentiles(values: list[float]) -> None:
    result = distribution(values)
    assert result is not None
    assert math.isclose(result.mean, statistics.fmean(values), rel_tol=1e-9, abs_tol=1e-9)
    assert min(values) <= result.p50 <= result.p90 <= result.p99 <= max(values)


def test_no_values_have_no_distribution() -> None:
    assert distribution([]) is None


@given(TIMES)
def test_windows_count_what_is_in_each_full_second(times: list[float]) -> None:
    full = int(times[-1]) if times else 0
    assert windows(times, 0.0) == [sum(second <= t < second + 1 for t in times) for second in range(full)]


@given(TIMES, st.integers(0, 25))
def test_samples_are_those_of_a_counter_that_is_read_once_a_second(times: list[float], seconds: int) -> None:
    samples: list[float] = []
    skipped = 0
    previous: tuple[int, int] | None = None
    for tick in range(1, seconds + 1):
        count = sum(time <= tick for time in times)
        if count == 0:
            continue
        if previous is None:
            previous = (count, tick)
        elif count == previous[0]:
            skipped += 1
        else:
            samples += [(count - previous[0]) / (tick - previous[1])] * (skipped + 1)
            previous, skipped = (count, tick), 0
    assert scheduler_perf_samples(times, 0.0, float(seconds)) == samples


@given(st.lists(st.floats(0.001, 0.999), min_size=1, max_size=40), st.sampled_from([0.5, 0.9, 0.99]))
def test_a_quantile_of_a_histogram_is_in_the_bucket_of_the_exact_one(values: list[float], quantile: float) -> None:
    bounds = [0.1, 0.25, 0.5, 1.0, math.inf]
    buckets = {bound: float(sum(value <= bound for value in values)) for bound in bounds}
    exact = sorted(values)[max(0, math.ceil(len(values) * quantile) - 1)]
    upper = next(bound for bound in bounds if exact <= bound)
    lower = max((bound for bound in (0.0, *bounds) if bound < upper), default=0.0)
    assert lower <= histogram_quantile(quantile, buckets) <= upper


def test_a_histogram_without_values_has_no_quantile() -> None:
    assert math.isnan(histogram_quantile(0.5, {1.0: 0.0, math.inf: 0.0}))


def test_a_quantile_beyond_the_largest_bound_is_that_bound() -> None:
    assert histogram_quantile(0.99, {1.0: 1.0, math.inf: 10.0}) == 1.0


METRICS = """\
# HELP scheduler_framework_extension_point_duration_seconds Latency.
# TYPE scheduler_framework_extension_point_duration_seconds histogram
scheduler_framework_extension_point_duration_seconds_bucket{extension_point="Filter",status="Success",le="0.1"} %d
scheduler_framework_extension_point_duration_seconds_bucket{extension_point="Filter",status="Success",le="+Inf"} %d
scheduler_framework_extension_point_duration_seconds_count{extension_point="Filter",status="Success"} %d
scheduler_framework_extension_point_duration_seconds_sum{extension_point="Filter",status="Success"} %f
# HELP other_seconds Another.
# TYPE other_seconds gauge
other_seconds 5
"""


def test_durations_are_those_of_the_calls_between_two_scrapes() -> None:
    before, after = parse_metrics(METRICS % (2, 2, 2, 0.5)), parse_metrics(METRICS % (6, 6, 6, 0.7))
    [filtering] = durations_between(before, after)
    assert (filtering.name, filtering.plugin, filtering.calls) == ("Filter", "", 4)
    assert math.isclose(filtering.mean, 0.05)
    assert math.isclose(filtering.p50, 0.05) and math.isclose(filtering.p99, 0.099)
    assert durations_between(after, after) == []
