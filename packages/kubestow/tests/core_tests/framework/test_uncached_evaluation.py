"""A plugin without a signature is called in every cycle, also when nothing has changed since the last one."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from kubestow.cluster.nodes.views import Nodes
from kubestow.cluster.pods.shapes import PodInfo
from kubestow.framework.cycle_state import CycleState
from kubestow.framework.interface import FilterPlugin, PreFilterPlugin, ScorePlugin
from kubestow.framework.status import Status, Verdict
from kubestow.testing import PluginHarness, node, pod


class ByName(PreFilterPlugin, FilterPlugin, ScorePlugin):
    """Depends on the name of the pod, which is not part of its shape."""

    name = "ByName"

    def pre_filter(self, state: CycleState, pod: PodInfo, nodes: Nodes) -> None:
        state.put(pod.name)

    def filter(self, state: CycleState, pod: PodInfo, nodes: Nodes) -> Verdict:
        other = np.array([name != state[str] for name in nodes.names])
        return Verdict.rejecting(other if "*" not in pod.name else other & False, Status.unschedulable("other"))

    def score(self, state: CycleState, pod: PodInfo, nodes: Nodes) -> NDArray[np.int64]:
        return np.array([100 * (name + "*" == pod.name) for name in nodes.names])


class UncachedByName(ByName):
    """The same as an uncached filter."""

    name = "UncachedByName"
    uncached = True


def plugin_harness(kind: type[ByName]) -> PluginHarness:
    profile = {"plugins": {"multiPoint": {"enabled": [{"name": kind.name}]}}}
    return PluginHarness([node("a"), node("b")], profile=profile, plugins=[kind])


def test_pods_of_one_shape_can_get_different_verdicts() -> None:
    for kind in (ByName, UncachedByName):
        asked = plugin_harness(kind)
        assert [asked.decide(pod(name)).node_name for name in ("a", "b", "a")] == ["a", "b", "a"]


def test_pods_of_one_shape_can_get_different_scores() -> None:
    asked = plugin_harness(ByName)
    assert [asked.decide(pod(name)).node_name for name in ("a*", "b*", "a*")] == ["a", "b", "a"]
