"""Counters, histograms and gauges that cost next to nothing to move, and are turned into metric families at a scrape.

A pod passes some twenty of them. prometheus_client's own take a lock and most of a microsecond each, which would be a
tenth of a scheduling cycle; here everything happens on the event loop's thread, so a cell is a plain number and moving
it an addition. Exposition, formats and parsing stay prometheus_client's.

A label's values may be restricted to an allow-list (``--allow-metric-labels``); others become ``unexpected``.
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
    "exponential",
]

#: Of a metric's labels, by name, the values that may be told apart.
LabelAllowList = Mapping[str, frozenset[str]]

_UNEXPECTED = "unexpected"


class Stability(StrEnum):
    """What may be relied on, as Kubernetes writes it into the help of every metric."""

    STABLE = "STABLE"
    BETA = "BETA"
    ALPHA = "ALPHA"


def exponential(start: float, factor: float, count: int) -> tuple[float, ...]:
    """Bounds of buckets, each ``factor`` times the one before."""
    return tuple(start * factor**power for power in range(count))


class CounterCell:
    """One time series of a counter."""

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value = 0

    def clear(self) -> None:
        self.value = 0


class HistogramCell:
    """One labelled histogram. ``counts`` are per bucket, not cumulative; the last bucket has no bound."""

    __slots__ = ("_bounds", "counts", "sum")

    def __init__(self, bounds: Sequence[float]) -> None:
        self._bounds = bounds
        self.clear()

    def clear(self) -> None:
        self.counts, self.sum = [0] * (len(self._bounds) + 1), 0.0

    def observe(self, value: float) -> None:
        """Count a value, in the histogram's unit."""
        self.counts[bisect_left(self._bounds, value)] += 1
        self.sum += value


Cell = TypeVar("Cell", CounterCell, HistogramCell)


class _Family(Generic[Cell]):
    """All cells of one metric, by the values of its labels."""

    def __init__(self, name: str, meaning: str, stability: Stability, labels: Sequence[str]) -> None:
        self.name, self.help, self.labels = name, f"[{stability}] {meaning}", tuple(labels)
        self._allowed: LabelAllowList = {}
        self._cells: dict[tuple[str, ...], Cell] = {}
        self._by_given: dict[tuple[str, ...], Cell] = {}
        if not labels:
            self.at()  # a metric without labels is there from the start

    def at(self, *values: str) -> Cell:
        """The cell for these label values, good for ever."""
        cell = self._by_given.get(values)
        if cell is None:
            told = tuple(
                value if value in self._allowed.get(label, (value,)) else _UNEXPECTED
                for label, value in zip(self.labels, values, strict=True)
            )
            cell = self._by_given[values] = self._cells.setdefault(told, self._new())
        return cell

    def allow(self, allowed: LabelAllowList) -> None:
        """Restrict the values of labels, before anything has been counted."""
        self._allowed = allowed

    def clear(self) -> None:
        """Begin again at nothing."""
        for cell in self._cells.values():
            cell.clear()

    def _new(self) -> Cell:
        raise NotImplementedError


class Counter(_Family[CounterCell]):
    """Something that only grows."""

    def _new(self) -> CounterCell:
        return CounterCell()

    def collect(self) -> Metric:
        family = CounterMetricFamily(self.name, self.help, labels=self.labels)
        for values, cell in self._cells.items():
            family.add_metric(values, cell.value)
        return family


class Histogram(_Family[HistogramCell]):
    """How values are distributed over buckets."""

    def __init__(
        self, name: str, meaning: str, stability: Stability, labels: Sequence[str], *, bounds: Sequence[float]
    ) -> None:
        self._bounds = tuple(bounds)
        self._les = [*map(floatToGoString, self._bounds), "+Inf"]
        super().__init__(name, meaning, stability, labels)

    def _new(self) -> HistogramCell:
        return HistogramCell(self._bounds)

    def collect(self) -> Metric:
        family = HistogramMetricFamily(self.name, self.help, labels=self.labels)
        for values, cell in self._cells.items():
            total = 0
            buckets: list[tuple[str, float]] = []
            for le, count in zip(self._les, cell.counts, strict=True):
                total += count
                buckets.append((le, total))
            family.add_metric(values, buckets, cell.sum)
        return family


class Gauge:
    """Something that is read when somebody asks: ``read`` gives the value for each combination of label values."""

    def __init__(
        self,
        name: str,
        meaning: str,
        stability: Stability,
        labels: Sequence[str],
        *,
        read: Callable[[], Iterable[tuple[tuple[str, ...], float]]],
    ) -> None:
        self.name, self.help, self.labels = name, f"[{stability}] {meaning}", tuple(labels)
        self._read = read
        self._allowed: LabelAllowList = {}

    def allow(self, allowed: LabelAllowList) -> None:
        """Restrict the values of labels."""
        self._allowed = allowed

    def clear(self) -> None:
        """Nothing is kept that could be forgotten."""

    def collect(self) -> Metric:
        sums: dict[tuple[str, ...], float] = {}
        for values, amount in self._read():
            told = tuple(
                value if value in self._allowed.get(label, (value,)) else _UNEXPECTED
                for label, value in zip(self.labels, values, strict=True)
            )
            sums[told] = sums.get(told, 0.0) + amount
        family = GaugeMetricFamily(self.name, self.help, labels=self.labels)
        for values, amount in sums.items():
            family.add_metric(values, amount)
        return family
