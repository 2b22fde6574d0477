"""Events: what is written for the first one, for repetitions, and what happens when there are too many."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from random import Random
from typing import Any

import pytest

from kubestow.client.event_recorder import EventRecorder
from kubestow.client.rest.credentials import Credentials
from kubestow.client.rest.transport import Transport
from kubestow.scheduling.ports import EventRecord, ObjectReference
from tests.client.clocks import HeldClock
from tests.client.scripted_server import ScriptedServer, answer, disconnect, failure
from tests.client.wire import exchanges, needs_wire

POD = ObjectReference("Pod", "default", "p1", "uid-1", resource_version="7")
SCHEDULED = EventRecord(POD, reason="Scheduled", action="Binding", note="Successfully assigned default/p1 to n1")
EVENTS = "/apis/events.k8s.io/v1/namespaces/default/events"


@asynccontextmanager
async def recording(server: ScriptedServer, clock: HeldClock, **options: int) -> AsyncIterator[EventRecorder]:
    transport = Transport(Credentials(server.url), clock=clock)
    async with transport, EventRecorder(transport, host="host-1", clock=clock, random=Random(1), **options) as recorder:
        yield recorder


async def test_an_event_is_written_as_events_v1(server: ScriptedServer, held_clock: HeldClock) -> None:
    server.answers("POST", EVENTS, answer(201))
    async with recording(server, held_clock) as recorder:
        recorder.record(SCHEDULED)
    written = server.asked[0].json
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


@needs_wire
@pytest.mark.parametrize("scenario", ["scheduler-bind", "scheduler-unschedulable", "scheduler-preemption"])
async def test_events_are_kube_schedulers(server: ScriptedServer, held_clock: HeldClock, scenario: str) -> None:
    async with recording(server, held_clock) as recorder:
        for recorded in exchanges(scenario, "POST", "/events"):
            expected = recorded["reqBody"]
            server.answers("POST", recorded["path"], answer(201))
            count = len(server.asked)
            recorder.record(_record(expected))
            await server.until_asked(count + 1)
            own = {"metadata", "eventTime"} | {key for key in expected if key.startswith("deprecated")}
            written = server.asked[-1].json
            assert {key: written[key] for key in expected if key not in own} == {
                key: expected[key] for key in expected if key not in own
            }


async def test_two_events_in_one_tick_have_different_names(server: ScriptedServer, held_clock: HeldClock) -> None:
    server.answers("POST", EVENTS, answer(201), answer(201))
    async with recording(server, held_clock) as recorder:
        recorder.record(SCHEDULED)
        recorder.record(replace(SCHEDULED, reason="Other"))
    assert len({asked.json["metadata"]["name"] for asked in server.asked}) == 2


async def test_an_event_about_something_without_namespace_is_kept_in_default(
    server: ScriptedServer, held_clock: HeldClock
) -> None:
    server.answers("POST", EVENTS, answer(201))
    async with recording(server, held_clock) as recorder:
        recorder.record(replace(SCHEDULED, regarding=ObjectReference("Node", "", "n1", "u")))
    assert "namespace" not in server.asked[0].json["regarding"]


async def test_a_long_note_is_cut_to_1024_bytes(server: ScriptedServer, held_clock: HeldClock) -> None:
    server.answers("POST", EVENTS, answer(201))
    async with recording(server, held_clock) as recorder:
        recorder.record(replace(SCHEDULED, note="é" * 1000))
    note = server.asked[0].json["note"]
    assert note == "é" * 510 + " ..."
    assert len(note.encode()) == 1024


async def test_a_note_that_is_no_text_is_written_as_far_as_it_is(server: ScriptedServer, held_clock: HeldClock) -> None:
    server.answers("POST", EVENTS, answer(201))
    async with recording(server, held_clock) as recorder:
        recorder.record(replace(SCHEDULED, note="plugin said \udcff"))
    assert server.asked[0].json["note"] == "plugin said ?"


async def test_a_repetition_is_told_by_a_patch_and_further_ones_are_only_counted(
    server: ScriptedServer, held_clock: HeldClock
) -> None:
    server.answers("POST", EVENTS, answer(201))
    async with recording(server, held_clock) as recorder:
        recorder.record(SCHEDULED)
        await server.until_asked(1)
        path = f"{EVENTS}/{server.asked[0].json['metadata']['name']}"
        server.answers("PATCH", path, answer())
        await held_clock.advance(30)
        recorder.record(SCHEDULED)
        await server.until_asked(2)
        recorder.record(SCHEDULED)
    assert server.asked[1].headers["Content-Type"] == "application/strategic-merge-patch+json"
    assert server.asked[1].json == {"series": {"count": 2, "lastObservedTime": "2026-01-01T00:17:10.000000Z"}}
    assert len(server.asked) == 2


async def test_a_series_that_is_over_is_closed_with_its_final_count(
    server: ScriptedServer, held_clock: HeldClock
) -> None:
    server.answers("POST", EVENTS, answer(201), answer(201))
    async with recording(server, held_clock) as recorder:
        recorder.record(SCHEDULED)
        await server.until_asked(1)
        server.answers("PATCH", f"{EVENTS}/{server.asked[0].json['metadata']['name']}", answer(), answer())
        for _ in range(4):
            recorder.record(SCHEDULED)
            await asyncio.sleep(0)
        await server.until_asked(2)
        recorder.record(SCHEDULED)
        await held_clock.advance(500)
        await server.until_asked(3)
        recorder.record(SCHEDULED)
    assert server.asked[2].json["series"]["count"] == 6
    assert server.asked[3].method == "POST"  # a new series


async def test_a_patch_of_an_event_that_expired_creates_it_again_with_its_count(
    server: ScriptedServer, held_clock: HeldClock
) -> None:
    server.answers("POST", EVENTS, answer(201), answer(201))
    async with recording(server, held_clock) as recorder:
        recorder.record(SCHEDULED)
        await server.until_asked(1)
        server.answers("PATCH", f"{EVENTS}/{server.asked[0].json['metadata']['name']}", failure(404, "NotFound"))
        recorder.record(SCHEDULED)
        await server.until_asked(3)
    assert server.asked[2].json["series"]["count"] == 2


async def test_events_beyond_the_queue_are_dropped_and_counted(server: ScriptedServer, held_clock: HeldClock) -> None:
    async with recording(server, held_clock, queue_size=3, writers=1) as recorder:
        for number in range(10):
            recorder.record(replace(SCHEDULED, note=str(number)))
        assert recorder.dropped == 7
        server.answers("POST", EVENTS, *[answer(201)] * 3)


async def test_an_event_refused_is_not_sent_again(server: ScriptedServer, held_clock: HeldClock) -> None:
    server.answers("POST", EVENTS, failure(422, "Invalid"), answer(201))
    async with recording(server, held_clock, writers=1) as recorder:
        recorder.record(SCHEDULED)
        recorder.record(replace(SCHEDULED, note="next"))
    assert [asked.json["note"] for asked in server.asked] == [SCHEDULED.note, "next"]


async def test_an_event_that_cannot_be_written_does_not_stop_the_others(
    server: ScriptedServer, held_clock: HeldClock, caplog: pytest.LogCaptureFixture
) -> None:
    server.answers("POST", EVENTS, answer(201))
    note: Any = ValueError("said by a plugin that forgot str()")
    async with recording(server, held_clock, writers=1) as recorder:
        recorder.record(replace(SCHEDULED, note=note))
        recorder.record(SCHEDULED)
        await server.until_asked(1)
    assert "(Scheduled) lost" in caplog.text


async def test_an_event_waits_for_a_server_that_is_away(server: ScriptedServer, held_clock: HeldClock) -> None:
    server.answers("POST", EVENTS, disconnect, answer(201))
    async with recording(server, held_clock) as recorder:
        recorder.record(SCHEDULED)
        await held_clock.until_sleeping(2)  # the retry, and the sweep of series
        await held_clock.advance(12.5)
        await server.until_asked(2)


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
