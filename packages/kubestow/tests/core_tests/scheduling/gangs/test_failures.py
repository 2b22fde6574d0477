"""Gangs that change during an attempt, and gang plugins that fail."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import pytest

from core_tests.scheduling.extenders.scripted_extender import ScriptedExtender
from core_tests.scheduling.gangs.groups import TEAMS, gang_scheduling, group, member, members
from core_tests.scheduling.gangs.scenarios import bound_count, create_pods, remaining
from kubestow.cluster.pods.pod_groups import Members
from kubestow.cluster.pods.shapes import PodInfo
from kubestow.framework.cycle_state import CycleState
from kubestow.framework.diagnosis import Diagnosis
from kubestow.framework.gang import Evictable, Gang, GangOutcome, GangPlugin, GangPreemptionPlugin
from kubestow.framework.interface import FilterRunner, PostFilterPlugin, PostFilterResult
from kubestow.framework.status import SUCCESS, Status
from kubestow.testing import node, pod, pods
from kubestow.testing.scheduler_harness import SchedulerHarness, in_virtual_time

PROFILE = {
    "plugins": {"multiPoint": {"enabled": [{"name": "FailingGangPlugin"}], "disabled": [{"name": "DefaultPreemption"}]}}
}
LOW = pods(2, prefix="low", cpu="2", priority=1, node="n")


def test_a_gang_that_loses_a_pod_during_an_extender_call_evicts_no_pod() -> None:
    gang = members(2, "train", cpu="2", priority=100)

    async def scenario(harness: SchedulerHarness) -> None:
        async def during_call(verb: str) -> None:
            if len(extender.calls) == 2:  # the first call is for the gang without preemption
                harness.cluster.remove(gang[0])
                await harness.advance(1)

        extender.during_call = during_call
        create_pods(harness, gang)
        await harness.advance(30)
        assert len(remaining(harness, LOW)) == 2

    extender = ScriptedExtender("preempt")
    in_virtual_time(scenario, node("n", cpu="4"), *LOW, group("train", 2), extenders=[extender], **gang_scheduling())


def test_a_pod_whose_group_is_deleted_evicts_no_pod() -> None:
    async def scenario(harness: SchedulerHarness) -> None:
        async def during_call(verb: str) -> None:
            extender.during_call = None
            create_pods(harness, members(2, "train", cpu="4", priority=100))
            await harness.advance(1)
            harness.cluster.remove(group("train", 2))
            await harness.advance(1)

        extender.during_call = during_call
        harness.cluster.put(pod("other", cpu="1"))
        await harness.advance(30)
        assert len(remaining(harness, LOW)) == 2

    extender = ScriptedExtender("filter")
    objects = (node("n", cpu="5"), *LOW, group("train", 2))
    in_virtual_time(scenario, *objects, extenders=[extender], **gang_scheduling())


def test_a_gang_whose_min_count_grows_during_an_extender_call_reserves_no_node() -> None:
    gang = members(2, "train", cpu="2")

    async def scenario(harness: SchedulerHarness) -> None:
        async def during_call(verb: str) -> None:
            extender.during_call = None
            harness.cluster.put(group("train", 3))
            await harness.advance(1)

        extender.during_call = during_call
        create_pods(harness, gang)
        await harness.advance(10)
        harness.cluster.put(pod("other", cpu="4"))
        await harness.advance(10)
        assert harness.node_of("other") == "n"

    extender = ScriptedExtender("filter")
    in_virtual_time(scenario, node("n", cpu="4"), group("train", 2), extenders=[extender], **gang_scheduling())


def test_a_pod_of_two_groups_is_scheduled_with_the_group_that_takes_precedence() -> None:
    both = member("both", "first", cpu="1", labels={"team": "second"})
    other = member("other", "second", api=TEAMS, cpu="1")

    async def scenario(harness: SchedulerHarness) -> None:
        create_pods(harness, [both, other])
        await harness.advance(10)
        assert harness.scheduler.cluster.pod_count == 0
        harness.cluster.put(member("late", "first", cpu="1"))
        await harness.advance(400)
        assert bound_count(harness, [both, other]) == 2

    groups = group("first", 2), group("second", 2, api=TEAMS)
    in_virtual_time(scenario, node("n", cpu="4"), *groups, **gang_scheduling())


class FailingGangPlugin(GangPlugin, PostFilterPlugin, GangPreemptionPlugin):
    """Treats all pods as one gang, and fails in one method."""

    name = "FailingGangPlugin"
    events_to_register = ()
    at: ClassVar[str]

    def pre_enqueue(self, pod: PodInfo) -> Status:
        return SUCCESS

    def gang_of(self, pod: PodInfo) -> Gang | None:
        members = Members({}.keys(), {pod.uid: pod}, {pod.uid: None})
        return Gang("all", "", 1, 300.0, members) if self.at != "gang_of" else "all"  # type: ignore[return-value]

    def attempt_ended(self, gang: Gang, outcome: GangOutcome, message: str) -> None:
        if self.at == "attempt_ended":
            raise ValueError("broken")

    def post_filter(
        self, state: CycleState, pod: PodInfo, diagnosis: Diagnosis, filters: FilterRunner
    ) -> PostFilterResult:
        return PostFilterResult(Status.unschedulable("no"))

    def preempts_as_a_whole(self, gang: Gang) -> bool:
        if self.at == "preempts_as_a_whole":
            raise ValueError("broken")
        return True

    def evictable_units(self, gang: Gang, pods: Sequence[PodInfo]) -> Evictable | Status:
        if self.at == "evictable":
            return None  # type: ignore[return-value]
        return Status.unschedulable("no")


@pytest.mark.parametrize("at", ["attempt_ended", "gang_of", "preempts_as_a_whole", "evictable"])
def test_a_gang_plugin_that_fails_does_not_stop_the_scheduler(at: str) -> None:
    async def scenario(harness: SchedulerHarness) -> None:
        harness.cluster.put(pod("too-big", cpu="8"))
        await harness.advance(5)
        assert harness.cluster.condition("too-big")

    FailingGangPlugin.at = at
    in_virtual_time(scenario, node("n", cpu="4"), plugins=[FailingGangPlugin], profiles=[PROFILE])


def test_a_gang_bound_elsewhere_releases_its_nominations_and_requeues_pods() -> None:
    async def scenario(harness: SchedulerHarness) -> None:
        for nominated in ("", "n"):  # the nomination of a new pod that is gated would not count
            harness.cluster.put(member("train-0", "train", cpu="3", priority=100, nominated=nominated))
            await harness.settle()
        harness.cluster.put(pod("small", cpu="2", node_selector={"small": "yes"}))
        await harness.advance(1)
        assert not harness.node_of("small")
        harness.cluster.put(pod("important", cpu="2", priority=1000, node_selector={"small": "yes"}))
        await harness.advance(1)
        harness.cluster.put(member("train-1", "train", cpu="3", priority=100))
        await harness.advance(30)
        assert [harness.node_of(name) for name in ("train-0", "important", "small")] == ["big", "n", "n"]

    nodes = node("n", cpu="4", labels={"small": "yes"}), node("big", cpu="8")
    in_virtual_time(scenario, *nodes, group("train", 2), **gang_scheduling())


def test_the_members_of_a_gang_lose_their_nominations_in_a_cluster_without_nodes() -> None:
    async def scenario(harness: SchedulerHarness) -> None:
        create_pods(harness, members(2, "train", nominated="gone"))
        await harness.settle()
        for name in ("train-0", "train-1"):
            assert harness.scheduler.cluster.nomination(f"uid-default-{name}") is None
            assert harness.cluster.pod(name).status.nominated_node_name == ""

    in_virtual_time(scenario, group("train", 2), **gang_scheduling())
