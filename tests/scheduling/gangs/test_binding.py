"""The way of a gang from its nodes to being bound: nobody is bound while so many may still fail that none should be."""

from __future__ import annotations

import asyncio
from typing import ClassVar

import pytest

from kubestow.cluster.pods.pod_groups import PodGroupAPI
from kubestow.cluster.pods.shapes import PodInfo
from kubestow.errors import APIError
from kubestow.framework.cycle_state import CycleState
from kubestow.framework.interface import Permission, PermitPlugin, PreBindPlugin, ReservePlugin
from kubestow.framework.status import SUCCESS, Status
from kubestow.testing import node, pod
from tests.scheduling.gangs.groups import APIS, gang_scheduling, group, member, members
from tests.scheduling.running import Living, in_virtual_time

BOTH = gang_scheduling("Doorman")


class Doorman(ReservePlugin, PermitPlugin, PreBindPlugin):
    """Fails where a test wants it to, for pods of certain names; ``slow`` ones take an hour to be made ready, and
    ``stubborn`` ones also if that is cancelled."""

    name = "Doorman"
    events_to_register = ()
    refused_at: ClassVar[dict[str, str]] = {}
    slow: ClassVar[set[str]] = set()
    stubborn: ClassVar[set[str]] = set()
    reserved: ClassVar[set[str]] = set()
    time_limit = None

    def reserve(self, state: CycleState, pod: PodInfo, node_name: str) -> Status:
        self.reserved.add(pod.name)
        return self._at("reserve", pod)

    def unreserve(self, state: CycleState, pod: PodInfo, node_name: str) -> None:
        self.reserved.discard(pod.name)

    def permit(self, state: CycleState, pod: PodInfo, node_name: str) -> Permission:
        return Permission.wait(5) if self.refused_at.get(pod.name) == "waiting" else Permission(self._at("permit", pod))

    async def pre_bind(self, state: CycleState, pod: PodInfo, node_name: str) -> Status:
        try:
            await asyncio.sleep(3600 if pod.name in self.slow | self.stubborn else 1)
        except asyncio.CancelledError:
            await asyncio.sleep(3600 if pod.name in self.stubborn else 0)
            raise
        return self._at("pre_bind", pod)

    def _at(self, point: str, pod: PodInfo) -> Status:
        return Status.unschedulable(f"not {pod.name}") if self.refused_at.get(pod.name) == point else SUCCESS


@pytest.fixture(autouse=True)
def nobody_refused() -> None:
    Doorman.refused_at, Doorman.slow, Doorman.stubborn, Doorman.reserved = {}, set(), set(), set()


def is_empty(world: Living, node_name: str) -> bool:
    """Whether the scheduler has placed nobody there."""
    nodes = world.scheduler.cluster.nodes
    return not nodes.pods[nodes.rows[node_name]]


def bound(world: Living) -> list[str]:
    return sorted(name.removeprefix("default/") for name, _ in world.cluster.bindings)


@pytest.mark.parametrize("point", ["reserve", "permit", "waiting", "pre_bind"])
def test_when_one_is_refused_on_the_way_none_is_bound(point: str) -> None:
    async def story(world: Living) -> None:
        Doorman.refused_at = {"train-1": point}
        for each in members(3, "train", cpu="1"):
            world.cluster.put(each)
        await world.passes(90)
        assert bound(world) == []
        Doorman.refused_at = {}
        await world.passes(600)
        assert bound(world) == ["train-0", "train-1", "train-2"]

    in_virtual_time(story, node("n"), group("train", 3), plugins=[Doorman], **BOTH)


@pytest.mark.parametrize("point", ["reserve", "permit", "waiting", "pre_bind"])
def test_one_that_is_not_needed_holds_nobody_back(point: str) -> None:
    async def story(world: Living) -> None:
        Doorman.refused_at = {"train-1": point}
        for each in members(3, "train", cpu="1"):
            world.cluster.put(each)
        await world.passes(30)
        assert bound(world) == ["train-0", "train-2"]

    in_virtual_time(story, node("n"), group("train", 2), plugins=[Doorman], **BOTH)


def test_what_was_reserved_for_a_gang_is_given_back_with_it() -> None:
    async def story(world: Living) -> None:
        for each in members(3, "train", cpu="2"):
            world.cluster.put(each)
        await world.settles()
        assert Doorman.reserved == set()

    in_virtual_time(story, node("n", cpu="4"), group("train", 3), plugins=[Doorman], **BOTH)


@pytest.mark.parametrize("api", APIS)
def test_pods_wait_for_each_other_only_so_long(api: PodGroupAPI) -> None:
    async def story(world: Living) -> None:
        Doorman.slow = {"train-1"}
        for each in members(3, "train", cpu="1", api=api):
            world.cluster.put(each)
        await world.passes(299)
        world.cluster.put(pod("other", cpu="2"))
        await world.settles()
        assert world.node_of("other") == ""
        await world.passes(3)
        assert bound(world) == ["other"]
        told = [event.note for event in world.cluster.events]
        assert any("2 of the 3 pods that it needs were ready to be bound after 5m0s" in note for note in told)

    in_virtual_time(story, node("n", cpu="4"), group("train", 3, api=api), plugins=[Doorman], **BOTH)


