"""DefaultPreemption: eligibility, victims, the choice of a node, and messages."""

from __future__ import annotations

import gc
from typing import Any, ClassVar
from weakref import ref

import numpy as np
import pytest

from core_tests.decisions import preemption_of
from core_tests.scheduling.gangs.groups import group, members
from kubestow.api.core import Pod
from kubestow.api.meta import convert
from kubestow.api.policy import PodDisruptionBudget
from kubestow.api.scheduling import PodGroup
from kubestow.cluster.cache import Cluster
from kubestow.cluster.changes.events import Action, EventResource
from kubestow.cluster.nodes.node_info import NodeInfo
from kubestow.cluster.nodes.views import HypotheticalNodes, Nodes
from kubestow.cluster.pods.pod_groups import KUBERNETES, Members, PodGroupName
from kubestow.cluster.pods.shapes import PodInfo, Shape
from kubestow.framework.cycle_state import CycleState
from kubestow.framework.gang import Gang, GroupTerms
from kubestow.framework.interface import FilterPlugin, NodeFilterPlugin, PostFilterResult
from kubestow.framework.status import Code, Status, Verdict
from kubestow.plugins.default_preemption.default_preemption import PreemptionWithoutPreEnqueue
from kubestow.rules.minors import Minor
from kubestow.testing import PluginHarness, node, nodes, pod

HIGH, MIDDLE, LOW = 100, 50, 0


def running(name: str, where: str, *, cpu: str = "4", priority: int = LOW, day: int = 1, **more: Any) -> Pod:
    """A pod that runs on a node and started on a day of January."""
    status = {"startTime": f"2026-01-{day:02}T00:00:00Z", **more.pop("status", {})}
    return pod(name, node=where, cpu=cpu, priority=priority, status=status, **more)


def preemptor(**more: Any) -> Pod:
    """A pod of high priority that requests a whole node."""
    return pod("urgent", **{"cpu": "4", "priority": HIGH, **more})


def budget(name: str, *, app: str | None, allowed: int, disrupted: dict[str, str] | None = None) -> PodDisruptionBudget:
    """A budget that covers the pods of an app; None is the empty selector."""
    selector: dict[str, Any] = {"matchLabels": {"app": app}} if app is not None else {}
    status = {"disruptionsAllowed": allowed, "disruptedPods": disrupted or {}}
    metadata = {"name": name, "namespace": "default"}
    return convert(PodDisruptionBudget, {"metadata": metadata, "spec": {"selector": selector}, "status": status})


def preempt(harness: PluginHarness, urgent: Pod | None = None) -> PostFilterResult:
    """The result of PostFilter for a pod that fits no node."""
    decision = harness.decide(urgent or preemptor())
    assert decision.node_name is None
    result = preemption_of(decision)
    assert result is not None
    return result


def victims(result: PostFilterResult) -> list[str]:
    """The victims' names, the most important first."""
    return [info.name for info in result.victims]


def preemption_message(harness: PluginHarness, urgent: Pod | None = None) -> str:
    """The part of the pod's message that preemption adds."""
    return harness.decide(urgent or preemptor()).message.partition("preemption: ")[2]


def two_nodes(*pods: Pod) -> PluginHarness:
    """``node-0`` and ``node-1`` with four cores each, and some pods."""
    return PluginHarness(nodes(2), pods)


# -- eligibility -----------------------------------------------------------------------------------------------------


def test_a_pod_that_never_preempts_is_not_eligible() -> None:
    harness = PluginHarness([node("n")], [running("low", "n")])
    never = preemptor(spec={"preemptionPolicy": "Never"})
    assert preemption_message(harness, never) == "not eligible due to preemptionPolicy=Never."


def test_an_ineligible_pod_keeps_its_nomination() -> None:
    harness = PluginHarness([node("n")], [running("low", "n")])
    assert preemption_of(harness.decide(preemptor(spec={"preemptionPolicy": "Never"}))) is None


def terminating(reason: str = "PreemptionByScheduler") -> Pod:
    """A terminating pod on node-0 with a DisruptionTarget condition."""
    target = {"type": "DisruptionTarget", "status": "True", "reason": reason}
    return running("terminating", "node-0", deleting=True, status={"conditions": [target]})


def test_a_pod_is_not_eligible_while_its_victims_terminate_on_the_nominated_node() -> None:
    harness = two_nodes(terminating(), running("other", "node-1"))
    expected = "not eligible due to a terminating pod on the nominated node."
    assert preemption_message(harness, preemptor(nominated="node-0")) == expected


