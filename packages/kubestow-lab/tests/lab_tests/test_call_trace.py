"""A trace lists the calls of one pod at every extension point, in the order of the framework."""

from __future__ import annotations

import itertools
import json
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from kubestow.api.core import Node, Pod
from kubestow.cluster.nodes.views import Nodes
from kubestow.cluster.pods.shapes import PodInfo
from kubestow.engine.input.cluster_objects import ClusterObjects
from kubestow.engine.pipeline.offline_scheduler import SchedulerOptions
from kubestow.framework.cycle_state import CycleState
from kubestow.framework.interface import ReservePlugin, ScorePlugin
from kubestow.framework.status import Status
from kubestow.testing import builders
from kubestow_lab.call_trace import Trace, trace


def traced(nodes: list[Node], pods: list[Pod], probe: Pod, options: SchedulerOptions | None = None) -> Trace:
    return trace(ClusterObjects.of(nodes, [*pods, probe]), probe.metadata.name, options)


def stages(found: Trace) -> list[str]:
    return [stage for stage, _ in itertools.groupby(step.stage for step in found.steps)]


def results(found: Trace, stage: str, plugin: str = "") -> list[str]:
    return [step.result for step in found.steps if step.stage == stage and plugin in ("", step.plugin)]


def test_a_pod_that_fits_passes_all_extension_points_in_order() -> None:
    found = traced([builders.node("a"), builders.node("b", cpu="500m")], [], builders.pod("p", cpu="1"))
    order = [stage for stage in stages(found) if stage[0].isupper() and stage != "API"]
    points = ["PreEnqueue", "PreFilter", "Filter", "Reserve", "Permit", "PreBindPreFlight", "Bind", "PostBind"]
    assert list(dict.fromkeys(order)) == points
    assert results(found, "Filter", "NodeResourcesFit") == ["1 pass; 1 Insufficient cpu"]
    assert results(found, "decision") == ["a"]
    assert results(found, "queue") == ["into active", "bound to a, out of the queue"]
    assert found.outcome == "Running on a"


def test_scores_are_raw_and_normalized() -> None:
    class Ranked(ScorePlugin):
        name = "Ranked"

        def score(self, state: CycleState, pod: PodInfo, nodes: Nodes) -> NDArray[np.int64]:
            return np.arange(len(nodes)) * 10

        def normalize(
            self, state: CycleState, pod: PodInfo, scores: NDArray[np.int64], nodes: Nodes
        ) -> NDArray[np.int64]:
            return scores // 2

    configuration: dict[str, Any] = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "profiles": [{"plugins": {"score": {"enabled": [{"name": "Ranked"}]}}}],
    }
    found = traced(builders.nodes(3), [], builders.pod("p"), SchedulerOptions(configuration, [Ranked]))
    assert results(found, "Score", "Ranked") == ["0 to 20, the highest for 1"]
    assert results(found, "NormalizeScore", "Ranked") == ["0 to 10, the highest for 1"]


def test_a_preemptor_is_traced_through_both_attempts() -> None:
    victim = builders.pod("low", node="a", cpu="3", priority=1)
    found = traced([builders.node("a")], [victim], builders.pod("p", cpu="2", priority=5))
    assert results(found, "PostFilter", "DefaultPreemption") == ["Success on a, evicting default/low"]
    assert results(found, "preemption")[0] == "nominated for a"
    assert [step.attempt for step in found.steps if step.stage == "decision"] == [1, 2]
    assert any("hint: Queue" in result for result in results(found, "queue"))
    assert found.outcome == "Running on a"


def test_a_gated_pod_gets_no_attempt() -> None:
    found = traced([builders.node("a")], [], builders.pod("p", gates=["example.com/quota"]))
    assert "decision" not in stages(found)
    assert results(found, "PreEnqueue", "SchedulingGates")[0].startswith("UnschedulableAndUnresolvable: ")
    assert found.outcome == "Pending: gated by SchedulingGates: waiting for scheduling gates: [example.com/quota]"


def test_a_plugin_that_fails_is_in_the_trace() -> None:
    class Failing(ReservePlugin):
        name = "Failing"

        def reserve(self, state: CycleState, pod: PodInfo, node_name: str) -> Status | None:
            raise ValueError("broken")

        def unreserve(self, state: CycleState, pod: PodInfo, node_name: str) -> None:
            """Nothing to undo."""

    configuration: dict[str, Any] = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "profiles": [{"plugins": {"reserve": {"enabled": [{"name": "Failing"}]}}}],
    }
    found = traced([builders.node("a")], [], builders.pod("p"), SchedulerOptions(configuration, [Failing]))
    assert "ValueError: broken" in results(found, "Reserve", "Failing")[0]
    assert "Unreserve" in stages(found)


def test_a_bound_pod_is_traced_as_if_it_was_new_and_other_pending_pods_take_no_part() -> None:
    others = [builders.pod("other", cpu="4")]
    found = traced([builders.node("a")], others, builders.pod("p", cpu="1", node="a"))
    assert (found.outcome, results(found, "decision")) == ("Running on a", ["a"])


def test_the_same_input_gives_the_same_trace_as_plain_data_and_as_a_table() -> None:
    nodes, pod = builders.nodes(3), builders.pod("p", cpu="1")
    first, again = traced(nodes, [], pod), traced(nodes, [], pod)
    assert first.steps == again.steps
    assert json.loads(msgspec.json.encode(first.document()))["outcome"] == "Running on node-0"
    assert "NodeResourcesFit" in first._repr_html_()
