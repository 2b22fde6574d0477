"""Pods that plugins activate, and when they are requeued (semantics 4.8, 11.2 TestActivatePods)."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import ClassVar

import pytest

from kubestow.cluster.pods.shapes import PodInfo
from kubestow.framework.cycle_state import CycleState, PodsToActivate
from kubestow.framework.interface import Permission, PermitPlugin, PostBindPlugin, PreBindPlugin, ReservePlugin
from kubestow.framework.status import Status
from kubestow.scheduling.queued_pod import Place
from kubestow.testing import in_virtual_time, node, pod
from kubestow.testing.scheduler_harness import SchedulerHarness


class Leader(ReservePlugin, PermitPlugin, PreBindPlugin, PostBindPlugin):
    """Rejects followers until the leader reaches the extension point ``at``, and activates them there."""

    name = "Leader"
    events_to_register = ()
    at: ClassVar[str]
    results: ClassVar[dict[str, Permission | Status]]
    has_led: ClassVar[list[str]]

    def _lead(self, point: str, state: CycleState, info: PodInfo) -> Permission | Status | None:
        if info.name != "leader":
            return None
        if point == self.at:
            self.has_led.append(point)
            PodsToActivate.of(state).add(*self.handle.pending_pods())
        return self.results.get(point)

    def reserve(self, state: CycleState, pod: PodInfo, node_name: str) -> Status | None:
        if pod.name != "leader" and not self.has_led:
            return Status.unschedulable("the leader goes first")
        self._lead("reserve", state, pod)
        return None

    def unreserve(self, state: CycleState, pod: PodInfo, node_name: str) -> None:
        pass

    def permit(self, state: CycleState, pod: PodInfo, node_name: str) -> Permission | Status | None:
        return self._lead("permit", state, pod)

    async def pre_bind(self, state: CycleState, pod: PodInfo, node_name: str) -> Status | None:
        result = self._lead("pre_bind", state, pod)
        return result if isinstance(result, Status) else None

    def post_bind(self, state: CycleState, pod: PodInfo, node_name: str) -> Awaitable[None] | None:
        self._lead("post_bind", state, pod)
        return None


def leader_plugin(at: str, **results: Permission | Status) -> type[Leader]:
    return type("Leader", (Leader,), {"at": at, "results": results, "has_led": []})


ENABLED = [{"plugins": {"multiPoint": {"enabled": [{"name": "Leader"}]}}}]


async def follower_rejected(harness: SchedulerHarness) -> None:
    harness.cluster.put(pod("follower"))
    await harness.advance(30)
    assert harness.node_of("follower") == ""


def place(harness: SchedulerHarness, name: str) -> Place | None:
    queued = next((q for q in harness.scheduler.queue.pods.values() if q.info.name == name), None)
    return None if queued is None else queued.place


@pytest.mark.parametrize("point", ["reserve", "permit", "pre_bind", "post_bind"])
def test_pods_to_activate_are_requeued_once_the_cycle_has_succeeded(point: str) -> None:
    async def scenario(harness: SchedulerHarness) -> None:
        await follower_rejected(harness)
        harness.cluster.put(pod("leader"))
        await harness.settle()
        assert harness.node_of("leader") == harness.node_of("follower") == "n"

    in_virtual_time(scenario, node("n"), plugins=[leader_plugin(point)], profiles=ENABLED)


def test_pods_to_activate_are_requeued_before_the_binding_cycle_ends() -> None:
    async def scenario(harness: SchedulerHarness) -> None:
        await follower_rejected(harness)
        harness.cluster.put(pod("leader"))
        await harness.settle()
        assert (harness.node_of("leader"), harness.node_of("follower")) == ("", "n")

    in_virtual_time(
        scenario, node("n"), plugins=[leader_plugin("permit", permit=Permission.wait(600))], profiles=ENABLED
    )


@pytest.mark.parametrize(("activated_at", "fails_at"), [("reserve", "permit"), ("pre_bind", "pre_bind")])
def test_pods_to_activate_are_not_requeued_when_the_cycle_fails(activated_at: str, fails_at: str) -> None:
    async def scenario(harness: SchedulerHarness) -> None:
        await follower_rejected(harness)
        harness.cluster.put(pod("leader"))
        await harness.settle()
        assert place(harness, "follower") is Place.UNSCHEDULABLE
        assert harness.node_of("leader") == ""

    plugin = leader_plugin(activated_at, **{fails_at: Status.unschedulable("no")})
    in_virtual_time(scenario, node("n"), plugins=[plugin], profiles=ENABLED)


def test_the_handle_activates_pods_at_once() -> None:
    async def scenario(harness: SchedulerHarness) -> None:
        await follower_rejected(harness)
        plugin = next(p for p in harness.scheduler.profiles["default-scheduler"].plugins if p.name == "Leader")
        assert isinstance(plugin, Leader)
        plugin.has_led.append("from outside")
        plugin.handle.activate(plugin.handle.pending_pods())
        await harness.settle()
        assert harness.node_of("follower") == "n"

    in_virtual_time(scenario, node("n"), plugins=[leader_plugin("never")], profiles=ENABLED)


class WaitingLeader(Leader):
    """Returns Wait for every pod."""

    def permit(self, state: CycleState, pod: PodInfo, node_name: str) -> Permission | Status | None:
        return Permission.wait(600)


def test_activating_an_in_flight_pod_requeues_that_pod_alone() -> None:
    async def scenario(harness: SchedulerHarness) -> None:
        harness.cluster.put(pod("activated"))
        harness.cluster.put(pod("other"))
        await harness.settle()
        waiting = {each.info.name: each for each in harness.scheduler.waiting_pods.all()}
        harness.scheduler._handle.activate([waiting["activated"].info])
        for each in waiting.values():
            each.reject("Leader", "no")
        await harness.settle()
        assert place(harness, "other") is Place.UNSCHEDULABLE
        assert {each.info.name for each in harness.scheduler.waiting_pods.all()} == {"activated"}

    plugin = type("Leader", (WaitingLeader,), {"at": "never", "results": {}, "has_led": ["at once"]})
    in_virtual_time(scenario, node("n"), plugins=[plugin], profiles=ENABLED)
