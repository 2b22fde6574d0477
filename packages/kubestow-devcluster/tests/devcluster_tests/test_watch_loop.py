"""A watch loop delivers every change once, sleeps while there is nothing to do, and relists after falling behind."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

import pytest

from kubestow.testing import virtual_time
from kubestow_devcluster.apiserver.storage.store import Store, StoredObject, WatchEvent
from kubestow_devcluster.component_base.watch_loop import WatchLoop


class RecordingLoop(WatchLoop):
    """Records what it is called with and how often; wakes at the deadlines it is given."""

    name = "recording loop"

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self.calls: list[str] = []
        self.turns = 0
        self.deadlines: list[float] = []

    def relist(self) -> None:
        listed = self.list_and_watch("pods")
        self.calls.append("listed: " + ",".join(stored.key for stored in listed))

    def handle_event(self, resource: str, event: WatchEvent) -> None:
        self.calls.append(f"{event.type} {resource} {event.object.key}")

    def process_pending(self) -> None:
        self.turns += 1
        now = asyncio.get_running_loop().time()
        self.deadlines = [deadline for deadline in self.deadlines if deadline > now]

    @property
    def next_deadline(self) -> float | None:
        return min(self.deadlines, default=None)


class ShortHistoryStore(Store):
    HISTORY_EVENTS = 2


def put(store: Store, key: str, resource: str = "pods") -> None:
    store.put(resource, StoredObject(key, store.next_resource_version, b"", {}))


def run_scenario(
    scenario: Callable[[Store, RecordingLoop], Awaitable[None]], *, store_class: type[Store] = Store
) -> None:
    async def main() -> None:
        store = store_class()
        put(store, "a")
        loop = RecordingLoop(store)
        task = asyncio.create_task(loop.run())
        await asyncio.sleep(1)
        await scenario(store, loop)
        task.cancel()

    virtual_time.run(main())


def test_existing_objects_are_listed_and_every_change_is_delivered_once() -> None:
    async def scenario(store: Store, loop: RecordingLoop) -> None:
        for key in ("b", "a"):
            put(store, key)
        await asyncio.sleep(1)
        assert loop.calls == ["listed: a", "ADDED pods b", "MODIFIED pods a"]

    run_scenario(scenario)


def test_a_resource_that_is_not_watched_does_not_wake_the_loop() -> None:
    async def scenario(store: Store, loop: RecordingLoop) -> None:
        turns = loop.turns
        put(store, "l", "leases")
        await asyncio.sleep(1)
        assert (loop.turns, loop.calls) == (turns, ["listed: a"])

    run_scenario(scenario)


def test_a_resource_can_be_watched_later() -> None:
    async def scenario(store: Store, loop: RecordingLoop) -> None:
        put(store, "w", "widgets")
        assert [stored.key for stored in loop.list_and_watch("widgets")] == ["w"]
        put(store, "v", "widgets")
        put(store, "b")
        await asyncio.sleep(1)
        assert loop.is_watching("widgets")
        assert loop.calls == ["listed: a", "ADDED pods b", "ADDED widgets v"]

    run_scenario(scenario)


def test_the_loop_wakes_at_its_next_deadline() -> None:
    async def scenario(store: Store, loop: RecordingLoop) -> None:
        loop.deadlines = [10.0, 20.0]
        put(store, "b")
        await asyncio.sleep(5)
        turns = loop.turns
        await asyncio.sleep(10)
        assert (loop.turns, loop.deadlines) == (turns + 1, [20.0])

    run_scenario(scenario)


def test_a_loop_that_has_fallen_behind_relists(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(store: Store, loop: RecordingLoop) -> None:
        for _ in range(10):
            put(store, "b")
        await asyncio.sleep(1)
        put(store, "c")
        await asyncio.sleep(1)
        assert loop.calls == ["listed: a", "listed: a,b", "ADDED pods c"]

    with caplog.at_level(logging.WARNING):
        run_scenario(scenario, store_class=ShortHistoryStore)
    assert caplog.messages == ["recording loop: watch history expired, relisting"]
