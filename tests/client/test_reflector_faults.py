"""List and watch, when something goes wrong: expiry, outages, cut streams, garbage, objects that do not decode."""

from __future__ import annotations

import logging
from dataclasses import replace

import pytest

from kubestow.client.rest.transport import Transport
from tests.client.clocks import LeapingClock
from tests.client.scripted_server import ScriptedServer, answer, disconnect, failure
from tests.client.subscribers import SLICES, bookmark, broken_off, event, expired, pod, reflecting

READY = bookmark(7, initial_end=True)


async def test_an_expired_watch_reads_the_collection_anew(
    server: ScriptedServer, transport: Transport, clock: LeapingClock
) -> None:
    anew = server.watch(event("ADDED", pod("b", 90)), bookmark(91, initial_end=True))
    server.answers("GET", "/api/v1/pods", server.watch(READY, expired(), end="close"), anew)
    async with reflecting(transport, clock) as subscriber:
        assert await subscriber.until_seen(2) == [("replace", []), ("replace", ["b"])]
    assert server.asked[1].query["sendInitialEvents"] == "true"


@pytest.mark.parametrize(("code", "is_read_anew"), [(500, True), (429, False)])
async def test_a_server_that_cannot_go_on_from_a_version_is_not_asked_to_again(
    server: ScriptedServer, transport: Transport, clock: LeapingClock, code: int, is_read_anew: bool
) -> None:
    stuck = server.watch(READY, broken_off(code, "InternalError", "etcd event received with PrevKv=nil"), end="close")
    server.answers(
        "GET", "/api/v1/pods", stuck, server.watch(event("ADDED", pod("b", 90)), bookmark(91, initial_end=True))
    )
    async with reflecting(transport, clock) as subscriber:
        await subscriber.until_seen(2)
    assert ("sendInitialEvents" in server.asked[1].query) == is_read_anew


async def test_http_410_reads_the_collection_anew(
    server: ScriptedServer, transport: Transport, clock: LeapingClock
) -> None:
    broken = server.watch(READY, end="cut")
    server.answers("GET", "/api/v1/pods", broken, failure(410, "Expired"), server.watch(READY))
    async with reflecting(transport, clock) as subscriber:
        assert await subscriber.until_seen(2) == [("replace", []), ("replace", [])]
    assert server.asked[1].query["resourceVersion"] == "7"
    assert "sendInitialEvents" in server.asked[2].query


async def test_a_list_after_the_first_must_not_come_from_a_stale_cache(
    server: ScriptedServer, transport: Transport, clock: LeapingClock
) -> None:
    listed = answer(200, {"metadata": {"resourceVersion": "9"}, "items": []})
    server.answers("GET", "/api/v1/pods", failure(422, "Invalid"), listed, failure(410, "Expired"), listed)
    async with reflecting(transport, clock) as subscriber:
        await subscriber.until_seen(2)
    assert "resourceVersion" not in server.asked[3].query


async def test_a_stream_cut_inside_an_event_is_taken_up_and_logged_once(
    server: ScriptedServer, transport: Transport, clock: LeapingClock, caplog: pytest.LogCaptureFixture
) -> None:
    half = server.watch(READY, event("ADDED", pod("a", 8)), b'{"type":"ADDED","object":{"metadata', end="close")
    server.answers("GET", "/api/v1/pods", half, server.watch(event("ADDED", pod("b", 9))))
    with caplog.at_level(logging.WARNING):
        async with reflecting(transport, clock) as subscriber:
            assert await subscriber.until_seen(3) == [("replace", []), ("ADDED", "a"), ("ADDED", "b")]
    assert server.asked[1].query["resourceVersion"] == "8"
    assert [record.getMessage().split(";")[0] for record in caplog.records] == [
        f"pods: {server.url}: cut the watch of pods inside an event"
    ]


async def test_a_line_that_is_no_event_reads_the_collection_anew_and_is_logged_once(
    server: ScriptedServer, transport: Transport, clock: LeapingClock, caplog: pytest.LogCaptureFixture
) -> None:
    garbage = server.watch(READY, b"\x00\xffnonsense\n", event("ADDED", pod("a", 8)))
    server.answers("GET", "/api/v1/pods", garbage, server.watch(event("ADDED", pod("a", 8)), READY))
    with caplog.at_level(logging.WARNING):
        async with reflecting(transport, clock) as subscriber:
            assert await subscriber.until_seen(2) == [("replace", []), ("replace", ["a"])]
    assert len(caplog.records) == 1
    assert "a watch event of pods that is none" in caplog.text


async def test_outages_are_waited_out_longer_and_longer_and_logged_once(
    server: ScriptedServer, transport: Transport, clock: LeapingClock, caplog: pytest.LogCaptureFixture
) -> None:
    server.answers("GET", "/api/v1/pods", *[failure(500, "InternalError", "etcd is down")] * 7, server.watch(READY))
    with caplog.at_level(logging.WARNING):
        async with reflecting(transport, clock) as subscriber:
            await subscriber.until_seen(1)
    for slept, least in zip(clock.slept, [0.8, 1.6, 3.2, 6.4, 12.8, 25.6, 30.0], strict=True):
        assert least <= slept <= 2 * least
    assert len(caplog.records) == 1


