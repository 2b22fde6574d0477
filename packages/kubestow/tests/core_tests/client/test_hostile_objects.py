"""Objects of tenants that only Go decodes, among others: in pages, streaming lists and watch events."""

from __future__ import annotations

import asyncio
import time

import msgspec
import pytest

from core_tests.client.clocks import AutoAdvancingClock
from core_tests.client.extender_settings import settings
from core_tests.client.scripted_server import ScriptedServer, failure, response
from core_tests.client.subscribers import RESOURCE_CLAIMS, RecordingSubscriber, bookmark, event, pod, reflecting
from core_tests.hang_limit import HANG_LIMIT
from kubestow.api.resource import ResourceClaim
from kubestow.client.object_requests import list_names, list_pages
from kubestow.client.raw_object_cache import RawObjectCache
from kubestow.client.rest.transport import Transport
from kubestow.client.watch_decoding import ListPage, ObjectDecoder
from kubestow.engine.input.documents import Problems, parse_objects

CLAIMS = "/apis/resource.k8s.io/v1/resourceclaims"
HOSTILE = {
    "surrogate": rb'{"a":"\ud800"}',
    "surrogate key": rb'{"\udfff":{}}',
    "deep": b'{"a":' + b"[" * 4990 + b"]" * 4990 + b"}",
    "almost too deep": b'{"a":' + b"[" * 970 + b"]" * 970 + b"}",
    "not UTF-8": b'{"a":"\xff\xc3"}',
    "number": b'{"a":1e400,"b":' + b"9" * 5000 + b"}",
    "null": b'{"a":[null,{"b":null}]}',
}
hostile = pytest.mark.parametrize("parameters", HOSTILE.values(), ids=HOSTILE.keys())


def _claim(name: str, version: int, parameters: bytes = b"{}") -> bytes:
    """An allocated claim."""
    template = {
        "metadata": {"name": name, "namespace": "default", "uid": f"uid-{name}", "resourceVersion": str(version)},
        "spec": {"devices": {"config": [{"opaque": {"driver": "d", "parameters": "HERE"}}]}},
        "status": {
            "allocation": {"devices": {"results": [{"request": "r", "driver": "d", "pool": "p", "device": name}]}}
        },
    }
    return msgspec.json.encode(template).replace(b'"HERE"', parameters)


def _event(kind: str, obj: bytes) -> bytes:
    return b'{"type":"%s","object":%s}\n' % (kind.encode(), obj)


def _page(*claims: bytes) -> bytes:
    return b'{"kind":"List","apiVersion":"v1","metadata":{"resourceVersion":"9"},"items":[%s]}' % b",".join(claims)


def _devices(subscriber: RecordingSubscriber) -> dict[str, str]:
    """The allocated device of each claim."""
    claims: dict[str, ResourceClaim] = subscriber.objects
    allocations = {name: claim.status.allocation for name, claim in claims.items()}
    return {name: found.devices.results[0].device for name, found in allocations.items() if found is not None}


@hostile
async def test_a_hostile_claim_in_a_page_hides_no_claim(
    server: ScriptedServer, transport: Transport, clock: AutoAdvancingClock, parameters: bytes
) -> None:
    listed = response(200, _page(_claim("a", 3), _claim("hostile", 4, parameters), _claim("b", 5)))
    server.respond("GET", CLAIMS, failure(422, "Invalid"), listed, server.watch())
    async with reflecting(transport, clock, RESOURCE_CLAIMS) as subscriber:
        assert await subscriber.wait_until_seen(1) == [("replace", ["a", "hostile", "b"])]
    assert _devices(subscriber) == {"a": "a", "hostile": "hostile", "b": "b"}
    assert clock.slept == []


@hostile
async def test_a_hostile_claim_in_a_watch_hides_no_claim_and_a_restart_syncs(
    server: ScriptedServer, transport: Transport, clock: AutoAdvancingClock, parameters: bytes
) -> None:
    ready = bookmark(7, initial_end=True)
    changed = _event("MODIFIED", _claim("hostile", 9, parameters))
    live = server.watch(_event("ADDED", _claim("a", 3)), ready, _event("ADDED", _claim("hostile", 8)), changed)
    server.respond("GET", CLAIMS, live)
    async with reflecting(transport, clock, RESOURCE_CLAIMS) as subscriber:
        seen = await subscriber.wait_until_seen(3)
        assert seen == [("replace", ["a"]), ("ADDED", "hostile"), ("MODIFIED", "hostile")]
    restarted = server.watch(_event("ADDED", _claim("hostile", 9, parameters)), _event("ADDED", _claim("a", 3)), ready)
    server.respond("GET", CLAIMS, restarted)
    async with reflecting(transport, clock, RESOURCE_CLAIMS) as subscriber:
        assert await subscriber.wait_until_seen(1) == [("replace", ["hostile", "a"])]
    assert _devices(subscriber) == {"hostile": "hostile", "a": "a"}
    assert clock.slept == []


@pytest.mark.parametrize("timestamp", ["never", "", "2026-01-01T00:00:00", "2026-02-30T00:00:00Z", 7])
async def test_a_claim_with_an_invalid_allocation_timestamp_keeps_its_device(
    server: ScriptedServer, transport: Transport, clock: AutoAdvancingClock, timestamp: object
) -> None:
    """kube-apiserver rejects such a claim; as from any other, its allocation counts without the field."""
    field = b'"allocation":{"allocationTimestamp":%s,' % msgspec.json.encode(timestamp)
    claims = [_claim(name, 8).replace(b'"allocation":{', field) for name in ("listed", "added")]
    ready = bookmark(9, initial_end=True)
    server.respond("GET", CLAIMS, server.watch(_event("ADDED", claims[0]), ready, _event("ADDED", claims[1])))
    async with reflecting(transport, clock, RESOURCE_CLAIMS) as subscriber:
        seen = await subscriber.wait_until_seen(4)
    assert [each for each in seen if each[0] != "unreadable"] == [("replace", ["listed"]), ("ADDED", "added")]
    assert {each[1] for each in seen if "status.allocation.allocationTimestamp" in str(each)} == {
        "default/listed",
        "default/added",
    }
    assert _devices(subscriber) == {"listed": "listed", "added": "added"}


