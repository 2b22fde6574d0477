"""The form for single rows gives a node the same verdict and the same scores as the form for many nodes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kubestow.api.core import Node, Pod
from kubestow.cluster.nodes.views import NodeRows
from kubestow.cluster.pods.shapes import PodInfo
from kubestow.framework.cycle_state import CycleState
from kubestow.plugins.node_resources import fit
from kubestow.plugins.node_resources.balanced_allocation import NodeResourcesBalancedAllocation
from kubestow.plugins.node_resources.fit import NodeResourcesFit
from kubestow.testing import PluginHarness, node, pod

GPU = "example.com/gpu"
#: Small and large amounts of memory; 100 times the last ones overflow 64 bits.
BYTES = st.sampled_from((0, 1, 3 * 2**20, 2**34 + 7, 2**57 + 12345, 2**62))
REQUESTED = st.integers(0, 2**34) | st.sampled_from((2**53, 2**53 + 1, 2**54 + 1, 2**62, 2**63 - 1))
RESOURCES = st.lists(st.sampled_from(("cpu", "memory", "ephemeral-storage", GPU)), min_size=1, max_size=4, unique=True)
STRATEGIES = st.sampled_from(("LeastAllocated", "MostAllocated", "RequestedToCapacityRatio"))
SHAPE = [{"utilization": 0, "score": 10}, {"utilization": 60, "score": 3}, {"utilization": 100, "score": 7}]


@st.composite
def profiles(draw: st.DrawFn) -> dict[str, Any]:
    resources = [{"name": name, "weight": draw(st.integers(1, 5))} for name in draw(RESOURCES)]
    kind = draw(STRATEGIES)
    strategy: dict[str, Any] = {"type": kind, "resources": resources}
    if kind == "RequestedToCapacityRatio":
        strategy["requestedToCapacityRatio"] = {"shape": SHAPE}
    balanced = [{"name": name, "weight": 1} for name in draw(RESOURCES)]
    return {
        "pluginConfig": [
            {"name": "NodeResourcesFit", "args": {"scoringStrategy": strategy}},
            {"name": "NodeResourcesBalancedAllocation", "args": {"resources": balanced}},
        ]
    }


@st.composite
def nodes(draw: st.DrawFn) -> list[Node]:
    return [
        node(
            f"n{number}",
            cpu=f"{draw(st.integers(0, 5000))}m",
            memory=str(draw(BYTES)),
            allocatable={
                "ephemeral-storage": str(draw(BYTES)),
                GPU: str(draw(st.integers(0, 3))),
                "pods": str(draw(st.integers(0, 3))),
            },
        )
        for number in range(4)
    ]


def requesting(draw: st.DrawFn, name: str, **more: Any) -> Pod:
    return pod(
        name,
        cpu=f"{draw(st.integers(0, 3000))}m",
        memory=str(draw(REQUESTED)),
        requests={"ephemeral-storage": str(draw(REQUESTED)), GPU: str(draw(st.integers(0, 2)))},
        **more,
    )


@st.composite
def harnesses(draw: st.DrawFn) -> tuple[PluginHarness, PodInfo]:
    placed = [requesting(draw, f"p{number}", node=f"n{draw(st.integers(0, 3))}") for number in range(4)]
    harness = PluginHarness(draw(nodes()), placed, profile=draw(profiles()))
    return harness, harness.info(requesting(draw, "p"))


def rows(harness: PluginHarness) -> NodeRows:
    return NodeRows(harness.cluster.nodes, range(len(harness.cluster.nodes)))


@given(harnesses())
@settings(max_examples=60)
def test_the_key_of_a_row_is_that_of_the_verdict(harness_and_pod: tuple[PluginHarness, PodInfo]) -> None:
    harness, info = harness_and_pod
    plugin = next(p for p in harness.profiles["default-scheduler"].plugins if isinstance(p, NodeResourcesFit))
    state = CycleState()
    plugin.pre_filter(state, info, harness.cluster.all_nodes())
    of_all = plugin.filter(state, info, harness.cluster.all_nodes())
    assert of_all.keys.tolist() == plugin.filter_rows(state, info, rows(harness))


@given(harnesses())
@settings(max_examples=120)
def test_the_score_of_a_row_is_that_among_all_nodes(harness_and_pod: tuple[PluginHarness, PodInfo]) -> None:
    harness, info = harness_and_pod
    for plugin in harness.profiles["default-scheduler"].plugins:
        if isinstance(plugin, NodeResourcesFit | NodeResourcesBalancedAllocation):
            with np.errstate(over="ignore"):
                of_all = plugin.score(CycleState(), info, harness.cluster.all_nodes())
            assert of_all.tolist() == plugin.score_rows(CycleState(), info, rows(harness))


def test_a_pod_that_requests_more_than_any_node_has_is_scored_in_arrays(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise one pod of one tenant would be scored node by node at each of its attempts."""
    harness = PluginHarness([node(f"n{number}", cpu="4", memory="8Gi") for number in range(10)])
    info = harness.info(pod("p", cpu="1e15", memory="8E", requests={"ephemeral-storage": "8E"}))
    for owner, name in ((fit._AllocationScorer, "score_node"), (NodeResourcesBalancedAllocation, "_score_of_node")):
        monkeypatch.delattr(owner, name)
    for plugin in harness.profiles["default-scheduler"].plugins:
        if isinstance(plugin, NodeResourcesFit | NodeResourcesBalancedAllocation):
            assert len(plugin.score(CycleState(), info, harness.cluster.all_nodes())) == 10