#: What gangs need besides GenericWorkload to preempt as a whole.
OF_GROUPS = {Minor(36): ("GangScheduling", "WorkloadAwarePreemption")}


@pytest.mark.parametrize("minor", [Minor(36), Minor(37)], ids=str)
@pytest.mark.parametrize(
    ("nominated", "expected"),
    [(("node-0", "node-1"), Code.PENDING), (("node-1", ""), None), (("gone", ""), None)],
    ids=["one node with victims", "another node", "no node"],
)
def test_a_gang_waits_for_victims_that_terminate_on_any_of_its_nominated_nodes(
    nominated: tuple[str, ...], expected: Code | None, minor: Minor
) -> None:
    gates = dict.fromkeys(("GenericWorkload", *OF_GROUPS.get(minor, ())), True)
    harness = PluginHarness(nodes(2), [terminating(), running("other", "node-1")], minor=minor, gates=gates)
    harness.cluster.catalog(PodGroup).put(train := group("train", 2, priority=HIGH))
    infos = [harness.info(each) for each in members(2, "train", cpu="4", priority=HIGH)]
    for info, name in zip(infos, nominated, strict=True):
        if name:
            harness.cluster.nominate(info, name)
    plugin = next(
        p for p in harness.profiles["default-scheduler"].plugins if isinstance(p, PreemptionWithoutPreEnqueue)
    )
    terms = GroupTerms(HIGH) if minor.number >= 37 else None
    named = PodGroupName(KUBERNETES.name, "default", "train")
    of_gang = Members({}.keys(), {info.uid: info for info in infos}, dict.fromkeys(info.uid for info in infos))
    found = plugin.evictable_units(Gang(named, train.metadata.uid, 2, 300.0, of_gang, terms), infos)
    assert (found.code if isinstance(found, Status) else None) == expected


def test_the_deletion_of_a_pod_requeues_no_pod_for_the_sake_of_preemption() -> None:
    """The hints of the plugins that have rejected it decide."""
    harness = two_nodes(running("victim", "node-0"))
    plugin = next(p for p in harness.profiles["default-scheduler"].plugins if p.name == "DefaultPreemption")
    (registration,) = plugin.events_to_register
    deleted = harness.info(running("victim", "node-0"))
    assert registration.event.resource is EventResource.ASSIGNED_POD and registration.event.action is Action.DELETE
    assert registration.hint is not None and registration.hint(harness.info(preemptor()), deleted, None) is False


def test_a_pod_that_terminates_for_another_reason_does_not_count_as_a_victim() -> None:
    harness = two_nodes(terminating("DeletionByTaintManager"), running("other", "node-1"))
    assert preempt(harness, preemptor(nominated="node-0")).nominated_node_name == "node-0"


def test_an_unresolvable_nominated_node_is_replaced_by_another() -> None:
    harness = two_nodes(terminating(), running("other", "node-1"))
    harness.cluster.update_node(node("node-0", unschedulable=True))
    assert preempt(harness, preemptor(nominated="node-0")).nominated_node_name == "node-1"


def test_a_pod_of_a_pod_group_is_not_eligible_with_workload_aware_preemption() -> None:
    grouped = preemptor(spec={"schedulingGroup": {"podGroupName": "g"}})
    gates = {"GenericWorkload": True, "GangScheduling": True, "WorkloadAwarePreemption": True}
    harness = PluginHarness([node("n")], [running("low", "n")], gates=gates)
    assert preemption_message(harness, grouped) == "not eligible due to workload aware preemption enabled"


@pytest.mark.parametrize(
    ("group", "expected"),
    [
        (None, "pod group for pod not found"),
        ({"schedulingConstraints": {"topology": [{"key": "rack"}]}}, "placement-based pod group scheduling limitation"),
        ({}, ""),
    ],
)
def test_a_pod_of_a_pod_group_that_is_placed_by_topology_is_not_eligible(
    group: dict[str, Any] | None, expected: str
) -> None:
    gates = {"GenericWorkload": True, "GangScheduling": True, "TopologyAwareWorkloadScheduling": True}
    harness = PluginHarness([node("n")], [running("low", "n")], gates=gates)
    if group is not None:
        spec = {"schedulingPolicy": {"basic": {}}, **group}
        metadata = {"name": "g", "namespace": "default"}
        harness.cluster.catalog(PodGroup).put(convert(PodGroup, {"metadata": metadata, "spec": spec}))
    message = preemption_message(harness, preemptor(spec={"schedulingGroup": {"podGroupName": "g"}}))
    assert message.endswith(expected)
    assert bool(message) == bool(expected)


