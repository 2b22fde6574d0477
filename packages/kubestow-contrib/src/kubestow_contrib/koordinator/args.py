"""The arguments of LoadAwareScheduling."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

import msgspec

from kubestow.api.formats.duration import Duration

_AGGREGATIONS = ("avg", "p50", "p90", "p95", "p99")
_DEFAULT_THRESHOLDS = {"cpu": 65, "memory": 95}
_DEFAULT_FACTORS = {"cpu": 85, "memory": 70}
_DEFAULT_WEIGHTS = {"cpu": 1, "memory": 1}


Percentage = Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)]
"""A percentage in an annotation; JSON has numbers of any size."""


class CustomAggregatedUsage(msgspec.Struct, rename="camel", frozen=True):
    """``aggregatedUsage`` of a node's annotation."""

    usage_thresholds: dict[str, Percentage] = {}
    usage_aggregation_type: str = ""
    usage_aggregated_duration: str | None = None


class CustomUsageThresholds(msgspec.Struct, rename="camel", frozen=True):
    """The annotation ``scheduling.koordinator.sh/usage-thresholds`` of a node, which overrides the arguments."""

    usage_thresholds: dict[str, Percentage] = {}
    prod_usage_thresholds: dict[str, Percentage] = {}
    aggregated_usage: CustomAggregatedUsage | None = None


class AggregatedArgs(msgspec.Struct, rename="camel", frozen=True):
    """Percentiles in place of the latest usage: which ones, over which duration (the longest by default)."""

    usage_thresholds: dict[str, int] | None = None
    usage_aggregation_type: str = ""
    usage_aggregated_duration: str | None = None
    score_aggregation_type: str = ""
    score_aggregated_duration: str | None = None

    def __post_init__(self) -> None:
        _check_percentages(self.usage_thresholds, "usageThresholds")
        for field, kind in (
            ("usageAggregationType", self.usage_aggregation_type),
            ("scoreAggregationType", self.score_aggregation_type),
        ):
            if kind and kind not in _AGGREGATIONS:
                raise ValueError(f'{field} is "{kind}", expected one of {", ".join(_AGGREGATIONS)}')
        for field, text in (
            ("usageAggregatedDuration", self.usage_aggregated_duration),
            ("scoreAggregatedDuration", self.score_aggregated_duration),
        ):
            try:
                negative = Duration.parse(text or "0").nanoseconds < 0
            except ValueError:
                negative = True
            if negative:
                raise ValueError(f'{field} is "{text}", expected a duration such as "5m"')


class LoadAwareSchedulingArgs(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """Thresholds and weights; percentages are 0 to 100, a threshold of 0 is none."""

    filter_expired_node_metrics: bool | None = None
    node_metric_expiration_seconds: int | None = None
    enable_schedule_when_node_metrics_expired: bool | None = None
    resource_weights: dict[str, int] | None = None
    dominant_resource_weight: int = 0
    usage_thresholds: dict[str, int] | None = None
    prod_usage_thresholds: dict[str, int] | None = None
    prod_usage_include_sys: bool = False
    score_according_prod_usage: bool | None = None
    estimator: str = ""
    estimated_scaling_factors: dict[str, int] | None = None
    estimated_seconds_after_pod_scheduled: int | None = None
    estimated_seconds_after_initialized: int | None = None
    allow_customize_estimation: bool = False
    aggregated: AggregatedArgs | None = None
    supported_resources: list[str] | None = None

    def __post_init__(self) -> None:
        expiration = self.node_metric_expiration_seconds
        if expiration is not None and expiration <= 0:
            raise ValueError(f"nodeMetricExpirationSeconds is {expiration}, expected a positive number")
        for name, weight in (self.resource_weights or {}).items():
            if not 1 <= weight <= 100:
                raise ValueError(f"resourceWeights.{name} is {weight}, expected 1 to 100")
        if not 0 <= self.dominant_resource_weight <= 100:
            raise ValueError(f"dominantResourceWeight is {self.dominant_resource_weight}, expected 0 to 100")
        _check_percentages(self.usage_thresholds, "usageThresholds")
        _check_percentages(self.prod_usage_thresholds, "prodUsageThresholds")
        for name, factor in (self.estimated_scaling_factors or {}).items():
            if factor <= 0:
                raise ValueError(f"estimatedScalingFactors.{name} is {factor}, expected a positive percentage")
        for name in self.weights:
            if name not in self.factors:
                raise ValueError(f"estimatedScalingFactors has no {name}, which resourceWeights weighs")
        if self.estimator not in ("", "defaultEstimator"):
            raise ValueError(f'estimator is "{self.estimator}", expected defaultEstimator')

    @property
    def expiration(self) -> float:
        """The age at which a NodeMetric expires, in seconds."""
        return float(self.node_metric_expiration_seconds or 180)

    @property
    def thresholds(self) -> Mapping[str, int]:
        """The thresholds of nodes without their own."""
        return self.usage_thresholds or _DEFAULT_THRESHOLDS

    @property
    def factors(self) -> Mapping[str, int]:
        """By what requests are scaled, in percent."""
        return _DEFAULT_FACTORS | (self.estimated_scaling_factors or {})

    @property
    def weights(self) -> Mapping[str, int]:
        """The weights of resources in the score."""
        if self.resource_weights or self.dominant_resource_weight:
            return self.resource_weights or {}
        return _DEFAULT_WEIGHTS

    @property
    def resources(self) -> tuple[str, ...]:
        """All resources that are looked at, sorted: CPU, memory, and those that appear in the arguments."""
        aggregated = self.aggregated.usage_thresholds if self.aggregated else None
        named = (self.thresholds, self.prod_usage_thresholds, aggregated, self.weights, self.factors)
        names = {name for mapping in named for name in mapping or ()}
        return tuple(sorted({"cpu", "memory", *names, *(self.supported_resources or ())}))


def _check_percentages(thresholds: Mapping[str, int] | None, field: str) -> None:
    for name, threshold in (thresholds or {}).items():
        if not 0 <= threshold <= 100:
            raise ValueError(f"{field}.{name} is {threshold}, expected 0 to 100")
