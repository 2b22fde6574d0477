"""Changes of the cluster during an extender call: the decision is validated against the current state."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from core_tests.scheduling.extenders.scripted_extender import ScriptedExtender
from core_tests.scheduling.fixture import enabled
from kubestow.cluster.nodes.views import Nodes
from kubestow.cluster.pods.shapes import PodInfo
from kubestow.framework.cycle_state import CycleState
from kubestow.framework.interface import Handle, PreFilterPlugin, ReservePlugin
from kubestow.testing import node, pod
from kubestow.testing.scheduler_harness import SchedulerHarness, in_virtual_time


def nodes_after(extender: ScriptedExtender, *objects: object, during: str = "filter", waits: float = 5.0) -> list[str]:
    """The node of pod ``p``, or "deleted", after a call during which the cluster changes; ``objects`` are the nodes."""
    found: list[str] = []

    async def scenario(harness: SchedulerHarness) -> None:
        change = extender.change  # type: ignore[attr-defined]

        async def during_call(verb: str) -> None:
            if verb == during and not found:
                found.append("")
                change(harness)

        extender.during_call = during_call
        harness.cluster.put(pod("p", cpu="3"))
        await harness.advance(waits)
        found.append(harness.node_of("p") if ("default", "p") in _pods(harness) else "deleted")

    in_virtual_time(scenario, *objects, extenders=[extender])
    return found[1:]


def _pods(harness: SchedulerHarness) -> set[tuple[str, str]]:
    return {(one.metadata.namespace, one.metadata.name) for one in harness.cluster.pods()}


def extender_during_which(*verbs: str, change: object, **responses: object) -> ScriptedExtender:
    extender = ScriptedExtender(*verbs, **responses)  # type: ignore[arg-type]
    extender.change = change  # type: ignore[attr-defined]
    return extender


def test_a_node_deleted_during_filtering_is_not_chosen() -> None:
    # Removing "a" moves "c" to its row.
    extender = extender_during_which(
        "filter", change=lambda harness: harness.cluster.remove(node("a")), passes={"a", "b"}
    )
    assert nodes_after(extender, node("a"), node("b"), node("c")) == ["b"]


def test_nodes_deleted_during_a_call_do_not_fail_the_attempt() -> None:
    async def scenario(harness: SchedulerHarness) -> None:
        async def during_call(verb: str) -> None:
            if len(extender.calls) == 1:
                harness.cluster.remove(node("a"))

        extender.during_call = during_call
        harness.cluster.put(pod("p", cpu="3"))
        await harness.advance(5)
        assert harness.node_of("p") == "b"
        assert [event.reason for event in harness.cluster.events] == ["Scheduled"]

    extender = ScriptedExtender("filter", passes={"a", "b"})
    in_virtual_time(scenario, node("a"), node("b"), node("c"), extenders=[extender])


def test_a_node_deleted_during_scoring_is_not_chosen() -> None:
    scores = {"a": 10, "b": 5, "c": 1}
    extender = extender_during_which(
        "prioritize", change=lambda harness: harness.cluster.remove(node("a")), scores=scores
    )
    assert nodes_after(extender, node("a"), node("b"), node("c"), during="prioritize") == ["b"]


def test_a_node_filled_up_during_the_call_is_not_chosen() -> None:
    extender = extender_during_which(
        "filter", change=lambda harness: harness.cluster.put(pod("other", node="a", cpu="2")), passes={"a", "b"}
    )
    assert nodes_after(extender, node("a"), node("b", cpu="3")) == ["b"]


def test_a_node_that_gains_the_first_anti_affinity_pod_during_the_call_is_not_chosen() -> None:
    """Before that pod, no pod in the cluster had anti-affinity terms."""
    term = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {}}
    affinity = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    exclusive = pod("exclusive", node="a", affinity=affinity)
    extender = extender_during_which("filter", change=lambda harness: harness.cluster.put(exclusive), passes={"a", "b"})
    assert nodes_after(extender, node("a", cpu="64"), node("b")) == ["b"]


def test_a_pod_whose_only_node_is_deleted_during_the_call_is_retried() -> None:
    def change(harness: SchedulerHarness) -> None:
        harness.cluster.remove(node("a"))
        harness.cluster.put(node("b"))

    assert nodes_after(extender_during_which("filter", change=change), node("a")) == ["b"]


def test_a_node_added_during_the_call_is_not_chosen() -> None:
    extender = extender_during_which("filter", change=lambda harness: harness.cluster.put(node("late", cpu="64")))
    assert nodes_after(extender, node("a")) == ["a"]


def test_a_pod_deleted_during_the_call_is_dropped() -> None:
    extender = extender_during_which("filter", change=lambda harness: harness.cluster.remove(pod("p")))
    assert nodes_after(extender, node("a")) == ["deleted"]


def test_a_pod_bound_by_another_client_during_the_call_is_dropped() -> None:
    extender = extender_during_which(
        "filter", change=lambda harness: harness.cluster.put(pod("p", node="b", cpu="3")), passes={"a"}
    )
    assert nodes_after(extender, node("a"), node("b")) == ["b"]


def test_pods_without_an_interested_extender_are_scheduled_during_the_call() -> None:
    async def scenario(harness: SchedulerHarness) -> None:
        async def slow(verb: str) -> None:
            await harness.advance(3)

        extender.during_call = slow
        harness.cluster.put(pod("slow", requests={"x.y/gpu": "1"}))
        harness.cluster.put(pod("quick"))
        await harness.advance(4)
        assert [bound for bound, _ in harness.cluster.bindings] == ["default/slow", "default/quick"]

    extender = ScriptedExtender("filter", managedResources=[{"name": "x.y/gpu"}])
    in_virtual_time(scenario, node("a", allocatable={"x.y/gpu": "1"}), extenders=[extender])


@dataclass(frozen=True)
class Prepared:
    """What PreFilter prepares: the name of the pod."""

    name: str


class ReservesWhatItPrepared(PreFilterPlugin, ReservePlugin):
    """``reserved`` lists each pod at Reserve with what PreFilter prepared for it."""

    name = "ReservesWhatItPrepared"
    events_to_register = ()

    def __init__(self, args: Any, handle: Handle) -> None:
        super().__init__(args, handle)
        self.reserved: list[tuple[str, Prepared]] = []

    def pre_filter(self, state: CycleState, pod: PodInfo, nodes: Nodes) -> None:
        state.put(Prepared(pod.name))

    def reserve(self, state: CycleState, pod: PodInfo, node_name: str) -> None:
        self.reserved.append((pod.name, state[Prepared]))

    def unreserve(self, state: CycleState, pod: PodInfo, node_name: str) -> None:
        pass


def test_a_copy_evaluated_during_the_call_does_not_replace_what_plugins_have_prepared_for_the_pod() -> None:
    async def scenario(harness: SchedulerHarness) -> None:
        cluster, profile = harness.scheduler.cluster, harness.scheduler.profiles["default-scheduler"]

        async def evaluate_a_copy(verb: str) -> None:
            copy = cluster.shapes.info(pod("copy"))
            assert profile.evaluations.of(copy).find_feasible(copy).count == 2

        extender.during_call = evaluate_a_copy
        harness.cluster.put(pod("p"))
        await harness.settle()
        plugin = next(one for one in profile.plugins if isinstance(one, ReservesWhatItPrepared))
        assert plugin.reserved == [("p", Prepared("p"))]

    extender = ScriptedExtender("filter")
    in_virtual_time(scenario, node("a"), node("b"), extenders=[extender], **enabled(ReservesWhatItPrepared))
