"""What requeues pods without an event that helps them: time, errors of PreEnqueue, and taints of new nodes."""

from __future__ import annotations

from typing import ClassVar

import pytest

from core_tests.scheduling.fixture import enabled
from kubestow.api.core import Node
from kubestow.cluster.changes.events import Action, EventResource
from kubestow.cluster.nodes.node_info import NodeInfo
from kubestow.cluster.pods.shapes import PodInfo
from kubestow.framework.cycle_state import CycleState
from kubestow.framework.event_registration import on
from kubestow.framework.interface import NodeFilterPlugin, PreEnqueuePlugin
from kubestow.framework.status import SUCCESS, Status
from kubestow.scheduling.queued_pod import Place, QueuedPod
from kubestow.testing import in_virtual_time, node, pod
from kubestow.testing.scheduler_harness import SchedulerHarness


def queued(harness: SchedulerHarness, name: str = "p") -> QueuedPod:
    return next(one for one in harness.scheduler.queue.pods.values() if one.info.name == name)


def test_an_unschedulable_pod_is_tried_again_after_more_than_five_minutes() -> None:
    async def scenario(harness: SchedulerHarness) -> None:
        queue, clock = harness.scheduler.queue, harness.scheduler.environment.clock
        await harness.advance(1000)  # the age of the pod counts, not that of the scheduler
        harness.cluster.put(pod("p", cpu="9"))
        await harness.settle()
        waiting = queued(harness)
        assert (waiting.place, waiting.attempts) == (Place.UNSCHEDULABLE, 1)
        first = waiting.initial_attempt
        await harness.advance(299)
        waiting.timestamp = clock.monotonic() - 300
        queue.moves._next_unschedulable_flush = clock.monotonic()
        queue.moves.flush()
        assert (waiting.place, waiting.was_flushed) == (Place.UNSCHEDULABLE, False)
        await harness.advance(35)
        assert waiting.attempts == 2
        assert waiting.initial_attempt == first

    in_virtual_time(scenario, node("n"))


class FailsOnce(PreEnqueuePlugin):
    """PreEnqueue fails the first time it is called for a pod."""

    name = "FailsOnce"
    events_to_register = ()
    failed: ClassVar[set[str]]

    def pre_enqueue(self, pod: PodInfo) -> Status:
        if pod.name in self.failed:
            return SUCCESS
        self.failed.add(pod.name)
        return Status.error("not yet known")


def test_a_pod_for_which_pre_enqueue_fails_backs_off_and_is_asked_about_again() -> None:
    FailsOnce.failed = set()

    async def scenario(harness: SchedulerHarness) -> None:
        harness.cluster.put(pod("p"))
        await harness.settle()
        waiting = queued(harness)
        assert (waiting.place, waiting.gated_by, waiting.consecutive_errors) == (Place.ERROR_BACKOFF, "FailsOnce", 1)
        assert harness.node_of("p") == ""
        await harness.advance(2)
        assert harness.node_of("p") == "n"

    in_virtual_time(scenario, node("n"), **enabled(FailsOnce))


def test_a_pod_that_is_postponed_backs_off_until_then_without_an_attempt() -> None:
    async def scenario(harness: SchedulerHarness) -> None:
        queue, clock = harness.scheduler.queue, harness.scheduler.environment.clock
        harness.cluster.put(pod("p", cpu="9"))
        await harness.settle()
        waiting = queue.pop_pod(queued(harness).info.uid)
        assert waiting is not None
        attempts = waiting.attempts
        queue.postpone(waiting, clock.monotonic() + 60)
        assert (waiting.place, waiting.attempts) == (Place.ERROR_BACKOFF, attempts - 1)
        harness.cluster.put(node("large", cpu="16"))
        await harness.advance(59)
        assert harness.node_of("p") == ""
        await harness.advance(2)
        assert harness.node_of("p") == "large"

    in_virtual_time(scenario, node("n"))


class Untainted(NodeFilterPlugin):
    """Passes nodes without taints, and registers new nodes only."""

    name = "Untainted"
    events_to_register = (on(EventResource.NODE, Action.ADD),)
    uncached = True

    def filter_node(self, state: CycleState, pod: PodInfo, node: NodeInfo) -> Status:
        return Status.unschedulable("tainted") if node.node.spec.taints else SUCCESS


@pytest.mark.parametrize(
    ("changed", "attempts"), [({"taints": ["b=:PreferNoSchedule"]}, 2), ({"labels": {"a": "b"}}, 1)]
)
def test_a_plugin_that_waits_for_new_nodes_waits_for_changes_of_their_taints_too(
    changed: dict[str, object], attempts: int
) -> None:
    async def scenario(harness: SchedulerHarness) -> None:
        harness.cluster.put(pod("p"))
        await harness.settle()
        assert queued(harness).attempts == 1
        harness.cluster.put(tainted(**changed))
        await harness.advance(15)
        assert queued(harness).attempts == attempts

    def tainted(**more: object) -> Node:
        return node("n", **{"taints": ["a=:PreferNoSchedule"], **more})  # type: ignore[arg-type]

    in_virtual_time(scenario, tainted(), **enabled(Untainted))


def test_the_time_of_the_next_attempt_is_known_for_pods_that_wait_for_time() -> None:
    async def scenario(harness: SchedulerHarness) -> None:
        queue, now = harness.scheduler.queue, harness.scheduler.environment.clock.monotonic
        before = now()
        for name, fields in (("large", {"cpu": "9"}), ("gated", {"gates": ["wait"]})):
            harness.cluster.put(pod(name, **fields))
        await harness.settle()
        large, gated = queued(harness, "large"), queued(harness, "gated")
        assert (large.place, gated.place) == (Place.UNSCHEDULABLE, Place.GATED)
        assert queue.moves.retry_time(gated) is None
        latest = queue.moves.retry_time(large)
        assert latest is not None
        assert before + 300 <= latest <= now() + 331
        harness.cluster.put(node("m", cpu="16"))
        await harness.settle()
        assert large.place is Place.BACKOFF
        soon = queue.moves.retry_time(large)
        assert soon is not None
        await harness.advance(soon - now() - 0.1)
        assert harness.node_of("large") == ""
        await harness.advance(0.3)
        assert harness.node_of("large") == "m"

    in_virtual_time(scenario, node("n"), gates={"SchedulerPopFromBackoffQ": False})


def test_a_pod_is_tried_first_on_the_node_that_is_suggested_while_it_waits() -> None:
    async def scenario(harness: SchedulerHarness) -> None:
        harness.cluster.put(pod("p", cpu="9"))
        await harness.settle()
        queue = harness.scheduler.queue
        queue.suggest_node(queued(harness).info.uid, "m7")
        queue.suggest_node("of a pod that is gone", "m7")
        for number in range(10):
            harness.cluster.put(node(f"m{number}", cpu="16"))
        await harness.advance(5)
        assert harness.node_of("p") == "m7"

    in_virtual_time(scenario, node("n"))
