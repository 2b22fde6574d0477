"""Nodes with nominated pods (semantics 4.3 and 5.3)."""

from __future__ import annotations

from typing import Any

from kubestow.cluster.nodes.node_info import NodeInfo
from kubestow.cluster.pods.shapes import PodInfo
from kubestow.framework.cycle_state import CycleState
from kubestow.framework.interface import NodeFilterPlugin
from kubestow.framework.status import SUCCESS, Code, Status
from kubestow.testing import PluginHarness, node, nodes, pod


def nominate_pod(harness: PluginHarness, where: str, *, priority: int = 0) -> None:
    """Nominate a pending pod of three cores to a node."""
    harness.cluster.nominate(harness.info(pod("nominated", cpu="3", priority=priority)), where)


def profile_with_filter(plugin: str) -> dict[str, Any]:
    """A profile with an additional filter."""
    return {"plugins": {"filter": {"enabled": [{"name": plugin}]}}}


def test_a_nominated_pod_of_equal_priority_keeps_its_node() -> None:
    harness = PluginHarness(nodes(2))
    nominate_pod(harness, "node-0", priority=5)
    assert harness.feasible(pod("p", cpu="2", priority=5)) == {"node-1"}


def test_a_nominated_pod_of_lower_priority_does_not_keep_its_node() -> None:
    harness = PluginHarness(nodes(2))
    nominate_pod(harness, "node-0", priority=4)
    assert harness.feasible(pod("p", cpu="2", priority=5)) == {"node-0", "node-1"}


def test_a_pod_is_not_counted_on_its_own_nominated_node() -> None:
    harness = PluginHarness([node("n")])
    nominate_pod(harness, "n")
    assert harness.feasible(pod("nominated", cpu="3")) == {"n"}


def test_a_node_passes_no_more_when_its_pods_leave_too_little_for_those_nominated() -> None:
    harness = PluginHarness(nodes(3, cpu="4"))
    nominate_pod(harness, "node-0")
    info = harness.info(pod("p", cpu="1"))
    found = harness.profiles["default-scheduler"].evaluations.of(info).find_feasible(info)
    assert found.passing.tolist() == [True] * 3
    for name, cpu in (("node-0", "1"), ("node-1", "1"), ("node-2", "4")):
        harness.cluster.put_pod(harness.info(pod(f"on-{name}", cpu=cpu, node=name)))
    assert found.filters.still_pass(harness.cluster.all_nodes()).tolist() == [False, True, False]


class NeedsPods(NodeFilterPlugin):
    """Rejects nodes without pods."""

    name = "NeedsPods"

    def filter_node(self, state: CycleState, pod: PodInfo, node_info: NodeInfo) -> Status:
        """Reject a node without pods."""
        return SUCCESS if node_info.pods else Status.unschedulable("no pods")


def test_a_node_must_also_pass_without_its_nominated_pods() -> None:
    harness = PluginHarness([node("n")], plugins=[NeedsPods], profile=profile_with_filter("NeedsPods"))
    nominate_pod(harness, "n")
    assert harness.rejections(pod("p")) == {"n": ("NeedsPods", ("no pods",))}


def test_rejections_due_to_nominated_pods_have_their_reasons() -> None:
    harness = PluginHarness([node("n")])
    nominate_pod(harness, "n")
    assert harness.rejections(pod("p", cpu="2")) == {"n": ("NodeResourcesFit", ("Insufficient cpu",))}


def test_the_nominated_node_is_tried_first_and_alone() -> None:
    harness = PluginHarness(nodes(3))
    assert harness.feasible(pod("p", nominated="node-2")) == {"node-2"}


def test_all_nodes_are_tried_when_the_nominated_one_does_not_fit() -> None:
    harness = PluginHarness(nodes(3), [pod("big", node="node-2", cpu="4")])
    assert harness.feasible(pod("p", cpu="1", nominated="node-2")) == {"node-0", "node-1"}


def test_a_nomination_outlives_its_node() -> None:
    harness = PluginHarness([node("other", cpu="1")])
    nominate_pod(harness, "n")
    harness.cluster.add_node(node("n"))
    assert not harness.feasible(pod("p", cpu="2"))
    harness.cluster.remove_node("n")
    harness.cluster.add_node(node("n"))
    assert not harness.feasible(pod("p", cpu="2"))
    harness.cluster.drop_nomination("uid-default-nominated")
    assert harness.feasible(pod("p", cpu="2")) == {"n"}


def test_nominations_follow_their_nodes_when_rows_move() -> None:
    harness = PluginHarness(nodes(3))
    nominate_pod(harness, "node-2")
    harness.cluster.remove_node("node-0")
    assert harness.feasible(pod("p", cpu="2")) == {"node-1"}


def test_placing_a_pod_clears_its_nomination() -> None:
    harness = PluginHarness(nodes(2))
    nominate_pod(harness, "node-0")
    harness.cluster.assume(harness.info(pod("nominated", cpu="3")), "node-1")
    assert harness.feasible(pod("p", cpu="2")) == {"node-0"}


class FailsWithPods(NodeFilterPlugin):
    """Returns an error for nodes with pods."""

    name = "FailsWithPods"

    def filter_node(self, state: CycleState, pod: PodInfo, node_info: NodeInfo) -> Status:
        """Fail on a node with pods."""
        return Status.error("failed") if node_info.pods else SUCCESS


def test_a_filter_that_fails_with_a_nominated_pod_ends_the_cycle() -> None:
    harness = PluginHarness([node("n")], plugins=[FailsWithPods], profile=profile_with_filter("FailsWithPods"))
    nominate_pod(harness, "n")
    decision = harness.decide(pod("p"))
    assert decision.status.code is Code.ERROR
    assert decision.message == 'running "FailsWithPods" filter plugin: failed'
