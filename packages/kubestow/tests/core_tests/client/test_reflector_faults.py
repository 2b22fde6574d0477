"""List and watch with failures: expiry, outages, broken streams, malformed events, undecodable objects."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import Any

import pytest

from core_tests.client.clocks import AutoAdvancingClock, ManualClock
from core_tests.client.scripted_server import Responder, ScriptedServer, disconnect, failure, response
from core_tests.client.subscribers import SLICES, bookmark, error_event, event, expired, pod, reflecting
from kubestow.api.custom import CustomObject
from kubestow.client.rest.transport import Transport
from kubestow.scheduling.events.resources import resource_of

READY = bookmark(7, initial_end=True)


async def test_an_expired_watch_is_followed_by_a_new_list(
    server: ScriptedServer, transport: Transport, clock: AutoAdvancingClock
) -> None:
    relist = server.watch(event("ADDED", pod("b", 90)), bookmark(91, initial_end=True))
    server.respond("GET", "/api/v1/pods", server.watch(READY, expired(), end="close"), relist)
    async with reflecting(transport, clock) as subscriber:
        assert await subscriber.wait_until_seen(2) == [("replace", []), ("replace", ["b"])]
    assert server.requests[1].query["sendInitialEvents"] == "true"


@pytest.mark.parametrize(("code", "relists"), [(500, True), (429, False)])
async def test_an_error_event_is_followed_by_a_new_list_unless_the_server_is_busy(
    server: ScriptedServer, transport: Transport, clock: AutoAdvancingClock, code: int, relists: bool
) -> None:
    stuck = server.watch(READY, error_event(code, "InternalError", "etcd event received with PrevKv=nil"), end="close")
    server.respond(
        "GET", "/api/v1/pods", stuck, server.watch(event("ADDED", pod("b", 90)), bookmark(91, initial_end=True))
    )
    async with reflecting(transport, clock) as subscriber:
        await subscriber.wait_until_seen(2)
    assert ("sendInitialEvents" in server.requests[1].query) == relists


async def test_http_410_is_followed_by_a_new_list(
    server: ScriptedServer, transport: Transport, clock: AutoAdvancingClock
) -> None:
    broken = server.watch(READY, end="cut")
    server.respond("GET", "/api/v1/pods", broken, failure(410, "Expired"), server.watch(READY))
    async with reflecting(transport, clock) as subscriber:
        assert await subscriber.wait_until_seen(2) == [("replace", []), ("replace", [])]
    assert server.requests[1].query["resourceVersion"] == "7"
    assert "sendInitialEvents" in server.requests[2].query


async def test_lists_after_the_first_do_not_come_from_the_watch_cache(
    server: ScriptedServer, transport: Transport, clock: AutoAdvancingClock
) -> None:
    listed = response(200, {"metadata": {"resourceVersion": "9"}, "items": []})
    server.respond("GET", "/api/v1/pods", failure(422, "Invalid"), listed, failure(410, "Expired"), listed)
    async with reflecting(transport, clock) as subscriber:
        await subscriber.wait_until_seen(2)
    assert "resourceVersion" not in server.requests[3].query


async def test_a_stream_that_ends_inside_an_event_is_resumed_and_logged_once(
    server: ScriptedServer, transport: Transport, clock: AutoAdvancingClock, caplog: pytest.LogCaptureFixture
) -> None:
    half = server.watch(READY, event("ADDED", pod("a", 8)), b'{"type":"ADDED","object":{"metadata', end="close")
    server.respond("GET", "/api/v1/pods", half, server.watch(event("ADDED", pod("b", 9))))
    with caplog.at_level(logging.WARNING):
        async with reflecting(transport, clock) as subscriber:
            assert await subscriber.wait_until_seen(3) == [("replace", []), ("ADDED", "a"), ("ADDED", "b")]
    assert server.requests[1].query["resourceVersion"] == "8"
    assert [record.getMessage().split(";")[0] for record in caplog.records] == [
        f"failed to list and watch pods: {server.url}: watch of pods ended in the middle of an event"
    ]


async def test_a_malformed_event_is_followed_by_a_new_list_and_logged_once(
    server: ScriptedServer, transport: Transport, clock: AutoAdvancingClock, caplog: pytest.LogCaptureFixture
) -> None:
    garbage = server.watch(READY, b"\x00\xffnonsense\n", event("ADDED", pod("a", 8)))
    server.respond("GET", "/api/v1/pods", garbage, server.watch(event("ADDED", pod("a", 8)), READY))
    with caplog.at_level(logging.WARNING):
        async with reflecting(transport, clock) as subscriber:
            assert await subscriber.wait_until_seen(2) == [("replace", []), ("replace", ["a"])]
    assert len(caplog.records) == 1
    assert "malformed watch event of pods" in caplog.text


async def test_an_outage_is_retried_with_growing_backoff_and_logged_once(
    server: ScriptedServer, transport: Transport, clock: AutoAdvancingClock, caplog: pytest.LogCaptureFixture
) -> None:
    server.respond("GET", "/api/v1/pods", *[failure(500, "InternalError", "etcd is down")] * 7, server.watch(READY))
    with caplog.at_level(logging.WARNING):
        async with reflecting(transport, clock) as subscriber:
            await subscriber.wait_until_seen(1)
    for slept, least in zip(clock.slept, [0.8, 1.6, 3.2, 6.4, 12.8, 25.6, 30.0], strict=True):
        assert least <= slept <= 2 * least
    assert len(caplog.records) == 1


async def test_a_broken_connection_does_not_cause_a_new_list(
    server: ScriptedServer, transport: Transport, clock: AutoAdvancingClock
) -> None:
    server.respond("GET", "/api/v1/pods", server.watch(READY, end="cut"), disconnect, disconnect)
    server.respond("GET", "/api/v1/pods", server.watch(event("ADDED", pod("a", 8))))
    async with reflecting(transport, clock) as subscriber:
        assert await subscriber.wait_until_seen(2) == [("replace", []), ("ADDED", "a")]
    assert server.requests[-1].query["resourceVersion"] == "7"


async def test_a_broken_streaming_list_starts_again(
    server: ScriptedServer, transport: Transport, clock: AutoAdvancingClock
) -> None:
    half = server.watch(event("ADDED", pod("partial")), end="cut")
    server.respond("GET", "/api/v1/pods", half, server.watch(event("ADDED", pod("a")), READY))
    async with reflecting(transport, clock) as subscriber:
        assert await subscriber.wait_until_seen(1) == [("replace", ["a"])]


async def test_very_short_watches_cause_backoff(
    server: ScriptedServer, transport: Transport, clock: AutoAdvancingClock
) -> None:
    empty = server.watch(end="close")
    server.respond("GET", "/api/v1/pods", server.watch(READY, end="close"), empty, empty)
    async with reflecting(transport, clock) as subscriber:
        await subscriber.wait_until_seen(1)
        await server.wait_for_requests(4)
    assert len(clock.slept) == 2


async def test_an_idle_watch_is_resumed(
    server: ScriptedServer, transport: Transport, clock: AutoAdvancingClock
) -> None:
    server.respond("GET", "/api/v1/pods", server.watch(READY), server.watch(event("ADDED", pod("a", 8))))
    async with reflecting(transport, clock, idle_timeout=0.05) as subscriber:
        assert await subscriber.wait_until_seen(2) == [("replace", []), ("ADDED", "a")]
    assert server.requests[1].query["resourceVersion"] == "7"


async def test_a_streaming_list_that_never_completes_is_replaced_by_a_list(
    server: ScriptedServer, transport: Transport, clock: AutoAdvancingClock
) -> None:
    listed = response(200, {"metadata": {"resourceVersion": "9"}, "items": [pod("a")]})
    server.respond("GET", "/api/v1/pods", server.watch(event("ADDED", pod("a"))), listed)
    async with reflecting(transport, clock, idle_timeout=0.05) as subscriber:
        assert (await subscriber.wait_until_seen(1))[0] == ("replace", ["a"])
    assert server.requests[1].query["limit"] == "5000"


async def test_an_undecodable_object_is_reported_once_and_the_others_are_applied(
    server: ScriptedServer, transport: Transport, clock: AutoAdvancingClock
) -> None:
    bad = pod("bad", 8, priority="high")
    events = [event("ADDED", bad), event("ADDED", pod("a", 9)), event("MODIFIED", bad), event("ADDED", pod("b", 10))]
    server.respond("GET", "/api/v1/pods", server.watch(READY, *events))
    async with reflecting(transport, clock) as subscriber:
        seen = await subscriber.wait_until_seen(4)
    assert [entry[:2] for entry in seen] == [
        ("replace", []),
        ("unreadable", "default/bad"),
        ("ADDED", "a"),
        ("ADDED", "b"),
    ]
    assert "spec.priority" in seen[1][2]


async def test_an_undecodable_object_is_not_reported_again_after_a_new_list(
    server: ScriptedServer, transport: Transport, clock: AutoAdvancingClock
) -> None:
    bad = event("ADDED", pod("bad", 8, priority="high"))
    first, second = server.watch(bad, READY, expired(), end="close"), server.watch(bad, READY)
    server.respond("GET", "/api/v1/pods", first, second)
    async with reflecting(transport, clock) as subscriber:
        seen = await subscriber.wait_until_seen(3)
    assert [kind for kind, *_ in seen] == ["unreadable", "replace", "replace"]


async def test_the_deletion_of_an_undecodable_object_is_applied(
    server: ScriptedServer, transport: Transport, clock: AutoAdvancingClock
) -> None:
    deleted = event("DELETED", pod("a", 9, priority="high"))
    server.respond("GET", "/api/v1/pods", server.watch(event("ADDED", pod("a")), READY, deleted))
    async with reflecting(transport, clock) as subscriber:
        assert await subscriber.wait_until_seen(2) == [("replace", ["a"]), ("DELETED", "a")]


async def test_an_optional_resource_that_is_not_served_is_empty_and_polled_rarely(
    server: ScriptedServer, transport: Transport, clock: AutoAdvancingClock
) -> None:
    found = server.watch(event("ADDED", {"metadata": {"name": "s1", "resourceVersion": "3"}}), READY)
    path = "/apis/resource.k8s.io/v1/resourceslices"
    server.respond("GET", path, failure(404, "NotFound"), failure(404, "NotFound"), found)
    server.respond("GET", "/apis/resource.k8s.io", failure(404, "NotFound"), failure(404, "NotFound"))
    async with reflecting(transport, clock, SLICES) as subscriber:
        assert await subscriber.wait_until_seen(2) == [("replace", []), ("replace", ["s1"])]
    assert len(clock.slept) == 2
    assert min(clock.slept) >= 600


@pytest.mark.parametrize("served", [failure(404, "NotFound"), response(200, {"resources": [{"name": "other"}]})])
async def test_an_optional_resource_that_is_forbidden_and_not_served_is_empty(
    server: ScriptedServer, transport: Transport, clock: AutoAdvancingClock, served: Responder
) -> None:
    found = server.watch(event("ADDED", {"metadata": {"name": "w", "resourceVersion": "3"}}), READY)
    server.respond("GET", "/apis/example.com/v1/widgets", failure(403, "Forbidden"), found)
    server.respond("GET", "/apis/example.com/v1", served)
    server.respond("GET", DEFINITIONS, failure(403, "Forbidden"))
    async with reflecting(transport, clock, WIDGETS) as subscriber:
        assert await subscriber.wait_until_seen(2) == [("replace", []), ("replace", ["w"])]


@pytest.mark.parametrize("served", [failure(403, "Forbidden"), response(200, {"resources": [{"name": "widgets"}]})])
async def test_a_permission_that_is_missing_for_an_optional_resource_is_waited_for(
    server: ScriptedServer, transport: Transport, clock: AutoAdvancingClock, served: Responder
) -> None:
    found = server.watch(event("ADDED", {"metadata": {"name": "w", "resourceVersion": "3"}}), READY)
    server.respond("GET", "/apis/example.com/v1/widgets", failure(403, "Forbidden"), found)
    server.respond("GET", "/apis/example.com/v1", served)
    async with reflecting(transport, clock, WIDGETS) as subscriber:
        assert await subscriber.wait_until_seen(1) == [("replace", ["w"])]


async def test_the_polling_interval_of_a_missing_resource_is_configurable(
    server: ScriptedServer, transport: Transport, clock: AutoAdvancingClock
) -> None:
    frequent = replace(SLICES, absent_seconds=30.0)
    found = server.watch(event("ADDED", {"metadata": {"name": "s1", "resourceVersion": "3"}}), READY)
    server.respond("GET", "/apis/resource.k8s.io/v1/resourceslices", failure(404, "NotFound"), found)
    server.respond("GET", "/apis/resource.k8s.io", failure(404, "NotFound"))
    async with reflecting(transport, clock, frequent) as subscriber:
        await subscriber.wait_until_seen(2)
    assert 30 <= clock.slept[0] <= 60


class Widget(CustomObject, frozen=True):
    resource = "widgets.v1.example.com"


DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
WIDGETS = resource_of(Widget)


def definition(*, established: bool, version: str = "v1") -> dict[str, Any]:
    conditions = [{"type": "Established", "status": "True"}] if established else []
    return {"spec": {"versions": [{"name": version, "served": True}]}, "status": {"conditions": conditions}}


async def test_a_custom_resource_is_listed_as_soon_as_its_definition_is_established(
    server: ScriptedServer, transport: Transport
) -> None:
    clock = ManualClock()
    found = server.watch(event("ADDED", {"metadata": {"name": "w", "resourceVersion": "3"}}), READY)
    server.respond("GET", "/apis/example.com/v1/widgets", failure(404, "NotFound"), found)
    events = [event("ADDED", definition(established=False)), event("MODIFIED", definition(established=True))]
    server.respond("GET", DEFINITIONS, server.watch(*events))
    async with reflecting(transport, clock, WIDGETS) as subscriber:
        await clock.wait_for_sleepers(2)  # the next try without the definition, and the moment after it
        await clock.advance(0.6)
        assert await subscriber.wait_until_seen(2) == [("replace", []), ("replace", ["w"])]
    assert server.requests[1].query["fieldSelector"] == "metadata.name=widgets.example.com"


@pytest.mark.parametrize("events", [None, [event("ADDED", definition(established=True, version="v2"))]])
async def test_a_custom_resource_without_a_usable_definition_is_polled(
    server: ScriptedServer, transport: Transport, clock: AutoAdvancingClock, events: list[dict[str, Any]] | None
) -> None:
    found = server.watch(event("ADDED", {"metadata": {"name": "w", "resourceVersion": "3"}}), READY)
    server.respond("GET", "/apis/example.com/v1/widgets", failure(404, "NotFound"), found)
    server.respond("GET", DEFINITIONS, failure(403, "Forbidden") if events is None else server.watch(*events))
    async with reflecting(transport, clock, WIDGETS) as subscriber:
        assert await subscriber.wait_until_seen(2) == [("replace", []), ("replace", ["w"])]
    assert clock.slept[0] >= 30
