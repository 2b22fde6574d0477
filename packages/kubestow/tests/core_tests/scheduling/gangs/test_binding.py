"""The barrier of a gang before binding: no member is bound until minCount members are ready."""

from __future__ import annotations

import asyncio
from typing import ClassVar

import pytest

from core_tests.scheduling.gangs.groups import APIS, TEAMS, gang_scheduling, group, member, members
from kubestow.cluster.pods.pod_groups import PodGroupAPI
from kubestow.cluster.pods.shapes import PodInfo
from kubestow.errors import APIError
from kubestow.framework.cycle_state import CycleState
from kubestow.framework.interface import Permission, PermitPlugin, PreBindPlugin, ReservePlugin
from kubestow.framework.status import SUCCESS, Status
from kubestow.testing import node, pod
from kubestow.testing.scheduler_harness import SchedulerHarness, in_virtual_time

BOTH = gang_scheduling("RejectingPlugin")


class RejectingPlugin(ReservePlugin, PermitPlugin, PreBindPlugin):
    """Rejects pods at the points given by name. PreBind takes an hour for ``slow`` pods, and for ``uncancellable``
    ones also after its cancellation."""

    name = "RejectingPlugin"
    events_to_register = ()
    rejected_at: ClassVar[dict[str, str]] = {}
    slow: ClassVar[set[str]] = set()
    uncancellable: ClassVar[set[str]] = set()
    reserved: ClassVar[set[str]] = set()
    time_limit = None

    def reserve(self, state: CycleState, pod: PodInfo, node_name: str) -> Status:
        self.reserved.add(pod.name)
        return self._at("reserve", pod)

    def unreserve(self, state: CycleState, pod: PodInfo, node_name: str) -> None:
        self.reserved.discard(pod.name)

    def permit(self, state: CycleState, pod: PodInfo, node_name: str) -> Permission:
        return (
            Permission.wait(5) if self.rejected_at.get(pod.name) == "waiting" else Permission(self._at("permit", pod))
        )

    async def pre_bind(self, state: CycleState, pod: PodInfo, node_name: str) -> Status:
        try:
            await asyncio.sleep(3600 if pod.name in self.slow | self.uncancellable else 1)
        except asyncio.CancelledError:
            await asyncio.sleep(3600 if pod.name in self.uncancellable else 0)
            raise
        return self._at("pre_bind", pod)

    def _at(self, point: str, pod: PodInfo) -> Status:
        return Status.unschedulable(f"not {pod.name}") if self.rejected_at.get(pod.name) == point else SUCCESS


@pytest.fixture(autouse=True)
def reset_plugin() -> None:
    RejectingPlugin.rejected_at, RejectingPlugin.slow, RejectingPlugin.uncancellable, RejectingPlugin.reserved = (
        {},
        set(),
        set(),
        set(),
    )


def is_empty(harness: SchedulerHarness, node_name: str) -> bool:
    """Whether the scheduler has placed no pod on the node."""
    nodes = harness.scheduler.cluster.nodes
    return not nodes.pods[nodes.rows[node_name]]


def bound(harness: SchedulerHarness) -> list[str]:
    return sorted(name.removeprefix("default/") for name, _ in harness.cluster.bindings)


@pytest.mark.parametrize("point", ["reserve", "permit", "waiting", "pre_bind"])
def test_no_member_is_bound_when_a_required_one_is_rejected(point: str) -> None:
    async def scenario(harness: SchedulerHarness) -> None:
        RejectingPlugin.rejected_at = {"train-1": point}
        for each in members(3, "train", cpu="1"):
            harness.cluster.put(each)
        await harness.advance(90)
        assert bound(harness) == []
        RejectingPlugin.rejected_at = {}
        await harness.advance(600)
        assert bound(harness) == ["train-0", "train-1", "train-2"]

    in_virtual_time(scenario, node("n"), group("train", 3), plugins=[RejectingPlugin], **BOTH)


