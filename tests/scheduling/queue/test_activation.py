"""Pods that plugins bring back to the queue, and when (semantics 4.8, 11.2 TestActivatePods)."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import ClassVar

import pytest

from kubestow.cluster.pods.shapes import PodInfo
from kubestow.framework.cycle_state import CycleState
from kubestow.framework.interface import Permission, PermitPlugin, PostBindPlugin, PreBindPlugin, ReservePlugin
from kubestow.framework.pods_to_activate import PodsToActivate
from kubestow.framework.status import Status
from kubestow.scheduling.queued_pod import Place
from kubestow.testing import in_virtual_time, node, pod
from kubestow.testing.scheduler_harness import Living


class Leader(ReservePlugin, PermitPlugin, PreBindPlugin, PostBindPlugin):
    """Followers are refused until the leader has come ``at`` some point; there it names them."""

    name = "Leader"
    events_to_register = ()
    at: ClassVar[str]
    answers: ClassVar[dict[str, Permission | Status]]
    has_led: ClassVar[list[str]]

    def _lead(self, point: str, state: CycleState, info: PodInfo) -> Permission | Status | None:
        if info.name != "leader":
            return None
        if point == self.at:
            self.has_led.append(point)
            PodsToActivate.of(state).add(*self.handle.pending_pods())
        return self.answers.get(point)

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
        answer = self._lead("pre_bind", state, pod)
        return answer if isinstance(answer, Status) else None

    def post_bind(self, state: CycleState, pod: PodInfo, node_name: str) -> Awaitable[None] | None:
        self._lead("post_bind", state, pod)
        return None


def leading(at: str, **answers: Permission | Status) -> type[Leader]:
    return type("Leader", (Leader,), {"at": at, "answers": answers, "has_led": []})


ENABLED = [{"plugins": {"multiPoint": {"enabled": [{"name": "Leader"}]}}}]


async def follower_refused(harness: Living) -> None:
    harness.cluster.put(pod("follower"))
    await harness.passes(30)
    assert harness.node_of("follower") == ""


def place(harness: Living, name: str) -> Place | None:
    queued = next((q for q in harness.scheduler.queue.pending() if q.info.name == name), None)
    return None if queued is None else queued.place


@pytest.mark.parametrize("point", ["reserve", "permit", "pre_bind", "post_bind"])
def test_pods_to_activate_are_requeued_once_the_cycle_has_succeeded(point: str) -> None:
    async def scenario(harness: Living) -> None:
        await follower_refused(harness)
        harness.cluster.put(pod("leader"))
        await harness.settles()
        assert harness.node_of("leader") == harness.node_of("follower") == "n"

    in_virtual_time(scenario, node("n"), plugins=[leading(point)], profiles=ENABLED)


def test_pods_to_activate_are_requeued_before_the_binding_cycle_ends() -> None:
    async def scenario(harness: Living) -> None:
        await follower_refused(harness)
        harness.cluster.put(pod("leader"))
        await harness.settles()
        assert (harness.node_of("leader"), harness.node_of("follower")) == ("", "n")

    in_virtual_time(scenario, node("n"), plugins=[leading("permit", permit=Permission.wait(600))], profiles=ENABLED)


@pytest.mark.parametrize(("named", "fails"), [("reserve", "permit"), ("pre_bind", "pre_bind")])
def test_pods_to_activate_are_not_requeued_when_the_cycle_fails(named: str, fails: str) -> None:
    async def scenario(harness: Living) -> None:
        await follower_refused(harness)
        harness.cluster.put(pod("leader"))
        await harness.settles()
        assert place(harness, "follower") is Place.UNSCHEDULABLE
        assert harness.node_of("leader") == ""

    plugin = leading(named, **{fails: Status.unschedulable("no")})
    in_virtual_time(scenario, node("n"), plugins=[plugin], profiles=ENABLED)


def test_the_handle_activates_pods_at_once() -> None:
    async def scenario(harness: Living) -> None:
        await follower_refused(harness)
        plugin = next(p for p in harness.scheduler.profiles["default-scheduler"].plugins if p.name == "Leader")
        assert isinstance(plugin, Leader)
        plugin.has_led.append("from outside")
        plugin.handle.activate(plugin.handle.pending_pods())
        await harness.settles()
        assert harness.node_of("follower") == "n"

    in_virtual_time(scenario, node("n"), plugins=[leading("never")], profiles=ENABLED)


class Impatient(Leader):
    """Asks for one pod while two are on their way and wait."""

    def permit(self, state: CycleState, pod: PodInfo, node_name: str) -> Permission | Status | None:
        return Permission.wait(600)


def test_activating_an_in_flight_pod_requeues_that_pod_alone() -> None:
    async def scenario(harness: Living) -> None:
        harness.cluster.put(pod("asked-for"))
        harness.cluster.put(pod("other"))
        await harness.settles()
        waiting = {each.info.name: each for each in harness.scheduler.waiting_pods.all()}
        harness.scheduler._handle.activate([waiting["asked-for"].info])
        for each in waiting.values():
            each.reject("Leader", "no")
        await harness.settles()
        assert place(harness, "other") is Place.UNSCHEDULABLE
        assert {each.info.name for each in harness.scheduler.waiting_pods.all()} == {"asked-for"}

    plugin = type("Leader", (Impatient,), {"at": "never", "answers": {}, "has_led": ["at once"]})
    in_virtual_time(scenario, node("n"), plugins=[plugin], profiles=ENABLED)
