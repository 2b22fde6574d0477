"""Counters, histograms and gauges that are cheap to update and become metric families at a scrape.

About twenty of them change for every pod. Those of prometheus_client take a lock and most of a microsecond each, a
tenth of a scheduling cycle. Here all updates happen on the event loop's thread, so a cell is a plain number and an
update one addition. The exposition formats are prometheus_client's. A :class:`MetricSet` has all metrics of a process.

Label values can be restricted to an allow-list (``--allow-metric-labels``); other values become ``unexpected``.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from typing import Generic, TypeVar

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.utils import floatToGoString

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


class _Named:
    """Name, help text and labels of a metric."""

    def __init__(self, name: str, documentation: str, stability: Stability, label_names: Sequence[str]) -> None:
        self.name, self.documentation = name, f"[{stability}] {documentation}"
        self.label_names = tuple(label_names)
        self._allowed: LabelAllowList = {}

    def allow(self, allowed: LabelAllowList) -> None:
        """Restrict label values; call this before the first update."""
        self._allowed = allowed

    def _exposed(self, values: Sequence[str]) -> tuple[str, ...]:
        return tuple(
            value if value in self._allowed.get(label, (value,)) else _UNEXPECTED
            for label, value in zip(self.label_names, values, strict=True)
        )


class _Family(_Named, Generic[Cell]):
    """All cells of one metric by label values."""

    def __init__(self, name: str, documentation: str, stability: Stability, label_names: Sequence[str]) -> None:
        super().__init__(name, documentation, stability, label_names)
        self._cells: dict[tuple[str, ...], Cell] = {}
        self._by_values: dict[tuple[str, ...], Cell] = {}
        if not label_names:
            self.labels()  # a metric without labels is exposed from the start

    def labels(self, *values: str) -> Cell:
        """The cell for these label values; it may be cached."""
        cell = self._by_values.get(values)
        if cell is None:
            cell = self._by_values[values] = self._cells.setdefault(self._exposed(values), self._new_cell())
        return cell

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


class Gauge(_Named):
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
        super().__init__(name, documentation, stability, label_names)
        self._read = read

    def reset(self) -> None:
        """Nothing to reset: the value is computed at a scrape."""

    def collect(self) -> Metric:
        sums: dict[tuple[str, ...], float] = {}
        for values, amount in self._read():
            exposed = self._exposed(values)
            sums[exposed] = sums.get(exposed, 0.0) + amount
        family = GaugeMetricFamily(self.name, self.documentation, labels=self.label_names)
        for values, amount in sums.items():
            family.add_metric(values, amount)
        return family


F = TypeVar("F", Counter, Histogram, Gauge)


class MetricSet:
    """The metrics of one process, exposed by ``registry``. Subclasses declare them with :meth:`counter` and the like.

    ``prefix`` precedes the names of metrics that do not give another. ``disabled`` lists metrics that are not exposed,
    ``allowed`` the allowed label values by metric.
    """

    authentication_duration: Histogram
    authorization_attempts: Counter
    authorization_duration: Histogram

    def __init__(
        self,
        prefix: str,
        *,
        disabled: Collection[str] = (),
        allowed: Mapping[str, LabelAllowList] | None = None,
    ) -> None:
        self._prefix, self._disabled, self._allowed = prefix, frozenset(disabled), allowed or {}
        self._families: dict[str, Counter | Histogram | Gauge] = {}
        self.registry = CollectorRegistry(auto_describe=False)
        self.registry.register(self)

    def counter(
        self, name: str, documentation: str, stability: Stability, *label_names: str, prefix: str | None = None
    ) -> Counter:
        """Add a counter."""
        return self.add(Counter(self._full(name, prefix), documentation, stability, label_names))

    def histogram(
        self,
        name: str,
        documentation: str,
        stability: Stability,
        *label_names: str,
        buckets: Sequence[float],
        prefix: str | None = None,
    ) -> Histogram:
        """Add a histogram; ``buckets`` are upper bounds in the unit of the values."""
        return self.add(Histogram(self._full(name, prefix), documentation, stability, label_names, buckets=buckets))

    def add_serving(self, buckets: Sequence[float]) -> None:
        """Add the metrics of a secure port; ``buckets`` are those of its durations, in seconds."""
        self.authentication_duration = self.histogram(
            "authentication_duration_seconds",
            "Authentication duration in seconds, by result.",
            Stability.ALPHA,
            "result",
            buckets=buckets,
            prefix="",
        )
        self.authorization_attempts = self.counter(
            "authorization_attempts_total",
            "Number of authorization attempts, by result.",
            Stability.ALPHA,
            "result",
            prefix="",
        )
        self.authorization_duration = self.histogram(
            "authorization_duration_seconds",
            "Authorization duration in seconds, by result.",
            Stability.ALPHA,
            "result",
            buckets=buckets,
            prefix="",
        )

    def add(self, family: F) -> F:
        """Add a metric."""
        family.allow(self._allowed.get(family.name, {}))
        self._families[family.name] = family
        return family

    def _full(self, name: str, prefix: str | None) -> str:
        return (self._prefix if prefix is None else prefix) + name

    @property
    def families(self) -> Collection[Counter | Histogram | Gauge]:
        """All metrics, including disabled ones."""
        return self._families.values()

    def collect(self) -> Iterator[Metric]:
        """The enabled metrics, for prometheus_client."""
        return (family.collect() for name, family in self._families.items() if name not in self._disabled)

    def reset(self) -> None:
        """Set all counters and histograms to zero (DELETE /metrics)."""
        for family in self._families.values():
            family.reset()


def exposition(registry: CollectorRegistry, accept: str) -> tuple[bytes, str]:
    """The metrics of a registry in the format that an Accept header requests, and the content type."""
    encode, content_type = choose_encoder(accept)
    return encode(registry), content_type