async def test_a_connection_that_breaks_does_not_cost_a_new_list(
    server: ScriptedServer, transport: Transport, clock: LeapingClock
) -> None:
    server.answers("GET", "/api/v1/pods", server.watch(READY, end="cut"), disconnect, disconnect)
    server.answers("GET", "/api/v1/pods", server.watch(event("ADDED", pod("a", 8))))
    async with reflecting(transport, clock) as subscriber:
        assert await subscriber.until_seen(2) == [("replace", []), ("ADDED", "a")]
    assert server.asked[-1].query["resourceVersion"] == "7"


async def test_a_streaming_list_that_breaks_off_begins_again(
    server: ScriptedServer, transport: Transport, clock: LeapingClock
) -> None:
    half = server.watch(event("ADDED", pod("gone")), end="cut")
    server.answers("GET", "/api/v1/pods", half, server.watch(event("ADDED", pod("a")), READY))
    async with reflecting(transport, clock) as subscriber:
        assert await subscriber.until_seen(1) == [("replace", ["a"])]


async def test_a_server_that_ends_every_watch_at_once_is_not_asked_in_a_rush(
    server: ScriptedServer, transport: Transport, clock: LeapingClock
) -> None:
    empty = server.watch(end="close")
    server.answers("GET", "/api/v1/pods", server.watch(READY, end="close"), empty, empty)
    async with reflecting(transport, clock) as subscriber:
        await subscriber.until_seen(1)
        await server.until_asked(4)
    assert len(clock.slept) == 2


async def test_a_silent_watch_is_taken_up_again(
    server: ScriptedServer, transport: Transport, clock: LeapingClock
) -> None:
    server.answers("GET", "/api/v1/pods", server.watch(READY), server.watch(event("ADDED", pod("a", 8))))
    async with reflecting(transport, clock, silence=0.05) as subscriber:
        assert await subscriber.until_seen(2) == [("replace", []), ("ADDED", "a")]
    assert server.asked[1].query["resourceVersion"] == "7"


async def test_a_server_that_never_completes_a_streaming_list_is_asked_for_a_plain_one(
    server: ScriptedServer, transport: Transport, clock: LeapingClock
) -> None:
    listed = answer(200, {"metadata": {"resourceVersion": "9"}, "items": [pod("a")]})
    server.answers("GET", "/api/v1/pods", server.watch(event("ADDED", pod("a"))), listed)
    async with reflecting(transport, clock, silence=0.05) as subscriber:
        assert (await subscriber.until_seen(1))[0] == ("replace", ["a"])
    assert server.asked[1].query["limit"] == "5000"


async def test_an_object_that_does_not_decode_is_reported_once_and_the_others_go_on(
    server: ScriptedServer, transport: Transport, clock: LeapingClock
) -> None:
    bad = pod("bad", 8, priority="high")
    events = [event("ADDED", bad), event("ADDED", pod("a", 9)), event("MODIFIED", bad), event("ADDED", pod("b", 10))]
    server.answers("GET", "/api/v1/pods", server.watch(READY, *events))
    async with reflecting(transport, clock) as subscriber:
        seen = await subscriber.until_seen(4)
    assert [one[:2] for one in seen] == [
        ("replace", []),
        ("unreadable", "default/bad"),
        ("ADDED", "a"),
        ("ADDED", "b"),
    ]
    assert "spec.priority" in seen[1][2]


async def test_an_unreadable_object_is_not_reported_again_by_a_new_list(
    server: ScriptedServer, transport: Transport, clock: LeapingClock
) -> None:
    bad = event("ADDED", pod("bad", 8, priority="high"))
    first, second = server.watch(bad, READY, expired(), end="close"), server.watch(bad, READY)
    server.answers("GET", "/api/v1/pods", first, second)
    async with reflecting(transport, clock) as subscriber:
        seen = await subscriber.until_seen(3)
    assert [kind for kind, *_ in seen] == ["unreadable", "replace", "replace"]


async def test_the_deletion_of_an_unreadable_object_is_passed_on(
    server: ScriptedServer, transport: Transport, clock: LeapingClock
) -> None:
    gone = event("DELETED", pod("a", 9, priority="high"))
    server.answers("GET", "/api/v1/pods", server.watch(event("ADDED", pod("a")), READY, gone))
    async with reflecting(transport, clock) as subscriber:
        assert await subscriber.until_seen(2) == [("replace", ["a"]), ("DELETED", "a")]


async def test_an_optional_resource_that_is_not_served_is_empty_and_seldom_looked_for(
    server: ScriptedServer, transport: Transport, clock: LeapingClock
) -> None:
    found = server.watch(event("ADDED", {"metadata": {"name": "s1", "resourceVersion": "3"}}), READY)
    path = "/apis/resource.k8s.io/v1/resourceslices"
    server.answers("GET", path, failure(404, "NotFound"), failure(404, "NotFound"), found)
    async with reflecting(transport, clock, SLICES) as subscriber:
        assert await subscriber.until_seen(2) == [("replace", []), ("replace", ["s1"])]
    assert len(clock.slept) == 2
    assert min(clock.slept) >= 600


async def test_a_resource_that_may_be_defined_any_time_is_looked_for_more_often(
    server: ScriptedServer, transport: Transport, clock: LeapingClock
) -> None:
    often = replace(SLICES, absent_seconds=30.0)
    found = server.watch(event("ADDED", {"metadata": {"name": "s1", "resourceVersion": "3"}}), READY)
    server.answers("GET", "/apis/resource.k8s.io/v1/resourceslices", failure(404, "NotFound"), found)
    async with reflecting(transport, clock, often) as subscriber:
        await subscriber.until_seen(2)
    assert 30 <= clock.slept[0] <= 60
