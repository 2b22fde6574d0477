"""The topology plugins agree with the oracle after any sequence of events, and on hypothetical nodes with real ones."""

from __future__ import annotations

import gc

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from core_tests.plugins import topology_clusters, topology_oracle
from core_tests.plugins.topology_clusters import NODE_NAMES, POD_NAMES
from core_tests.plugins.topology_plugins import find_plugin, rejections, scores, skips_filter
from kubestow.api.core import Node, Pod
from kubestow.api.meta import LabelSelector
from kubestow.cluster.nodes.views import HypotheticalNodes, NodeChange, Nodes
from kubestow.cluster.pods.shapes import PodInfo
from kubestow.testing import PluginHarness

pytestmark = pytest.mark.usefixtures("only_own_garbage")

plugin_names = st.sampled_from(("PodTopologySpread", "InterPodAffinity"))

#: Nodes, pods on them, an incoming pod, and at most one nominated pod.
Cluster = tuple[list[Node], list[Pod], Pod, list[Pod]]


class TopologyMachine(RuleBasedStateMachine):
    """A cluster with random events; after each of them the plugins must agree with the oracle."""

    def __init__(self) -> None:
        super().__init__()
        self.harness = PluginHarness()
        self.bound: dict[str, Pod] = {}
        self.incoming: list[PodInfo] = []

    @rule(node=topology_clusters.nodes())
    def add_or_update_node(self, node: Node) -> None:
        cluster = self.harness.cluster
        known = node.metadata.name in cluster.nodes.rows
        cluster.update_node(node) if known else cluster.add_node(node)

    @rule(name=st.sampled_from(NODE_NAMES))
    def remove_node(self, name: str) -> None:
        if name in self.harness.cluster.nodes.rows:
            self.harness.cluster.remove_node(name)

    @rule(data=st.data(), name=st.sampled_from(POD_NAMES), node_name=st.sampled_from(NODE_NAMES))
    def add_or_update_pod(self, data: st.DataObject, name: str, node_name: str) -> None:
        pod = data.draw(topology_clusters.pods(name=name, on=node_name))
        self.harness.cluster.put_pod(self.harness.info(pod))
        self.bound[pod.metadata.uid] = pod

    @rule(name=st.sampled_from(POD_NAMES))
    def remove_pod(self, name: str) -> None:
        self.harness.cluster.remove_pod(f"uid-{name}")
        self.bound.pop(f"uid-{name}", None)

    @rule(name=topology_clusters.namespaces, labelled=st.booleans())
    def add_or_update_namespace(self, name: str, labelled: bool) -> None:
        self.harness.cluster.put_namespace(name, {"team": "x"} if labelled else {})

    @rule(name=topology_clusters.namespaces)
    def remove_namespace(self, name: str) -> None:
        self.harness.cluster.remove_namespace(name)

    @rule(pod=topology_clusters.pods(name="incoming"))
    def add_incoming_pod(self, pod: Pod) -> None:
        self.incoming = [*self.incoming[-2:], self.harness.info(pod)]

    @rule()
    def drop_incoming_pods_and_their_counters(self) -> None:
        self.incoming = []
        gc.collect()

    @invariant()
    def plugins_agree_with_the_oracle(self) -> None:
        cluster = self.harness.cluster
        nodes = cluster.nodes.objects
        by_name = {node.metadata.name: node for node in nodes}
        placed = [(by_name[p.spec.node_name], p) for p in self.bound.values() if p.spec.node_name in by_name]
        spread, affinity = find_plugin(self.harness, "PodTopologySpread"), find_plugin(self.harness, "InterPodAffinity")
        for info in self.incoming:
            pod = info.pod
            assert rejections(spread, self.harness, info) == [
                topology_oracle.spread_rejection(pod, node, nodes, placed) for node in nodes
            ]
            assert rejections(affinity, self.harness, info) == [
                topology_oracle.affinity_rejection(pod, node, placed, cluster.namespaces) for node in nodes
            ]
            for feasible in (cluster.all_nodes(), Nodes(cluster.nodes, np.arange(0, len(nodes), 2))):
                rows = [nodes[row] for row in feasible.row_numbers]
                if rows:
                    assert scores(spread, self.harness, info, feasible) == topology_oracle.spread_scores(
                        pod, rows, nodes, placed
                    )
                    assert scores(affinity, self.harness, info, feasible) == topology_oracle.affinity_scores(
                        pod, rows, placed, cluster.namespaces
                    )


TopologyMachine.TestCase.settings = settings(max_examples=40, stateful_step_count=25)
TestTopologyMachine = TopologyMachine.TestCase


@st.composite
def clusters(draw: st.DrawFn) -> Cluster:
    nodes = [draw(topology_clusters.nodes(name=name)) for name in NODE_NAMES]
    node_names = st.sampled_from(NODE_NAMES)
    placed = [draw(topology_clusters.pods(name=name, on=draw(node_names))) for name in POD_NAMES]
    nominated = draw(st.lists(topology_clusters.pods(name="nominated"), max_size=1))
    return nodes, placed, draw(topology_clusters.pods(name="incoming")), nominated


@given(clusters(), plugin_names, st.data())
@settings(max_examples=75)
def test_a_hypothetical_node_gets_the_verdict_of_a_real_node_with_the_same_pods(
    cluster: Cluster, name: str, data: st.DataObject
) -> None:
    nodes, placed, incoming, nominated = cluster
    assume(not _has_empty_selector(incoming))
    placed = [pod for pod in placed if pod.metadata.deletion_timestamp is None]
    harness = PluginHarness(nodes, placed)
    info = harness.info(incoming)
    if skips_filter(find_plugin(harness, name), harness, info):
        return  # kube-scheduler does not simulate for a skipped plugin either
    chosen = [pod for pod in placed if data.draw(st.booleans())]
    removed = {node_name: [pod for pod in chosen if pod.spec.node_name == node_name] for node_name in NODE_NAMES}
    changes = [
        NodeChange(tuple(harness.info(p) for p in removed[node_name]), tuple(harness.info(p) for p in nominated))
        for node_name in NODE_NAMES
    ]
    hypothetical = HypotheticalNodes(harness.cluster.nodes, np.arange(len(nodes)), changes)
    simulated = rejections(find_plugin(harness, name), harness, info, hypothetical)
    for position, node_name in enumerate(NODE_NAMES):
        harness = PluginHarness(nodes, [pod for pod in placed if pod not in removed[node_name]])
        for pod in nominated:
            harness.cluster.assume(harness.info(pod), node_name)
        row = harness.cluster.nodes.rows[node_name]
        assert simulated[position] == rejections(find_plugin(harness, name), harness, harness.info(incoming))[row]


def _has_empty_selector(pod: Pod) -> bool:
    """QUIRK (semantics 8.14): empty selectors count no existing pods but do count simulated changes."""
    return any(constraint.label_selector == LabelSelector() for constraint in pod.spec.topology_spread_constraints)


@given(clusters(), plugin_names)
@settings(max_examples=60)
def test_a_view_of_one_row_gets_the_verdict_of_this_row_in_the_whole_view(cluster: Cluster, name: str) -> None:
    nodes, placed, incoming, _ = cluster
    harness = PluginHarness(nodes, placed)
    info = harness.info(incoming)
    whole = rejections(find_plugin(harness, name), harness, info)
    assert whole == [
        rejections(find_plugin(harness, name), harness, info, Nodes(harness.cluster.nodes, np.array([row])))[0]
        for row in range(len(nodes))
    ]