@pytest.mark.parametrize("point", ["reserve", "permit", "waiting", "pre_bind"])
def test_a_rejected_member_beyond_min_count_does_not_block_the_others(point: str) -> None:
    async def scenario(harness: SchedulerHarness) -> None:
        RejectingPlugin.rejected_at = {"train-1": point}
        for each in members(3, "train", cpu="1"):
            harness.cluster.put(each)
        await harness.advance(30)
        assert bound(harness) == ["train-0", "train-2"]

    in_virtual_time(scenario, node("n"), group("train", 2), plugins=[RejectingPlugin], **BOTH)


def test_a_rejected_gang_is_unreserved() -> None:
    async def scenario(harness: SchedulerHarness) -> None:
        for each in members(3, "train", cpu="2"):
            harness.cluster.put(each)
        await harness.settle()
        assert RejectingPlugin.reserved == set()

    in_virtual_time(scenario, node("n", cpu="4"), group("train", 3), plugins=[RejectingPlugin], **BOTH)


@pytest.mark.parametrize("api", APIS)
def test_members_wait_for_each_other_until_the_schedule_timeout(api: PodGroupAPI) -> None:
    async def scenario(harness: SchedulerHarness) -> None:
        RejectingPlugin.slow = {"train-1"}
        for each in members(3, "train", cpu="1", api=api):
            harness.cluster.put(each)
        await harness.advance(299)
        harness.cluster.put(pod("other", cpu="2"))
        await harness.settle()
        assert harness.node_of("other") == ""
        await harness.advance(3)
        assert bound(harness) == ["other"]
        notes = [event.note for event in harness.cluster.events]
        assert any("2 of the 3 pods that it needs were ready to be bound after 5m0s" in note for note in notes)

    in_virtual_time(scenario, node("n", cpu="4"), group("train", 3, api=api), plugins=[RejectingPlugin], **BOTH)


def test_a_group_can_set_its_schedule_timeout() -> None:
    api = TEAMS

    async def scenario(harness: SchedulerHarness) -> None:
        RejectingPlugin.slow = {"train-1"}
        for each in members(2, "train", cpu="1", api=api):
            harness.cluster.put(each)
        await harness.advance(45)
        condition = harness.cluster.condition("train-0")
        assert condition is not None
        assert "after 30s" in condition.message

    in_virtual_time(scenario, node("n"), group("train", 2, api=api, timeout=30), plugins=[RejectingPlugin], **BOTH)


def test_a_gang_is_not_retried_while_members_are_still_being_unreserved() -> None:
    """One member is requeued at once, the other much later; the first alone is fewer than minCount."""

    async def scenario(harness: SchedulerHarness) -> None:
        RejectingPlugin.uncancellable, RejectingPlugin.rejected_at = {"train-1"}, {"train-0": "pre_bind"}
        for each in members(2, "train", cpu="1"):
            harness.cluster.put(each)
        await harness.advance(5)
        RejectingPlugin.rejected_at = {}
        await harness.advance(1800)
        assert bound(harness) == []
        RejectingPlugin.uncancellable = set()
        await harness.advance(3600)
        assert bound(harness) == ["train-0", "train-1"]

    in_virtual_time(scenario, node("n"), group("train", 2), plugins=[RejectingPlugin], **BOTH)


def test_a_member_deleted_before_binding_is_not_counted() -> None:
    async def scenario(harness: SchedulerHarness) -> None:
        for each in members(3, "train", cpu="1"):
            harness.cluster.put(each)
        await harness.settle()
        harness.cluster.remove(member("train-1", "train"))
        await harness.advance(60)
        assert bound(harness) == []
        harness.cluster.put(member("train-3", "train", cpu="1"))
        await harness.advance(60)
        assert bound(harness) == ["train-0", "train-2", "train-3"]

    in_virtual_time(scenario, node("n"), group("train", 3), plugins=[RejectingPlugin], **BOTH)


def test_a_member_deleted_right_after_permit_allowed_it_is_not_counted() -> None:
    async def scenario(harness: SchedulerHarness) -> None:
        RejectingPlugin.rejected_at = {"train-1": "waiting"}
        for each in members(2, "train", cpu="1"):
            harness.cluster.put(each)
        await harness.advance(3)
        waiting = harness.scheduler.waiting_pods.get("uid-default-train-1")
        assert waiting is not None
        waiting.allow("RejectingPlugin")
        harness.cluster.remove(member("train-1", "train"))
        await harness.advance(60)
        assert bound(harness) == []

    in_virtual_time(scenario, node("n"), group("train", 2), plugins=[RejectingPlugin], **BOTH)


