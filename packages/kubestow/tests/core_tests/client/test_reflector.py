"""List and watch without failures: streaming lists, lists in pages, bookmarks, resumed watches."""

from __future__ import annotations

import json

from core_tests.client.clocks import AutoAdvancingClock
from core_tests.client.scripted_server import ScriptedServer, failure, response
from core_tests.client.subscribers import NODES, PODS, bookmark, event, pod, reflecting
from core_tests.recordings import exchanges
from kubestow.client.rest.transport import Transport


async def test_a_streaming_list_replaces_once_and_continues_as_a_watch(
    server: ScriptedServer, transport: Transport, clock: AutoAdvancingClock
) -> None:
    initial = [event("ADDED", pod("a", 3)), event("ADDED", pod("b", 5)), bookmark(7, initial_end=True)]
    server.respond("GET", "/api/v1/pods", server.watch(*initial, event("MODIFIED", pod("a", 8))))
    async with reflecting(transport, clock) as subscriber:
        assert await subscriber.wait_until_seen(2) == [("replace", ["a", "b"]), ("MODIFIED", "a")]
    assert len(server.requests) == 1


async def test_changes_during_a_streaming_list_are_part_of_it(
    server: ScriptedServer, transport: Transport, clock: AutoAdvancingClock
) -> None:
    initial = [event("ADDED", pod("a")), event("ADDED", pod("b")), event("DELETED", pod("a", 6))]
    changed = event("MODIFIED", pod("b", 7, nodeName="n1"))
    server.respond("GET", "/api/v1/pods", server.watch(*initial, changed, bookmark(7, initial_end=True)))
    async with reflecting(transport, clock) as subscriber:
        assert await subscriber.wait_until_seen(1) == [("replace", ["b"])]
        assert subscriber.objects["b"].spec.node_name == "n1"


async def test_the_first_request_equals_that_of_kube_scheduler(
    server: ScriptedServer, transport: Transport, clock: AutoAdvancingClock
) -> None:
    server.respond("GET", "/api/v1/pods", server.watch(bookmark(7, initial_end=True)))
    async with reflecting(transport, clock) as subscriber:
        await subscriber.wait_until_seen(1)
    query = dict(server.requests[0].query)
    assert 300 <= int(query.pop("timeoutSeconds")) < 600
    assert query == {
        "allowWatchBookmarks": "true",
        "fieldSelector": "status.phase!=Succeeded,status.phase!=Failed",
        "resourceVersionMatch": "NotOlderThan",
        "sendInitialEvents": "true",
        "watch": "true",
    }


async def test_without_streaming_lists_the_first_list_comes_from_the_watch_cache(
    server: ScriptedServer, transport: Transport, clock: AutoAdvancingClock
) -> None:
    listed = {"kind": "NodeList", "metadata": {"resourceVersion": "9"}, "items": [{"metadata": {"name": "n1"}}]}
    server.respond("GET", "/api/v1/nodes", failure(422, "Invalid"), response(200, listed), server.watch())
    async with reflecting(transport, clock, NODES) as subscriber:
        assert await subscriber.wait_until_seen(1) == [("replace", ["n1"])]
    assert server.requests[1].query == {"limit": "5000", "resourceVersion": "0"}
    assert clock.slept == []  # a missing feature does not cause backoff


async def test_the_watch_starts_at_the_resource_version_of_the_list(
    server: ScriptedServer, transport: Transport, clock: AutoAdvancingClock
) -> None:
    listed = {"metadata": {"resourceVersion": "9"}, "items": None}
    watch = server.watch(event("ADDED", {"metadata": {"name": "n1", "resourceVersion": "10"}}))
    server.respond("GET", "/api/v1/nodes", failure(422, "Invalid"), response(200, listed), watch)
    async with reflecting(transport, clock, NODES) as subscriber:
        assert await subscriber.wait_until_seen(2) == [("replace", []), ("ADDED", "n1")]
    assert server.requests[2].query["resourceVersion"] == "9"
    assert server.requests[2].query["allowWatchBookmarks"] == "true"


