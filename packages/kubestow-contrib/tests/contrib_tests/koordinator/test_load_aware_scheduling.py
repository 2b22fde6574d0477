"""LoadAwareScheduling, with the test tables of koordinator."""

from __future__ import annotations

import asyncio
import json
from datetime import UTC, datetime, timedelta
from typing import Any, ClassVar

import pytest

from contrib_tests.watched_nodes import profile_of
from kubestow.api.core import Node, Pod
from kubestow.api.meta import convert
from kubestow.cluster.nodes.views import Nodes
from kubestow.cluster.pods.shapes import PodInfo
from kubestow.errors import ConfigurationError
from kubestow.framework.cycle_state import CycleState
from kubestow.framework.status import Verdict
from kubestow.testing import PluginHarness, check_plugin, in_virtual_time, node, pod
from kubestow_contrib.koordinator.estimation import estimate, priority_class
from kubestow_contrib.koordinator.load_aware_scheduling import LoadAwareScheduling
from kubestow_contrib.koordinator.node_metric import NodeMetric

NAME = "LoadAwareScheduling"
NOW = datetime(2026, 1, 1, tzinfo=UTC)
PROD_PRIORITY = 9500


def time(seconds_ago: float = 0) -> str:
    return f"{NOW - timedelta(seconds=seconds_ago):%Y-%m-%dT%H:%M:%SZ}"


def usage(cpu: Any, memory: Any) -> dict[str, Any]:
    return {"resources": {"cpu": cpu, "memory": memory}}


def metric(
    cpu: Any = "0",
    memory: Any = "0",
    *,
    name: str = "n",
    seconds_ago: float | None = 0,
    percentiles: dict[str, dict[str, Any]] | None = None,
    pods: list[dict[str, Any]] | None = None,
    system: dict[str, Any] | None = None,
    info: bool = True,
    version: int = 1,
) -> NodeMetric:
    aggregated = [{"duration": duration, "usage": by_type} for duration, by_type in (percentiles or {}).items()]
    node_metric = {"nodeUsage": usage(cpu, memory), "aggregatedNodeUsages": aggregated, "systemUsage": system or {}}
    status = {
        "updateTime": None if seconds_ago is None else time(seconds_ago),
        "nodeMetric": node_metric if info else None,
        "podsMetric": pods or [],
    }
    return convert(NodeMetric, {"metadata": {"name": name, "resourceVersion": str(version)}, "status": status})


def pod_metric(name: str, cpu: str, memory: str, priority: str = "") -> dict[str, Any]:
    return {"namespace": "default", "name": name, "podUsage": usage(cpu, memory), "priority": priority}


def sized(name: str, cpu: str, memory: str, **fields: Any) -> Pod:
    resources = {"requests": {"cpu": cpu, "memory": memory}, "limits": {"cpu": cpu, "memory": memory}}
    return pod(name, spec={"containers": [{"name": "c", "resources": resources}]}, **fields)


def big_node(annotations: dict[str, str] | None = None, name: str = "n") -> Node:
    return node(name, cpu="96", memory="512Gi", metadata={"annotations": annotations or {}})


def harness(
    *metrics: NodeMetric,
    args: dict[str, Any] | None = None,
    pods: list[Pod] | None = None,
    nodes: list[Node] | None = None,
) -> PluginHarness:
    found = PluginHarness(
        nodes or [big_node()], pods or [], profile=profile_of(NAME, args), plugins=[LoadAwareScheduling]
    )
    for each in metrics:
        found.cluster.catalog(NodeMetric).put(each)
    return found


CPU_EXCEEDED = {"n": (NAME, ("node(s) cpu usage exceed threshold",))}
CPU_P95_EXCEEDED = {"n": (NAME, ("node(s) cpu aggregated usage exceed threshold",))}
MEMORY_EXCEEDED = {"n": (NAME, ("node(s) memory usage exceed threshold",))}
EXPIRED = {"n": (NAME, ("node(s) nodeMetric expired",))}
P95 = {"5m0s": {"p95": usage("70", "256Gi")}}
P95_LONGEST = {"usageThresholds": {"cpu": 60}, "usageAggregationType": "p95"}
P95_ARGS = P95_LONGEST | {"usageAggregatedDuration": "5m"}


