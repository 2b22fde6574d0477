"""Rules of binding, nomination and preemption that are not the same in all minor versions."""

from __future__ import annotations

import asyncio
from typing import Any, ClassVar

import pytest
from msgspec.structs import replace

from core_tests.scheduling.fixture import SlowlyTerminatingCluster, TerminatingCluster, enabled
from core_tests.scheduling.queue.test_minor_versions import around, place_of
from kubestow.api.core import Node
from kubestow.cluster.changes.events import Action, EventResource
from kubestow.cluster.pods.shapes import PodInfo
from kubestow.errors import APIError
from kubestow.framework.cycle_state import CycleState
from kubestow.framework.event_registration import on
from kubestow.framework.interface import Permission, PermitPlugin, PreBindPlugin, ReservePlugin
from kubestow.framework.status import Status
from kubestow.rules.minors import Behaviour, Minor
from kubestow.scheduling.interfaces import ObjectReference
from kubestow.scheduling.queued_pod import Place
from kubestow.testing import MemoryCluster, in_virtual_time, node, pod
from kubestow.testing.scheduler_harness import SchedulerHarness

NOMINATED = {"nominatedNodeName": "n"}


# -- nominations ---------------------------------------------------------------------------------------------------


@around(Behaviour.FAILURE_WITHOUT_POST_FILTER_CLEARS_NOMINATION)
def test_a_profile_without_post_filter_clears_nominations(minor: Minor, has_behaviour: bool) -> None:
    async def scenario(harness: SchedulerHarness) -> None:
        harness.cluster.put(pod("a", cpu="9", status=NOMINATED))
        await harness.settle()
        assert (harness.cluster.pod("a").status.nominated_node_name or "") == ("" if has_behaviour else "n")

    profiles = [{"plugins": {"postFilter": {"disabled": [{"name": "*"}]}}}]
    in_virtual_time(scenario, node("n"), minor=minor, profiles=profiles)


class FailsAtReserve(ReservePlugin):
    """Fails for every pod."""

    name = "FailsAtReserve"
    events_to_register = ()

    def reserve(self, state: CycleState, pod: PodInfo, node_name: str) -> Status:
        return Status.error("no")

    def unreserve(self, state: CycleState, pod: PodInfo, node_name: str) -> None:
        pass


@around(Behaviour.FAILURES_CLEAR_NOMINATION_WITH_EXPECTATION)
def test_failures_clear_nominations_that_are_expectations(minor: Minor, has_behaviour: bool) -> None:
    async def scenario(harness: SchedulerHarness) -> None:
        harness.cluster.put(pod("a", status=NOMINATED))
        await harness.settle()
        assert (harness.cluster.pod("a").status.nominated_node_name or "") == ("" if has_behaviour else "n")

    gates = {"NominatedNodeNameForExpectation": True}
    in_virtual_time(scenario, node("n"), minor=minor, gates=gates, **enabled(FailsAtReserve))


@pytest.mark.parametrize("gate", [True, False])
def test_without_the_gate_of_expectations_failures_clear_nominations(gate: bool) -> None:
    async def scenario(harness: SchedulerHarness) -> None:
        harness.cluster.put(pod("a", status=NOMINATED))
        await harness.settle()
        assert (harness.cluster.pod("a").status.nominated_node_name or "") == ("n" if gate else "")

    gates = {"NominatedNodeNameForExpectation": gate}
    in_virtual_time(scenario, node("n"), minor=Minor(34), gates=gates, **enabled(FailsAtReserve))


# -- PreBind -------------------------------------------------------------------------------------------------------


class RejectsAtPreBind(PreBindPlugin):
    """Rejects every pod, until a node's annotations change."""

    name = "RejectsAtPreBind"
    events_to_register = (on(EventResource.NODE, Action.UPDATE_NODE_ANNOTATION),)

    async def pre_bind(self, state: CycleState, pod: PodInfo, node_name: str) -> Status:
        return Status.unschedulable("no")


class RejectsAtPreBindAndReserve(RejectsAtPreBind, ReservePlugin):
    """The events of plugins that cannot reject a pod earlier do not count."""

    name = "RejectsAtPreBind"

    def reserve(self, state: CycleState, pod: PodInfo, node_name: str) -> None:
        return None

    def unreserve(self, state: CycleState, pod: PodInfo, node_name: str) -> None:
        pass


@around(Behaviour.PRE_BIND_FAILURES_BACK_OFF)
def test_a_pod_that_pre_bind_rejects_backs_off_or_waits_for_an_event(minor: Minor, has_behaviour: bool) -> None:
    async def scenario(harness: SchedulerHarness) -> None:
        harness.cluster.put(pod("a"))
        await harness.settle()
        assert place_of(harness, "a") is (Place.ERROR_BACKOFF if has_behaviour else Place.UNSCHEDULABLE)
        condition = harness.cluster.condition("a")
        assert condition is not None
        assert condition.reason == "Unschedulable"
        assert condition.message == ("no" if has_behaviour else "0/1 nodes are available: 1 no.")
        if not has_behaviour:
            (queued,) = harness.scheduler.queue.pods.values()
            changed = harness.cluster.objects(Node)["", "n"]
            harness.cluster.put(replace(changed, metadata=replace(changed.metadata, annotations={"x": "y"})))
            await harness.advance(5)
            assert queued.attempts > 1

    in_virtual_time(scenario, node("n"), minor=minor, **enabled(RejectsAtPreBindAndReserve))


