"""LowNodeUtilization by a Prometheus query, and samples that cannot be true."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import pytest

from core_tests.descheduling.objects import NOW, evicted, loop, node, pod, policy
from kubestow.descheduling.descheduler_policy import load_policy
from kubestow.descheduling.snapshot import QueryResult, QuerySample
from kubestow.descheduling.strategies.plugin_registry import find_plugins
from kubestow.errors import ConfigurationError

QUERY = "instance:node_cpu:ratio"
MOMENT = NOW.timestamp() - 1
NODES = [node("high"), node("middle"), node("low")]
PODS = [pod(f"{name}-{number}", name) for name in ("high", "middle", "low") for number in range(3)]


def document(**args: Any) -> dict[str, Any]:
    return policy(
        "LowNodeUtilization",
        {
            "thresholds": {"MetricResource": 20},
            "targetThresholds": {"MetricResource": 60},
            "metricsUtilization": {"source": "Prometheus", "prometheus": {"query": QUERY}},
            **args,
        },
        point="balance",
        metricsProviders=[{"source": "Prometheus", "prometheus": {"url": "http://prometheus:9090"}}],
    )


def samples(high: float, middle: float, low: float, *, time: float = MOMENT) -> list[QuerySample]:
    return [QuerySample(name, time, value) for name, value in (("high", high), ("middle", middle), ("low", low))]


def evicted_with(found: Sequence[QuerySample], **args: Any) -> list[str]:
    result = loop(document(**args), NODES, PODS, query_results={QUERY: QueryResult(found)})
    assert result.errors == []
    return evicted(result)


@pytest.mark.parametrize(
    ("found", "args", "expected"),
    [
        (samples(0.9, 0.5, 0.1), {}, ["high-0"]),
        (samples(0.9, 0.7, 0.1), {}, ["high-0", "middle-0"]),
        (samples(0.7, 0.9, 0.1), {}, ["middle-0", "high-0"]),
        (samples(0.9, 0.5, 0.1), {"evictionLimits": {"node": 2}}, ["high-0", "high-1"]),
        (samples(0.9, 0.5, 0.3), {}, []),
        (samples(0.609, 0.5, 0.209), {}, []),  # whole per cent, rounded down
        (samples(1, 0.5, 0), {}, ["high-0"]),
        (
            samples(0.8, 0.5, 0.2),
            {
                "useDeviationThresholds": True,
                "thresholds": {"MetricResource": 10},
                "targetThresholds": {"MetricResource": 10},
            },
            ["high-0"],
        ),
        (
            [*samples(0.9, 0.5, 0.1), QuerySample("elsewhere", MOMENT, 7.0), QuerySample("", MOMENT, 7.0)],
            {},
            ["high-0"],
        ),
    ],
)
def test_one_pod_leaves_a_node_above_the_target(
    found: list[QuerySample], args: dict[str, Any], expected: list[str]
) -> None:
    assert evicted_with(found, **args) == expected


@pytest.mark.parametrize(
    ("result", "problem"),
    [
        (None, "Prometheus was not asked; is it in metricsProviders?"),
        (QueryResult(problem="http://prometheus:9090: no answer within 10 s"), "no answer within 10 s"),
        (QueryResult(), 'returned no sample with the label instance="high", expected one'),
        (QueryResult(samples(0.9, 0.5, 0.1)[:2]), 'returned no sample with the label instance="low"'),
        (QueryResult(samples(0.9, 0.5, 0.1) * 2), 'returned 2 samples with the label instance="high"'),
        (QueryResult(samples(0.9, -0.5, 0.1)), "returned -0.5 for node middle, expected 0 to 1"),
        (QueryResult(samples(90, 50, 10)), "returned 90 for node high, expected 0 to 1"),
        (QueryResult(samples(0.9, 0.5, math.nan)), "returned nan for node low, expected 0 to 1"),
        (QueryResult(samples(math.inf, 0.5, 0.1)), "returned inf for node high, expected 0 to 1"),
        (QueryResult(samples(0.9, 0.5, 0.1, time=MOMENT - 600)), "for node high are 601 s old"),
        (QueryResult(samples(0.9, 0.5, 0.1, time=MOMENT + 600)), "for node high are from 599 s in the future"),
        (QueryResult(samples(0.9, 0.5, 0.1, time=1e300)), "for node high"),
        (QueryResult(samples(0.9, 0.5, 0.1, time=math.nan)), "for node high"),
    ],
)
def test_no_pod_is_evicted_because_of_impossible_samples(result: QueryResult | None, problem: str) -> None:
    found = loop(document(), NODES, PODS, query_results={} if result is None else {QUERY: result})
    assert evicted(found) == []
    (error,) = found.errors
    assert error.plugin == "LowNodeUtilization"
    assert problem in error.problem


@pytest.mark.parametrize(
    ("args", "problem"),
    [
        (
            {"thresholds": {"cpu": 20}, "targetThresholds": {"cpu": 60}},
            "expected MetricResource alone, which the query measures, got cpu",
        ),
        ({"metricsUtilization": {"source": "Prometheus", "prometheus": {"query": ""}}}, "prometheus query is required"),
        ({"metricsUtilization": {"source": "Guess"}}, 'expected KubernetesMetrics or Prometheus, got "Guess"'),
    ],
)
def test_bad_args_are_rejected(args: dict[str, Any], problem: str) -> None:
    with pytest.raises(ConfigurationError, match=problem):
        load_policy(document(**args), registry=find_plugins())
