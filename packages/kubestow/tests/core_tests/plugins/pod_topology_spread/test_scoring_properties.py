"""Scores from cached node data and counters equal scores computed from all nodes and pods (semantics 8.14)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from core_tests.plugins import topology_oracle
from core_tests.plugins.affinities import HOST, ZONE
from core_tests.plugins.controllers import service
from kubestow.api.core import Node, Pod, Service
from kubestow.api.meta import LabelSelector
from kubestow.api.selectors import compile_selector
from kubestow.testing import PluginHarness
from kubestow.testing import node as a_node
from kubestow.testing import pod as a_pod

WEB = {"app": "web"}
NAMES = ("n0", "n1", "n2", "n3")


@st.composite
def nodes(draw: st.DrawFn, name: str | None = None) -> Node:
    """A node that may lack its zone or hostname label, or capacity for pods."""
    name = name or draw(st.sampled_from(NAMES))
    labels = {ZONE: draw(st.sampled_from((None, "", "a", "b"))), HOST: draw(st.sampled_from((name, name, None)))}
    labelled = {key: value for key, value in labels.items() if value is not None}
    return a_node(name, max_pods=draw(st.sampled_from((110, 0))), metadata={"labels": labelled})


def soft(key: str, skew: int) -> dict[str, Any]:
    selector = {"matchLabels": WEB}
    return {"topologyKey": key, "maxSkew": skew, "whenUnsatisfiable": "ScheduleAnyway", "labelSelector": selector}


constraints = st.builds(soft, st.sampled_from((ZONE, HOST)), st.integers(1, 3))
incoming_pods = st.lists(constraints, max_size=2).map(lambda spread: a_pod("incoming", labels=WEB, spread=spread))
#: A node changes, only these nodes become feasible, or a node gets more pods.
steps = st.one_of(nodes(), st.frozensets(st.sampled_from(NAMES)), st.tuples(st.sampled_from(NAMES), st.integers(1, 9)))


def with_capacity(node: Node, has_capacity: bool) -> Node:
    allocatable = node.status.allocatable | {"pods": "110" if has_capacity else "0"}
    return replace(node, status=replace(node.status, allocatable=allocatable))


def expected_scores(incoming: Pod, nodes_by_name: Mapping[str, Node], placed: list[Pod]) -> dict[str, int]:
    """The scores of the feasible nodes, with the weight 2 of the default profile."""
    feasible = [node for node in nodes_by_name.values() if node.status.allocatable["pods"] != "0"]
    placed_on = [(nodes_by_name[pod.spec.node_name], pod) for pod in placed]
    default_selector = compile_selector(LabelSelector(match_labels=WEB))
    scores = topology_oracle.spread_scores(
        incoming, feasible, list(nodes_by_name.values()), placed_on, default_selector=default_selector
    )
    return {node.metadata.name: 2 * score for node, score in zip(feasible, scores, strict=True)}


@given(st.tuples(*map(nodes, NAMES)), incoming_pods, st.lists(steps, min_size=1, max_size=12))
@settings(max_examples=200)
def test_scores_follow_changes_of_pods_and_nodes(first: tuple[Node, ...], incoming: Pod, steps: list[Any]) -> None:
    harness, nodes_by_name, placed = PluginHarness(first), {node.metadata.name: node for node in first}, list[Pod]()
    harness.cluster.catalog(Service).put(service(WEB))
    for number, step in enumerate(steps):
        match step:
            case Node():
                nodes_by_name[step.metadata.name] = step
            case frozenset():
                nodes_by_name = {name: with_capacity(node, name in step) for name, node in nodes_by_name.items()}
            case name, count:
                placed += [a_pod(f"p{number}-{n}", labels=WEB, node=name) for n in range(count)]
        for node in nodes_by_name.values():
            harness.cluster.update_node(node)
        for pod in placed:
            harness.cluster.put_pod(harness.info(pod))
        assert harness.scores(incoming, "PodTopologySpread") == expected_scores(incoming, nodes_by_name, placed)