class SlowPreBind(PreBindPlugin):
    name = "SlowPreBind"
    events_to_register = ()
    parallel = True

    async def pre_bind(self, state: CycleState, pod: PodInfo, node_name: str) -> None:
        await asyncio.sleep(10)


class OtherSlowPreBind(SlowPreBind):
    name = "OtherSlowPreBind"


@around(Behaviour.PRE_BIND_RUNS_IN_PARALLEL)
def test_pre_bind_plugins_run_at_the_same_time_or_one_after_another(minor: Minor, has_behaviour: bool) -> None:
    async def scenario(harness: SchedulerHarness) -> None:
        harness.cluster.put(pod("a"))
        await harness.advance(11)
        assert bool(harness.node_of("a")) is has_behaviour
        await harness.advance(10)
        assert harness.node_of("a") == "n"

    in_virtual_time(scenario, node("n"), minor=minor, **enabled(SlowPreBind, OtherSlowPreBind))


# -- victims that are not bound yet --------------------------------------------------------------------------------


@around(Behaviour.VICTIMS_IN_PRE_BIND_ARE_CANCELLED)
def test_a_victim_in_pre_bind_is_cancelled_or_deleted(minor: Minor, has_behaviour: bool) -> None:
    cluster = TerminatingCluster()

    async def scenario(harness: SchedulerHarness) -> None:
        harness.cluster.put(pod("low", cpu="3", priority=0))
        await harness.advance(5)
        harness.cluster.put(pod("high", cpu="3", priority=100))
        await harness.settle()
        assert cluster.deletions == (0 if has_behaviour else 1)

    in_virtual_time(scenario, node("n", cpu="4"), minor=minor, cluster=cluster, **enabled(SlowPreBind))


@around(Behaviour.PREEMPTION_REPORTS_WHAT_IT_FOUND)
def test_a_successful_preemption_is_told(minor: Minor, has_behaviour: bool) -> None:
    async def scenario(harness: SchedulerHarness) -> None:
        harness.cluster.put(pod("low", cpu="3", priority=0))
        await harness.settle()
        harness.cluster.put(pod("high", cpu="3", priority=100))
        await harness.settle()
        found = "preemption: found a potential placement for pod on node n, preempting 1 victims"
        message = f"0/1 nodes are available: 1 Insufficient cpu.{f' {found}' if has_behaviour else ''}"
        assert message in [event.note for event in harness.cluster.events if event.reason == "FailedScheduling"]

    in_virtual_time(scenario, node("n", cpu="4"), minor=minor)


@around(Behaviour.NOMINATIONS_OF_GATED_PODS_COUNT)
def test_the_nomination_of_a_gated_pod_counts_at_once_or_after_an_update(minor: Minor, has_behaviour: bool) -> None:
    gates = {"schedulingGates": [{"name": "later"}]}
    gated = [
        pod("high", cpu="3", priority=100, nominated="n", spec=gates, labels=labels)
        for labels in ({}, {"new": "label"})
    ]

    async def scenario(harness: SchedulerHarness) -> None:
        harness.cluster.put(gated[0])
        await harness.settle()
        harness.cluster.put(pod("low", cpu="3", priority=0))
        await harness.settle()
        assert bool(harness.node_of("low")) is not has_behaviour
        harness.cluster.put(gated[1])
        await harness.settle()
        assert harness.scheduler.cluster.nomination("uid-default-high") == "n"

    in_virtual_time(scenario, node("n", cpu="4"), minor=minor)


class WaitsForLong(PermitPlugin):
    """Has pods of low priority wait."""

    name = "WaitsForLong"
    events_to_register = ()

    def permit(self, state: CycleState, pod: PodInfo, node_name: str) -> Permission | None:
        return None if pod.priority else Permission.wait(600)


@around(Behaviour.VICTIMS_ON_PERMIT_ARE_RETRIED)
def test_a_victim_on_permit_is_retried_or_rejected(minor: Minor, has_behaviour: bool) -> None:
    async def scenario(harness: SchedulerHarness) -> None:
        harness.cluster.put(pod("low", cpu="3", priority=0))
        await harness.advance(5)
        harness.cluster.put(pod("high", cpu="3", priority=100))
        await harness.settle()
        (note,) = (event.note for event in harness.cluster.events if event.reason == "Preempted")
        assert note.endswith(" (in kube-scheduler memory).") is has_behaviour
        (queued,) = (q for q in harness.scheduler.queue.pods.values() if q.info.name == "low")
        assert queued.rejectors == (frozenset() if has_behaviour else {"DefaultPreemption"})
        assert (queued.place is Place.UNSCHEDULABLE) is not has_behaviour

    in_virtual_time(scenario, node("n", cpu="4"), minor=minor, **enabled(WaitsForLong))


