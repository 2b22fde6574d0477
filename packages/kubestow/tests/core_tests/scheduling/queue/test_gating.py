"""Preemptors that are gated at PreEnqueue, and the events that requeue them."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from core_tests.scheduling.extenders.scripted_extender import ScriptedExtender
from core_tests.scheduling.fixture import SlowlyTerminatingCluster
from kubestow.errors import APIError
from kubestow.framework.runtime.plugin_caller import PluginObserver
from kubestow.scheduling.observer import Observer
from kubestow.testing import node, pod
from kubestow.testing.scheduler_harness import SchedulerHarness, in_virtual_time


@pytest.mark.parametrize("first", ["port", "big"])
def test_events_during_the_evictions_of_a_preemptor_are_not_lost(first: str) -> None:
    """The node is rejected for its host port first; once that is free, the CPU is the only conflict left."""
    priorities = {"port": 1, "big": 1, first: 2}

    async def scenario(harness: SchedulerHarness) -> None:
        harness.cluster.put(pod("high", cpu="3", host_ports=[80], priority=100))
        await harness.advance(5)
        assert harness.node_of("high") == "n"

    in_virtual_time(
        scenario,
        node("n", cpu="4"),
        pod("port", node="n", host_ports=[80], priority=priorities["port"]),
        pod("big", node="n", cpu="3", priority=priorities["big"]),
    )


def test_a_preemptor_whose_binding_elsewhere_fails_is_requeued_when_its_victim_is_deleted() -> None:
    """It is placed elsewhere because a node is added during an extender call, before its evictions start."""

    async def scenario(harness: SchedulerHarness) -> None:
        async def during_call(verb: str) -> None:
            if len(extender.calls) == 1:
                harness.cluster.put(node("b", cpu="4"))
                await harness.advance(1)

        extender.during_call = during_call
        harness.cluster.bind_failures.append(APIError(500, "InternalError", "no"))
        harness.cluster.put(pod("high", cpu="3", priority=100))
        await harness.advance(60)
        assert harness.cluster.bind_failures == []
        assert harness.node_of("high")

    extender = ScriptedExtender("filter", passes={"a", "b"})
    nodes = (node("a", cpu="4"), node("small", cpu="4"))
    low = pod("low", node="a", cpu="3", priority=0)
    in_virtual_time(scenario, *nodes, low, extenders=[extender], cluster=SlowlyTerminatingCluster())


def test_a_preemptor_requeued_before_its_first_eviction_does_not_preempt_again() -> None:
    """An event during an extender call requeues it before the first victim is evicted."""

    async def scenario(harness: SchedulerHarness) -> None:
        async def during_call(verb: str) -> None:
            harness.cluster.remove(elsewhere)

        extender.during_call = during_call
        harness.cluster.put(pod("high", cpu="3", priority=100))
        await harness.advance(60)
        assert extender.calls == [("preempt", "high", ["a", "b"])]
        assert harness.node_of("high")

    extender = ScriptedExtender("preempt")
    elsewhere = pod("elsewhere", node="c", cpu="1", priority=0)
    low = [elsewhere, *(pod(f"low-{name}", node=name, cpu="3", priority=0) for name in "ab")]
    in_virtual_time(
        scenario, node("a", cpu="4"), node("b", cpu="4"), *low, extenders=[extender], cluster=SlowlyTerminatingCluster()
    )


class PreEnqueueCalls(PluginObserver):
    """Counts the calls of PreEnqueue plugins."""

    def __init__(self) -> None:
        self.by_plugin = Counter[str]()

    def plugin_called(self, plugin: str, extension_point: str, result: Any, seconds: float) -> None:
        if extension_point == "PreEnqueue":
            self.by_plugin[plugin] += 1


class CallObserver(Observer):
    def __init__(self) -> None:
        self.calls = PreEnqueueCalls()

    def plugin_observer(self, scheduler_name: str) -> PluginObserver:
        return self.calls


def test_a_preemptor_is_not_looked_at_again_until_its_own_victim_terminates() -> None:
    """It is gated at the first event; the others change nothing until its victim gets a deletion timestamp."""
    observer = CallObserver()

    async def scenario(harness: SchedulerHarness) -> None:
        harness.cluster.put(pod("high", cpu="3", priority=100))
        await harness.advance(5)
        for other in others:
            harness.cluster.remove(other)
            await harness.settle()
        assert observer.calls.by_plugin == {"DefaultPreemption": 1}
        await harness.advance(40)
        assert harness.node_of("high") == "n"

    others = [pod(f"other-{number}", node="elsewhere") for number in range(10)]
    nodes = node("n", cpu="4"), node("elsewhere", cpu="1")
    low = pod("low", node="n", cpu="3", priority=0)
    in_virtual_time(scenario, *nodes, low, *others, cluster=SlowlyTerminatingCluster(), observer=observer)


def test_a_preemptor_whose_victim_terminates_is_requeued_by_the_next_event() -> None:
    """The victim has a deletion timestamp after 20 seconds and is gone after 30; another pod is deleted in between."""
    observer = CallObserver()

    async def scenario(harness: SchedulerHarness) -> None:
        harness.cluster.put(pod("high", cpu="3", priority=100))
        await harness.advance(5)
        harness.cluster.remove(others[0])
        await harness.advance(20)
        attempts = harness.scheduler.queue.pods.get("uid-default-high")
        assert attempts is not None and attempts.attempts == 1
        harness.cluster.remove(others[1])
        await harness.advance(2)
        again = harness.scheduler.queue.pods.get("uid-default-high")
        assert again is not None and again.attempts == 2

    others = [pod(f"other-{number}", node="elsewhere") for number in range(2)]
    nodes = node("n", cpu="4"), node("elsewhere", cpu="1")
    low = pod("low", node="n", cpu="3", priority=0)
    in_virtual_time(scenario, *nodes, low, *others, cluster=SlowlyTerminatingCluster(), observer=observer)


def test_a_pod_that_loses_its_gates_in_the_first_second_of_the_clock_does_not_back_off() -> None:
    async def scenario(harness: SchedulerHarness) -> None:
        harness.cluster.put(pod("high", cpu="3", priority=10, gates=["quota"]))
        await harness.settle()
        harness.cluster.put(pod("low", cpu="3", priority=1))
        harness.cluster.put(pod("high", cpu="3", priority=10))
        await harness.settle()
        assert harness.cluster.bindings == [("default/high", "n")]

    in_virtual_time(scenario, node("n", cpu="4"))
