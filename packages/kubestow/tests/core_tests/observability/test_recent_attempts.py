"""The attempts that are kept of each pod."""

from __future__ import annotations

import asyncio

from kubestow.cluster.pods.shapes import Shapes
from kubestow.observability.recent_attempts import RecentAttempts
from kubestow.scheduling.observer import Result
from kubestow.scheduling.queued_pod import QueuedPod
from kubestow.testing import pod
from kubestow.testing.virtual_time import VirtualClock, run


async def recorded(names: list[str], *, max_pods: int = 10) -> RecentAttempts:
    attempts = RecentAttempts(VirtualClock(asyncio.get_running_loop()), max_pods=max_pods)
    shapes = Shapes()
    queued: dict[str, QueuedPod] = {}
    for name in names:
        each = queued.setdefault(name, QueuedPod(shapes.info(pod(name)), 0.0))
        each.attempts += 1
        attempts.attempt_ended(each, Result.UNSCHEDULABLE, f"attempt {each.attempts}", 0.1)
    return attempts


def test_the_last_eight_attempts_of_a_pod_are_kept() -> None:
    async def scenario() -> None:
        attempts = await recorded(["a"] * 11)
        assert [record.number for record in attempts.of("default/a")] == list(range(4, 12))
        last = attempts.last("default/a")
        assert last is not None
        assert (last.number, last.message) == (11, "attempt 11")

    run(scenario())


def test_the_pods_attempted_least_recently_are_evicted() -> None:
    async def scenario() -> None:
        attempts = await recorded(["a", "b", "a", "c"], max_pods=2)
        assert [key for key, _ in attempts.newest_pods()] == ["default/c", "default/a"]
        assert attempts.last("default/b") is None
        assert attempts.of("default/b") == ()

    run(scenario())


def test_the_attempts_of_an_earlier_pod_with_the_same_name_are_dropped() -> None:
    async def scenario() -> None:
        attempts = await recorded(["a", "a"])
        again = QueuedPod(Shapes().info(pod("a", metadata={"uid": "another"})), 0.0, attempts=1)
        attempts.attempt_ended(again, Result.SCHEDULED, "", 0.1)
        attempts.pod_bound(again, "n", 0.2)
        assert [(record.uid, record.node_name) for record in attempts.of("default/a")] == [("another", "n")]

    run(scenario())
