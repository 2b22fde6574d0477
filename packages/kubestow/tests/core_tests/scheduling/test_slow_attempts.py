"""Attempts that take long: their pods are put aside in proportion, and pods of other namespaces go first."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

from core_tests.scheduling.fixture import enabled
from kubestow.api.core import Pod
from kubestow.cluster.changes.events import Action, EventResource
from kubestow.cluster.nodes.views import Nodes
from kubestow.cluster.pods.shapes import PodInfo
from kubestow.config import FeatureGates
from kubestow.framework.cycle_state import CycleState
from kubestow.framework.event_registration import on
from kubestow.framework.interface import PreFilterPlugin
from kubestow.framework.status import Status
from kubestow.observability.observability import Observability
from kubestow.process import WallClock
from kubestow.rules.minors import Minor
from kubestow.testing import node, pod
from kubestow.testing.scheduler_harness import SchedulerHarness, in_virtual_time
from kubestow.testing.virtual_time import VirtualTimeLoop


class Slow(PreFilterPlugin):
    """Blocks the event loop for the seconds in the label ``seconds``; rejects pods with the label ``rejected``."""

    name = "Slow"
    events_to_register = (on(EventResource.NODE, Action.ALL),)

    def pre_filter(self, state: CycleState, pod: PodInfo, nodes: Nodes) -> Status | None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualTimeLoop)
        loop.advance(float(pod.labels.get("seconds", "0")))
        return Status.unschedulable("rejected") if "rejected" in pod.labels else None


def slow(name: str, seconds: float, *, rejected: bool = False, **fields: Any) -> Pod:
    labels = {"seconds": str(seconds)} | ({"rejected": ""} if rejected else {})
    return pod(name, labels=labels, **fields)


def attempts_of(harness: SchedulerHarness, uid: str) -> int:
    return harness.scheduler.queue.pods[uid].attempts


def test_a_pod_whose_attempts_take_long_takes_a_tenth_of_the_time_at_most(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(harness: SchedulerHarness) -> None:
        expensive = slow("expensive", 5, rejected=True)
        harness.cluster.put(expensive)
        clock = asyncio.get_running_loop()
        began = clock.time()
        while clock.time() - began < 1000:  # every second brings an event that may help it
            harness.cluster.put(node("changing", labels={"time": str(clock.time())}))
            await asyncio.sleep(1)
        assert 12 <= attempts_of(harness, expensive.metadata.uid) <= 1000 / 50 + 1

    in_virtual_time(scenario, node("n"), **enabled(Slow))
    assert "5.0 s of them in the PreFilter of plugin Slow" in caplog.text


def test_tries_before_the_end_of_a_backoff_take_a_tenth_of_the_time_while_they_fail() -> None:
    async def scenario(harness: SchedulerHarness) -> None:
        waiting = [slow(f"waiting-{number}", 0.002, rejected=True) for number in range(50)]
        for one in waiting:
            harness.cluster.put(one)
        await harness.settle()
        clock = asyncio.get_running_loop()
        began = clock.time()
        while clock.time() - began < 10:  # a hundred events per second may help all of them
            harness.cluster.put(node("changing", labels={"time": str(clock.time())}))
            await asyncio.sleep(0.01)
        attempts = [attempts_of(harness, one.metadata.uid) for one in waiting]
        after_backoff = 5 * len(waiting)  # after 1, 2, 4 and 8 s, and the first ones
        assert len(waiting) < sum(attempts) <= after_backoff + 10 / 0.02 + 1

    in_virtual_time(scenario, node("n"), **enabled(Slow))


def test_a_failed_try_before_the_end_of_a_backoff_delays_no_ready_pod_and_the_next_try_by_its_share() -> None:
    async def scenario(harness: SchedulerHarness) -> None:
        waiting = [slow(f"waiting-{number}", 0.002, rejected=True) for number in range(3)]
        for one in waiting:
            harness.cluster.put(one)
        await harness.settle()
        harness.cluster.put(node("changing"))
        await asyncio.sleep(0.001)
        assert sum(attempts_of(harness, one.metadata.uid) for one in waiting) == 4
        harness.cluster.put(slow("new", 0))
        await asyncio.sleep(0.001)
        assert harness.node_of("new")
        assert sum(attempts_of(harness, one.metadata.uid) for one in waiting) == 4
        await asyncio.sleep(0.04)
        assert sum(attempts_of(harness, one.metadata.uid) for one in waiting) == 6

    in_virtual_time(scenario, node("n"), **enabled(Slow))


def test_the_pod_says_which_plugin_is_slow_and_when_it_is_tried_again() -> None:
    async def scenario(harness: SchedulerHarness) -> None:
        harness.cluster.put(slow("expensive", 5, rejected=True))
        await harness.settle()
        notes = [event.note for event in harness.cluster.events if event.reason == "FailedScheduling"]
        assert notes[-1] == (
            "the attempt took 5.0 s, 5.0 s of them in the PreFilter of plugin Slow, while no other pod could be "
            "scheduled: the next attempt is in 45 s at the earliest"
        )

    in_virtual_time(scenario, node("n"), **enabled(Slow))


class FailsSlowly(Slow):
    """Fails after so many seconds."""

    name = "FailsSlowly"

    def pre_filter(self, state: CycleState, pod: PodInfo, nodes: Nodes) -> Status | None:
        super().pre_filter(state, pod, nodes)
        return Status.error("broken")


def test_a_slow_attempt_that_fails_is_not_retried_after_a_short_backoff() -> None:
    async def scenario(harness: SchedulerHarness) -> None:
        harness.cluster.put(expensive := slow("expensive", 5))
        await harness.advance(43)
        assert attempts_of(harness, expensive.metadata.uid) == 1
        await harness.advance(10)
        assert attempts_of(harness, expensive.metadata.uid) == 2

    in_virtual_time(scenario, node("n"), **enabled(FailsSlowly))


def test_where_groups_are_queued_a_slow_pod_without_a_group_is_put_aside_alone() -> None:
    async def scenario(harness: SchedulerHarness) -> None:
        harness.cluster.put(expensive := slow("expensive", 5, rejected=True))
        await harness.settle()
        harness.cluster.put(node("another"))
        await harness.advance(30)
        assert attempts_of(harness, expensive.metadata.uid) == 1
        harness.cluster.put(pod("a"))
        await harness.advance(5)
        assert harness.node_of("a")

    groups: dict[str, Any] = {"minor": Minor(37), "gates": {"GenericWorkload": True}}
    in_virtual_time(scenario, node("n"), **groups, **enabled(Slow))


class Slower(Slow):
    """Takes twice as long."""

    name = "Slower"

    def pre_filter(self, state: CycleState, pod: PodInfo, nodes: Nodes) -> Status | None:
        super().pre_filter(state, pod, nodes)
        return super().pre_filter(state, pod, nodes)


@pytest.mark.parametrize("order", [(Slow, Slower), (Slower, Slow)], ids=["after", "before"])
def test_of_several_slow_plugins_the_slowest_is_named(
    order: tuple[type[Slow], type[Slow]], caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario(harness: SchedulerHarness) -> None:
        harness.cluster.put(slow("expensive", 5))
        await harness.settle()

    in_virtual_time(scenario, node("n"), **enabled(*order))
    assert "the attempt took 15.0 s, 10.0 s of them in the PreFilter of plugin Slower, and" in caplog.text


def test_an_attempt_within_the_budget_changes_nothing() -> None:
    async def scenario(harness: SchedulerHarness) -> None:
        harness.cluster.put(slow("a", 0.9, rejected=True))
        await harness.settle()
        harness.cluster.put(node("another"))
        await harness.advance(3)
        assert attempts_of(harness, harness.cluster.pod("a").metadata.uid) >= 2

    in_virtual_time(scenario, node("n"), **enabled(Slow))


def test_activation_does_not_shorten_the_pause() -> None:
    async def scenario(harness: SchedulerHarness) -> None:
        harness.cluster.put(expensive := slow("expensive", 5, rejected=True))
        await harness.settle()
        for _ in range(30):
            harness.scheduler.queue.activate([expensive.metadata.uid])
            await harness.advance(1)
        assert attempts_of(harness, expensive.metadata.uid) == 1

    in_virtual_time(scenario, node("n"), **enabled(Slow))


def test_a_slow_pod_that_fits_is_bound() -> None:
    async def scenario(harness: SchedulerHarness) -> None:
        harness.cluster.put(slow("expensive", 5))
        await harness.settle()
        assert harness.node_of("expensive") == "n"

    in_virtual_time(scenario, node("n"), **enabled(Slow))


def test_pods_of_other_namespaces_go_before_those_of_one_with_slow_pods() -> None:
    """One expensive pod may have begun; however many follow it, the others wait for no second one."""

    async def scenario(harness: SchedulerHarness) -> None:
        for number in range(1200):
            harness.cluster.put(slow(f"slow-{number}", 5, namespace="tenant", priority=10))
        await asyncio.sleep(0)
        victims = [pod(f"victim-{number}", namespace="other") for number in range(20)]
        for victim in victims:
            harness.cluster.put(victim)
        await asyncio.sleep(5.59)  # of the first slow pod, the pause after it, and less than the one before the second
        assert all(harness.cluster.pod(each.metadata.name, "other").spec.node_name for each in victims)

    in_virtual_time(scenario, node("n", cpu="10000", memory="64Ti", max_pods=5000), **enabled(Slow))


def test_a_namespace_with_slow_pods_waits_for_no_one_while_no_other_pod_is_ready() -> None:
    async def scenario(harness: SchedulerHarness) -> None:
        for number in range(20):
            harness.cluster.put(slow(f"slow-{number}", 5))
        await harness.advance(115)
        assert all(harness.node_of(f"slow-{number}") for number in range(20))

    in_virtual_time(scenario, node("n"), **enabled(Slow))


def test_a_namespace_with_slow_pods_gets_its_turn_among_pods_that_never_end() -> None:
    async def scenario(harness: SchedulerHarness) -> None:
        async def arrive() -> None:
            number = 0
            while True:  # there is a ready pod of another namespace at any time
                for _ in range(2):
                    harness.cluster.put(slow(f"steady-{number}", 0.5, namespace="other"))
                    number += 1
                await asyncio.sleep(0.5)

        arriving = asyncio.create_task(arrive())
        for number in range(3):
            harness.cluster.put(slow(f"slow-{number}", 2, namespace="tenant", priority=1))
        await harness.advance(70)
        arriving.cancel()
        assert all(harness.cluster.pod(f"slow-{number}", "tenant").spec.node_name for number in range(3))

    in_virtual_time(scenario, node("n", cpu="10000", memory="64Ti", max_pods=5000), **enabled(Slow))


def test_slow_attempts_are_counted_by_plugin() -> None:
    observability = Observability(WallClock(), FeatureGates())

    async def scenario(harness: SchedulerHarness) -> None:
        harness.cluster.put(slow("expensive", 5))
        await harness.settle()

    in_virtual_time(scenario, node("n"), observer=observability.observer, **enabled(Slow))
    assert b'kubestow_slow_attempts_total{extension_point="PreFilter",plugin="Slow"} 1' in observability.scrape("")[0]


@pytest.fixture(autouse=True)
def warnings(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