@pytest.mark.parametrize(
    ("metrics", "args", "annotation", "expected"),
    [
        ([metric("60", "256Gi")], {}, None, {}),
        ([], {}, None, {}),
        ([metric("70", "256Gi")], {}, None, CPU_EXCEEDED),
        ([metric("30", "500Gi")], {}, None, MEMORY_EXCEEDED),
        ([metric("30", "100Gi", percentiles=P95)], {"aggregated": P95_ARGS}, None, CPU_P95_EXCEEDED),
        ([metric("30", "100Gi", percentiles=P95)], {}, {"aggregatedUsage": P95_ARGS}, CPU_P95_EXCEEDED),
        ([metric("30", "316Gi")], {}, {"usageThresholds": {"memory": 60}}, MEMORY_EXCEEDED),
        ([metric("30", "500Gi")], {"usageThresholds": {"memory": 0}}, None, {}),
        ([metric("70", "500Gi", info=False)], {}, None, {}),
        ([metric("70", seconds_ago=179)], {}, None, CPU_EXCEEDED),
        ([metric(seconds_ago=180)], {}, None, EXPIRED),
        ([metric(seconds_ago=None)], {}, None, EXPIRED),
        ([metric("70", seconds_ago=180)], {"enableScheduleWhenNodeMetricsExpired": True}, None, {}),
        ([metric("70", seconds_ago=180)], {"filterExpiredNodeMetrics": False}, None, CPU_EXCEEDED),
        ([metric("70", seconds_ago=180)], {"nodeMetricExpirationSeconds": 300}, None, CPU_EXCEEDED),
        ([metric("70", seconds_ago=-61)], {}, None, {}),
        ([metric("70", seconds_ago=-60)], {}, None, CPU_EXCEEDED),
        ([metric("-70", "500Gi")], {}, None, {}),
        ([metric("much", "500Gi")], {}, None, {}),
        # A negative duration is malformed.
        ([metric("70", "9Gi", percentiles={"-5m": P95["5m0s"]})], {"aggregated": P95_LONGEST}, None, CPU_P95_EXCEEDED),
        # Without a duration the longest one counts, and the latest usage if there is none.
        ([metric("30", "9Gi", percentiles=P95)], {"aggregated": P95_LONGEST}, None, CPU_P95_EXCEEDED),
        ([metric("70", "9Gi")], {"aggregated": P95_LONGEST}, None, CPU_P95_EXCEEDED),
        ([metric("70", "9Gi")], {"aggregated": P95_ARGS}, None, {}),
    ],
)  # fmt: skip
def test_filter(
    metrics: list[NodeMetric], args: dict[str, Any], annotation: dict[str, Any] | None, expected: dict[str, Any]
) -> None:
    annotations = {} if annotation is None else {"scheduling.koordinator.sh/usage-thresholds": json.dumps(annotation)}
    found = harness(*metrics, args=args, nodes=[big_node(annotations)])
    assert found.rejections(pod()) == expected