def test_a_pod_is_gated_while_its_victims_are_being_evicted() -> None:
    harness = PluginHarness(gates={"SchedulerAsyncPreemption": True})
    (plugin,) = (
        p for p in harness.profiles["default-scheduler"].runtime.plugins.pre_enqueue if p.name == "DefaultPreemption"
    )
    info = harness.info(preemptor())
    assert plugin.pre_enqueue(info).ok
    harness.preempting.add(info.uid)
    assert plugin.pre_enqueue(info).message == "waiting for the preemption for this pod to be finished"


# -- victims ---------------------------------------------------------------------------------------------------------


def test_only_pods_of_lower_priority_are_victims() -> None:
    harness = PluginHarness([node("n")], [running("equal", "n", cpu="2", priority=HIGH), running("low", "n", cpu="2")])
    assert victims(preempt(harness, preemptor(cpu="2"))) == ["low"]


def test_no_more_pods_are_evicted_than_needed_and_important_pods_are_reprieved_first() -> None:
    pods = [running(f"p{priority}", "n", cpu="1", priority=priority) for priority in (3, 1, 4, 2)]
    assert victims(preempt(PluginHarness([node("n")], pods), preemptor(cpu="2"))) == ["p2", "p1"]


def test_among_equal_priorities_the_older_pod_is_reprieved() -> None:
    pods = [running("young", "n", cpu="2", day=9), running("old", "n", cpu="2", day=2)]
    assert victims(preempt(PluginHarness([node("n")], pods), preemptor(cpu="2"))) == ["young"]


def test_a_pod_that_has_not_started_counts_as_the_youngest() -> None:
    fresh = pod("fresh", node="n", cpu="2", priority=LOW)
    harness = PluginHarness([node("n")], [fresh, running("young", "n", cpu="2", day=9)])
    assert victims(preempt(harness, preemptor(cpu="2"))) == ["fresh"]


def test_a_start_time_that_is_reported_later_counts() -> None:
    harness = PluginHarness([node("n")], [pod("late", node="n", cpu="2"), running("young", "n", cpu="2", day=9)])
    assert victims(preempt(harness, preemptor(cpu="2"))) == ["late"]
    start_time = pod("late", node="n", cpu="2", status={"startTime": "2026-01-02T00:00:00Z"})
    harness.cluster.put_pod(harness.info(start_time))
    assert victims(preempt(harness, preemptor(cpu="2"))) == ["young"]


def test_a_pod_protected_by_a_budget_is_reprieved_before_a_more_important_pod() -> None:
    pods = [
        running("guarded", "n", cpu="2", priority=1, labels={"app": "db"}),
        running("important", "n", cpu="2", priority=9),
    ]
    harness = PluginHarness([node("n")], pods)
    harness.cluster.catalog(PodDisruptionBudget).put(budget("db", app="db", allowed=0))
    assert victims(preempt(harness, preemptor(cpu="2"))) == ["important"]


def test_victims_are_listed_by_importance_although_protected_pods_are_reprieved_first() -> None:
    pods = [
        running("guarded", "n", cpu="2", priority=1, labels={"app": "db"}),
        running("important", "n", cpu="2", priority=9),
    ]
    harness = PluginHarness([node("n")], pods)
    harness.cluster.catalog(PodDisruptionBudget).put(budget("db", app="db", allowed=0))
    assert victims(preempt(harness)) == ["important", "guarded"]


def test_the_result_counts_the_victims_that_violate_a_budget() -> None:
    harness = PluginHarness([node("n")], [running("guarded", "n", labels={"app": "db"})])
    harness.cluster.catalog(PodDisruptionBudget).put(budget("db", app="db", allowed=0))
    assert preempt(harness).violations == 1


def test_all_pods_that_share_a_wanted_host_port_are_victims() -> None:
    shared = [running("a", "n", cpu="1", host_ports=[80]), running("b", "n", cpu="1", host_ports=[80], day=2)]
    harness = PluginHarness([node("n")], [*shared, running("c", "n", cpu="1")])
    assert victims(preempt(harness, preemptor(cpu="1", host_ports=[80]))) == ["a", "b"]


def test_only_nominated_pods_of_lower_priority_lose_their_nomination() -> None:
    harness = PluginHarness([node("n")], [running("low", "n")])
    for name, priority in (("lower", MIDDLE), ("equal", HIGH)):
        harness.cluster.nominate(harness.info(pod(name, priority=priority)), "n")
    assert [info.name for info in preempt(harness).lower_priority_nominated] == ["lower"]


