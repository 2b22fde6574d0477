"""The event stream: one encoding for all viewers, bounded, and idle without them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from core_tests.dashboard.streams import Event, StreamReader
from kubestow.dashboard import event_stream
from kubestow.dashboard.event_stream import MAX_VIEWERS, EventStream, TooManyViewers
from kubestow.testing.virtual_time import VirtualClock, run


class Counter:
    """A section with a number that the test changes. It counts how often it is read and encoded."""

    name = "counter"

    def __init__(self) -> None:
        self.value, self.shown = 0, -1
        self.refreshed = self.encoded = 0
        self.fails = False

    def refresh(self) -> int | None:
        self.refreshed += 1
        if self.fails:
            raise ValueError("a section in error")
        former, self.shown = self.shown, self.value
        return None if former == self.value else self.value

    def content(self) -> int:
        self.encoded += 1
        return self.shown


class Streaming:
    """An event stream with one section, and its viewers."""

    def __init__(self) -> None:
        self.section = Counter()
        self.stream = EventStream(lambda: [self.section], VirtualClock(asyncio.get_running_loop()))
        self._viewers: list[StreamReader] = []

    def viewer(self, *, compressed: bool = False) -> StreamReader:
        self._viewers.append(StreamReader(self.stream.events(compressed=compressed), compressed=compressed))
        return self._viewers[-1]

    async def close(self) -> None:
        for viewer in self._viewers:
            await viewer.close()


def streaming(scenario: Callable[[Streaming], Awaitable[None]]) -> None:
    async def run_scenario() -> None:
        streaming = Streaming()
        await scenario(streaming)
        await streaming.close()

    run(run_scenario())


def values(event: Event) -> tuple[str, Any]:
    return event.name, event.data.get("counter")


@pytest.mark.parametrize("compressed", [False, True])
def test_a_viewer_gets_a_snapshot_and_then_what_changes(compressed: bool) -> None:
    async def scenario(stream: Streaming) -> None:
        viewer = stream.viewer(compressed=compressed)
        assert values(await viewer.next()) == ("snapshot", 0)
        for number in (1, 2):
            stream.section.value = number
            assert values(await viewer.next()) == ("delta", number)

    streaming(scenario)


def test_a_compressed_stream_can_be_joined_at_any_event() -> None:
    async def scenario(stream: Streaming) -> None:
        first = stream.viewer(compressed=True)
        await first.next()
        stream.section.value = 1
        await first.next()
        second = stream.viewer(compressed=True)
        assert values(await second.next()) == ("snapshot", 1)
        stream.section.value = 2
        assert values(await first.next()) == values(await second.next()) == ("delta", 2)

    streaming(scenario)


def test_a_hundred_viewers_cost_one_reading_and_one_encoding() -> None:
    async def scenario(stream: Streaming) -> None:
        viewers = [stream.viewer() for _ in range(100)]
        for viewer in viewers:
            await viewer.next()
        assert (stream.section.refreshed, stream.section.encoded) == (1, 1)
        stream.section.value = 1
        for viewer in viewers:
            assert values(await viewer.next()) == ("delta", 1)
        assert (stream.section.refreshed, stream.section.encoded) == (2, 1)

    streaming(scenario)


def test_nothing_is_read_without_viewers() -> None:
    async def scenario(stream: Streaming) -> None:
        await asyncio.sleep(60)
        assert stream.section.refreshed == 0
        viewer = stream.viewer()
        await viewer.next()
        await viewer.close()
        assert stream.stream.viewers == 0
        before = stream.section.refreshed
        await asyncio.sleep(60)
        assert stream.section.refreshed == before

    streaming(scenario)


def test_a_viewer_that_does_not_keep_up_starts_anew() -> None:
    async def scenario(stream: Streaming) -> None:
        viewer = stream.viewer()
        await viewer.next()
        for number in range(1, 20):
            stream.section.value = number
            stream.stream.tick()
        assert values(await viewer.next()) == ("snapshot", 19)
        stream.section.value = 20
        assert values(await viewer.next()) == ("delta", 20)

    streaming(scenario)


def test_the_connection_is_kept_alive_without_changes() -> None:
    async def scenario(stream: Streaming) -> None:
        viewer = stream.viewer()
        await viewer.next()
        began = asyncio.get_running_loop().time()
        assert (await viewer.next()).name == ""
        assert asyncio.get_running_loop().time() - began == pytest.approx(15, abs=1.1)

    streaming(scenario)


def test_a_stream_ends_after_five_minutes_so_that_the_user_is_authorized_again() -> None:
    async def scenario(stream: Streaming) -> None:
        viewer = stream.viewer()
        began = asyncio.get_running_loop().time()
        with pytest.raises(StopAsyncIteration):
            while True:
                await viewer.next()
        assert 300 <= asyncio.get_running_loop().time() - began <= 320

    streaming(scenario)


def test_closing_ends_all_streams() -> None:
    async def scenario(stream: Streaming) -> None:
        viewer = stream.viewer()
        await viewer.next()
        stream.stream.close()
        with pytest.raises(StopAsyncIteration):
            await viewer.next()

    streaming(scenario)


def test_the_number_of_viewers_is_bounded() -> None:
    async def scenario(stream: Streaming) -> None:
        for _ in range(MAX_VIEWERS):
            await stream.viewer().next()
        with pytest.raises(TooManyViewers, match=str(MAX_VIEWERS)):
            stream.viewer()

    streaming(scenario)


def test_the_number_of_viewers_that_come_at_once_is_bounded() -> None:
    async def scenario(stream: Streaming) -> None:
        viewers = [stream.viewer() for _ in range(MAX_VIEWERS + 1)]
        for viewer in viewers[:-1]:
            await viewer.next()
        with pytest.raises(StopAsyncIteration):
            await viewers[-1].next()
        assert stream.stream.viewers == MAX_VIEWERS

    streaming(scenario)


def test_a_section_in_error_does_not_end_the_stream() -> None:
    async def scenario(stream: Streaming) -> None:
        viewer = stream.viewer()
        await viewer.next()
        stream.section.fails = True
        assert (await viewer.next()).name == "snapshot"
        stream.section.fails, stream.section.value = False, 7
        while (event := values(await viewer.next()))[0] == "snapshot":
            pass
        assert event == ("delta", 7)

    streaming(scenario)


def test_a_slow_reading_is_followed_by_a_longer_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(stream: Streaming) -> None:
        clock = stream.stream._clock
        now = clock.monotonic
        spent = 0.0

        def refresh() -> int:
            nonlocal spent
            spent += 0.1  # as if reading took so long
            return 1

        monkeypatch.setattr(clock, "monotonic", lambda: now() + spent)
        viewer = stream.viewer()
        await viewer.next()
        monkeypatch.setattr(stream.section, "refresh", refresh)
        began, before = asyncio.get_running_loop().time(), spent
        for _ in range(5):
            await viewer.next()
        took = asyncio.get_running_loop().time() - began
        assert (spent - before) / took < 1.2 / event_stream._PAUSE_FACTOR * 5 / 4

    streaming(scenario)