def test_pods_of_daemon_sets_are_not_rejected() -> None:
    owner = [{"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "agent", "uid": "u", "controller": True}]
    assert harness(metric("70")).feasible(pod("agent", metadata={"ownerReferences": owner})) == {"n"}


@pytest.mark.parametrize(
    "annotation",
    ["{", '{"usageThresholds": {"cpu": -1}}', '{"usageThresholds": {"cpu": 99999999999999999999}}'],
)
def test_a_malformed_annotation_is_ignored(annotation: str) -> None:
    nodes = [big_node({"scheduling.koordinator.sh/usage-thresholds": annotation})]
    assert harness(metric("70"), nodes=nodes).rejections(pod()) == CPU_EXCEEDED


def test_the_pod_itself_is_estimated() -> None:
    assert harness(metric("60")).feasible(sized("p", "2", "1Gi")) == {"n"}
    assert harness(metric("60")).feasible(sized("p", "4", "1Gi")) == set()


def test_pods_that_the_report_does_not_show_are_estimated() -> None:
    recent = sized("recent", "8", "8Gi", node="n")
    assert harness(metric("60"), pods=[recent]).rejections(pod()) == CPU_EXCEEDED  # 60 + 6.8 + 0.25 of 96
    measured = metric("60", pods=[pod_metric("recent", "6", "1Gi")])
    assert harness(measured, pods=[recent]).feasible(pod()) == {"n"}  # 60 + 0.8 + 0.25
    scheduled = {"conditions": [{"type": "PodScheduled", "status": "True", "lastTransitionTime": time(61)}]}
    old = sized("recent", "8", "8Gi", node="n", status=scheduled)
    not_measured = metric("60", pods=[pod_metric("recent", "1", "1Gi")])
    assert harness(not_measured, pods=[recent]).rejections(pod()) == CPU_EXCEEDED
    assert harness(not_measured, pods=[old]).feasible(pod()) == {"n"}
    forced = {"estimatedSecondsAfterPodScheduled": 3600}
    assert harness(not_measured, pods=[old], args=forced).rejections(pod()) == CPU_EXCEEDED


def test_estimates_follow_pods_and_reports() -> None:
    found = harness(metric("60"))
    assert found.feasible(pod()) == {"n"}
    recent = found.info(sized("recent", "8", "8Gi"))
    found.cluster.assume(recent, "n")
    assert found.rejections(pod()) == CPU_EXCEEDED
    found.cluster.catalog(NodeMetric).put(metric("61", pods=[pod_metric("recent", "7", "1Gi")]))
    assert found.feasible(pod()) == {"n"}
    found.cluster.catalog(NodeMetric).put(metric("61"))
    assert found.rejections(pod()) == CPU_EXCEEDED
    found.cluster.forget(recent.uid)
    assert found.feasible(pod()) == {"n"}
    found.cluster.catalog(NodeMetric).put(metric("90"))
    assert found.rejections(pod()) == CPU_EXCEEDED
    found.cluster.catalog(NodeMetric).remove("", "n")
    assert found.feasible(pod()) == {"n"}


def test_a_report_may_arrive_before_its_node() -> None:
    found = harness(metric("70", name="late"), pods=[sized("early", "8", "8Gi", node="late")])
    assert found.feasible(pod()) == {"n"}
    found.cluster.add_node(big_node(name="late"))
    assert found.feasible(pod()) == {"n"}
    found.cluster.remove_node("n")
    assert found.feasible(pod()) == set()


def test_production_pods_have_thresholds_of_their_own() -> None:
    args = {"usageThresholds": {"cpu": 65}, "prodUsageThresholds": {"cpu": 50}}
    prod = sized("prod", "1", "1Gi", priority=PROD_PRIORITY)
    batch = pod("batch", priority=5500)
    running = sized("running", "60", "1Gi", node="n", priority=PROD_PRIORITY)
    shown = {"conditions": [{"type": "PodScheduled", "status": "True", "lastTransitionTime": time(600)}]}
    old = sized("running", "60", "1Gi", node="n", priority=PROD_PRIORITY, status=shown)
    measured = metric("60", pods=[pod_metric("running", "55", "1Gi", "koord-prod")])
    assert harness(metric("0"), args=args).feasible(prod) == {"n"}
    assert harness(measured, args=args, pods=[old]).rejections(prod) == CPU_EXCEEDED
    assert harness(measured, args=args, pods=[old]).feasible(batch) == {"n"}
    # Measured as another class, it counts by its estimate: 51 of 96.
    elsewhere = metric("60", pods=[pod_metric("running", "55", "1Gi", "koord-batch")])
    assert harness(elsewhere, args=args, pods=[running]).rejections(prod) == CPU_EXCEEDED
    system = metric("60", system=usage("50", "1Gi"))
    assert harness(system, args=args).feasible(prod) == {"n"}
    assert harness(system, args=args | {"prodUsageIncludeSys": True}).rejections(prod) == CPU_EXCEEDED


@pytest.mark.parametrize(
    ("metrics", "args", "score"),
    [
        ([metric(seconds_ago=180)], {}, 0),
        ([metric()], {}, 90),
        ([], {}, 0),
        ([metric("32", "10Gi")], {}, 72),
        ([metric(info=False)], {}, 0),
        (
            [metric(percentiles={"5m0s": {"p95": usage("32", "10Gi"), "p99": usage("50", "70Gi")}})],
            {"aggregated": {"scoreAggregationType": "p95", "scoreAggregatedDuration": "5m"}},
            72,
        ),
        ([metric()], {"aggregated": {"scoreAggregationType": "p95", "scoreAggregatedDuration": "5m"}}, 90),
        # CPU has 52 % left and memory 93 %.
        ([metric("32", "10Gi")], {"dominantResourceWeight": 1}, 52),
        ([metric("32", "10Gi")], {"dominantResourceWeight": 1, "resourceWeights": {"cpu": 1, "memory": 2}}, 72),
        ([metric("96", "512Gi")], {"usageThresholds": {"cpu": 0}}, 0),
    ],
)
def test_scores(metrics: list[NodeMetric], args: dict[str, Any], score: int) -> None:
    found = harness(*metrics, args={"usageThresholds": {"cpu": 0}, **args})
    assert found.scores(sized("p", "16", "32Gi"), NAME) == {"n": score}


def test_scoring_by_the_usage_of_production_pods() -> None:
    args = {"scoreAccordingProdUsage": True}
    found = harness(metric("32", "10Gi"), args=args)
    assert found.scores(sized("p", "16", "32Gi", priority=PROD_PRIORITY), NAME) == {"n": 90}
    assert found.scores(pod("batch", priority=5500), NAME) == {"n": 82}


@pytest.mark.parametrize(
    ("requests", "limits", "factors", "expected"),
    [
        ({}, {}, {}, (250, 200 * 2**20)),
        ({"cpu": "4", "memory": "8Gi"}, {"cpu": "4", "memory": "8Gi"}, {}, (3400, 6012954214)),
        ({"cpu": "4", "memory": "8Gi"}, {"cpu": "8", "memory": "8Gi"}, {}, (6800, 6012954214)),
        ({"cpu": "4", "memory": "8Gi"}, {"cpu": "4", "memory": "8Gi"}, {"cpu": 110}, (4000, 6012954214)),
        ({"cpu": "4", "memory": "8Gi"}, {"cpu": "4", "memory": "8Gi"}, {"memory": 110}, (3400, 8589934592)),
        ({"cpu": "4", "memory": "8Gi"}, {}, {"cpu": 80, "memory": 80}, (3200, 6871947674)),
    ],
)
def test_estimates(
    requests: dict[str, str], limits: dict[str, str], factors: dict[str, int], expected: tuple[int, int]
) -> None:
    subject = pod(spec={"containers": [{"name": "c", "resources": {"requests": requests, "limits": limits}}]})
    shape = PluginHarness().info(subject).shape
    assert estimate(shape, ("cpu", "memory"), {"cpu": 85, "memory": 70} | factors) == expected


def test_batch_pods_request_batch_resources() -> None:
    amounts = {"kubernetes.io/batch-cpu": "4000", "kubernetes.io/batch-memory": "8Gi"}
    resources = {"requests": amounts, "limits": amounts}
    subject = pod(priority=5000, spec={"containers": [{"name": "c", "resources": resources}]})
    shape = PluginHarness().info(subject).shape
    assert estimate(shape, ("cpu", "memory"), {"cpu": 85, "memory": 70}) == (3400, 6012954214)


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"labels": {"koordinator.sh/priority-class": "koord-mid"}, "priority": 9500}, "koord-mid"),
        ({"priority": 9000}, "koord-prod"),
        ({"priority": 7999}, "koord-mid"),
        ({"priority": 5000}, "koord-batch"),
        ({"priority": 3000}, "koord-free"),
        ({"priority": 1, "labels": {"koordinator.sh/qosClass": "BE"}}, "koord-batch"),
        ({"labels": {"koordinator.sh/qosClass": "LSR"}}, "koord-prod"),
        ({"cpu": "1"}, "koord-prod"),
        ({}, "koord-batch"),
    ],
)
def test_priority_classes(fields: dict[str, Any], expected: str) -> None:
    assert priority_class(PluginHarness().info(pod(**fields)).shape) == expected


