"""The parts put together: a cluster behind an API server as the scheduler meets it."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from pathlib import Path
from random import Random

import pytest

from kubestow.client.cluster_client import ClusterClient
from kubestow.client.rest.credentials import Credentials, load_credentials
from kubestow.errors import APIError
from kubestow.scheduling.ports import ClusterAPI, EventRecord, ObjectReference, PodStatusPatch
from tests.client.clocks import HeldClock
from tests.client.kubeconfigs import kubeconfig, save
from tests.client.scripted_server import ScriptedServer, answer, failure
from tests.client.subscribers import NODES, PODS, RecordingSubscriber, bookmark, event, pod

POD = ObjectReference("Pod", "default", "p1", "uid-1")


def remote(server: ScriptedServer, clock: HeldClock, *, qps: float = 0.0, burst: int = 0) -> ClusterClient:
    credentials = Credentials(server.url)
    return ClusterClient(credentials, clock=clock, random=Random(1), qps=qps, burst=burst, host="host-1")


async def test_it_is_the_port_that_the_scheduler_expects(server: ScriptedServer, held_clock: HeldClock) -> None:
    cluster: ClusterAPI = remote(server, held_clock)
    assert callable(cluster.subscribe)


async def test_every_collection_is_reflected_until_cancelled(server: ScriptedServer, held_clock: HeldClock) -> None:
    node = {"metadata": {"name": "n1", "resourceVersion": "1"}}
    server.answers("GET", "/api/v1/nodes", server.watch(event("ADDED", node), bookmark(2, initial_end=True)))
    server.answers("GET", "/api/v1/pods", server.watch(event("ADDED", pod("a")), bookmark(2, initial_end=True)))
    subscriber = RecordingSubscriber()
    async with remote(server, held_clock) as cluster:
        subscribing = asyncio.create_task(cluster.subscribe([NODES, PODS], subscriber))
        seen = await subscriber.until_seen(2)
        subscribing.cancel()
        with suppress(asyncio.CancelledError):
            await subscribing
    assert sorted(seen) == [("replace", ["a"]), ("replace", ["n1"])]


async def test_a_subscriber_that_fails_ends_the_subscription(server: ScriptedServer, held_clock: HeldClock) -> None:
    class Failing(RecordingSubscriber):
        def apply(self, *event: object) -> None:
            raise LookupError("no such node")

    watch = server.watch(bookmark(2, initial_end=True), event("ADDED", pod("a", 3)))
    server.answers("GET", "/api/v1/pods", watch)
    async with remote(server, held_clock) as cluster:
        with pytest.raises(ExceptionGroup) as caught:
            await cluster.subscribe([PODS], Failing())
    assert caught.group_contains(LookupError)


async def test_writes_and_events_reach_the_server(server: ScriptedServer, held_clock: HeldClock) -> None:
    path = "/api/v1/namespaces/default/pods/p1"
    server.answers("POST", f"{path}/binding", answer(201))
    server.answers("PATCH", f"{path}/status", answer())
    server.answers("DELETE", path, answer())
    server.answers("POST", "/apis/events.k8s.io/v1/namespaces/default/events", answer(201))
    async with remote(server, held_clock) as cluster:
        await cluster.bind(POD, "n1")
        await cluster.patch_pod_status(POD, PodStatusPatch(nominated_node_name="n1"))
        await cluster.delete_pod(POD)
        cluster.record(EventRecord(POD, reason="Scheduled", action="Binding", note="done"))
    assert [asked.method for asked in server.asked] == ["POST", "PATCH", "DELETE", "POST"]
    assert server.asked[3].json["reportingInstance"] == "default-scheduler-host-1"


async def test_the_rate_limit_spaces_writes(server: ScriptedServer, held_clock: HeldClock) -> None:
    server.answers("POST", "/api/v1/namespaces/default/pods/p1/binding", *[answer(201)] * 3)
    async with remote(server, held_clock, qps=1, burst=2) as cluster:
        binding = [asyncio.create_task(cluster.bind(POD, "n1")) for _ in range(3)]
        await asyncio.wait(binding[:2])
        await held_clock.until_sleeping(3)  # the third binding beside the two housekeepers
        assert not binding[2].done()
        await held_clock.advance(1)
        await binding[2]


async def test_credentials_are_refreshed_every_minute(
    server: ScriptedServer, held_clock: HeldClock, tmp_path: Path
) -> None:
    (tmp_path / "token").write_text("old")
    found = await load_credentials(save(tmp_path, kubeconfig(server.url, tokenFile="token")))
    server.answers("POST", "/api/v1/namespaces/default/pods/p1/binding", answer(201))
    async with ClusterClient(found, clock=held_clock, random=Random(1)) as cluster:
        await held_clock.until_sleeping(2)
        (tmp_path / "token").write_text("new")
        await held_clock.advance(60)
        await cluster.bind(POD, "n1")
    assert server.asked[0].headers["Authorization"] == "Bearer new"


async def test_credentials_that_cannot_be_refreshed_stay_in_use(
    server: ScriptedServer, held_clock: HeldClock, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "token").write_text("old")
    found = await load_credentials(save(tmp_path, kubeconfig(server.url, tokenFile="token")))
    server.answers("POST", "/api/v1/namespaces/default/pods/p1/binding", answer(201))
    async with ClusterClient(found, clock=held_clock, random=Random(1)) as cluster:
        await held_clock.until_sleeping(2)
        (tmp_path / "token").unlink()
        await held_clock.advance(60)
        await cluster.bind(POD, "n1")
    assert server.asked[0].headers["Authorization"] == "Bearer old"
    assert "cannot refresh the credentials, going on with the old ones" in caplog.text


async def test_a_server_that_is_not_up_yet_is_waited_for(server: ScriptedServer, held_clock: HeldClock) -> None:
    server.answers("GET", "/version", *[failure(503, "ServiceUnavailable")] * 2, answer())
    async with remote(server, held_clock) as cluster:
        waiting = asyncio.create_task(cluster.wait_for_api_server())
        for longest in (0.75, 1.5):
            await held_clock.until_sleeping(3)  # beside the two housekeepers
            assert not waiting.done()
            await held_clock.advance(longest)
        await waiting


async def test_a_server_that_turns_us_away_is_not_asked_again(server: ScriptedServer, held_clock: HeldClock) -> None:
    server.answers("GET", "/version", failure(401, "Unauthorized"))
    async with remote(server, held_clock) as cluster:
        with pytest.raises(APIError, match="no"):
            await cluster.wait_for_api_server()


async def test_a_server_that_asks_for_patience_from_the_start_is_waited_for(
    server: ScriptedServer, held_clock: HeldClock
) -> None:
    server.answers("GET", "/version", failure(429, "TooManyRequests"), answer())
    async with remote(server, held_clock) as cluster:
        waiting = asyncio.create_task(cluster.wait_for_api_server())
        await held_clock.until_sleeping(3)  # beside the two housekeepers
        await held_clock.advance(0.75)
        await waiting
