"""A follower sees everything once, sleeps when there is nothing to do, and starts over when it has fallen behind."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

import pytest

from kubestow.devcluster.apiserver.storage.store import Event, Store, Stored
from kubestow.devcluster.watch_loop import Follower
from kubestow.testing import virtual_time


class Diary(Follower):
    """Writes down what it sees and how often it acts; wakes at the times it is given."""

    title = "diaries"

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self.lines: list[str] = []
        self.turns = 0
        self.times: list[float] = []

    def begin(self) -> None:
        there = self.follow("pods")
        self.lines.append("there: " + ",".join(stored.key for stored in there))

    def observe(self, resource: str, event: Event) -> None:
        self.lines.append(f"{event.type} {resource} {event.object.key}")

    def act(self) -> None:
        self.turns += 1
        now = asyncio.get_running_loop().time()
        self.times = [time for time in self.times if time > now]

    @property
    def next_time(self) -> float | None:
        return min(self.times, default=None)


def put(store: Store, key: str, resource: str = "pods") -> None:
    store.put(resource, Stored(key, store.upcoming, b"", {}))


def told(story: Callable[[Store, Diary], Awaitable[None]], *, history: int = 100) -> None:
    async def main() -> None:
        store = Store(history=history)
        put(store, "a")
        diary = Diary(store)
        task = asyncio.create_task(diary.run())
        await asyncio.sleep(1)
        await story(store, diary)
        task.cancel()

    virtual_time.run(main())


def test_what_is_there_is_told_at_the_beginning_and_every_change_once() -> None:
    async def story(store: Store, diary: Diary) -> None:
        for key in ("b", "a"):
            put(store, key)
        await asyncio.sleep(1)
        assert diary.lines == ["there: a", "ADDED pods b", "MODIFIED pods a"]

    told(story)


def test_a_resource_that_is_not_followed_wakes_nobody() -> None:
    async def story(store: Store, diary: Diary) -> None:
        turns = diary.turns
        put(store, "l", "leases")
        await asyncio.sleep(1)
        assert (diary.turns, diary.lines) == (turns, ["there: a"])

    told(story)


def test_a_resource_may_be_followed_later() -> None:
    async def story(store: Store, diary: Diary) -> None:
        put(store, "w", "widgets")
        assert [stored.key for stored in diary.follow("widgets")] == ["w"]
        put(store, "v", "widgets")
        put(store, "b")
        await asyncio.sleep(1)
        assert diary.is_following("widgets")
        assert diary.lines == ["there: a", "ADDED pods b", "ADDED widgets v"]

    told(story)


def test_it_acts_when_something_falls_due() -> None:
    async def story(store: Store, diary: Diary) -> None:
        diary.times = [10.0, 20.0]
        put(store, "b")
        await asyncio.sleep(5)
        turns = diary.turns
        await asyncio.sleep(10)
        assert (diary.turns, diary.times) == (turns + 1, [20.0])

    told(story)


def test_one_that_has_fallen_behind_starts_over(caplog: pytest.LogCaptureFixture) -> None:
    async def story(store: Store, diary: Diary) -> None:
        for _ in range(10):
            put(store, "b")
        await asyncio.sleep(1)
        put(store, "c")
        await asyncio.sleep(1)
        assert diary.lines == ["there: a", "there: a,b", "ADDED pods c"]

    with caplog.at_level(logging.WARNING):
        told(story, history=2)
    assert caplog.messages == ["diaries fell behind and start over from the current state"]
