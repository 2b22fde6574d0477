"""Which pods enter the queue."""

from __future__ import annotations

from kubestow.cluster.pods.shapes import Shapes
from kubestow.scheduling.queued_pod import Place
from kubestow.testing import in_virtual_time, node, pod
from kubestow.testing.scheduler_harness import SchedulerHarness


def test_a_pod_that_is_known_or_that_of_another_scheduler_is_not_added() -> None:
    async def scenario(harness: SchedulerHarness) -> None:
        queue = harness.scheduler.queue
        harness.cluster.put(pod("waits", cpu="9"))
        await harness.settle()
        (waiting,) = queue.pods.values()
        assert not queue.add(waiting.info)
        assert (queue.pods, waiting.place) == ({waiting.info.uid: waiting}, Place.UNSCHEDULABLE)

        foreign = Shapes().info(pod("foreign", scheduler="another"))
        assert not queue.add(foreign)
        assert foreign.uid not in queue.pods

        queue.activate([waiting.info.uid])
        popped = queue.pop()
        assert popped is waiting
        assert not queue.add(waiting.info)
        assert waiting.info.uid not in queue.pods
        queue.return_unattempted(popped)

    in_virtual_time(scenario, node("n"))


def test_a_pod_with_gates_is_added_and_gated() -> None:
    async def scenario(harness: SchedulerHarness) -> None:
        queue = harness.scheduler.queue
        assert queue.add(Shapes().info(pod("gated", gates=["wait"])))
        assert not queue.add(Shapes().info(pod("ready")))
        assert {queued.info.name: queued.place for queued in queue.pods.values()} == {
            "gated": Place.GATED,
            "ready": Place.ACTIVE,
        }

    in_virtual_time(scenario, node("n"))
