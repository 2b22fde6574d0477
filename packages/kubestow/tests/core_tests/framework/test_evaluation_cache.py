"""The cache of evaluations is bounded, whatever pods tenants create."""

from __future__ import annotations

import gc

import pytest

from kubestow.cluster.nodes.views import Nodes
from kubestow.cluster.pods.shapes import PodInfo
from kubestow.framework.cycle_state import CycleState
from kubestow.framework.evaluation import evaluation_cache
from kubestow.framework.evaluation.result_cache import PluginResults
from kubestow.framework.interface import PreFilterPlugin
from kubestow.testing import PluginHarness, node, pod


def results_alive() -> int:
    gc.collect()
    return sum(isinstance(each, PluginResults) for each in gc.get_objects())


def test_evaluations_and_plugin_results_are_dropped_with_the_least_recently_used_shapes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(evaluation_cache, "_BUDGET", 0)
    harness = PluginHarness([node("a"), node("b")])
    evaluations = harness.profiles["default-scheduler"].evaluations
    before = results_alive()
    infos = [harness.info(pod(f"p{number}", cpu=f"{number + 1}m", labels={"n": str(number)})) for number in range(100)]
    first = evaluations.of(infos[0])
    alive = []
    for start in (0, 50):
        for info in infos[start : start + 50]:
            evaluations.of(info)
        alive.append(results_alive() - before)
    assert alive[0] == alive[1]
    assert evaluations.of(infos[99]) is evaluations.of(infos[99])
    assert evaluations.of(infos[0]) is not first


class PreparesName(PreFilterPlugin):
    """PreFilter prepares the name of the pod, which is not part of its shape, so there is no signature."""

    name = "PreparesName"
    reads_requests = False

    def pre_filter(self, state: CycleState, pod: PodInfo, nodes: Nodes) -> None:
        state.put(pod.name)


def test_pods_that_differ_in_their_requests_share_no_uncached_results() -> None:
    profile = {"plugins": {"multiPoint": {"enabled": [{"name": PreparesName.name}]}}}
    harness = PluginHarness([node("a")], profile=profile, plugins=[PreparesName])
    evaluations = harness.profiles["default-scheduler"].evaluations
    infos = [harness.info(pod("small", cpu="1")), harness.info(pod("large", cpu="2"))]
    evaluated = [evaluations.of(info) for info in infos]
    for evaluation, info in zip(evaluated, infos, strict=True):
        evaluation.find_feasible(info)
    assert [evaluation.state()[str] for evaluation in evaluated] == ["small", "large"]


def test_a_pod_that_names_its_node_shares_no_evaluation_with_its_copies() -> None:
    harness = PluginHarness([node("a"), node("b")])
    assert harness.feasible(pod("first")) == {"a", "b"}
    assert harness.feasible(pod("second", node="b")) == {"b"}
    assert harness.feasible(pod("third")) == {"a", "b"}