# -- picking one node ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("on_first", "on_second"),
    [
        pytest.param([{"priority": 9}], [{"priority": 3}], id="least important victim"),
        pytest.param([{"cpu": "2"}, {"cpu": "2"}], [{}], id="smallest sum of priorities"),
        pytest.param([{"cpu": "2"}, {"cpu": "2", "priority": -(2**31)}], [{}], id="fewest victims"),
        pytest.param([{"day": 3}], [{"day": 8}], id="latest start"),
    ],
)
def test_the_candidate_with_the_lowest_costs_is_picked(
    on_first: list[dict[str, Any]], on_second: list[dict[str, Any]]
) -> None:
    first = [running(f"a{i}", "node-0", **made) for i, made in enumerate(on_first)]
    second = [running(f"b{i}", "node-1", **made) for i, made in enumerate(on_second)]
    assert preempt(two_nodes(*first, *second)).nominated_node_name == "node-1"


def test_the_number_of_violated_budgets_is_the_first_criterion() -> None:
    harness = two_nodes(
        running("guarded", "node-0", priority=1, labels={"app": "db"}), running("free", "node-1", priority=9)
    )
    harness.cluster.catalog(PodDisruptionBudget).put(budget("db", app="db", allowed=0))
    assert preempt(harness).nominated_node_name == "node-1"


def test_among_equal_candidates_the_first_by_name_is_picked() -> None:
    harness = PluginHarness([node("b"), node("a")], [running("x", "b"), running("y", "a")])
    assert preempt(harness).nominated_node_name == "a"


@pytest.mark.parametrize(("percentage", "absolute"), [(0, 1), (2, 0), (4, 1)])
def test_the_search_ends_when_enough_candidates_are_found(percentage: int, absolute: int) -> None:
    args = {"minCandidateNodesPercentage": percentage, "minCandidateNodesAbsolute": absolute}
    profile = {"pluginConfig": [{"name": "DefaultPreemption", "args": args}]}
    pods = [running(f"p{number}", f"node-{number}", priority=number) for number in range(50)]
    harness = PluginHarness(nodes(50), pods, profile=profile)
    assert len({preempt(harness).nominated_node_name for _ in range(20)}) > 5


def test_the_search_continues_while_every_candidate_violates_a_budget() -> None:
    profile = {
        "pluginConfig": [
            {"name": "DefaultPreemption", "args": {"minCandidateNodesPercentage": 0, "minCandidateNodesAbsolute": 1}}
        ]
    }
    guarded = [running(f"p{n}", f"node-{n}", labels={"app": "db"}) for n in range(199)]
    harness = PluginHarness(nodes(200), [*guarded, running("free", "node-199", priority=MIDDLE)], profile=profile)
    harness.cluster.catalog(PodDisruptionBudget).put(budget("db", app="db", allowed=0))
    assert {preempt(harness).nominated_node_name for _ in range(10)} == {"node-199"}


# -- messages --------------------------------------------------------------------------------------------------------


def test_the_message_counts_the_reasons_of_all_nodes() -> None:
    harness = PluginHarness(
        [node("small", cpu="1"), node("busy"), node("held"), node("closed", unschedulable=True)],
        [
            running("equal", "busy", priority=HIGH),
            running("low", "held", cpu="1"),
            running("other", "held", cpu="3", priority=HIGH),
        ],
    )
    assert preemption_message(harness) == (
        "0/4 nodes are available: 1 Insufficient cpu, 1 No preemption victims found for incoming pod, "
        "2 Preemption is not helpful for scheduling."
    )


def test_nothing_is_kept_for_a_shape_without_pods() -> None:
    harness = two_nodes(running("a", "node-0"), running("b", "node-1"))

    def shape_after_preemption(cpu: str) -> ref[Shape]:
        urgent = preemptor(cpu=cpu)
        info = harness.info(urgent)
        assert preemption_of(harness.decide(urgent)) is not None
        return ref(info.shape)

    shapes = [shape_after_preemption(f"{number}m") for number in (1001, 1002, 1003, 1004)]
    gc.collect()
    # Something else may refer to the shape that was seen first, or last.
    assert [shape() for shape in shapes[1:-1]] == [None, None]


def test_without_candidates_the_nomination_is_cleared() -> None:
    harness = PluginHarness([node("n")], [running("equal", "n", priority=HIGH)])
    assert preempt(harness).nominated_node_name == ""


def test_without_potential_nodes_the_message_says_so_for_all_nodes() -> None:
    harness = PluginHarness(nodes(2, unschedulable=True))
    assert preemption_message(harness) == "0/2 nodes are available: 2 Preemption is not helpful for scheduling."