async def test_the_pages_of_a_list_are_combined(
    server: ScriptedServer, transport: Transport, clock: AutoAdvancingClock
) -> None:
    first = {"metadata": {"resourceVersion": "9", "continue": "more=="}, "items": [pod("a"), pod("b")]}
    second = {"metadata": {"resourceVersion": "9"}, "items": [pod("c")]}
    server.respond("GET", "/api/v1/pods", failure(422, "Invalid"), response(200, first), response(200, second))
    async with reflecting(transport, clock) as subscriber:
        assert await subscriber.wait_until_seen(1) == [("replace", ["a", "b", "c"])]
    assert server.requests[2].query["continue"] == "more=="
    assert "resourceVersion" not in server.requests[2].query


async def test_an_expired_continue_token_is_followed_by_a_list_without_pages(
    server: ScriptedServer, transport: Transport, clock: AutoAdvancingClock
) -> None:
    first = {"metadata": {"resourceVersion": "9", "continue": "more"}, "items": [pod("a")]}
    whole = {"metadata": {"resourceVersion": "12"}, "items": [pod("a"), pod("b")]}
    responses = [failure(422, "Invalid"), response(200, first), failure(410, "Expired"), response(200, whole)]
    server.respond("GET", "/api/v1/pods", *responses)
    async with reflecting(transport, clock) as subscriber:
        assert await subscriber.wait_until_seen(1) == [("replace", ["a", "b"])]
    assert server.requests[3].query["limit"] == "0"


async def test_a_watch_that_the_server_ends_is_resumed_at_the_last_resource_version(
    server: ScriptedServer, transport: Transport, clock: AutoAdvancingClock
) -> None:
    ended = server.watch(bookmark(7, initial_end=True), event("ADDED", pod("a", 8)), end="close")
    server.respond("GET", "/api/v1/pods", ended, server.watch(event("DELETED", pod("a", 9))))
    async with reflecting(transport, clock) as subscriber:
        assert await subscriber.wait_until_seen(3) == [("replace", []), ("ADDED", "a"), ("DELETED", "a")]
    assert server.requests[1].query["resourceVersion"] == "8"
    assert clock.slept == []


async def test_a_bookmark_advances_the_resource_version(
    server: ScriptedServer, transport: Transport, clock: AutoAdvancingClock
) -> None:
    ended = server.watch(bookmark(7, initial_end=True), bookmark(50), end="close")
    server.respond("GET", "/api/v1/pods", ended, server.watch(event("ADDED", pod("a", 51))))
    async with reflecting(transport, clock) as subscriber:
        await subscriber.wait_until_seen(2)
    assert server.requests[1].query["resourceVersion"] == "50"


async def test_events_do_not_depend_on_chunk_boundaries(
    server: ScriptedServer, transport: Transport, clock: AutoAdvancingClock
) -> None:
    lines = [bookmark(7, initial_end=True), event("ADDED", pod("ä", 8)), event("ADDED", pod("b", 9))]
    stream = b"".join(json.dumps(line, ensure_ascii=False).encode() + b"\n" for line in lines)
    pieces = [stream[i : i + 37] for i in range(0, len(stream), 37)]
    server.respond("GET", "/api/v1/pods", server.watch(*pieces))
    async with reflecting(transport, clock) as subscriber:
        assert await subscriber.wait_until_seen(3) == [("replace", []), ("ADDED", "ä"), ("ADDED", "b")]


async def test_a_recorded_watch_is_decoded_event_by_event(
    server: ScriptedServer, transport: Transport, clock: AutoAdvancingClock
) -> None:
    (recorded,) = exchanges("scheduler-stop", "GET", "/api/v1/pods?")
    events = [sent["event"] for sent in recorded["respStream"]]
    server.respond("GET", "/api/v1/pods", server.watch(*events))
    applied = [one["type"] for one in events[events.index(_initial_end(events)) + 1 :] if one["type"] != "BOOKMARK"]
    async with reflecting(transport, clock, PODS) as subscriber:
        seen = await subscriber.wait_until_seen(1 + len(applied))
    assert [kind for kind, *_ in seen] == ["replace", *applied]


def _initial_end(events: list[dict[str, object]]) -> dict[str, object]:
    return next(one for one in events if "k8s.io/initial-events-end" in json.dumps(one))
