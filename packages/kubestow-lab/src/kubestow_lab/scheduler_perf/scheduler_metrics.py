"""The scheduler's own metrics: the durations of extension points, plugins and attempts between two scrapes."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field

import msgspec
from prometheus_client.parser import text_string_to_metric_families

MetricsSource = Callable[[], Awaitable[str]]
"""Scrapes the scheduler: its metrics in the text format. Raises KubestowError if they cannot be read."""

#: The histograms that are reported, and the labels that distinguish rows.
_HISTOGRAMS: Mapping[str, tuple[str, ...]] = {
    "scheduler_scheduling_attempt_duration_seconds": (),
    "scheduler_scheduling_algorithm_duration_seconds": (),
    "scheduler_framework_extension_point_duration_seconds": ("extension_point",),
    "scheduler_plugin_execution_duration_seconds": ("extension_point", "plugin"),
}
_TITLES = {
    "scheduler_scheduling_attempt_duration_seconds": "scheduling attempt",
    "scheduler_scheduling_algorithm_duration_seconds": "scheduling algorithm",
}

Row = tuple[str, str]
"""An extension point (or another duration) and a plugin, empty for all plugins together."""


class DurationResult(msgspec.Struct, rename="camel", frozen=True):
    """How long the calls of an extension point took, or those of one plugin at it; times in seconds.

    Percentiles are estimated from the buckets of a histogram. Plugins are sampled by the scheduler, so ``calls`` is the
    number of measured calls.
    """

    name: str
    plugin: str
    calls: int
    mean: float
    p50: float
    p99: float


@dataclass(slots=True)
class _Histogram:
    count: float = 0.0
    sum: float = 0.0
    buckets: dict[float, float] = field(default_factory=lambda: defaultdict(float))


Snapshot = Mapping[Row, _Histogram]
"""The reported histograms at one time."""


def parse_metrics(text: str) -> Snapshot:
    """The reported histograms of a scrape. Raises ValueError if the text is not in the format of Prometheus."""
    rows: dict[Row, _Histogram] = defaultdict(_Histogram)
    for family in text_string_to_metric_families(text):
        labels = _HISTOGRAMS.get(family.name)
        if labels is None:
            continue
        for sample in family.samples:
            name = _TITLES.get(family.name) or sample.labels.get("extension_point", "")
            row = rows[name, sample.labels.get("plugin", "") if "plugin" in labels else ""]
            if sample.name.endswith("_count"):
                row.count += sample.value
            elif sample.name.endswith("_sum"):
                row.sum += sample.value
            elif sample.name.endswith("_bucket"):
                row.buckets[float(sample.labels["le"])] += sample.value
    return dict(rows)


def durations_between(before: Snapshot, after: Snapshot) -> list[DurationResult]:
    """The durations of the calls between two snapshots, the largest sum first."""
    results = []
    for (name, plugin), end in after.items():
        start = before.get((name, plugin), _Histogram())
        calls, total = end.count - start.count, end.sum - start.sum
        if calls <= 0:
            continue
        buckets = {bound: count - start.buckets.get(bound, 0.0) for bound, count in end.buckets.items()}
        mean, quantiles = total / calls, [histogram_quantile(quantile, buckets) for quantile in (0.5, 0.99)]
        p50, p99 = (value if math.isfinite(value) else mean for value in quantiles)
        results.append(DurationResult(name, plugin, int(calls), mean, p50, p99))
    return sorted(results, key=lambda result: -result.calls * result.mean)


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
