"""Pods that wait at Permit."""

from __future__ import annotations

import asyncio
import weakref

import pytest

from core_tests.scheduling.fixture import enabled
from kubestow.cluster.pods.shapes import PodInfo, Shapes
from kubestow.framework.cycle_state import CycleState
from kubestow.framework.interface import Permission as Allowed
from kubestow.framework.interface import (
    PermitPlugin,
)
from kubestow.framework.status import Code, Status
from kubestow.rules.minors import Behaviour, Minor
from kubestow.scheduling.waiting_pods import WaitingPods
from kubestow.testing import node, pod
from kubestow.testing.scheduler_harness import SchedulerHarness, in_virtual_time
from kubestow.testing.virtual_time import run


def test_a_waiting_pod_that_is_removed_undecided_is_not_retained() -> None:
    async def scenario() -> None:
        waiting, info = WaitingPods(), Shapes().info(pod("a"))
        removed = weakref.ref(waiting.add(info, {"Coscheduling": 600.0}))
        await asyncio.sleep(1)
        waiting.remove(info.uid)
        assert removed() is None

    run(scenario())


class HoldForTwoSeconds(PermitPlugin):
    """Returns Wait for every pod, with a timeout of two seconds."""

    name = "Hold"
    events_to_register = ()

    def permit(self, state: CycleState, pod: PodInfo, node_name: str) -> Allowed:
        return Allowed(Status(Code.WAIT), 2.0)


def test_a_waiting_pod_that_is_never_allowed_is_rejected_at_its_timeout() -> None:
    async def scenario(harness: SchedulerHarness) -> None:
        harness.cluster.put(pod("a"))
        await harness.advance(1)
        assert harness.cluster.pod("a").status.nominated_node_name == "n"
        assert harness.scheduler.cluster.is_assumed("uid-default-a")
        await harness.advance(1.5)
        assert "rejected due to timeout after waiting 2s at plugin Hold" in harness.cluster.events[-1].note
        assert not harness.scheduler.cluster.is_assumed("uid-default-a")

    in_virtual_time(scenario, node("n"), **enabled(HoldForTwoSeconds))


def test_a_pod_that_is_deleted_right_after_it_was_allowed_frees_its_node_at_once() -> None:
    async def scenario(harness: SchedulerHarness) -> None:
        harness.cluster.put(pod("a"))
        await harness.advance(1)
        waiting = harness.scheduler.waiting_pods.get("uid-default-a")
        assert waiting is not None
        waiting.allow("Hold")
        harness.cluster.remove(harness.cluster.pod("a"))
        assert not harness.scheduler.cluster.is_assumed("uid-default-a")
        await harness.settle()
        assert harness.cluster.bindings == []

    in_virtual_time(scenario, node("n"), **enabled(HoldForTwoSeconds))


def test_a_plugin_that_has_allowed_a_pod_does_not_reject_it_while_another_is_awaited() -> None:
    async def scenario() -> None:
        waiting = WaitingPods().add(Shapes().info(pod("a")), {"Quick": 1.0, "Slow": 5.0})
        assert waiting.deadline == asyncio.get_running_loop().time() + 1
        waiting.allow("Quick")
        waiting.allow("Unknown")
        assert waiting.pending_plugins == ["Slow"]
        await asyncio.sleep(2)
        assert waiting.pending_plugins == ["Slow"]
        waiting.allow("Slow")
        assert (await waiting.result()).ok
        assert not waiting.reject("Slow", "too late")

    run(scenario())


def test_the_first_rejection_of_a_waiting_pod_counts() -> None:
    async def scenario() -> None:
        waiting = WaitingPods().add(Shapes().info(pod("a")), {"Quick": 1.0, "Slow": 5.0})
        assert waiting.reject("Slow", "no")
        await asyncio.sleep(2)
        assert await waiting.result() == Status(Code.UNSCHEDULABLE, ("no",), "Slow")

    run(scenario())


@pytest.mark.parametrize(
    "minor",
    [Minor(36), Minor(36).without(Behaviour.VICTIMS_IN_PRE_BIND_ARE_CANCELLED)],
    ids=["cancelling PreBind", "before that"],
)
def test_a_pod_that_neither_waits_nor_is_in_pre_bind_cannot_be_stopped(minor: Minor) -> None:
    """It is evicted instead."""

    async def scenario() -> None:
        waiting_pods = WaitingPods(minor)
        assert not waiting_pods.preempt("uid-default-a")
        cancellation = waiting_pods.enter_pre_bind("uid-default-a")
        is_cancelled = minor.has(Behaviour.VICTIMS_IN_PRE_BIND_ARE_CANCELLED)
        assert waiting_pods.preempt("uid-default-a") is cancellation.done() is is_cancelled
        assert not waiting_pods.preempt("uid-default-a")

    run(scenario())
