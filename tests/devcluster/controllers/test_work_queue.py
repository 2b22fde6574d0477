"""What is to be reconciled comes once, in time, and not too often."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from kubestow.devcluster.controllers.work_queue import Work
from kubestow.testing import virtual_time


def told(story: Callable[[Work[str]], Awaitable[None]]) -> None:
    async def main() -> None:
        await story(Work[str]())

    virtual_time.run(main())


def taken(work: Work[str]) -> list[str]:
    """Everything there is to do now."""
    return list(iter(work.take, None))


def test_what_is_named_often_is_done_once_in_the_order_of_its_first_naming() -> None:
    async def story(work: Work[str]) -> None:
        for key in ("a", "b", "a"):
            work.add(key)
        assert taken(work) == ["a", "b"]

    told(story)


def test_the_earliest_of_several_times_counts() -> None:
    async def story(work: Work[str]) -> None:
        for delay in (5, 2, 9):
            work.later("a", delay)
        await asyncio.sleep(2)
        assert taken(work) == ["a"]
        await asyncio.sleep(20)
        assert taken(work) == []

    told(story)


def test_what_rests_is_done_when_it_has_rested() -> None:
    async def story(work: Work[str]) -> None:
        work.rest("a", 0.3)
        await asyncio.sleep(0.1)
        for key in ("a", "b"):
            work.add(key)
        assert taken(work) == ["b"]
        assert work.next_time == 0.3
        await asyncio.sleep(0.2)
        assert taken(work) == ["a"]
        work.add("a")
        assert taken(work) == ["a"]

    told(story)


def test_what_fails_is_tried_again_ever_more_slowly() -> None:
    async def story(work: Work[str]) -> None:
        item, times = "a", list[float]()
        work.add(item)
        while len(times) < 4:
            if taken(work):
                times.append(asyncio.get_running_loop().time())
                work.failed(item)
            await asyncio.sleep(1)
        assert times == [0, 1, 3, 7]

    told(story)
