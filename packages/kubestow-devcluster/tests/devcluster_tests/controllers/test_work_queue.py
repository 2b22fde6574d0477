"""The work queue deduplicates, delays, throttles and retries."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from kubestow.testing import virtual_time
from kubestow_devcluster.controllers.controller import WorkQueue


def run_scenario(scenario: Callable[[WorkQueue[str]], Awaitable[None]]) -> None:
    async def main() -> None:
        await scenario(WorkQueue[str]())

    virtual_time.run(main())


def drain(queue: WorkQueue[str]) -> list[str]:
    """All items that are ready now."""
    return list(iter(queue.pop, None))


def test_an_item_is_queued_once_in_the_order_of_its_first_addition() -> None:
    async def scenario(queue: WorkQueue[str]) -> None:
        for key in ("a", "b", "a"):
            queue.add(key)
        assert drain(queue) == ["a", "b"]

    run_scenario(scenario)


def test_the_shortest_of_several_delays_counts() -> None:
    async def scenario(queue: WorkQueue[str]) -> None:
        for delay in (5, 2, 9):
            queue.add_after("a", delay)
        await asyncio.sleep(2)
        assert drain(queue) == ["a"]
        await asyncio.sleep(20)
        assert drain(queue) == []

    run_scenario(scenario)


def test_a_throttled_item_is_ready_when_its_throttling_ends() -> None:
    async def scenario(queue: WorkQueue[str]) -> None:
        queue.throttle("a", 0.3)
        await asyncio.sleep(0.1)
        for key in ("a", "b"):
            queue.add(key)
        assert drain(queue) == ["b"]
        assert queue.next_deadline == 0.3
        await asyncio.sleep(0.2)
        assert drain(queue) == ["a"]
        queue.add("a")
        assert drain(queue) == ["a"]

    run_scenario(scenario)


def test_a_failing_item_is_retried_with_exponential_back_off() -> None:
    async def scenario(queue: WorkQueue[str]) -> None:
        item, times = "a", list[float]()
        queue.add(item)
        while len(times) < 4:
            if drain(queue):
                times.append(asyncio.get_running_loop().time())
                queue.add_rate_limited(item)
            await asyncio.sleep(1)
        assert times == [0, 1, 3, 7]

    run_scenario(scenario)
