"""TargetLoadPacking, with the worked examples of its documentation and the test tables of scheduler-plugins."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from contrib_tests.watched_nodes import EveryNode, Metric, collected, profile_of
from kubestow.api.core import Pod
from kubestow.errors import ConfigurationError
from kubestow.framework.interface import Handle
from kubestow.testing import PluginHarness, check_plugin, node, pod
from kubestow_contrib.trimaran.target_load_packing import TargetLoadPacking

NODE = node("node-1", cpu="1000m", memory="1Gi")


def container(**resources: dict[str, str]) -> dict[str, Any]:
    return {"name": "c", "resources": resources}


def limited(cpu: str, **fields: Any) -> Pod:
    return pod(spec={"containers": [container(limits={"cpu": cpu})]}, **fields)


NOTHING = pod(spec={"containers": []})


@pytest.mark.parametrize(
    ("subject", "cpu", "score"),
    [
        (NOTHING, [("CPU", "Latest", 0)], 40),
        (NOTHING, [("CPU", "Latest", 50)], 33),
        (limited("1"), [("CPU", "Latest", 30)], 0),
        (NOTHING, [], 0),
        (NOTHING, [("Memory", "Latest", 10)], 0),
        (NOTHING, [("CPU", "AVG", 40)], 100),
        (NOTHING, [("CPU", "AVG", 100)], 0),
        (NOTHING, [("CPU", "AVG", 20), ("CPU", "STD", 9)], 70),
        (limited("200m"), [("CPU", "AVG", 20)], 100),
        (limited("300m"), [("CPU", "AVG", 20)], 33),
        (pod(spec={"containers": [container(requests={"cpu": "100m"})]}), [("CPU", "AVG", 5)], 70),
        (pod(spec={"containers": [container()]}), [("CPU", "AVG", 0)], 0),
        (pod(spec={"containers": [], "overhead": {"cpu": "100m"}}), [("CPU", "AVG", 10)], 70),
    ],
)
def test_scores(subject: Pod, cpu: list[Metric], score: int) -> None:
    harness = collected(TargetLoadPacking, [NODE], {"node-1": cpu})
    assert harness.scores(subject, "TargetLoadPacking") == {"node-1": score}


def test_utilization_is_a_share_of_the_capacity() -> None:
    reserved = node("node-1", cpu="1", status={"allocatable": {"cpu": "1", "pods": "9"}, "capacity": {"cpu": "2"}})
    harness = collected(TargetLoadPacking, [reserved], {"node-1": [("CPU", "AVG", 20)]})
    assert harness.scores(limited("400m"), "TargetLoadPacking") == {"node-1": 100}


def test_pods_that_metrics_do_not_show_yet_are_estimated() -> None:
    nodes = [node(name, cpu="1") for name in ("idle", "used")]
    harness = collected(TargetLoadPacking, nodes, {name: [("CPU", "AVG", 0)] for name in ("idle", "used")})
    harness.cluster.assume(harness.info(limited("200m", name="recent")), "used")
    assert harness.scores(NOTHING, "TargetLoadPacking") == {"idle": 40, "used": 70}
    harness.cluster.forget(harness.info(limited("200m", name="recent")).uid)
    assert harness.scores(NOTHING, "TargetLoadPacking") == {"idle": 40, "used": 40}


def test_a_pod_ceases_to_be_estimated_when_newer_metrics_show_it() -> None:
    old = "2025-12-31T23:58:00Z"
    placed = limited("200m", name="running", node="node-1", status={"startTime": old})
    harness = collected(TargetLoadPacking, [NODE], {"node-1": [("CPU", "AVG", 0)]}, pods=[placed])
    assert harness.scores(NOTHING, "TargetLoadPacking") == {"node-1": 40}
    harness = collected(TargetLoadPacking, [NODE], {"node-1": [("CPU", "AVG", 0)]}, pods=[placed], age=90)
    assert harness.scores(NOTHING, "TargetLoadPacking") == {"node-1": 70}


@pytest.mark.parametrize(
    ("args", "problem"),
    [
        ({"targetUtilization": 101}, "targetUtilization is 101, expected 1 to 100"),
        ({"targetUtilisation": 50}, 'unknown field, did you mean "targetUtilization"'),
        ({"targetUtilization": "50"}, "args.targetUtilization: .*expected `int | null`, got `str`"),
        ({"defaultRequestsMultiplier": "much"}, 'defaultRequestsMultiplier is "much", expected a number'),
        ({"defaultRequests": {"cpu": "1 core"}}, "defaultRequests.cpu: .*not a resource quantity"),
        (
            {"metricProvider": {"type": "Graphite"}},
            'type is "Graphite", expected KubernetesMetricsServer or Prometheus',
        ),
        ({"metricProvider": {"type": "SignalFx"}}, "run load-watcher as a service"),
        ({"watcherAddress": "localhost:2020"}, 'watcherAddress is "localhost:2020", expected a URL'),
    ],
)
def test_bad_args_are_rejected(args: dict[str, Any], problem: str) -> None:
    with pytest.raises(ConfigurationError, match=problem):
        PluginHarness(profile=profile_of("TargetLoadPacking", args), plugins=[TargetLoadPacking])


def test_args_are_written_as_for_scheduler_plugins() -> None:
    args = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "TargetLoadPackingArgs",
        "metricProvider": {"type": "Prometheus", "address": "http://prometheus:9090", "insecureSkipVerify": True},
        "targetUtilization": 70,
        "defaultRequests": {"cpu": "2000m"},
        "defaultRequestsMultiplier": "1.8",
    }
    harness = PluginHarness(profile=profile_of("TargetLoadPacking", args), plugins=[TargetLoadPacking])
    (plugin,) = (p for p in harness.profiles["default-scheduler"].plugins if p.name == "TargetLoadPacking")
    assert (plugin.args.target, plugin.args.multiplier, plugin.args.default_cpu) == (70, 1.8, 2000)


class Measured(TargetLoadPacking):
    """With metrics of every node."""

    def __init__(self, args: Any, handle: Handle) -> None:
        super().__init__(args, handle)
        self._collector.usage.replace(EveryNode((handle.now() - timedelta(seconds=1)).timestamp()))


def test_the_contract_is_kept() -> None:
    check_plugin(Measured, pods=[limited("100m", name="small"), limited("1", name="large"), NOTHING])
