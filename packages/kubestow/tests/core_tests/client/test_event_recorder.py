"""Events: the first occurrence, series, and a full queue."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from random import Random
from typing import Any

import pytest

from core_tests.client.clocks import ManualClock
from core_tests.client.scripted_server import ScriptedServer, disconnect, failure, response
from core_tests.recordings import exchanges
from kubestow.client.event_recorder import EventRecorder
from kubestow.client.rest.credentials import Credentials
from kubestow.client.rest.transport import Transport
from kubestow.scheduling.interfaces import EventRecord, ObjectReference

POD = ObjectReference("Pod", "default", "p1", "uid-1", resource_version="7")
SCHEDULED = EventRecord(POD, reason="Scheduled", action="Binding", note="Successfully assigned default/p1 to n1")
EVENTS = "/apis/events.k8s.io/v1/namespaces/default/events"


@asynccontextmanager
async def recording(server: ScriptedServer, clock: ManualClock, **options: int) -> AsyncIterator[EventRecorder]:
    transport = Transport(Credentials(server.url), clock=clock)
    async with transport, EventRecorder(transport, host="host-1", clock=clock, random=Random(1), **options) as recorder:
        yield recorder


async def test_an_event_is_created_as_events_v1(server: ScriptedServer, manual_clock: ManualClock) -> None:
    server.respond("POST", EVENTS, response(201))
    async with recording(server, manual_clock) as recorder:
        recorder.record(SCHEDULED)
    written = server.requests[0].json
    assert re.fullmatch(r"p1\.[0-9a-f]{16}", written.pop("metadata")["name"])
    assert written == {
        "kind": "Event",
        "apiVersion": "events.k8s.io/v1",
        "eventTime": "2026-01-01T00:16:40.000000Z",
        "reportingController": "default-scheduler",
        "reportingInstance": "default-scheduler-host-1",
        "action": "Binding",
        "reason": "Scheduled",
        "regarding": {
            "kind": "Pod",
            "namespace": "default",
            "name": "p1",
            "uid": "uid-1",
            "apiVersion": "v1",
            "resourceVersion": "7",
        },
        "note": "Successfully assigned default/p1 to n1",
        "type": "Normal",
    }


@pytest.mark.parametrize("scenario", ["scheduler-bind", "scheduler-unschedulable", "scheduler-preemption"])
async def test_events_equal_those_of_kube_scheduler(
    server: ScriptedServer, manual_clock: ManualClock, scenario: str
) -> None:
    async with recording(server, manual_clock) as recorder:
        for recorded in exchanges(scenario, "POST", "/events"):
            expected = recorded["reqBody"]
            server.respond("POST", recorded["path"], response(201))
            count = len(server.requests)
            recorder.record(_record(expected))
            await server.wait_for_requests(count + 1)
            own = {"metadata", "eventTime"} | {key for key in expected if key.startswith("deprecated")}
            written = server.requests[-1].json
            assert {key: written[key] for key in expected if key not in own} == {
                key: expected[key] for key in expected if key not in own
            }


async def test_two_events_in_one_clock_tick_have_different_names(
    server: ScriptedServer, manual_clock: ManualClock
) -> None:
    server.respond("POST", EVENTS, response(201), response(201))
    async with recording(server, manual_clock) as recorder:
        recorder.record(SCHEDULED)
        recorder.record(replace(SCHEDULED, reason="Other"))
    assert len({request.json["metadata"]["name"] for request in server.requests}) == 2


async def test_an_event_for_an_object_without_a_namespace_is_created_in_default(
    server: ScriptedServer, manual_clock: ManualClock
) -> None:
    server.respond("POST", EVENTS, response(201))
    async with recording(server, manual_clock) as recorder:
        recorder.record(replace(SCHEDULED, regarding=ObjectReference("Node", "", "n1", "u")))
    assert "namespace" not in server.requests[0].json["regarding"]


async def test_a_long_note_is_truncated_to_1024_bytes(server: ScriptedServer, manual_clock: ManualClock) -> None:
    server.respond("POST", EVENTS, response(201))
    async with recording(server, manual_clock) as recorder:
        recorder.record(replace(SCHEDULED, note="é" * 1000))
    note = server.requests[0].json["note"]
    assert note == "é" * 510 + " ..."
    assert len(note.encode()) == 1024


async def test_characters_of_a_note_that_cannot_be_encoded_are_replaced(
    server: ScriptedServer, manual_clock: ManualClock
) -> None:
    server.respond("POST", EVENTS, response(201))
    async with recording(server, manual_clock) as recorder:
        recorder.record(replace(SCHEDULED, note="invalid text \udcff"))
    assert server.requests[0].json["note"] == "invalid text ?"


async def test_the_first_repetition_is_patched_and_further_ones_are_counted(
    server: ScriptedServer, manual_clock: ManualClock
) -> None:
    server.respond("POST", EVENTS, response(201))
    async with recording(server, manual_clock) as recorder:
        recorder.record(SCHEDULED)
        await server.wait_for_requests(1)
        path = f"{EVENTS}/{server.requests[0].json['metadata']['name']}"
        server.respond("PATCH", path, response())
        await manual_clock.advance(30)
        recorder.record(SCHEDULED)
        await server.wait_for_requests(2)
        recorder.record(SCHEDULED)
    assert server.requests[1].headers["Content-Type"] == "application/strategic-merge-patch+json"
    assert server.requests[1].json == {"series": {"count": 2, "lastObservedTime": "2026-01-01T00:17:10.000000Z"}}
    assert len(server.requests) == 2


async def test_an_event_that_differs_in_its_note_only_is_a_repetition(
    server: ScriptedServer, manual_clock: ManualClock
) -> None:
    server.respond("POST", EVENTS, response(201))
    async with recording(server, manual_clock) as recorder:
        recorder.record(SCHEDULED)
        await server.wait_for_requests(1)
        server.respond("PATCH", f"{EVENTS}/{server.requests[0].json['metadata']['name']}", response())
        recorder.record(replace(SCHEDULED, note="0/5000 nodes are available"))
        await server.wait_for_requests(2)
    assert server.requests[1].json["series"]["count"] == 2


async def test_an_event_about_another_version_of_the_object_is_no_repetition(
    server: ScriptedServer, manual_clock: ManualClock
) -> None:
    server.respond("POST", EVENTS, response(201), response(201))
    async with recording(server, manual_clock) as recorder:
        recorder.record(SCHEDULED)
        recorder.record(replace(SCHEDULED, regarding=replace(POD, resource_version="8")))
        await server.wait_for_requests(2)
    assert [request.method for request in server.requests] == ["POST", "POST"]


async def test_an_idle_series_is_finished_with_its_final_count(
    server: ScriptedServer, manual_clock: ManualClock
) -> None:
    server.respond("POST", EVENTS, response(201), response(201))
    async with recording(server, manual_clock) as recorder:
        recorder.record(SCHEDULED)
        await server.wait_for_requests(1)
        server.respond("PATCH", f"{EVENTS}/{server.requests[0].json['metadata']['name']}", response(), response())
        for _ in range(4):
            recorder.record(SCHEDULED)
            await asyncio.sleep(0)
        await server.wait_for_requests(2)
        recorder.record(SCHEDULED)
        await manual_clock.advance(500)
        await server.wait_for_requests(3)
        recorder.record(SCHEDULED)
    assert server.requests[2].json["series"]["count"] == 6
    assert server.requests[3].method == "POST"  # a new series


async def test_an_expired_event_is_created_again_with_its_count(
    server: ScriptedServer, manual_clock: ManualClock
) -> None:
    server.respond("POST", EVENTS, response(201), response(201))
    async with recording(server, manual_clock) as recorder:
        recorder.record(SCHEDULED)
        await server.wait_for_requests(1)
        server.respond("PATCH", f"{EVENTS}/{server.requests[0].json['metadata']['name']}", failure(404, "NotFound"))
        recorder.record(SCHEDULED)
        await server.wait_for_requests(3)
    assert server.requests[2].json["series"]["count"] == 2


async def test_events_are_dropped_and_counted_when_the_queue_is_full(
    server: ScriptedServer, manual_clock: ManualClock
) -> None:
    drops: list[None] = []
    async with recording(server, manual_clock, queue_size=3, writers=1) as recorder:
        recorder.on_drop = lambda: drops.append(None)
        for number in range(10):
            recorder.record(replace(SCHEDULED, reason=str(number)))
        assert recorder.dropped == 7
        assert len(drops) == 7
        server.respond("POST", EVENTS, *[response(201)] * 3)


async def test_events_do_not_wait_for_each_other_while_the_server_is_slow(
    server: ScriptedServer, manual_clock: ManualClock
) -> None:
    server.respond("POST", EVENTS, *[server.hang] * 30)
    async with recording(server, manual_clock) as recorder:
        for number in range(30):
            recorder.record(replace(SCHEDULED, reason=str(number)))
        await server.wait_for_requests(30)
    assert {request.json["reason"] for request in server.requests} == {str(number) for number in range(30)}


async def test_a_rejected_event_is_not_retried(server: ScriptedServer, manual_clock: ManualClock) -> None:
    server.respond("POST", EVENTS, failure(422, "Invalid"), response(201))
    async with recording(server, manual_clock, writers=1) as recorder:
        recorder.record(SCHEDULED)
        recorder.record(replace(SCHEDULED, reason="Next"))
    assert [request.json["reason"] for request in server.requests] == [SCHEDULED.reason, "Next"]


async def test_an_event_that_cannot_be_encoded_does_not_stop_the_others(
    server: ScriptedServer, manual_clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    server.respond("POST", EVENTS, response(201))
    note: Any = ValueError("not a string")
    async with recording(server, manual_clock, writers=1) as recorder:
        recorder.record(replace(SCHEDULED, note=note))
        recorder.record(replace(SCHEDULED, reason="Next"))
        await server.wait_for_requests(1)
    assert "(Scheduled) lost" in caplog.text


async def test_an_event_is_retried_while_the_server_is_unreachable(
    server: ScriptedServer, manual_clock: ManualClock
) -> None:
    server.respond("POST", EVENTS, disconnect, response(201))
    async with recording(server, manual_clock) as recorder:
        recorder.record(SCHEDULED)
        await manual_clock.wait_for_sleepers(2)  # the retry and the refresh of series
        await manual_clock.advance(12.5)
        await server.wait_for_requests(2)


async def test_an_event_is_retried_less_and_less_often_while_the_server_is_busy(
    server: ScriptedServer, manual_clock: ManualClock
) -> None:
    busy = failure(429, "TooManyRequests", Retry_After="1")
    server.respond("POST", EVENTS, *[busy] * 5, failure(503, "ServiceUnavailable", Retry_After="15"), response(201))
    pauses = []
    async with recording(server, manual_clock) as recorder:
        recorder.record(SCHEDULED)
        for tries in range(1, 7):
            await server.wait_for_requests(tries)
            await manual_clock.wait_for_sleepers(2)  # the retry and the refresh of series
            pauses.append(await manual_clock.advance_to_next_sleeper())
        await server.wait_for_requests(7)
    for pause, least in zip(pauses, (1, 2, 4, 8, 10, 15), strict=True):
        assert least <= round(pause, 3) <= 1.25 * least


def _record(body: dict[str, object]) -> EventRecord:
    regarding = body["regarding"]
    assert isinstance(regarding, dict)
    return EventRecord(
        ObjectReference(
            regarding["kind"],
            regarding["namespace"],
            regarding["name"],
            regarding["uid"],
            resource_version=regarding["resourceVersion"],
        ),
        reason=str(body["reason"]),
        action=str(body["action"]),
        note=str(body["note"]),
        type=str(body["type"]),
    )