@hostile
async def test_the_deletion_of_a_hostile_claim_is_applied(
    server: ScriptedServer, transport: Transport, clock: AutoAdvancingClock, parameters: bytes
) -> None:
    claim = _claim("hostile", 8, parameters)
    ready = bookmark(7, initial_end=True)
    server.respond("GET", CLAIMS, server.watch(_event("ADDED", claim), ready, _event("DELETED", claim)))
    async with reflecting(transport, clock, RESOURCE_CLAIMS) as subscriber:
        assert await subscriber.wait_until_seen(2) == [("replace", ["hostile"]), ("DELETED", "hostile")]


@hostile
async def test_hostile_managed_fields_hide_no_pod_and_extenders_get_readable_json(
    server: ScriptedServer, transport: Transport, clock: AutoAdvancingClock, parameters: bytes
) -> None:
    text = msgspec.json.encode(pod("p", 8, containers=[]))
    managed = text.replace(b'"name":"p"', b'"name":"p","managedFields":[{"fieldsV1":%s}]' % parameters)
    unknown = managed.replace(b'"spec":{', b'"spec":{"unknown":%s,' % parameters)
    cache = RawObjectCache.for_extenders([settings("http://x")])
    ready = bookmark(7, initial_end=True)
    server.respond("GET", "/api/v1/pods", server.watch(ready, _event("ADDED", managed), _event("MODIFIED", unknown)))
    async with reflecting(transport, clock, raw_objects=cache) as subscriber:
        assert await subscriber.wait_until_seen(3) == [("replace", []), ("ADDED", "p"), ("MODIFIED", "p")]
    sent = cache.pod("default", "p", "uid-p")
    assert sent is not None
    assert b"managedFields" not in bytes(sent)
    assert msgspec.json.decode(msgspec.json.encode({"pod": sent}), type=dict[str, msgspec.Raw])
    bytes(sent).decode()


@hostile
async def test_lists_for_snapshots_and_names_are_readable(
    server: ScriptedServer, transport: Transport, parameters: bytes
) -> None:
    page = _page(
        *(
            claim.replace(b"{", b'{"apiVersion":"resource.k8s.io/v1","kind":"ResourceClaim",', 1)
            for claim in (_claim("a", 3), _claim("hostile", 4, parameters))
        )
    )
    server.respond("GET", CLAIMS, response(200, page), response(200, page))
    (read,), version = await list_pages(transport, CLAIMS)
    assert version == "9"
    sources = list(parse_objects(read, "claims", Problems(strict=True)))
    assert [source.manifest["metadata"]["name"] for source in sources] == ["a", "hostile"]
    for source in sources:
        msgspec.json.encode(source.manifest)
    assert set(await list_names(transport, RESOURCE_CLAIMS)) == {"uid-a", "uid-hostile"}


async def test_a_watch_that_stays_broken_has_an_age(
    server: ScriptedServer, transport: Transport, clock: AutoAdvancingClock
) -> None:
    broken = [server.watch(b'{"type":\n', end="close")] * 8
    ready = bookmark(7, initial_end=True)
    server.respond("GET", "/api/v1/pods", *broken, server.watch(ready, event("ADDED", pod("a", 8))), *broken)
    async with reflecting(transport, clock) as subscriber:
        assert subscriber.reflector.seconds_broken == 0
        await server.wait_for_requests(8)
        assert subscriber.reflector.seconds_broken > 60
        await subscriber.wait_until_seen(2)
        assert subscriber.reflector.seconds_broken == 0


async def test_an_open_watch_without_events_is_not_broken(
    server: ScriptedServer, transport: Transport, clock: AutoAdvancingClock
) -> None:
    started = server.watch(bookmark(7, initial_end=True), end="cut")
    server.respond("GET", "/api/v1/pods", started, failure(500, "InternalError"), server.watch())
    async with reflecting(transport, clock) as subscriber:
        await server.wait_for_requests(3)
        async with asyncio.timeout(HANG_LIMIT):
            while subscriber.reflector.seconds_broken:  # noqa: ASYNC110  # nothing is received that sets an event
                await asyncio.sleep(0)


@pytest.mark.parametrize("kind", ["surrogate", "deep", "not UTF-8"])
def test_the_second_attempt_at_a_page_costs_a_small_multiple_of_the_first(kind: str) -> None:
    """Of CPU time, per page of 5,000 claims in which one is hostile."""

    def seconds(page: bytes) -> float:
        decoder = ObjectDecoder(RESOURCE_CLAIMS, lambda metadata, problem: None)
        taken = []
        for _ in range(3):
            began = time.process_time()
            assert all(decoder.decode(item) is not None for item in ListPage.parse(page).items or ())
            taken.append(time.process_time() - began)
        return min(taken)

    claims = [_claim(f"c{number}", number) for number in range(4999)]
    ordinary, attacked = (_page(*claims, last) for last in (_claim("x", 1), _claim("x", 1, HOSTILE[kind])))
    assert seconds(attacked) < 10 * seconds(ordinary)
