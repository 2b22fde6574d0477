"""DefaultPreemption: who may preempt, on which node, whom, and what is said when nothing helps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from kubestow.api.core import Node, Pod
from kubestow.api.meta import convert
from kubestow.api.policy import PodDisruptionBudget
from kubestow.cluster.nodes.views import HypotheticalNodes, Nodes
from kubestow.cluster.pods.shapes import PodInfo
from kubestow.framework.cycle_state import CycleState
from kubestow.framework.interface import FilterPlugin, NodeFilterPlugin, PostFilterResult
from kubestow.framework.status import Status, Verdict
from kubestow.testing import World, node, nodes, pod
from tests.decisions import preemption_of

HIGH, MIDDLE, LOW = 100, 50, 0


def running(name: str, where: str, *, cpu: str = "4", priority: int = LOW, day: int = 1, **more: Any) -> Pod:
    """A pod on a node since a day of January."""
    status = {"startTime": f"2026-01-{day:02}T00:00:00Z", **more.pop("status", {})}
    return pod(name, node=where, cpu=cpu, priority=priority, status=status, **more)


def preemptor(**more: Any) -> Pod:
    """A pod that wants a whole node."""
    return pod("urgent", **{"cpu": "4", "priority": HIGH, **more})


def budget(name: str, *, app: str | None, allowed: int, disrupted: dict[str, str] | None = None) -> PodDisruptionBudget:
    """A budget over the pods of an app; None selects by the empty selector."""
    selector: dict[str, Any] = {"matchLabels": {"app": app}} if app is not None else {}
    status = {"disruptionsAllowed": allowed, "disruptedPods": disrupted or {}}
    metadata = {"name": name, "namespace": "default"}
    return convert(PodDisruptionBudget, {"metadata": metadata, "spec": {"selector": selector}, "status": status})


def preempt(world: World, urgent: Pod | None = None) -> PostFilterResult:
    """What preemption achieves."""
    decision = world.decide(urgent or preemptor())
    assert decision.node_name is None
    result = preemption_of(decision)
    assert result is not None
    return result


def victims(result: PostFilterResult) -> list[str]:
    """The victims' names, the most important first."""
    return [info.name for info in result.victims]


def said(world: World, urgent: Pod | None = None) -> str:
    """What preemption adds to the pod's message."""
    return world.decide(urgent or preemptor()).message.partition("preemption: ")[2]


def two_nodes(*pods: Pod) -> World:
    """A world of ``node-0`` and ``node-1`` with four cores each."""
    return World(nodes(2), pods)


# -- whether ---------------------------------------------------------------------------------------------------------


def test_a_pod_that_never_preempts_is_not_eligible() -> None:
    world = World([node("n")], [running("low", "n")])
    assert said(world, preemptor(spec={"preemptionPolicy": "Never"})) == "not eligible due to preemptionPolicy=Never."


def test_an_ineligible_pod_keeps_its_nomination() -> None:
    world = World([node("n")], [running("low", "n")])
    assert preemption_of(world.decide(preemptor(spec={"preemptionPolicy": "Never"}))) is None


def leaving(reason: str = "PreemptionByScheduler") -> Pod:
    """A pod on node-0 that is being deleted, and why."""
    target = {"type": "DisruptionTarget", "status": "True", "reason": reason}
    return running("leaving", "node-0", deleting=True, status={"conditions": [target]})


def test_a_pod_waits_for_its_victims_to_leave_the_nominated_node() -> None:
    world = two_nodes(leaving(), running("other", "node-1"))
    expected = "not eligible due to a terminating pod on the nominated node."
    assert said(world, preemptor(nominated="node-0")) == expected


def test_a_pod_that_leaves_for_another_reason_is_not_waited_for() -> None:
    world = two_nodes(leaving("DeletionByTaintManager"), running("other", "node-1"))
    assert preempt(world, preemptor(nominated="node-0")).nominated_node_name == "node-0"


def test_a_nominated_node_that_nothing_can_help_is_given_up() -> None:
    world = two_nodes(leaving(), running("other", "node-1"))
    world.cluster.update_node(node("node-0", unschedulable=True))
    assert preempt(world, preemptor(nominated="node-0")).nominated_node_name == "node-1"


def test_a_pod_of_a_group_leaves_preemption_to_the_group_when_the_gate_says_so() -> None:
    grouped = preemptor(spec={"schedulingGroup": {"podGroupName": "g"}})
    gates = {"GenericWorkload": True, "GangScheduling": True, "WorkloadAwarePreemption": True}
    world = World([node("n")], [running("low", "n")], gates=gates)
    assert said(world, grouped) == "not eligible due to workload aware preemption enabled"


