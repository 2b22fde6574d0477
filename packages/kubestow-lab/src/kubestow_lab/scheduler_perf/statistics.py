"""Percentiles, throughput in one-second windows, and quantiles of Prometheus histograms."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import msgspec


class Distribution(msgspec.Struct, rename="camel", frozen=True):
    """Mean and percentiles of some values."""

    mean: float
    p50: float
    p90: float
    p99: float


def percentile(ordered: Sequence[float], percent: float) -> float:
    """The smallest value that at least ``percent`` of the values do not exceed (nearest rank).

    ``ordered`` is sorted and not empty.
    """
    return ordered[max(0, math.ceil(len(ordered) * percent / 100) - 1)]


def distribution(values: Sequence[float]) -> Distribution | None:
    """Mean and percentiles; None without values."""
    if not values:
        return None
    ordered = sorted(values)
    p50, p90, p99 = (percentile(ordered, percent) for percent in (50, 90, 99))
    return Distribution(sum(values) / len(values), p50, p90, p99)


def windows(times: Sequence[float], start: float) -> list[int]:
    """How many of the sorted ``times`` are in each full second from ``start`` to the last of them.

    The last second is not full, so it is left out.
    """
    if not times:
        return []
    counts = [0] * max(0, int(times[-1] - start))
    for time in times:
        second = int(time - start)
        if second < len(counts):
            counts[second] += 1
    return counts


def scheduler_perf_samples(times: Sequence[float], start: float, end: float) -> list[float]:
    """The samples of throughput that scheduler_perf would take, in pods per second.

    It counts once a second. The second in which the first pods are bound only begins the measurement, and seconds
    without a binding are merged with the next one, whose average then counts for each of them.
    """
    samples: list[float] = []
    last_count, last_tick, skipped, count = 0, 0.0, 0, 0
    for number in range(1, int(end - start) + 1):
        tick = start + number
        while count < len(times) and times[count] <= tick:
            count += 1
        if count == last_count:
            skipped += last_count > 0
            continue
        if last_count:
            samples += [(count - last_count) / (tick - last_tick)] * (skipped + 1)
        last_count, last_tick, skipped = count, tick, 0
    return samples


def histogram_quantile(quantile: float, buckets: Mapping[float, float]) -> float:
    """A quantile of a histogram, interpolated linearly in its bucket as Prometheus does.

    ``buckets`` maps each upper bound to the number of values up to it, with one for infinity. Not a number without
    values; the largest finite bound if the quantile is beyond it.
    """
    bounds = sorted(buckets)
    total = buckets[bounds[-1]] if bounds else 0
    if not total:
        return math.nan
    rank = quantile * total
    lower, below = 0.0, 0.0
    for bound in bounds:
        if buckets[bound] >= rank and buckets[bound] > below:
            if math.isinf(bound):
                return lower
            return lower + (bound - lower) * (rank - below) / (buckets[bound] - below)
        lower, below = (lower if math.isinf(bound) else bound), buckets[bound]
    return lower
