"""A running scheduler: pods are bound, rejections are reported, and events requeue the pods that they may help."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from kubestow.scheduling.interfaces import ObjectReference, Resource, Subscriber
from kubestow.testing import MemoryCluster, node, nodes, pod, pods
from kubestow.testing.scheduler_harness import SchedulerHarness, in_virtual_time, running_scheduler
from kubestow.testing.virtual_time import run


def test_a_pod_is_bound_and_gets_a_scheduled_event() -> None:
    async def scenario(harness: SchedulerHarness) -> None:
        harness.cluster.put(pod("a", cpu="1"))
        await harness.settle()
        assert harness.node_of("a") == "n"
        assert [(e.reason, e.note) for e in harness.cluster.events] == [
            ("Scheduled", "Successfully assigned default/a to n")
        ]

    in_virtual_time(scenario, node("n"))


def test_an_unschedulable_pod_gets_a_condition_and_an_event() -> None:
    async def scenario(harness: SchedulerHarness) -> None:
        harness.cluster.put(pod("big", cpu="100", metadata={"generation": 3}))
        await harness.settle()
        condition = harness.cluster.condition("big")
        assert condition is not None
        assert (condition.status, condition.reason) == ("False", "Unschedulable")
        assert condition.message.startswith("0/2 nodes are available: 2 Insufficient cpu.")
        assert condition.observed_generation == 3
        assert harness.cluster.events[-1].reason == "FailedScheduling"

    in_virtual_time(scenario, *nodes(2))


def test_an_added_node_requeues_the_pods_that_may_fit() -> None:
    async def scenario(harness: SchedulerHarness) -> None:
        harness.cluster.put(pod("big", cpu="8"))
        await harness.settle()
        harness.cluster.put(node("large", cpu="16"))
        await harness.settle()
        assert harness.node_of("big") == "large"

    in_virtual_time(scenario, node("small", cpu="4"))


def test_a_deleted_pod_requeues_the_pods_that_may_fit() -> None:
    async def scenario(harness: SchedulerHarness) -> None:
        harness.cluster.put(pod("waits", cpu="3"))
        await harness.settle()
        assert harness.node_of("waits") == ""
        harness.cluster.remove(harness.cluster.pod("bound"))
        await harness.settle()
        assert harness.node_of("waits") == "n"

    in_virtual_time(scenario, node("n", cpu="4"), pod("bound", cpu="3", node="n"))


def test_an_event_that_cannot_help_requeues_no_pod() -> None:
    async def scenario(harness: SchedulerHarness) -> None:
        harness.cluster.put(pod("picky", node_selector={"disk": "ssd"}))
        await harness.settle()
        before = len(harness.cluster.events)
        harness.cluster.remove(harness.cluster.pod("bound"))
        await harness.advance(60)
        assert len(harness.cluster.events) == before

    in_virtual_time(scenario, node("n"), pod("bound", node="n"))


def test_a_pod_is_retried_after_five_minutes_without_an_event() -> None:
    async def scenario(harness: SchedulerHarness) -> None:
        harness.cluster.put(pod("picky", node_selector={"disk": "ssd"}))
        await harness.settle()
        before = len(harness.cluster.events)
        await harness.advance(340)
        assert len(harness.cluster.events) == before + 1

    in_virtual_time(scenario, node("n"))


def test_a_gated_pod_waits_until_its_gates_are_lifted() -> None:
    async def scenario(harness: SchedulerHarness) -> None:
        harness.cluster.put(pod("gated", gates=["quota"]))
        await harness.advance(1)
        assert harness.cluster.events == []
        harness.cluster.put(pod("gated"))
        await harness.settle()
        assert harness.node_of("gated") == "n"

    in_virtual_time(scenario, node("n"))


def test_pods_are_scheduled_in_order_of_priority() -> None:
    async def scenario(harness: SchedulerHarness) -> None:
        for name, priority in (("low", 1), ("high", 10), ("middle", 5)):
            harness.cluster.put(pod(name, cpu="1", priority=priority))
        await harness.settle()
        assert [name for name, _ in harness.cluster.bindings] == ["default/high", "default/middle", "default/low"]

    in_virtual_time(scenario, node("n"))


def test_nodes_are_never_overcommitted() -> None:
    async def scenario(harness: SchedulerHarness) -> None:
        for each in pods(30, cpu="1"):
            harness.cluster.put(each)
        await harness.advance(20)
        placed = [name for _, name in harness.cluster.bindings]
        assert len(placed) == 12
        assert all(placed.count(name) == 4 for name in set(placed))

    in_virtual_time(scenario, *nodes(3, cpu="4"))


def test_pods_of_other_schedulers_are_not_scheduled_but_counted() -> None:
    async def scenario(harness: SchedulerHarness) -> None:
        harness.cluster.put(pod("theirs", scheduler="other"))
        harness.cluster.put(pod("ours", cpu="2"))
        await harness.settle()
        assert (harness.node_of("theirs"), harness.node_of("ours")) == ("", "")

    in_virtual_time(scenario, node("n", cpu="4"), pod("bound", cpu="3", node="n", scheduler="other"))


def test_an_object_that_cannot_be_decoded_does_not_block_others() -> None:
    async def scenario(harness: SchedulerHarness) -> None:
        harness.cluster.put(node("broken", cpu="4x"))
        harness.cluster.put(pod("broken", cpu="1.5.2"))
        harness.cluster.put(pod("fine", cpu="1"))
        await harness.settle()
        assert harness.node_of("fine") == "n"
        assert harness.node_of("broken") == ""

    in_virtual_time(scenario, node("n"))


def test_a_pod_on_a_node_with_an_invalid_request_takes_the_room_of_the_others(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(harness: SchedulerHarness) -> None:
        harness.cluster.put(pod("placed", node="n", cpu="3", memory="1.5.2"))
        harness.cluster.put(pod("large", cpu="2"))
        harness.cluster.put(pod("small", cpu="1"))
        await harness.settle()
        assert (harness.node_of("large"), harness.node_of("small")) == ("", "n")
        assert caplog.text.count("Pod default/placed cannot be decoded: spec.containers[0]") == 1

    in_virtual_time(scenario, node("n", cpu="4"))


@pytest.mark.parametrize("watch_is_down", [False, True])
def test_an_object_that_cannot_be_decoded_is_logged_once_in_its_lifetime(
    watch_is_down: bool, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario(harness: SchedulerHarness) -> None:
        harness.cluster.put(pod("broken", cpu="1.5.2"))
        harness.cluster.relist()
        assert caplog.text.count("Pod default/broken cannot be decoded") == 1
        if watch_is_down:
            harness.cluster._subscribers.clear()
        harness.cluster.remove(harness.cluster.pod("broken"))
        harness.cluster._subscribers[:] = [harness.scheduler.handlers]
        harness.cluster.relist()
        harness.cluster.put(pod("broken", cpu="1.5.2"))
        assert caplog.text.count("Pod default/broken cannot be decoded") == 2

    in_virtual_time(scenario)


def test_a_relist_recovers_missed_events() -> None:
    async def scenario(harness: SchedulerHarness) -> None:
        harness.cluster._subscribers.clear()  # disconnects the watch
        harness.cluster.remove(harness.cluster.pod("bound"))
        harness.cluster.put(node("new", cpu="8"))
        harness.cluster.put(pod("big", cpu="8"))
        harness.cluster._subscribers.append(harness.scheduler.handlers)
        harness.cluster.relist()
        await harness.settle()
        assert harness.node_of("big") == "new"
        assert harness.scheduler.cluster.placed_pod("uid-default-bound") is None

    in_virtual_time(scenario, node("n", cpu="4"), pod("bound", cpu="1", node="n"))


def test_a_pod_recreated_under_its_name_is_a_different_pod() -> None:
    async def scenario(harness: SchedulerHarness) -> None:
        harness.cluster.put(pod("a", cpu="100"))
        await harness.settle()
        harness.cluster.put(pod("a", cpu="1", metadata={"uid": "another"}))
        await harness.settle()
        assert harness.node_of("a") == "n"
        assert len(harness.scheduler.queue.pods) == 0

    in_virtual_time(scenario, node("n"))


class SlowBindings(MemoryCluster):
    """Takes ten seconds to bind a pod."""

    async def bind(self, pod: ObjectReference, node_name: str) -> None:
        await asyncio.sleep(10)
        await super().bind(pod, node_name)


def test_work_is_in_progress_until_the_last_binding_has_been_answered() -> None:
    async def scenario(harness: SchedulerHarness) -> None:
        scheduler = harness.scheduler
        assert scheduler.work_in_progress is False
        harness.cluster.put(pod("a"))
        await harness.advance(5)
        assert scheduler.work_in_progress is True
        await harness.advance(6)
        assert scheduler.work_in_progress is False

    in_virtual_time(scenario, node("n"), cluster=SlowBindings())


class UnresponsiveListCluster(MemoryCluster):
    """Never answers a list request."""

    async def subscribe(self, resources: Sequence[Resource], subscriber: Subscriber) -> None:
        await asyncio.get_running_loop().create_future()


def test_stopping_a_scheduler_before_its_caches_sync_leaves_no_task() -> None:
    async def scenario() -> None:
        async with running_scheduler(cluster=UnresponsiveListCluster()):
            pass
        await asyncio.sleep(1)
        assert asyncio.all_tasks() == {asyncio.current_task()}

    run(scenario())
