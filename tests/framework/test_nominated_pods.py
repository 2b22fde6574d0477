"""Nodes with nominated pods (semantics 4.3 and 5.3)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kubestow.api.core import Node
from kubestow.cluster.pods.shapes import PodInfo
from kubestow.framework.cycle_state import CycleState
from kubestow.framework.interface import NodeFilterPlugin
from kubestow.framework.status import SUCCESS, Code, Status
from kubestow.testing import World, node, nodes, pod


def nominate_pod(world: World, where: str, *, priority: int = 0) -> None:
    """Nominate a pending pod of three cores to a node."""
    world.cluster.nominate(world.info(pod("nominated", cpu="3", priority=priority)), where)


def profile_with_filter(plugin: str) -> dict[str, Any]:
    """A profile with an additional filter."""
    return {"plugins": {"filter": {"enabled": [{"name": plugin}]}}}


def test_a_nominated_pod_of_equal_priority_keeps_its_node() -> None:
    world = World(nodes(2))
    nominate_pod(world, "node-0", priority=5)
    assert world.feasible(pod("p", cpu="2", priority=5)) == {"node-1"}


def test_a_nominated_pod_of_lower_priority_does_not_keep_its_node() -> None:
    world = World(nodes(2))
    nominate_pod(world, "node-0", priority=4)
    assert world.feasible(pod("p", cpu="2", priority=5)) == {"node-0", "node-1"}


def test_a_pod_is_not_counted_on_its_own_nominated_node() -> None:
    world = World([node("n")])
    nominate_pod(world, "n")
    assert world.feasible(pod("nominated", cpu="3")) == {"n"}


class NeedsPods(NodeFilterPlugin):
    """Rejects nodes without pods."""

    name = "NeedsPods"

    def filter_node(self, state: CycleState, pod: PodInfo, node: Node, pods: Sequence[PodInfo]) -> Status:
        """Reject a node without pods."""
        return SUCCESS if pods else Status.unschedulable("no pods")


def test_a_node_must_also_pass_without_its_nominated_pods() -> None:
    world = World([node("n")], plugins=[NeedsPods], profile=profile_with_filter("NeedsPods"))
    nominate_pod(world, "n")
    assert world.rejections(pod("p")) == {"n": ("NeedsPods", ("no pods",))}


def test_rejections_due_to_nominated_pods_have_their_reasons() -> None:
    world = World([node("n")])
    nominate_pod(world, "n")
    assert world.rejections(pod("p", cpu="2")) == {"n": ("NodeResourcesFit", ("Insufficient cpu",))}


def test_the_nominated_node_is_tried_first_and_alone() -> None:
    world = World(nodes(3))
    assert world.feasible(pod("p", nominated="node-2")) == {"node-2"}


def test_all_nodes_are_tried_when_the_nominated_one_does_not_fit() -> None:
    world = World(nodes(3), [pod("big", node="node-2", cpu="4")])
    assert world.feasible(pod("p", cpu="1", nominated="node-2")) == {"node-0", "node-1"}


def test_a_nomination_outlives_its_node() -> None:
    world = World([node("other", cpu="1")])
    nominate_pod(world, "n")
    world.cluster.add_node(node("n"))
    assert not world.feasible(pod("p", cpu="2"))
    world.cluster.remove_node("n")
    world.cluster.add_node(node("n"))
    assert not world.feasible(pod("p", cpu="2"))
    world.cluster.drop_nomination("uid-default-nominated")
    assert world.feasible(pod("p", cpu="2")) == {"n"}


def test_nominations_follow_their_nodes_when_rows_move() -> None:
    world = World(nodes(3))
    nominate_pod(world, "node-2")
    world.cluster.remove_node("node-0")
    assert world.feasible(pod("p", cpu="2")) == {"node-1"}


def test_placing_a_pod_clears_its_nomination() -> None:
    world = World(nodes(2))
    nominate_pod(world, "node-0")
    world.cluster.assume(world.info(pod("nominated", cpu="3")), "node-1")
    assert world.feasible(pod("p", cpu="2")) == {"node-0"}


class FailsWithPods(NodeFilterPlugin):
    """Returns an error for nodes with pods."""

    name = "FailsWithPods"

    def filter_node(self, state: CycleState, pod: PodInfo, node: Node, pods: Sequence[PodInfo]) -> Status:
        """Fail on a node with pods."""
        return Status.error("failed") if pods else SUCCESS


def test_a_filter_that_fails_with_a_nominated_pod_ends_the_cycle() -> None:
    world = World([node("n")], plugins=[FailsWithPods], profile=profile_with_filter("FailsWithPods"))
    nominate_pod(world, "n")
    decision = world.decide(pod("p"))
    assert decision.status.code is Code.ERROR
    assert decision.message == 'running "FailsWithPods" filter plugin: failed'
