"""Nodes that have been promised to pending pods (semantics 4.3 and 5.3)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kubestow.api.core import Node
from kubestow.cluster.pods.shapes import PodInfo
from kubestow.framework.cycle_state import CycleState
from kubestow.framework.interface import NodeFilterPlugin
from kubestow.framework.status import SUCCESS, Code, Status
from kubestow.testing import World, node, nodes, pod


def promised(world: World, where: str, *, priority: int = 0) -> None:
    """A pending pod of three cores has been promised a node."""
    world.cluster.nominate(world.info(pod("promised", cpu="3", priority=priority)), where)


def filtered_by(plugin: str) -> dict[str, Any]:
    """A profile with one more filter."""
    return {"plugins": {"filter": {"enabled": [{"name": plugin}]}}}


def test_a_node_promised_to_an_equal_is_out_of_reach() -> None:
    world = World(nodes(2))
    promised(world, "node-0", priority=5)
    assert world.feasible(pod("p", cpu="2", priority=5)) == {"node-1"}


def test_a_node_promised_to_a_lower_priority_is_not_held() -> None:
    world = World(nodes(2))
    promised(world, "node-0", priority=4)
    assert world.feasible(pod("p", cpu="2", priority=5)) == {"node-0", "node-1"}


def test_a_pod_does_not_stand_in_its_own_way() -> None:
    world = World([node("n")])
    promised(world, "n")
    assert world.feasible(pod("promised", cpu="3")) == {"n"}


class Sociable(NodeFilterPlugin):
    """Refuses a node without pods."""

    name = "Sociable"

    def filter_node(self, state: CycleState, pod: PodInfo, node: Node, pods: Sequence[PodInfo]) -> Status:
        """Somebody must be there."""
        return SUCCESS if pods else Status.unschedulable("nobody there")


def test_a_node_must_suit_without_the_promised_pods_too() -> None:
    world = World([node("n")], plugins=[Sociable], profile=filtered_by("Sociable"))
    promised(world, "n")
    assert world.rejections(pod("p")) == {"n": ("Sociable", ("nobody there",))}


def test_refusals_beside_promised_pods_are_told_with_their_reasons() -> None:
    world = World([node("n")])
    promised(world, "n")
    assert world.rejections(pod("p", cpu="2")) == {"n": ("NodeResourcesFit", ("Insufficient cpu",))}


def test_the_nominated_node_is_tried_first_and_alone() -> None:
    world = World(nodes(3))
    assert world.feasible(pod("p", nominated="node-2")) == {"node-2"}


def test_all_nodes_are_tried_when_the_nominated_one_does_not_fit() -> None:
    world = World(nodes(3), [pod("big", node="node-2", cpu="4")])
    assert world.feasible(pod("p", cpu="1", nominated="node-2")) == {"node-0", "node-1"}


def test_a_promise_waits_for_its_node_and_survives_it() -> None:
    world = World([node("other", cpu="1")])
    promised(world, "n")
    world.cluster.add_node(node("n"))
    assert not world.feasible(pod("p", cpu="2"))
    world.cluster.remove_node("n")
    world.cluster.add_node(node("n"))
    assert not world.feasible(pod("p", cpu="2"))
    world.cluster.drop_nomination("uid-default-promised")
    assert world.feasible(pod("p", cpu="2")) == {"n"}


def test_promises_follow_their_nodes_when_rows_move() -> None:
    world = World(nodes(3))
    promised(world, "node-2")
    world.cluster.remove_node("node-0")
    assert world.feasible(pod("p", cpu="2")) == {"node-1"}


def test_a_placed_pod_has_its_promise_fulfilled() -> None:
    world = World(nodes(2))
    promised(world, "node-0")
    world.cluster.assume(world.info(pod("promised", cpu="3")), "node-1")
    assert world.feasible(pod("p", cpu="2")) == {"node-0"}


class Allergic(NodeFilterPlugin):
    """Breaks down over a node with pods."""

    name = "Allergic"

    def filter_node(self, state: CycleState, pod: PodInfo, node: Node, pods: Sequence[PodInfo]) -> Status:
        """Fail if there is anybody."""
        return Status.error("sneezed") if pods else SUCCESS


def test_a_filter_that_fails_beside_a_promised_pod_ends_the_cycle() -> None:
    world = World([node("n")], plugins=[Allergic], profile=filtered_by("Allergic"))
    promised(world, "n")
    decision = world.decide(pod("p"))
    assert decision.status.code is Code.ERROR
    assert decision.message == 'running "Allergic" filter plugin: sneezed'