def test_a_late_member_completes_a_gang_at_the_barrier() -> None:
    async def scenario(harness: SchedulerHarness) -> None:
        RejectingPlugin.rejected_at = {"train-0": "pre_bind"}
        for each in members(2, "train", cpu="1"):
            harness.cluster.put(each)
        await harness.settle()
        harness.cluster.put(member("late", "train", cpu="1"))
        await harness.advance(2)
        assert bound(harness) == ["late", "train-1"]

    in_virtual_time(scenario, node("n"), group("train", 2), plugins=[RejectingPlugin], **BOTH)


def test_a_failed_binding_is_retried_while_its_siblings_stay_bound() -> None:
    async def scenario(harness: SchedulerHarness) -> None:
        harness.cluster.bind_failures.append(APIError(409, "Conflict", "resource version conflict"))
        for each in members(3, "train", cpu="1"):
            harness.cluster.put(each)
        await harness.advance(30)
        assert bound(harness) == ["train-0", "train-1", "train-2"]

    in_virtual_time(scenario, node("n"), group("train", 3), plugins=[RejectingPlugin], **BOTH)


@pytest.mark.parametrize("minimum", [1, 2])
def test_a_binding_that_keeps_failing_is_retried_with_backoff(minimum: int) -> None:
    """The capacity that rejected members release requeues the third one, which must not cut their backoff short."""

    async def scenario(harness: SchedulerHarness) -> None:
        harness.cluster.bind_failures += [APIError(409, "Conflict", "no")] * 1000
        for each in members(3, "train", cpu="1"):
            harness.cluster.put(each)
        await harness.advance(60)
        assert len(harness.cluster.bind_failures) > 950
        harness.cluster.bind_failures.clear()
        await harness.advance(30)
        assert len(bound(harness)) == 2

    in_virtual_time(scenario, node("n", cpu="2"), group("train", minimum), **gang_scheduling())


def test_the_last_member_is_not_bound_when_too_many_siblings_lost_their_nodes() -> None:
    """Two bindings fail and their nodes are deleted: with one bound sibling, the last member is below minCount."""
    nodes = {name: node(name, cpu="1") for name in "abcd"}

    async def scenario(harness: SchedulerHarness) -> None:
        RejectingPlugin.slow = {"train-3"}
        harness.cluster.bind_failures += [APIError(409, "Conflict", "no")] * 2
        for each in members(4, "train", cpu="1"):
            harness.cluster.put(each)
        await harness.advance(1.5)
        for name in nodes:
            if is_empty(harness, name):
                harness.cluster.remove(nodes[name])
        await harness.advance(4000)
        assert len(bound(harness)) == 1
        RejectingPlugin.slow = set()
        harness.cluster.put(node("e", cpu="1"))
        await harness.advance(60)
        assert len(bound(harness)) == 3

    in_virtual_time(scenario, *nodes.values(), group("train", 3), plugins=[RejectingPlugin], **BOTH)


def test_a_nomination_ends_with_its_node() -> None:
    nodes = {name: node(name, cpu="1") for name in "abcd"}

    async def scenario(harness: SchedulerHarness) -> None:
        harness.cluster.bind_failures += [APIError(409, "Conflict", "no")] * 2
        *first, last = members(4, "train", cpu="1")
        for each in first:
            harness.cluster.put(each)
        await harness.advance(0.5)
        harness.cluster.put(last)
        await harness.advance(0.6)
        for name in nodes:
            if is_empty(harness, name):
                harness.cluster.remove(nodes[name])
        await harness.advance(0.5)
        assert len(bound(harness)) == 1

    in_virtual_time(scenario, *nodes.values(), group("train", 3), plugins=[RejectingPlugin], **BOTH)


def test_shutdown_rejects_all_members_at_the_barrier() -> None:
    async def scenario(harness: SchedulerHarness) -> None:
        RejectingPlugin.slow = {"train-1"}
        for each in members(2, "train", cpu="1"):
            harness.cluster.put(each)
        await harness.advance(2)

    in_virtual_time(scenario, node("n"), group("train", 2), plugins=[RejectingPlugin], **BOTH)