def test_pods_may_have_factors_of_their_own() -> None:
    own = {"annotations": {"scheduling.koordinator.sh/load-estimated-scaling-factors": '{"cpu": 10}'}}
    subject = sized("p", "10", "1Gi", metadata=own)
    assert harness(metric("60")).feasible(subject) == set()
    assert harness(metric("60"), args={"allowCustomizeEstimation": True}).feasible(subject) == {"n"}


@pytest.mark.parametrize("factors", ["{", '{"cpu": -1000}'])
def test_malformed_factors_are_ignored(factors: str) -> None:
    own = {"annotations": {"scheduling.koordinator.sh/load-estimated-scaling-factors": factors}}
    found = harness(metric("60"), args={"allowCustomizeEstimation": True})
    assert found.feasible(sized("p", "10", "1Gi", metadata=own)) == set()


@pytest.mark.parametrize("key", ["after-pod-scheduled", "after-initialized"])
def test_seconds_without_bounds_are_ignored(key: str) -> None:
    own = {"annotations": {f"scheduling.koordinator.sh/load-estimated-seconds-{key}": "9" * 400}}
    conditions = [
        {"type": kind, "status": "True", "lastTransitionTime": time(600)} for kind in ("PodScheduled", "Initialized")
    ]
    running = sized("running", "8", "8Gi", node="n", metadata=own, status={"conditions": conditions})
    measured, not_measured = metric("30", pods=[pod_metric("running", "1", "1Gi")]), sized("new", "40", "8Gi", node="n")
    found = harness(measured, pods=[running, not_measured], args={"allowCustomizeEstimation": True})
    assert found.rejections(pod()) == CPU_EXCEEDED