def test_a_pod_of_equal_priority_that_is_nominated_to_the_node_counts_in_the_dry_run() -> None:
    harness = PluginHarness([node("n")], [running("low", "n")])
    harness.cluster.nominate(harness.info(pod("nominated", cpu="2", priority=HIGH)), "n")
    assert preemption_message(harness) == "0/1 nodes are available: 1 Insufficient cpu."


def test_the_nomination_of_the_preemptor_itself_does_not_count() -> None:
    harness = PluginHarness([node("n")], [running("low", "n")])
    urgent = preemptor()
    harness.cluster.nominate(harness.info(urgent), "n")
    assert victims(preempt(harness, urgent)) == ["low"]


def test_results_for_a_nominated_pod_are_not_reused_for_pods_of_the_same_shape() -> None:
    harness = PluginHarness([node("n")], [running("low", "n")])
    urgent = preemptor()
    harness.cluster.nominate(harness.info(urgent), "n")
    assert victims(preempt(harness, urgent)) == ["low"]
    twin = pod("twin", cpu="4", priority=HIGH)
    assert preemption_message(harness, twin) == "0/1 nodes are available: 1 Insufficient cpu."
    assert victims(preempt(harness, urgent)) == ["low"]


class CountsHypotheticalNodes(FilterPlugin):
    """Rejects no node, and counts those that it sees without some of their pods."""

    name = "CountsHypotheticalNodes"
    #: What it has counted in each cluster.
    counts: ClassVar[dict[Cluster, int]] = {}

    def filter(self, state: CycleState, pod: PodInfo, nodes: Nodes) -> Verdict | None:
        if isinstance(nodes, HypotheticalNodes):
            self.counts[self.handle.cluster] = self.counts.get(self.handle.cluster, 0) + len(nodes)
        return None


def test_no_node_is_tried_without_its_pods_until_there_is_a_pod_of_lower_priority() -> None:
    equal = [running(f"equal-{number}", f"node-{number}", priority=HIGH) for number in range(3)]
    profile = {"plugins": {"filter": {"enabled": [{"name": "CountsHypotheticalNodes"}]}}}
    harness = PluginHarness(nodes(3), equal, plugins=[CountsHypotheticalNodes], profile=profile)
    for _ in range(2):
        assert preemption_message(harness) == "0/3 nodes are available: 3 No preemption victims found for incoming pod."
    assert harness.cluster not in CountsHypotheticalNodes.counts
    low = harness.info(running("low", "node-1"))
    harness.cluster.remove_pod(harness.info(equal[1]).uid)
    harness.cluster.put_pod(low)
    assert preempt(harness).nominated_node_name == "node-1"
    assert CountsHypotheticalNodes.counts[harness.cluster]
    harness.cluster.remove_pod(low.uid)
    assert harness.decide(preemptor()).node_name == "node-1"


class FailsWithoutPods(NodeFilterPlugin):
    """Rejects a node with pods and fails on one without."""

    name = "FailsWithoutPods"

    def filter_node(self, state: CycleState, pod: PodInfo, node_info: NodeInfo) -> Status:
        return Status.unschedulable("not alone") if node_info.pods else Status.error("divided by no pods")


def test_an_error_of_a_filter_in_the_dry_run_is_reported() -> None:
    profile = {"plugins": {"filter": {"enabled": [{"name": "FailsWithoutPods"}]}}}
    harness = PluginHarness([node("n")], [running("low", "n", cpu="1")], plugins=[FailsWithoutPods], profile=profile)
    decision = harness.decide(preemptor(cpu="1"))
    assert decision.message.endswith('preemption: running "FailsWithoutPods" filter plugin: divided by no pods')
    assert preemption_of(decision) is None


class RejectsActualNodes(FilterPlugin):
    """Rejects every actual node and no hypothetical one."""

    name = "RejectsActualNodes"

    def filter(self, state: CycleState, pod: PodInfo, nodes: Nodes) -> Verdict | None:
        refused = np.full(len(nodes), not isinstance(nodes, HypotheticalNodes))
        return Verdict.rejecting(refused, Status.unschedulable("no"))


def test_a_dry_run_without_victims_is_an_error() -> None:
    profile = {"plugins": {"filter": {"enabled": [{"name": "RejectsActualNodes"}]}}}
    harness = PluginHarness([node("n")], [running("low", "n")], plugins=[RejectsActualNodes], profile=profile)
    assert preemption_message(harness, preemptor(cpu="0")) == 'expected at least one victim pod on node "n"'
