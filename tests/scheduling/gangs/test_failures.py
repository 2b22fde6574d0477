"""Gangs that something happens to at the wrong moment, and plugins that go wrong about them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import pytest

from kubestow.cluster.pods.pod_groups import Members, PodGroupAPI
from kubestow.cluster.pods.shapes import PodInfo
from kubestow.framework.cycle_state import CycleState
from kubestow.framework.diagnosis import Diagnosis
from kubestow.framework.gang import Evictable, Gang, GangOutcome, GangPlugin, GangPreemptionPlugin
from kubestow.framework.interface import FilterRunner, PostFilterPlugin, PostFilterResult
from kubestow.framework.status import SUCCESS, Status
from kubestow.testing import node, pod, pods
from tests.scheduling.extenders.scripted_extender import ScriptedExtender
from tests.scheduling.gangs.groups import gang_scheduling, group, member, members
from tests.scheduling.gangs.test_preemption import put, running, there
from tests.scheduling.running import Living, in_virtual_time

ALONE = {"plugins": {"multiPoint": {"enabled": [{"name": "Fails"}], "disabled": [{"name": "DefaultPreemption"}]}}}
LOW = pods(2, prefix="low", cpu="2", priority=1, node="n")


def test_nobody_is_evicted_for_a_gang_that_loses_a_pod_while_extenders_think() -> None:
    gang = members(2, "train", cpu="2", priority=100)

    async def story(world: Living) -> None:
        async def meanwhile(verb: str) -> None:
            if len(extender.asked) == 2:  # the first time was about the gang as it is
                world.cluster.remove(gang[0])
                await world.passes(1)

        extender.meanwhile = meanwhile
        put(world, gang)
        await world.passes(30)
        assert len(there(world, LOW)) == 2

    extender = ScriptedExtender("preempt")
    in_virtual_time(story, node("n", cpu="4"), *LOW, group("train", 2), extenders=[extender], **gang_scheduling())


def test_a_pod_whose_group_is_gone_evicts_nobody() -> None:
    async def story(world: Living) -> None:
        async def meanwhile(verb: str) -> None:
            extender.meanwhile = None
            put(world, members(2, "train", cpu="4", priority=100))
            await world.passes(1)
            world.cluster.remove(group("train", 2))
            await world.passes(1)

        extender.meanwhile = meanwhile
        world.cluster.put(pod("other", cpu="1"))
        await world.passes(30)
        assert len(there(world, LOW)) == 2

    extender = ScriptedExtender("filter")
    objects = (node("n", cpu="5"), *LOW, group("train", 2))
    in_virtual_time(story, *objects, extenders=[extender], **gang_scheduling())


def test_a_group_that_needs_more_while_extenders_think_holds_no_nodes() -> None:
    gang = members(2, "train", cpu="2")

    async def story(world: Living) -> None:
        async def meanwhile(verb: str) -> None:
            extender.meanwhile = None
            world.cluster.put(group("train", 3))
            await world.passes(1)

        extender.meanwhile = meanwhile
        put(world, gang)
        await world.passes(10)
        world.cluster.put(pod("other", cpu="4"))
        await world.passes(10)
        assert world.node_of("other") == "n"

    extender = ScriptedExtender("filter")
    in_virtual_time(story, node("n", cpu="4"), group("train", 2), extenders=[extender], **gang_scheduling())


def test_a_pod_of_two_groups_is_decided_about_with_the_one_that_counts() -> None:
    both = member("both", "first", cpu="1", labels={"scheduling.x-k8s.io/pod-group": "second"})
    other = member("other", "second", api=PodGroupAPI.COSCHEDULING, cpu="1")

    async def story(world: Living) -> None:
        put(world, [both, other])
        await world.passes(10)
        assert world.scheduler.cluster.pod_count == 0
        world.cluster.put(member("late", "first", cpu="1"))
        await world.passes(400)
        assert running(world, [both, other]) == 2

    groups = group("first", 2), group("second", 2, api=PodGroupAPI.COSCHEDULING)
    in_virtual_time(story, node("n", cpu="4"), *groups, **gang_scheduling())


class Fails(GangPlugin, PostFilterPlugin, GangPreemptionPlugin):
    """Takes all pods for one gang, and goes wrong at one point."""

    name = "Fails"
    events_to_register = ()
    at: ClassVar[str]

    def pre_enqueue(self, pod: PodInfo) -> Status:
        return SUCCESS

    def gang_of(self, pod: PodInfo) -> Gang | None:
        members = Members({}.keys(), {pod.uid: pod}, {pod.uid: None})
        return Gang("all", "", 1, 300.0, members) if self.at != "gang_of" else "all"  # type: ignore[return-value]

    def attempt_ended(self, gang: Gang, outcome: GangOutcome, message: str) -> None:
        if self.at == "concluded":
            raise ValueError("not like this")

    def post_filter(
        self, state: CycleState, pod: PodInfo, diagnosis: Diagnosis, filters: FilterRunner
    ) -> PostFilterResult:
        return PostFilterResult(Status.unschedulable("no"))

    def preempts_as_a_whole(self, gang: Gang) -> bool:
        if self.at == "preempts_for":
            raise ValueError("not like this")
        return True

    def evictable_units(self, gang: Gang, pods: Sequence[PodInfo]) -> Evictable | Status:
        if self.at == "evictable":
            return None  # type: ignore[return-value]
        return Status.unschedulable("no")


@pytest.mark.parametrize("at", ["concluded", "gang_of", "preempts_for", "evictable"])
def test_a_plugin_that_goes_wrong_about_a_gang_does_not_end_the_scheduler(at: str) -> None:
    async def story(world: Living) -> None:
        world.cluster.put(pod("too-big", cpu="8"))
        await world.passes(5)
        assert world.cluster.condition("too-big")

    Fails.at = at
    in_virtual_time(story, node("n", cpu="4"), plugins=[Fails], profiles=[ALONE])


def test_who_waits_for_a_promised_node_hears_that_a_gang_went_elsewhere() -> None:
    async def story(world: Living) -> None:
        world.cluster.put(member("train-0", "train", cpu="3", priority=100, nominated="n"))
        world.cluster.put(pod("small", cpu="2", node_selector={"small": "yes"}))
        await world.passes(1)
        assert not world.node_of("small")
        world.cluster.put(pod("important", cpu="2", priority=1000, node_selector={"small": "yes"}))
        await world.passes(1)
        world.cluster.put(member("train-1", "train", cpu="3", priority=100))
        await world.passes(30)
        assert [world.node_of(name) for name in ("train-0", "important", "small")] == ["big", "n", "n"]

    nodes = node("n", cpu="4", labels={"small": "yes"}), node("big", cpu="8")
    in_virtual_time(story, *nodes, group("train", 2), **gang_scheduling())
