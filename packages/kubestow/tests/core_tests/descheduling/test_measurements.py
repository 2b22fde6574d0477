"""LowNodeUtilization by measured utilization, and measurements that cannot be true."""

from __future__ import annotations

from typing import Any

import pytest

from core_tests.descheduling.objects import evicted, loop, node, pod, policy
from kubestow.api.meta import convert
from kubestow.descheduling.snapshot import NodeMetrics, PodMetrics

NODES = [node("n1"), node("n2")]
PODS = [pod(f"p{i}", "n1", cpu="1m") for i in range(3)]
ARGS = {
    "thresholds": {"cpu": 20},
    "targetThresholds": {"cpu": 50},
    "metricsUtilization": {"source": "KubernetesMetrics"},
}
POLICY = policy("LowNodeUtilization", ARGS, point="balance", metricsProviders=[{"source": "KubernetesMetrics"}])
RECENT = "2026-06-30T23:59:30Z"


def node_usage(name: str, cpu: str, *, timestamp: Any = RECENT, **usage: str) -> NodeMetrics:
    amounts = {"cpu": cpu, "memory": "1Gi", **usage}
    return convert(NodeMetrics, {"metadata": {"name": name}, "timestamp": timestamp, "usage": amounts})


def pod_usage(name: str, cpu: str, *, timestamp: str = RECENT) -> PodMetrics:
    containers = [{"usage": {"cpu": cpu, "memory": "1Mi"}}]
    metadata = {"name": name, "namespace": "default"}
    return convert(PodMetrics, {"metadata": metadata, "timestamp": timestamp, "containers": containers})


def test_what_is_used_decides_and_not_what_is_requested() -> None:
    """n1 uses 3 of 4 cores; without the first pod, which uses 1.5, it is below 50 %."""
    usage = [node_usage("n1", "3"), node_usage("n2", "100m"), *(pod_usage(p, "1500m") for p in ("p0", "p1", "p2"))]
    assert evicted(loop(POLICY, NODES, PODS, *usage)) == ["p0"]
    assert evicted(loop(policy("LowNodeUtilization", _by_requests(), point="balance"), NODES, PODS, *usage)) == []


def _by_requests() -> dict[str, Any]:
    return {name: value for name, value in ARGS.items() if name != "metricsUtilization"}


def test_a_pod_without_a_measurement_stays() -> None:
    usage = [node_usage("n1", "3"), node_usage("n2", "0"), pod_usage("p1", "1"), pod_usage("p2", "-1")]
    assert evicted(loop(POLICY, NODES, PODS, *usage)) == ["p1"]


@pytest.mark.parametrize(
    ("metrics", "problem"),
    [
        ([], "node n2 has no metrics; is KubernetesMetrics in metricsProviders?"),
        ([node_usage("n2", "-100m")], "the metrics of node n2 have a negative amount of cpu: -100m"),
        ([node_usage("n2", "NaN")], "the metrics of node n2 have an invalid amount of cpu: "),
        ([node_usage("n2", "1", timestamp="2026-06-30T23:00:00Z")], "the metrics of node n2 are 3600 s old"),
        ([node_usage("n2", "1", timestamp="2026-07-01T01:00:00Z")], "the metrics of node n2 are from 3600 s in the"),
        ([node_usage("n2", "1", timestamp="soon")], "the metrics of node n2 have no valid timestamp, but 'soon'"),
    ],
)
def test_no_pod_is_evicted_because_of_impossible_measurements(metrics: list[Any], problem: str) -> None:
    usage = [node_usage("n1", "3"), *metrics, *(pod_usage(p, "1") for p in ("p0", "p1", "p2"))]
    result = loop(POLICY, NODES, PODS, *usage)
    assert evicted(result) == []
    (error,) = result.errors
    assert error.plugin == "LowNodeUtilization"
    assert problem in error.problem