def test_a_pod_is_gated_while_its_victims_are_being_evicted() -> None:
    world = World(gates={"SchedulerAsyncPreemption": True})
    (plugin,) = (p for p in world.profiles["default-scheduler"].pre_enqueue if p.name == "DefaultPreemption")
    info = world.info(preemptor())
    assert plugin.pre_enqueue(info).ok
    world.preempting.add(info.uid)
    assert plugin.pre_enqueue(info).message == "waiting for the preemption for this pod to be finished"


# -- whom ------------------------------------------------------------------------------------------------------------


def test_only_pods_of_lower_priority_are_victims() -> None:
    world = World([node("n")], [running("equal", "n", cpu="2", priority=HIGH), running("low", "n", cpu="2")])
    assert victims(preempt(world, preemptor(cpu="2"))) == ["low"]


def test_no_more_pods_are_evicted_than_needed_the_important_ones_spared_first() -> None:
    pods = [running(f"p{priority}", "n", cpu="1", priority=priority) for priority in (3, 1, 4, 2)]
    assert victims(preempt(World([node("n")], pods), preemptor(cpu="2"))) == ["p2", "p1"]


def test_of_equal_priorities_the_older_is_spared() -> None:
    pods = [running("young", "n", cpu="2", day=9), running("old", "n", cpu="2", day=2)]
    assert victims(preempt(World([node("n")], pods), preemptor(cpu="2"))) == ["young"]


def test_a_pod_that_has_not_started_counts_as_the_youngest() -> None:
    fresh = pod("fresh", node="n", cpu="2", priority=LOW)
    world = World([node("n")], [fresh, running("young", "n", cpu="2", day=9)])
    assert victims(preempt(world, preemptor(cpu="2"))) == ["fresh"]


def test_a_start_time_reported_later_is_heard_of() -> None:
    world = World([node("n")], [pod("late", node="n", cpu="2"), running("young", "n", cpu="2", day=9)])
    assert victims(preempt(world, preemptor(cpu="2"))) == ["late"]
    started = pod("late", node="n", cpu="2", status={"startTime": "2026-01-02T00:00:00Z"})
    world.cluster.put_pod(world.info(started))
    assert victims(preempt(world, preemptor(cpu="2"))) == ["young"]


def test_a_victim_protected_by_a_budget_is_spared_before_a_more_important_one() -> None:
    pods = [
        running("guarded", "n", cpu="2", priority=1, labels={"app": "db"}),
        running("important", "n", cpu="2", priority=9),
    ]
    world = World([node("n")], pods)
    world.cluster.catalog(PodDisruptionBudget).put(budget("db", app="db", allowed=0))
    assert victims(preempt(world, preemptor(cpu="2"))) == ["important"]


def test_victims_are_named_by_importance_though_protected_ones_were_tried_first() -> None:
    pods = [
        running("guarded", "n", cpu="2", priority=1, labels={"app": "db"}),
        running("important", "n", cpu="2", priority=9),
    ]
    world = World([node("n")], pods)
    world.cluster.catalog(PodDisruptionBudget).put(budget("db", app="db", allowed=0))
    assert victims(preempt(world)) == ["important", "guarded"]


def test_lower_nominations_of_the_node_are_outranked_others_are_not() -> None:
    world = World([node("n")], [running("low", "n")])
    for name, priority in (("lower", MIDDLE), ("equal", HIGH)):
        world.cluster.nominate(world.info(pod(name, priority=priority)), "n")
    assert [info.name for info in preempt(world).lower_priority_nominated] == ["lower"]


# -- where -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("on_first", "on_second"),
    [
        pytest.param([{"priority": 9}], [{"priority": 3}], id="least important victim"),
        pytest.param([{"cpu": "2"}, {"cpu": "2"}], [{}], id="smallest sum of priorities"),
        pytest.param([{"cpu": "2"}, {"cpu": "2", "priority": -(2**31)}], [{}], id="fewest victims"),
        pytest.param([{"day": 3}], [{"day": 8}], id="latest start"),
    ],
)
def test_the_least_harm_decides(on_first: list[dict[str, Any]], on_second: list[dict[str, Any]]) -> None:
    first = [running(f"a{i}", "node-0", **made) for i, made in enumerate(on_first)]
    second = [running(f"b{i}", "node-1", **made) for i, made in enumerate(on_second)]
    assert preempt(two_nodes(*first, *second)).nominated_node_name == "node-1"


def test_fewest_violated_budgets_come_before_everything_else() -> None:
    world = two_nodes(
        running("guarded", "node-0", priority=1, labels={"app": "db"}), running("free", "node-1", priority=9)
    )
    world.cluster.catalog(PodDisruptionBudget).put(budget("db", app="db", allowed=0))
    assert preempt(world).nominated_node_name == "node-1"


def test_equals_go_by_name() -> None:
    world = World([node("b"), node("a")], [running("x", "b"), running("y", "a")])
    assert preempt(world).nominated_node_name == "a"


