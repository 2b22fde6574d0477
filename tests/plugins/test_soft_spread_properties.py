"""What is remembered of the feasible nodes changes no score: it is what a walk over nodes and pods gives."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from kubestow.api.core import Node, Pod, Service
from kubestow.api.meta import LabelSelector
from kubestow.api.selectors import compile_selector
from kubestow.testing import World
from kubestow.testing import node as a_node
from kubestow.testing import pod as a_pod
from tests.plugins import topology_oracle
from tests.plugins.affinities import HOST, ZONE
from tests.plugins.controllers import service

WEB = {"app": "web"}
NAMES = ("n0", "n1", "n2", "n3")


@st.composite
def nodes(draw: st.DrawFn, name: str | None = None) -> Node:
    """A node that may lack its zone and its host name, and may have no room."""
    name = name or draw(st.sampled_from(NAMES))
    labels = {ZONE: draw(st.sampled_from((None, "", "a", "b"))), HOST: draw(st.sampled_from((name, name, None)))}
    labelled = {key: value for key, value in labels.items() if value is not None}
    return a_node(name, max_pods=draw(st.sampled_from((110, 0))), metadata={"labels": labelled})


def soft(key: str, skew: int) -> dict[str, Any]:
    selector = {"matchLabels": WEB}
    return {"topologyKey": key, "maxSkew": skew, "whenUnsatisfiable": "ScheduleAnyway", "labelSelector": selector}


constraints = st.builds(soft, st.sampled_from((ZONE, HOST)), st.integers(1, 3))
asked_pods = st.lists(constraints, max_size=2).map(lambda spread: a_pod("asked", labels=WEB, spread=spread))
#: A node changes, just these nodes become feasible, or so many pods come to a node.
steps = st.one_of(nodes(), st.frozensets(st.sampled_from(NAMES)), st.tuples(st.sampled_from(NAMES), st.integers(1, 9)))


def with_room(node: Node, room: bool) -> Node:
    allocatable = node.status.allocatable | {"pods": "110" if room else "0"}
    return replace(node, status=replace(node.status, allocatable=allocatable))


def said_by_walking(asked: Pod, shown: Mapping[str, Node], placed: list[Pod]) -> dict[str, int]:
    """The scores of the feasible nodes, with the weight of the default profile."""
    feasible = [node for node in shown.values() if node.status.allocatable["pods"] != "0"]
    where = [(shown[pod.spec.node_name], pod) for pod in placed]
    served = compile_selector(LabelSelector(match_labels=WEB))
    scores = topology_oracle.spread_scores(asked, feasible, list(shown.values()), where, served=served)
    return {node.metadata.name: 2 * score for node, score in zip(feasible, scores, strict=True)}


@given(st.tuples(*map(nodes, NAMES)), asked_pods, st.lists(steps, min_size=1, max_size=12))
@settings(max_examples=200, deadline=None)
def test_scores_follow_pods_and_nodes_step_by_step(first: tuple[Node, ...], asked: Pod, steps: list[Any]) -> None:
    world, shown, placed = World(first), {node.metadata.name: node for node in first}, list[Pod]()
    world.cluster.catalog(Service).put(service(WEB))
    for number, step in enumerate(steps):
        match step:
            case Node():
                shown[step.metadata.name] = step
            case frozenset():
                shown = {name: with_room(node, name in step) for name, node in shown.items()}
            case name, count:
                placed += [a_pod(f"p{number}-{n}", labels=WEB, node=name) for n in range(count)]
        for node in shown.values():
            world.cluster.update_node(node)
        for pod in placed:
            world.cluster.put_pod(world.info(pod))
        assert world.scores(asked, "PodTopologySpread") == said_by_walking(asked, shown, placed)
