"""Calls the filter and the score of PodTopologySpread and InterPodAffinity directly."""

from __future__ import annotations

from kubestow.cluster.nodes.views import Nodes
from kubestow.cluster.pods.shapes import PodInfo
from kubestow.framework.cycle_state import CycleState
from kubestow.framework.interface import FilterPlugin, Plugin, PreFilterPlugin, PreScorePlugin, ScorePlugin
from kubestow.framework.status import Status
from kubestow.testing import PluginHarness

#: Short names of the reasons, as the oracle uses them.
_REASONS = {
    "node(s) didn't match pod topology spread constraints": "skew",
    "node(s) didn't match pod topology spread constraints (missing required label)": "missing label",
    "node(s) didn't match pod affinity rules": "affinity",
    "node(s) didn't match pod anti-affinity rules": "anti-affinity",
    "node(s) didn't satisfy existing pods anti-affinity rules": "existing",
}


def find_plugin(harness: PluginHarness, name: str) -> Plugin:
    return next(p for p in harness.profiles["default-scheduler"].plugins if p.name == name)


def skips_filter(plugin: Plugin, harness: PluginHarness, pod: PodInfo) -> bool:
    """Whether PreFilter skips the pod, or rejects it."""
    assert isinstance(plugin, PreFilterPlugin)
    return isinstance(plugin.pre_filter(CycleState(), pod, harness.cluster.all_nodes()), Status)


def rejections(plugin: Plugin, harness: PluginHarness, pod: PodInfo, nodes: Nodes | None = None) -> list[str]:
    """Why the plugin rejects each of the nodes (all by default), in one word; empty where it passes."""
    assert isinstance(plugin, PreFilterPlugin) and isinstance(plugin, FilterPlugin)
    state = CycleState()
    nodes = harness.cluster.all_nodes() if nodes is None else nodes
    pre_filter_result = plugin.pre_filter(state, pod, harness.cluster.all_nodes())
    verdict = None if isinstance(pre_filter_result, Status) else plugin.filter(state, pod, nodes)
    if verdict is None:
        return [""] * len(nodes)
    reasons = (verdict.status(position).reasons for position in range(len(nodes)))
    return [_REASONS[of_node[0]] if of_node else "" for of_node in reasons]


def scores(plugin: Plugin, harness: PluginHarness, pod: PodInfo, feasible: Nodes) -> list[int]:
    """The normalized scores of the feasible nodes; empty if PreScore skips the pod."""
    assert isinstance(plugin, PreScorePlugin) and isinstance(plugin, ScorePlugin)
    state = CycleState()
    if plugin.pre_score(state, pod, feasible) is not None:
        return []
    normalized: list[int] = plugin.normalize(state, pod, plugin.score(state, pod, feasible), feasible).tolist()
    return normalized