def test_the_search_ends_with_as_many_candidates_as_wanted() -> None:
    profile = {
        "pluginConfig": [
            {"name": "DefaultPreemption", "args": {"minCandidateNodesPercentage": 0, "minCandidateNodesAbsolute": 1}}
        ]
    }
    pods = [running(f"p{number}", f"node-{number}", priority=number) for number in range(50)]
    world = World(nodes(50), pods, profile=profile)
    assert len({preempt(world).nominated_node_name for _ in range(20)}) > 5


def test_a_search_goes_on_while_every_candidate_violates_a_budget() -> None:
    profile = {
        "pluginConfig": [
            {"name": "DefaultPreemption", "args": {"minCandidateNodesPercentage": 0, "minCandidateNodesAbsolute": 1}}
        ]
    }
    guarded = [running(f"p{n}", f"node-{n}", labels={"app": "db"}) for n in range(199)]
    world = World(nodes(200), [*guarded, running("free", "node-199", priority=MIDDLE)], profile=profile)
    world.cluster.catalog(PodDisruptionBudget).put(budget("db", app="db", allowed=0))
    assert {preempt(world).nominated_node_name for _ in range(10)} == {"node-199"}


# -- why not ---------------------------------------------------------------------------------------------------------


def test_the_message_counts_why_nodes_cannot_help() -> None:
    world = World(
        [node("small", cpu="1"), node("busy"), node("held"), node("closed", unschedulable=True)],
        [
            running("equal", "busy", priority=HIGH),
            running("low", "held", cpu="1"),
            running("other", "held", cpu="3", priority=HIGH),
        ],
    )
    assert said(world) == (
        "0/4 nodes are available: 1 Insufficient cpu, 1 No preemption victims found for incoming pod, "
        "2 Preemption is not helpful for scheduling."
    )


def test_when_nothing_helps_the_nomination_is_cleared() -> None:
    world = World([node("n")], [running("equal", "n", priority=HIGH)])
    assert preempt(world).nominated_node_name == ""


def test_when_no_node_can_be_helped_the_message_says_so_for_all() -> None:
    world = World(nodes(2, unschedulable=True))
    assert said(world) == "0/2 nodes are available: 2 Preemption is not helpful for scheduling."


def test_a_node_promised_to_an_equal_is_tried_with_it() -> None:
    world = World([node("n")], [running("low", "n")])
    world.cluster.nominate(world.info(pod("promised", cpu="2", priority=HIGH)), "n")
    assert said(world) == "0/1 nodes are available: 1 Insufficient cpu."


def test_a_node_promised_to_a_pod_itself_is_free_for_it() -> None:
    world = World([node("n")], [running("low", "n")])
    urgent = preemptor()
    world.cluster.nominate(world.info(urgent), "n")
    assert victims(preempt(world, urgent)) == ["low"]


def test_what_was_found_for_a_nominated_pod_does_not_hold_for_its_copies() -> None:
    world = World([node("n")], [running("low", "n")])
    urgent = preemptor()
    world.cluster.nominate(world.info(urgent), "n")
    assert victims(preempt(world, urgent)) == ["low"]
    twin = pod("twin", cpu="4", priority=HIGH)
    assert said(world, twin) == "0/1 nodes are available: 1 Insufficient cpu."
    assert victims(preempt(world, urgent)) == ["low"]


class Brittle(NodeFilterPlugin):
    """Refuses a node with pods on it, and breaks down over one without."""

    name = "Brittle"

    def filter_node(self, state: CycleState, pod: PodInfo, node: Node, pods: Sequence[PodInfo]) -> Status:
        """Ask about pods."""
        return Status.unschedulable("not alone") if pods else Status.error("divided by no pods")


def test_a_filter_that_fails_in_the_dry_run_is_told_of() -> None:
    profile = {"plugins": {"filter": {"enabled": [{"name": "Brittle"}]}}}
    world = World([node("n")], [running("low", "n", cpu="1")], plugins=[Brittle], profile=profile)
    decision = world.decide(preemptor(cpu="1"))
    assert decision.message.endswith('preemption: running "Brittle" filter plugin: divided by no pods')
    assert preemption_of(decision) is None


class Moody(FilterPlugin):
    """Refuses every node as it is, and nothing that is imagined."""

    name = "Moody"

    def filter(self, state: CycleState, pod: PodInfo, nodes: Nodes) -> Verdict | None:
        """By whim."""
        refused = np.full(len(nodes), not isinstance(nodes, HypotheticalNodes))
        return Verdict.rejecting(refused, Status.unschedulable("no"))


def test_a_node_where_nobody_has_to_go_is_no_candidate() -> None:
    profile = {"plugins": {"filter": {"enabled": [{"name": "Moody"}]}}}
    world = World([node("n")], [running("low", "n")], plugins=[Moody], profile=profile)
    assert said(world, preemptor(cpu="0")) == 'expected at least one victim pod on node "n"'