@pytest.mark.parametrize(
    ("args", "problem"),
    [
        ({"nodeMetricExpirationSeconds": 0}, "nodeMetricExpirationSeconds is 0, expected a positive number"),
        ({"usageThresholds": {"cpu": 101}}, "usageThresholds.cpu is 101, expected 0 to 100"),
        ({"usageThresholds": {"cpu": "65"}}, "expected `int`, got `str`"),
        ({"prodUsageThresholds": {"cpu": -1}}, "prodUsageThresholds.cpu is -1"),
        ({"resourceWeights": {"cpu": 0}}, "resourceWeights.cpu is 0, expected 1 to 100"),
        ({"resourceWeights": {"example.com/gpu": 1}}, "estimatedScalingFactors has no example.com/gpu"),
        ({"estimatedScalingFactors": {"cpu": 0}}, "estimatedScalingFactors.cpu is 0"),
        ({"aggregated": {"usageAggregationType": "p42"}}, 'usageAggregationType is "p42", expected one of avg'),
        ({"aggregated": {"usageAggregatedDuration": "soon"}}, 'usageAggregatedDuration is "soon"'),
        ({"estimator": "oracle"}, 'estimator is "oracle"'),
    ],
)
def test_bad_args_are_rejected(args: dict[str, Any], problem: str) -> None:
    with pytest.raises(ConfigurationError, match=problem):
        harness(args=args)


def test_a_rejected_pod_is_tried_again_when_the_usage_falls() -> None:
    async def scenario(running: Any) -> None:
        running.cluster.put(pod("p"))
        await running.advance(20)
        assert running.node_of("p") == ""
        running.cluster.put(metric("10"))
        await running.advance(2)
        assert running.node_of("p") == "n"

    profiles = [{"schedulerName": "default-scheduler", **profile_of(NAME)}]
    in_virtual_time(scenario, big_node(), metric("90"), plugins=[LoadAwareScheduling], profiles=profiles)


def test_an_expired_report_is_noticed() -> None:
    found = harness(metric("90"), args={"enableScheduleWhenNodeMetricsExpired": True})
    (check,) = found.periodic_work
    asyncio.run(check())  # type: ignore[arg-type]
    assert found.feasible(pod()) == set()
    found.time += timedelta(seconds=181)
    asyncio.run(check())  # type: ignore[arg-type]
    assert found.feasible(pod()) == {"n"}


def test_a_node_that_changes_is_read_again() -> None:
    found = harness(metric("60", "256Gi"))
    assert found.feasible(pod()) == {"n"}
    heartbeat = {"allocatable": {"cpu": "96", "memory": "512Gi", "pods": "110"}, "conditions": []}
    found.cluster.update_node(node("n", cpu="96", memory="512Gi", status=heartbeat))
    assert found.feasible(pod()) == {"n"}
    found.cluster.assume(found.info(sized("other", "1", "1Gi")), "n")
    assert found.feasible(pod()) == {"n"}
    found.cluster.update_node(
        big_node({"scheduling.koordinator.sh/usage-thresholds": '{"usageThresholds": {"cpu": 30}}'})
    )
    assert found.rejections(pod()) == CPU_EXCEEDED


def test_a_report_has_its_node_evaluated_and_no_other() -> None:
    class Counting(LoadAwareScheduling):
        evaluated: ClassVar[list[int]] = []

        def filter(self, state: CycleState, pod: PodInfo, nodes: Nodes) -> Verdict | None:
            self.evaluated.append(len(nodes))
            return super().filter(state, pod, nodes)

    names = [f"n{number}" for number in range(20)]
    found = PluginHarness([big_node(name=name) for name in names], profile=profile_of(NAME), plugins=[Counting])
    for name in names:
        found.cluster.catalog(NodeMetric).put(metric("60", name=name))
    assert len(found.feasible(pod())) == 20
    found.cluster.catalog(NodeMetric).put(metric("70", name="n7", seconds_ago=-1, version=2))
    assert found.feasible(pod()) == {*names} - {"n7"}
    assert Counting.evaluated == [20]


def test_the_contract_is_kept() -> None:
    nodes = [big_node(name=name) for name in ("a", "b", "c")]
    metrics = [
        metric(str(20 * number), name=f"{name}-{number}", pods=[pod_metric("x", "1", "1Gi")])
        for name in ("a", "b")
        for number in range(5)
    ]
    pods = [
        sized("small", "1", "1Gi"),
        sized("prod", "20", "9Gi", priority=PROD_PRIORITY),
        pod("batch", priority=5500),
        sized("running", "10", "1Gi", node="a"),
    ]
    check_plugin(
        LoadAwareScheduling, args={"prodUsageThresholds": {"cpu": 40}}, nodes=nodes, pods=pods, objects=metrics
    )
