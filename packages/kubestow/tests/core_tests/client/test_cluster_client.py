"""The client as a whole: the scheduler's port to an API server."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from pathlib import Path
from random import Random

import pytest

from core_tests.client.clocks import ManualClock
from core_tests.client.kubeconfigs import kubeconfig, save
from core_tests.client.scripted_server import ScriptedServer, bound, failure, response
from core_tests.client.subscribers import NODES, PODS, SLICES, RecordingSubscriber, bookmark, event, pod
from kubestow.client.cluster_client import ClusterClient
from kubestow.client.rest.credentials import Credentials, load_credentials
from kubestow.client.rest.transport import UNLIMITED, RateLimit
from kubestow.errors import APIError
from kubestow.scheduling.interfaces import ClusterAPI, EventRecord, ObjectReference, PodStatusPatch

POD = ObjectReference("Pod", "default", "p1", "uid-1")


def client(server: ScriptedServer, clock: ManualClock, rate_limit: RateLimit = UNLIMITED) -> ClusterClient:
    credentials = Credentials(server.url)
    return ClusterClient(credentials, clock=clock, random=Random(1), rate_limit=rate_limit, host="host-1")


async def test_the_client_implements_the_cluster_api(server: ScriptedServer, manual_clock: ManualClock) -> None:
    cluster: ClusterAPI = client(server, manual_clock)
    assert callable(cluster.subscribe)


async def test_all_collections_are_reflected_until_cancellation(
    server: ScriptedServer, manual_clock: ManualClock
) -> None:
    node = {"metadata": {"name": "n1", "resourceVersion": "1"}}
    server.respond("GET", "/api/v1/nodes", server.watch(event("ADDED", node), bookmark(2, initial_end=True)))
    server.respond("GET", "/api/v1/pods", server.watch(event("ADDED", pod("a")), bookmark(2, initial_end=True)))
    subscriber = RecordingSubscriber()
    async with client(server, manual_clock) as cluster:
        subscribing = asyncio.create_task(cluster.subscribe([NODES, PODS], subscriber))
        seen = await subscriber.wait_until_seen(2)
        subscribing.cancel()
        with suppress(asyncio.CancelledError):
            await subscribing
    assert sorted(seen) == [("replace", ["a"]), ("replace", ["n1"])]


async def test_catching_up_replaces_silent_watches_and_ends_backoff(
    server: ScriptedServer, manual_clock: ManualClock
) -> None:
    first = bookmark(2, initial_end=True)
    missed = server.watch(event("ADDED", pod("missed", 3)))
    server.respond("GET", "/api/v1/pods", server.watch(first), missed)
    moved = {"metadata": {"name": "n1", "resourceVersion": "4"}}
    server.respond("GET", "/api/v1/nodes", server.watch(first, end="cut"), server.watch(event("ADDED", moved)))
    for path in ("/apis/resource.k8s.io/v1/resourceslices", "/apis/resource.k8s.io"):
        server.respond("GET", path, *[failure(404, "NotFound")] * 2)
    subscriber = RecordingSubscriber()
    async with client(server, manual_clock) as cluster:
        subscribing = asyncio.create_task(cluster.subscribe([NODES, PODS, SLICES], subscriber))
        await subscriber.wait_until_seen(3)
        sleepers = 2 + 2  # the background tasks, the wait for the slices and the backoff of the nodes
        await manual_clock.wait_for_sleepers(sleepers)
        catching_up = asyncio.create_task(cluster.catch_up())
        await subscriber.wait_until_seen(5)
        await manual_clock.wait_for_sleepers(sleepers + 2)  # the old ones are not removed
        await manual_clock.advance(0.5)
        await catching_up
        subscribing.cancel()
        with suppress(asyncio.CancelledError):
            await subscribing
    assert sorted(subscriber.seen[3:]) == [("ADDED", "missed"), ("ADDED", "n1")]
    starts = [request.query.get("resourceVersion") for request in server.requests if request.path == "/api/v1/pods"]
    assert starts == [None, "2"]


async def test_an_exception_of_the_subscriber_ends_the_subscription(
    server: ScriptedServer, manual_clock: ManualClock
) -> None:
    class Failing(RecordingSubscriber):
        def apply(self, *event: object) -> None:
            raise LookupError("no such node")

    watch = server.watch(bookmark(2, initial_end=True), event("ADDED", pod("a", 3)))
    server.respond("GET", "/api/v1/pods", watch)
    async with client(server, manual_clock) as cluster:
        with pytest.raises(ExceptionGroup) as caught:
            await cluster.subscribe([PODS], Failing())
    assert caught.group_contains(LookupError)


async def test_writes_and_events_reach_the_server(server: ScriptedServer, manual_clock: ManualClock) -> None:
    path = "/api/v1/namespaces/default/pods/p1"
    server.respond("POST", f"{path}/binding", bound())
    server.respond("PATCH", f"{path}/status", response())
    server.respond("DELETE", path, response())
    server.respond("POST", "/apis/events.k8s.io/v1/namespaces/default/events", response(201))
    async with client(server, manual_clock) as cluster:
        await cluster.bind(POD, "n1")
        await cluster.patch_pod_status(POD, PodStatusPatch(nominated_node_name="n1"))
        await cluster.delete_pod(POD)
        cluster.record(EventRecord(POD, reason="Scheduled", action="Binding", note="done"))
    assert [request.method for request in server.requests] == ["POST", "PATCH", "DELETE", "POST"]
    assert server.requests[3].json["reportingInstance"] == "default-scheduler-host-1"


async def test_the_rate_limit_applies_to_writes(server: ScriptedServer, manual_clock: ManualClock) -> None:
    server.respond("POST", "/api/v1/namespaces/default/pods/p1/binding", *[bound()] * 3)
    async with client(server, manual_clock, RateLimit(qps=1, burst=2)) as cluster:
        binding = [asyncio.create_task(cluster.bind(POD, "n1")) for _ in range(3)]
        await asyncio.wait(binding[:2])
        await manual_clock.wait_for_sleepers(3)  # the third binding besides the two background tasks
        assert not binding[2].done()
        await manual_clock.advance(1)
        await binding[2]


async def test_credentials_are_refreshed_every_minute(
    server: ScriptedServer, manual_clock: ManualClock, tmp_path: Path
) -> None:
    (tmp_path / "token").write_text("old")
    credentials = await load_credentials(save(tmp_path, kubeconfig(server.url, tokenFile="token")))
    server.respond("POST", "/api/v1/namespaces/default/pods/p1/binding", bound())
    async with ClusterClient(credentials, clock=manual_clock, random=Random(1)) as cluster:
        await manual_clock.wait_for_sleepers(2)
        (tmp_path / "token").write_text("new")
        await manual_clock.advance(60)
        await cluster.bind(POD, "n1")
    assert server.requests[0].headers["Authorization"] == "Bearer new"


async def test_credentials_stay_in_use_if_a_refresh_fails(
    server: ScriptedServer, manual_clock: ManualClock, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "token").write_text("old")
    credentials = await load_credentials(save(tmp_path, kubeconfig(server.url, tokenFile="token")))
    server.respond("POST", "/api/v1/namespaces/default/pods/p1/binding", bound())
    async with ClusterClient(credentials, clock=manual_clock, random=Random(1)) as cluster:
        await manual_clock.wait_for_sleepers(2)
        (tmp_path / "token").unlink()
        await manual_clock.advance(60)
        await cluster.bind(POD, "n1")
    assert server.requests[0].headers["Authorization"] == "Bearer old"
    assert "cannot refresh the credentials, continuing with the old ones" in caplog.text


async def test_an_api_server_that_is_not_available_yet_is_polled_with_backoff(
    server: ScriptedServer, manual_clock: ManualClock
) -> None:
    server.respond("GET", "/version", *[failure(503, "ServiceUnavailable")] * 2, response())
    async with client(server, manual_clock) as cluster:
        waiting = asyncio.create_task(cluster.wait_for_api_server())
        for delay in (0.75, 1.5):
            await manual_clock.wait_for_sleepers(3)  # besides the two background tasks
            assert not waiting.done()
            await manual_clock.advance(delay)
        await waiting


async def test_a_rejection_by_the_api_server_raises_at_once(server: ScriptedServer, manual_clock: ManualClock) -> None:
    server.respond("GET", "/version", failure(401, "Unauthorized"))
    async with client(server, manual_clock) as cluster:
        with pytest.raises(APIError, match="no"):
            await cluster.wait_for_api_server()


async def test_a_server_that_is_no_api_server_is_named_with_what_was_asked(
    server: ScriptedServer, manual_clock: ManualClock
) -> None:
    server.respond("GET", "/version", response(404, b"404 page not found"))
    async with client(server, manual_clock) as cluster:
        with pytest.raises(APIError) as raised:
            await cluster.wait_for_api_server()
    assert str(raised.value) == f"GET {server.url}/version: 404 Not Found: 404 page not found"


async def test_too_many_requests_at_startup_is_retried(server: ScriptedServer, manual_clock: ManualClock) -> None:
    server.respond("GET", "/version", failure(429, "TooManyRequests"), response())
    async with client(server, manual_clock) as cluster:
        waiting = asyncio.create_task(cluster.wait_for_api_server())
        await manual_clock.wait_for_sleepers(3)  # besides the two background tasks
        await manual_clock.advance(0.75)
        await waiting


async def test_any_other_request_has_plain_data(server: ScriptedServer, manual_clock: ManualClock) -> None:
    path = "/api/v1/namespaces/default/configmaps/prices"
    server.respond("GET", path, response(body={"data": {"zone-a": "1"}}))
    server.respond("PATCH", path, response(body={"data": {"zone-a": "2"}}))
    server.respond("DELETE", path, failure(403, "Forbidden"))
    async with client(server, manual_clock) as cluster:
        assert await cluster.request("GET", path) == {"data": {"zone-a": "1"}}
        assert await cluster.request("PATCH", path, {"data": {"zone-a": "2"}}) == {"data": {"zone-a": "2"}}
        with pytest.raises(APIError):
            await cluster.request("DELETE", path)
    sent = [(request.method, request.headers.get("Content-Type")) for request in server.requests]
    assert sent[1] == ("PATCH", "application/merge-patch+json")
