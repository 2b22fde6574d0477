"""Counters, histograms and gauges that are cheap to update and become metric families at a scrape.

About twenty of them change for every pod. Those of prometheus_client take a lock and most of a microsecond each, a
tenth of a scheduling cycle. Here each cell is updated by one thread, so it is a plain number and an update one
addition. Scrapes may run in another thread. The exposition formats are prometheus_client's. A :class:`MetricSet` has
all metrics of a process.

What Kubernetes defines of its metrics is in ``kubernetes_metrics.json``, which ``tools/schema/metrics.py`` writes from
Kubernetes' own lists; help texts are in the code, as they say what is measured here.

Label values can be restricted to an allow-list (``--allow-metric-labels``); other values become ``unexpected``.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from importlib.resources import files
from itertools import accumulate
from typing import Generic, Literal, TypeVar

import msgspec
from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.utils import floatToGoString

from kubestow.rules.minors import DEFAULT_MINOR, Minor

#: The allowed values of a metric's labels, by label name.
LabelAllowList = Mapping[str, frozenset[str]]

_UNEXPECTED = "unexpected"


class MetricDefinition(msgspec.Struct, frozen=True):
    """The stability level of a metric, which is part of its help text, its label names, and a histogram's buckets.

    Those of Kubernetes have their ``labels`` in alphabetical order. ``buckets`` are upper bounds in the unit of the
    values.
    """

    stability: Literal["STABLE", "BETA", "ALPHA"] = "ALPHA"
    labels: tuple[str, ...] = ()
    buckets: tuple[float, ...] = ()


class _KubernetesMetric(msgspec.Struct, frozen=True):
    """Each version: the minor version from which it holds, and the stability level, None if the metric is gone."""

    versions: list[tuple[int, Literal["STABLE", "BETA", "ALPHA"] | None]]
    labels: tuple[str, ...] = ()
    buckets: tuple[float, ...] = ()

    def in_minor(self, minor: Minor) -> MetricDefinition | None:
        """The definition in a minor version; None if the metric does not exist there."""
        stability = None
        for since, level in self.versions:
            if since <= minor.number:
                stability = level
        return None if stability is None else MetricDefinition(stability, self.labels, self.buckets)


class _KubernetesMetrics(msgspec.Struct, frozen=True):
    metrics: dict[str, _KubernetesMetric]


_KUBERNETES_METRICS = msgspec.json.decode(
    files(__package__).joinpath("kubernetes_metrics.json").read_bytes(), type=_KubernetesMetrics
).metrics


def kubernetes_definition(name: str, minor: Minor = DEFAULT_MINOR) -> MetricDefinition:
    """What Kubernetes defines of a metric in a minor version; ALPHA if it does not exist there."""
    metric = _KUBERNETES_METRICS[name]
    return metric.in_minor(minor) or MetricDefinition(labels=metric.labels, buckets=metric.buckets)


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

    def __init__(self, name: str, documentation: str, definition: MetricDefinition) -> None:
        self.name, self.documentation = name, f"[{definition.stability}] {documentation}"
        self.label_names, self._buckets = definition.labels, definition.buckets
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

    def __init__(self, name: str, documentation: str, definition: MetricDefinition) -> None:
        super().__init__(name, documentation, definition)
        self._cells: dict[tuple[str, ...], Cell] = {}
        self._by_values: dict[tuple[str, ...], Cell] = {}
        if not self.label_names:
            self.labels()  # a metric without labels is exposed from the start

    def labels(self, *values: str) -> Cell:
        """The cell for these label values; it may be cached."""
        cell = self._by_values.get(values)
        if cell is None:
            cell = self._by_values[values] = self._cells.setdefault(self._exposed(values), self.new_cell())
        return cell

    def new_cell(self) -> Cell:
        """A cell that is not exposed."""
        raise NotImplementedError

    def reset(self) -> None:
        """Set all cells to zero."""
        for cell in self._cells.copy().values():
            cell.reset()


class Counter(_Family[CounterCell]):
    """A monotonically increasing metric."""

    def new_cell(self) -> CounterCell:
        return CounterCell()

    def collect(self) -> Metric:
        family = CounterMetricFamily(self.name, self.documentation, labels=self.label_names)
        for values, cell in self._cells.copy().items():
            family.add_metric(values, cell.value)
        return family


class Histogram(_Family[HistogramCell]):
    """A distribution over the buckets of the definition."""

    def new_cell(self) -> HistogramCell:
        return HistogramCell(self._buckets)

    def collect(self) -> Metric:
        family = HistogramMetricFamily(self.name, self.documentation, labels=self.label_names)
        bounds = [*map(floatToGoString, self._buckets), "+Inf"]
        for values, cell in self._cells.copy().items():
            family.add_metric(values, [*zip(bounds, accumulate(cell.counts), strict=True)], cell.sum)
        return family


class Gauge(_Named):
    """A metric computed at a scrape: ``read`` returns the value for each combination of label values."""

    def __init__(
        self,
        name: str,
        documentation: str,
        definition: MetricDefinition,
        *,
        read: Callable[[], Iterable[tuple[tuple[str, ...], float]]],
    ) -> None:
        super().__init__(name, documentation, definition)
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


class ReadCounter(_Named):
    """A counter without labels that is kept elsewhere: ``read`` returns its value at a scrape."""

    def __init__(self, name: str, documentation: str, *, read: Callable[[], float]) -> None:
        super().__init__(name, documentation, MetricDefinition())
        self._read = read

    def reset(self) -> None:
        """Nothing to reset: the value is kept elsewhere."""

    def collect(self) -> Metric:
        return CounterMetricFamily(self.name, self.documentation, value=self._read())


F = TypeVar("F", Counter, Histogram, Gauge, ReadCounter)


class MetricSet:
    """The metrics of one process, exposed by ``registry``. Subclasses declare them with :meth:`counter` and the like.

    Of those that Kubernetes defines, the ones that the ``minor`` version does not have are not exposed. ``disabled``
    lists metrics that are not exposed either, ``allowed`` the allowed label values by metric.
    """

    authentication_duration: Histogram
    authorization_attempts: Counter
    authorization_duration: Histogram

    def __init__(
        self,
        *,
        disabled: Collection[str] = (),
        allowed: Mapping[str, LabelAllowList] | None = None,
        minor: Minor = DEFAULT_MINOR,
    ) -> None:
        self.minor = minor
        self._disabled, self._allowed = frozenset(disabled), allowed or {}
        self._families: dict[str, Counter | Histogram | Gauge | ReadCounter] = {}
        self.registry = CollectorRegistry(auto_describe=False)
        self.registry.register(self)

    def counter(self, name: str, documentation: str, definition: MetricDefinition | None = None) -> Counter:
        """Add a counter, by default one that Kubernetes defines."""
        return self.add(Counter(name, documentation, definition or self.defined(name)))

    def histogram(self, name: str, documentation: str, definition: MetricDefinition | None = None) -> Histogram:
        """Add a histogram, by default one that Kubernetes defines."""
        return self.add(Histogram(name, documentation, definition or self.defined(name)))

    def add_serving(self, durations: MetricDefinition | None = None) -> None:
        """Add the metrics of a secure port; ``durations`` defines those of its durations, in seconds, by result."""
        self.authentication_duration = self.histogram(
            "authentication_duration_seconds", "Authentication duration in seconds, by result.", durations
        )
        self.authorization_attempts = self.counter(
            "authorization_attempts_total", "Number of authorization attempts, by result."
        )
        self.authorization_duration = self.histogram(
            "authorization_duration_seconds", "Authorization duration in seconds, by result.", durations
        )

    def gauge(
        self,
        name: str,
        documentation: str,
        definition: MetricDefinition | None = None,
        *,
        read: Callable[[], Iterable[tuple[tuple[str, ...], float]]],
    ) -> Gauge:
        """Add a gauge, by default one that Kubernetes defines."""
        return self.add(Gauge(name, documentation, definition or self.defined(name), read=read))

    def defined(self, name: str) -> MetricDefinition:
        """Kubernetes' definition of a metric in the minor version; one that does not exist there is not exposed."""
        return kubernetes_definition(name, self.minor)

    def add(self, family: F) -> F:
        """Add a metric."""
        family.allow(self._allowed.get(family.name, {}))
        metric = _KUBERNETES_METRICS.get(family.name)
        if metric is None or metric.in_minor(self.minor) is not None:
            self._families[family.name] = family
        return family

    @property
    def families(self) -> Collection[Counter | Histogram | Gauge | ReadCounter]:
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
