"""A plugin that gives no signature is asked in every cycle, also when nothing has happened since the last one."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from kubestow.cluster.nodes.views import Nodes
from kubestow.cluster.pods.shapes import PodInfo
from kubestow.framework.cycle_state import CycleState
from kubestow.framework.interface import FilterPlugin, PreFilterPlugin, ScorePlugin
from kubestow.framework.status import Status, Verdict
from kubestow.testing import World, node, pod


class ByName(PreFilterPlugin, FilterPlugin, ScorePlugin):
    """Looks at the pod's name, which is no part of its shape."""

    name = "ByName"

    def pre_filter(self, state: CycleState, pod: PodInfo, nodes: Nodes) -> None:
        state.put(pod.name)

    def filter(self, state: CycleState, pod: PodInfo, nodes: Nodes) -> Verdict:
        other = np.array([name != state[str] for name in nodes.names])
        return Verdict.rejecting(other if "*" not in pod.name else other & False, Status.unschedulable("other"))

    def score(self, state: CycleState, pod: PodInfo, nodes: Nodes) -> NDArray[np.int64]:
        return np.array([100 * (name + "*" == pod.name) for name in nodes.names])


class CostlyByName(ByName):
    """The same, asked late."""

    name = "CostlyByName"
    uncached = True


def world(kind: type[ByName]) -> World:
    profile = {"plugins": {"multiPoint": {"enabled": [{"name": kind.name}]}}}
    return World([node("a"), node("b")], profile=profile, plugins=[kind])


def test_pods_of_one_shape_may_get_different_verdicts() -> None:
    for kind in (ByName, CostlyByName):
        asked = world(kind)
        assert [asked.decide(pod(name)).node_name for name in ("a", "b", "a")] == ["a", "b", "a"]


def test_pods_of_one_shape_may_get_different_scores() -> None:
    asked = world(ByName)
    assert [asked.decide(pod(name)).node_name for name in ("a*", "b*", "a*")] == ["a", "b", "a"]
