"""Counters, histograms and gauges that are cheap to update and become metric families at a scrape.

About twenty of them change for every pod. Those of prometheus_client take a lock and most of a microsecond each, a
tenth of a scheduling cycle. Here all updates happen on the event loop's thread, so a cell is a plain number and an
update one addition. The exposition formats are prometheus_client's.

Label values can be restricted to an allow-list (``--allow-metric-labels``); other values become ``unexpected``.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import StrEnum
from typing import Generic, TypeVar

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.utils import floatToGoString

__all__ = [
    "Counter",
    "CounterCell",
    "Gauge",
    "Histogram",
    "HistogramCell",
    "LabelAllowList",
    "Stability",
    "exponential_buckets",
]

#: The allowed values of a metric's labels, by label name.
LabelAllowList = Mapping[str, frozenset[str]]

_UNEXPECTED = "unexpected"


class Stability(StrEnum):
    """Kubernetes' stability level of a metric, which is part of its help text."""

    STABLE = "STABLE"
    BETA = "BETA"
    ALPHA = "ALPHA"


def exponential_buckets(start: float, factor: float, count: int) -> tuple[float, ...]:
    """Upper bounds of ``count`` buckets, each ``factor`` times the one before."""
    return tuple(start * factor**power for power in range(count))


class CounterCell:
    """One time series of a counter. Increment ``value``."""

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value = 0

    def reset(self) -> None:
        self.value = 0


class HistogramCell:
    """One time series of a histogram. ``counts`` are per bucket, not cumulative; the last bucket is unbounded."""

    __slots__ = ("_buckets", "counts", "sum")

    def __init__(self, buckets: Sequence[float]) -> None:
        self._buckets = buckets
        self.reset()

    def reset(self) -> None:
        self.counts, self.sum = [0] * (len(self._buckets) + 1), 0.0

    def observe(self, value: float) -> None:
        """Add a value, in the unit of the histogram."""
        self.counts[bisect_left(self._buckets, value)] += 1
        self.sum += value


Cell = TypeVar("Cell", CounterCell, HistogramCell)


class _Family(Generic[Cell]):
    """All cells of one metric by label values."""

    def __init__(self, name: str, documentation: str, stability: Stability, label_names: Sequence[str]) -> None:
        self.name, self.documentation = name, f"[{stability}] {documentation}"
        self.label_names = tuple(label_names)
        self._allowed: LabelAllowList = {}
        self._cells: dict[tuple[str, ...], Cell] = {}
        self._by_values: dict[tuple[str, ...], Cell] = {}
        if not label_names:
            self.labels()  # a metric without labels is exposed from the start

    def labels(self, *values: str) -> Cell:
        """The cell for these label values; it may be cached."""
        cell = self._by_values.get(values)
        if cell is None:
            exposed = tuple(
                value if value in self._allowed.get(label, (value,)) else _UNEXPECTED
                for label, value in zip(self.label_names, values, strict=True)
            )
            cell = self._by_values[values] = self._cells.setdefault(exposed, self._new_cell())
        return cell

    def allow(self, allowed: LabelAllowList) -> None:
        """Restrict label values; call this before the first update."""
        self._allowed = allowed

    def reset(self) -> None:
        """Set all cells to zero."""
        for cell in self._cells.values():
            cell.reset()

    def _new_cell(self) -> Cell:
        raise NotImplementedError


class Counter(_Family[CounterCell]):
    """A monotonically increasing metric."""

    def _new_cell(self) -> CounterCell:
        return CounterCell()

    def collect(self) -> Metric:
        family = CounterMetricFamily(self.name, self.documentation, labels=self.label_names)
        for values, cell in self._cells.items():
            family.add_metric(values, cell.value)
        return family


class Histogram(_Family[HistogramCell]):
    """A distribution over buckets with the given upper bounds."""

    def __init__(
        self,
        name: str,
        documentation: str,
        stability: Stability,
        label_names: Sequence[str],
        *,
        buckets: Sequence[float],
    ) -> None:
        self._buckets = tuple(buckets)
        self._les = [*map(floatToGoString, self._buckets), "+Inf"]
        super().__init__(name, documentation, stability, label_names)

    def _new_cell(self) -> HistogramCell:
        return HistogramCell(self._buckets)

    def collect(self) -> Metric:
        family = HistogramMetricFamily(self.name, self.documentation, labels=self.label_names)
        for values, cell in self._cells.items():
            total = 0
            buckets: list[tuple[str, float]] = []
            for le, count in zip(self._les, cell.counts, strict=True):
                total += count
                buckets.append((le, total))
            family.add_metric(values, buckets, cell.sum)
        return family


class Gauge:
    """A metric computed at a scrape: ``read`` returns the value for each combination of label values."""

    def __init__(
        self,
        name: str,
        documentation: str,
        stability: Stability,
        label_names: Sequence[str],
        *,
        read: Callable[[], Iterable[tuple[tuple[str, ...], float]]],
    ) -> None:
        self.name, self.documentation = name, f"[{stability}] {documentation}"
        self.label_names = tuple(label_names)
        self._read = read
        self._allowed: LabelAllowList = {}

    def allow(self, allowed: LabelAllowList) -> None:
        """Restrict label values."""
        self._allowed = allowed

    def reset(self) -> None:
        """Nothing to reset: the value is computed at a scrape."""

    def collect(self) -> Metric:
        sums: dict[tuple[str, ...], float] = {}
        for values, amount in self._read():
            exposed = tuple(
                value if value in self._allowed.get(label, (value,)) else _UNEXPECTED
                for label, value in zip(self.label_names, values, strict=True)
            )
            sums[exposed] = sums.get(exposed, 0.0) + amount
        family = GaugeMetricFamily(self.name, self.documentation, labels=self.label_names)
        for values, amount in sums.items():
            family.add_metric(values, amount)
        return family