# -- assumed pods that are deleted ---------------------------------------------------------------------------------


@around(Behaviour.DELETED_ASSUMED_PODS_ARE_FORGOTTEN)
def test_an_assumed_pod_that_is_deleted_frees_its_room_at_once_or_when_its_binding_fails(
    minor: Minor, has_behaviour: bool
) -> None:
    async def scenario(harness: SchedulerHarness) -> None:
        harness.cluster.put(pod("a", cpu="3"))
        await harness.settle()
        harness.cluster.put(pod("b", cpu="3"))
        await harness.settle()
        harness.cluster.remove(harness.cluster.pod("a"))
        await harness.settle()
        assert harness.scheduler.cluster.is_assumed("uid-default-b") is has_behaviour
        await harness.advance(30)
        assert harness.node_of("b") == "n"

    in_virtual_time(scenario, node("n", cpu="4"), minor=minor, **enabled(SlowPreBind))


def test_a_waiting_pod_that_is_deleted_is_rejected_in_all_minor_versions() -> None:
    async def scenario(harness: SchedulerHarness) -> None:
        harness.cluster.put(pod("a", cpu="3", priority=0))
        await harness.settle()
        harness.cluster.put(pod("b", cpu="3", priority=0))
        await harness.settle()
        harness.cluster.remove(harness.cluster.pod("a"))
        await harness.advance(3)
        assert harness.scheduler.cluster.is_assumed("uid-default-b")

    in_virtual_time(scenario, node("n", cpu="4"), minor=Minor(34), **enabled(WaitsForLong))


class DeletedAfterBinding(MemoryCluster):
    """Binds a pod and deletes it; the watch shows only the deletion."""

    async def bind(self, pod: ObjectReference, node_name: str) -> None:
        self.remove(self.pod(pod.name))


def test_a_pod_that_was_bound_and_deleted_unseen_is_forgotten_after_a_look() -> None:
    async def scenario(harness: SchedulerHarness) -> None:
        harness.cluster.put(pod("a", cpu="3"))
        await harness.advance(60)
        assert not list(harness.scheduler.cluster.assumed())

    in_virtual_time(scenario, node("n", cpu="4"), minor=Minor(34), cluster=DeletedAfterBinding())


# -- preemption without a background task --------------------------------------------------------------------------


@pytest.mark.parametrize(("minor", "is_queued"), [(Minor(32), False), (Minor(33), True)])
def test_the_attempt_of_a_preemptor_ends_before_or_after_its_evictions(minor: Minor, is_queued: bool) -> None:
    """The server answers the deletion after twenty seconds, and the victim is gone after ten more."""

    async def scenario(harness: SchedulerHarness) -> None:
        harness.cluster.put(pod("high", cpu="3", priority=100))
        await harness.advance(5)
        assert ("uid-default-high" in harness.scheduler.queue.pods) is is_queued
        assert harness.scheduler.cluster.nomination("uid-default-high") == "n"
        await harness.advance(60)
        assert harness.node_of("high") == "n"

    low = pod("low", node="n", cpu="3", priority=0)
    in_virtual_time(scenario, node("n", cpu="4"), low, minor=minor, cluster=SlowlyTerminatingCluster())


class RefusesDeletions(MemoryCluster):
    refusals: ClassVar[int] = 1

    async def delete_pod(self, pod: ObjectReference) -> None:
        if self.refusals:
            self.refusals -= 1  # type: ignore[misc]  # of the instance
            raise APIError(403, "Forbidden", "not you")
        await super().delete_pod(pod)


def test_without_a_background_task_a_failed_eviction_leaves_no_nomination() -> None:
    async def scenario(harness: SchedulerHarness) -> None:
        harness.cluster.put(pod("high", cpu="3", priority=100))
        await harness.settle()
        assert harness.scheduler.cluster.nomination("uid-default-high") is None
        await harness.advance(30)
        assert harness.node_of("high") == "n"

    low = pod("low", node="n", cpu="3", priority=0)
    in_virtual_time(scenario, node("n", cpu="4"), low, minor=Minor(32), cluster=RefusesDeletions())


# -- conditions ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("minor", "generation"), [(Minor(33), 0), (Minor(34), 7)])
def test_conditions_have_the_observed_generation_with_its_gate(minor: Minor, generation: int) -> None:
    cluster = TerminatingCluster()

    async def scenario(harness: SchedulerHarness) -> None:
        meta: dict[str, Any] = {"generation": 7}
        harness.cluster.put(pod("low", node="n", cpu="3", priority=0, metadata=meta))
        harness.cluster.put(pod("high", cpu="3", priority=100, metadata=meta))
        await harness.settle()
        condition = harness.cluster.condition("high")
        assert condition is not None
        assert condition.observed_generation == generation
        (disrupted,) = (c for c in harness.cluster.pod("low").status.conditions if c.type == "DisruptionTarget")
        assert disrupted.observed_generation == generation

    in_virtual_time(scenario, node("n", cpu="4"), minor=minor, cluster=cluster)