def test_a_group_may_say_how_long_its_pods_wait_for_each_other() -> None:
    api = PodGroupAPI.COSCHEDULING

    async def story(world: Living) -> None:
        Doorman.slow = {"train-1"}
        for each in members(2, "train", cpu="1", api=api):
            world.cluster.put(each)
        await world.passes(45)
        condition = world.cluster.condition("train-0")
        assert condition is not None
        assert "after 30s" in condition.message

    in_virtual_time(story, node("n"), group("train", 2, api=api, timeout=30), plugins=[Doorman], **BOTH)


def test_a_gang_does_not_begin_anew_while_it_is_giving_nodes_back() -> None:
    """One member comes back at once, another much later: together they would be too few."""

    async def story(world: Living) -> None:
        Doorman.stubborn, Doorman.refused_at = {"train-1"}, {"train-0": "pre_bind"}
        for each in members(2, "train", cpu="1"):
            world.cluster.put(each)
        await world.passes(5)
        Doorman.refused_at = {}
        await world.passes(1800)
        assert bound(world) == []
        Doorman.stubborn = set()
        await world.passes(3600)
        assert bound(world) == ["train-0", "train-1"]

    in_virtual_time(story, node("n"), group("train", 2), plugins=[Doorman], **BOTH)


def test_a_pod_deleted_on_the_way_is_not_counted() -> None:
    async def story(world: Living) -> None:
        for each in members(3, "train", cpu="1"):
            world.cluster.put(each)
        await world.settles()
        world.cluster.remove(member("train-1", "train"))
        await world.passes(60)
        assert bound(world) == []
        world.cluster.put(member("train-3", "train", cpu="1"))
        await world.passes(60)
        assert bound(world) == ["train-0", "train-2", "train-3"]

    in_virtual_time(story, node("n"), group("train", 3), plugins=[Doorman], **BOTH)


def test_a_pod_that_comes_late_meets_those_on_their_way() -> None:
    async def story(world: Living) -> None:
        Doorman.refused_at = {"train-0": "pre_bind"}
        for each in members(2, "train", cpu="1"):
            world.cluster.put(each)
        await world.settles()
        world.cluster.put(member("late", "train", cpu="1"))
        await world.passes(2)
        assert bound(world) == ["late", "train-1"]

    in_virtual_time(story, node("n"), group("train", 2), plugins=[Doorman], **BOTH)


def test_a_binding_that_fails_is_tried_again_beside_those_that_are_bound() -> None:
    async def story(world: Living) -> None:
        world.cluster.bind_failures.append(APIError(409, "Conflict", "somebody was faster"))
        for each in members(3, "train", cpu="1"):
            world.cluster.put(each)
        await world.passes(30)
        assert bound(world) == ["train-0", "train-1", "train-2"]

    in_virtual_time(story, node("n"), group("train", 3), plugins=[Doorman], **BOTH)


@pytest.mark.parametrize("minimum", [1, 2])
def test_a_binding_that_fails_for_ever_is_not_tried_without_a_pause(minimum: int) -> None:
    """What the refused pods give back helps the third one, which must not bring them back before their time."""

    async def story(world: Living) -> None:
        world.cluster.bind_failures += [APIError(409, "Conflict", "no")] * 1000
        for each in members(3, "train", cpu="1"):
            world.cluster.put(each)
        await world.passes(60)
        assert len(world.cluster.bind_failures) > 950
        world.cluster.bind_failures.clear()
        await world.passes(30)
        assert len(bound(world)) == 2

    in_virtual_time(story, node("n", cpu="2"), group("train", minimum), **gang_scheduling())


def test_who_comes_last_is_not_bound_once_too_many_have_lost_their_nodes() -> None:
    """Two bindings are refused, and their nodes go: beside the one pod that is bound there are too few for the last."""
    room = {name: node(name, cpu="1") for name in "abcd"}

    async def story(world: Living) -> None:
        Doorman.slow = {"train-3"}
        world.cluster.bind_failures += [APIError(409, "Conflict", "no")] * 2
        for each in members(4, "train", cpu="1"):
            world.cluster.put(each)
        await world.passes(1.5)
        for name in room:
            if is_empty(world, name):
                world.cluster.remove(room[name])
        await world.passes(4000)
        assert len(bound(world)) == 1
        Doorman.slow = set()
        world.cluster.put(node("e", cpu="1"))
        await world.passes(60)
        assert len(bound(world)) == 3

    in_virtual_time(story, *room.values(), group("train", 3), plugins=[Doorman], **BOTH)


def test_a_promise_ends_with_its_node() -> None:
    room = {name: node(name, cpu="1") for name in "abcd"}

    async def story(world: Living) -> None:
        world.cluster.bind_failures += [APIError(409, "Conflict", "no")] * 2
        *first, last = members(4, "train", cpu="1")
        for each in first:
            world.cluster.put(each)
        await world.passes(0.5)
        world.cluster.put(last)
        await world.passes(0.6)
        for name in room:
            if is_empty(world, name):
                world.cluster.remove(room[name])
        await world.passes(0.5)
        assert len(bound(world)) == 1

    in_virtual_time(story, *room.values(), group("train", 3), plugins=[Doorman], **BOTH)


def test_a_scheduler_that_stops_sends_everybody_back() -> None:
    async def story(world: Living) -> None:
        Doorman.slow = {"train-1"}
        for each in members(2, "train", cpu="1"):
            world.cluster.put(each)
        await world.passes(2)

    in_virtual_time(story, node("n"), group("train", 2), plugins=[Doorman], **BOTH)
