"""Leader election: acquiring, renewing, losing and releasing a lease, with client-go's timing."""

from __future__ import annotations

import asyncio
import json
from datetime import datetime
from typing import Any

import pytest

from core_tests.client.clocks import START, AutoAdvancingClock
from core_tests.client.scripted_server import Responder, ScriptedServer, disconnect, failure, response
from core_tests.recordings import exchanges
from kubestow.client.leader_election import STALLS_ANNOTATION, LeaderElector, LeaseLock, LeaseTimings
from kubestow.client.rest.credentials import Credentials
from kubestow.client.rest.transport import JSON, Transport
from kubestow.errors import InputError, LeaseLost
from kubestow.scheduling.interfaces import EventRecord
from kubestow.testing.virtual_time import VirtualClock, run

COLLECTION = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases"
LEASE = f"{COLLECTION}/kube-scheduler"


def lease(holder: str, version: int = 1, **spec: Any) -> dict[str, Any]:
    """A Lease as the API server returns it."""
    metadata = {"name": "kube-scheduler", "namespace": "kube-system", "resourceVersion": str(version), "labels": {}}
    spec = {"holderIdentity": holder, "leaseDurationSeconds": 15, "leaseTransitions": 3} | spec
    return {"kind": "Lease", "apiVersion": "coordination.k8s.io/v1", "metadata": metadata, "spec": spec}


def echo(version: int = 2) -> Responder:
    """A write is returned with a new resourceVersion."""

    async def respond(request: Any) -> Any:
        written = json.loads(await request.text())
        written["metadata"]["resourceVersion"] = str(version)
        return await response(200, written)(request)

    return respond


@pytest.fixture
def leaders() -> list[str]:
    return []


@pytest.fixture
def elector(transport: Transport, clock: AutoAdvancingClock, leaders: list[str]) -> LeaderElector:
    return LeaderElector(LeaseLock(transport, identity="me"), clock=clock, on_new_leader=leaders.append)


async def test_a_missing_lease_is_created(server: ScriptedServer, elector: LeaderElector, leaders: list[str]) -> None:
    server.respond("GET", LEASE, failure(404, "NotFound"))
    server.respond("POST", COLLECTION, echo(1))
    await elector.acquire()
    assert server.requests[1].json["spec"] == {
        "holderIdentity": "me",
        "leaseDurationSeconds": 15,
        "acquireTime": "2026-01-01T00:16:40.000000Z",
        "renewTime": "2026-01-01T00:16:40.000000Z",
        "leaseTransitions": 0,
    }
    assert elector.is_leader
    assert leaders == ["me"]


async def test_a_released_lease_is_acquired(server: ScriptedServer, elector: LeaderElector) -> None:
    server.respond("GET", LEASE, response(200, lease("", version=9, strategy="OldestEmulationVersion")))
    server.respond("PUT", LEASE, echo())
    await elector.acquire()
    written = server.requests[1].json
    assert written["metadata"]["resourceVersion"] == "9"
    assert written["spec"]["leaseTransitions"] == 4
    assert written["spec"]["strategy"] == "OldestEmulationVersion"  # unknown fields are kept


async def test_the_lease_of_another_holder_expires_when_it_has_not_changed_for_its_duration(
    server: ScriptedServer, elector: LeaderElector, clock: AutoAdvancingClock, leaders: list[str]
) -> None:
    server.respond("GET", LEASE, *[response(200, lease("other"))] * 20)
    server.respond("PUT", LEASE, echo())
    await elector.acquire()
    assert clock.seconds - 1000 == 15
    assert clock.slept == [2.0] * 7 + [1.0]
    assert leaders == ["other", "me"]


async def test_a_lease_that_its_holder_renews_is_never_acquired(
    server: ScriptedServer, elector: LeaderElector, clock: AutoAdvancingClock
) -> None:
    renewals = [response(200, lease("other", n, renewTime=f"2026-01-01T00:00:{n:02}.0Z")) for n in range(30)]
    server.respond("GET", LEASE, *renewals)
    acquiring = asyncio.create_task(elector.acquire())
    await server.wait_for_requests(31)
    acquiring.cancel()
    assert clock.seconds - 1000 >= 60
    assert {request.method for request in server.requests} == {"GET"}


async def test_a_candidate_that_gets_a_conflict_keeps_trying(server: ScriptedServer, elector: LeaderElector) -> None:
    server.respond("GET", LEASE, response(200, lease("")), response(200, lease("", 2)))
    server.respond("PUT", LEASE, failure(409, "Conflict"), echo(3))
    await elector.acquire()
    assert [request.method for request in server.requests] == ["GET", "PUT", "GET", "PUT"]


async def leading(server: ScriptedServer, elector: LeaderElector) -> None:
    server.respond("GET", LEASE, response(200, lease("")))
    server.respond("PUT", LEASE, echo(2))
    await elector.acquire()
    server.requests.clear()


async def test_the_leader_renews_every_retry_period_without_reading_first(
    server: ScriptedServer, elector: LeaderElector, clock: AutoAdvancingClock
) -> None:
    await leading(server, elector)
    server.respond("PUT", LEASE, echo(3), echo(4), echo(5))
    holding = asyncio.create_task(elector.hold())
    await server.wait_for_requests(4)
    holding.cancel()
    assert [request.method for request in server.requests[:3]] == ["PUT"] * 3
    assert server.requests[1].json["metadata"]["resourceVersion"] == "3"
    assert server.requests[1].json["spec"]["acquireTime"] == "2026-01-01T00:16:40.000000Z"
    assert server.requests[1].json["spec"]["renewTime"] == "2026-01-01T00:16:42.000000Z"
    assert clock.slept == [2.0, 2.0, 2.0]


async def test_a_renewal_that_gets_a_conflict_is_retried_after_reading(
    server: ScriptedServer, elector: LeaderElector
) -> None:
    await leading(server, elector)
    server.respond("PUT", LEASE, failure(409, "Conflict"), echo(4))
    server.respond("GET", LEASE, response(200, lease("me", 3)))
    holding = asyncio.create_task(elector.hold())
    await server.wait_for_requests(4)
    holding.cancel()
    assert [request.method for request in server.requests] == ["PUT", "GET", "PUT", "PUT"]
    assert server.requests[2].json["spec"]["leaseTransitions"] == 3


class SlowTransport(Transport):
    """The first request takes ten minutes, as with a long Retry-After."""

    delay = 600.0

    async def request(
        self, method: str, path: str, body: bytes | None = None, *, content_type: str = JSON, retries: int = 0
    ) -> bytes:
        self.delay, seconds = 0.0, self.delay
        await asyncio.sleep(seconds)
        return json.dumps(lease("")).encode() if body is None else body


def test_a_candidate_abandons_a_request_after_the_renew_deadline() -> None:
    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        transport = SlowTransport(Credentials("http://server"), clock=VirtualClock(loop))
        await LeaderElector(LeaseLock(transport, identity="me"), clock=VirtualClock(loop)).acquire()
        assert loop.time() == 12.0

    run(scenario())


async def test_a_lease_that_is_not_renewed_within_the_renew_deadline_is_lost(
    server: ScriptedServer, elector: LeaderElector, clock: AutoAdvancingClock
) -> None:
    await leading(server, elector)
    started = clock.seconds
    server.respond("PUT", LEASE, *[disconnect] * 20)
    with pytest.raises(LeaseLost, match="kube-system/kube-scheduler could not be renewed within 10 s"):
        await elector.hold()
    assert clock.seconds - started == 10


async def test_a_lease_acquired_by_another_candidate_is_lost(server: ScriptedServer, elector: LeaderElector) -> None:
    await leading(server, elector)
    server.respond("PUT", LEASE, *[failure(409, "Conflict")] * 9)
    server.respond("GET", LEASE, *[response(200, lease("other", 7))] * 9)
    with pytest.raises(LeaseLost, match="is now held by other"):
        await elector.hold()


async def test_a_lease_without_renewal_is_overdue(
    server: ScriptedServer, elector: LeaderElector, clock: AutoAdvancingClock
) -> None:
    assert elector.overdue == 0
    await leading(server, elector)
    assert elector.overdue == -15
    clock.seconds += 20
    assert elector.overdue == 5


async def test_a_renewal_whose_response_was_lost_counts_from_its_request(
    server: ScriptedServer, elector: LeaderElector, clock: AutoAdvancingClock
) -> None:
    """Others may have observed it at once; the lease that is read later has expired for them."""
    await leading(server, elector)
    clock.seconds += 2
    written: list[dict[str, Any]] = []

    async def lose_response(request: Any) -> Any:
        written.append(json.loads(await request.text()))
        return await disconnect(request)

    async def read_back(request: Any) -> Any:
        clock.seconds += 5
        return await response(200, written[0] | {"metadata": lease("me", 3)["metadata"]})(request)

    server.respond("PUT", LEASE, lose_response, failure(409, "Conflict"), failure(500, "InternalError"))
    server.respond("GET", LEASE, read_back)
    holding = asyncio.create_task(elector.hold())
    await server.wait_for_requests(5)
    holding.cancel()
    await asyncio.wait([holding])
    assert [request.method for request in server.requests[:4]] == ["PUT", "PUT", "GET", "PUT"]
    requested = clock_seconds(written[0]["spec"]["renewTime"])
    assert elector.overdue == clock.seconds - requested - 15


def clock_seconds(renew_time: str) -> float:
    """A time of the clock of these tests, in seconds of its monotonic clock."""
    return (datetime.fromisoformat(renew_time) - START).total_seconds()


async def test_a_pod_that_costs_the_lease_is_known_to_the_next_leader(
    server: ScriptedServer, elector: LeaderElector, transport: Transport, clock: AutoAdvancingClock
) -> None:
    await leading(server, elector)
    server.respond("GET", LEASE, response(200, lease("me", 2)))
    server.respond("PUT", LEASE, echo(3))
    await elector.note_stall("tenant/a", 600.0)
    clock.seconds += 5
    noted = server.requests[-1].json
    server.respond("GET", LEASE, *[response(200, noted)] * 2)
    server.respond("PUT", LEASE, failure(409, "Conflict"), echo(4))  # a renewal that was on its way
    await elector.note_stall("tenant/b", 10.0)
    written = server.requests[-1].json
    assert written["metadata"]["annotations"] == {
        STALLS_ANNOTATION: '{"tenant/a":"2026-01-01T00:26:40Z","tenant/b":"2026-01-01T00:16:57Z"}'
    }
    server.respond("GET", LEASE, *[response(200, written)] * 20)
    server.respond("PUT", LEASE, echo(5))
    successor = LeaderElector(LeaseLock(transport, identity="other"), clock=clock)
    clock.seconds += 5000  # the clocks of the replicas differ
    assert await successor.acquire() == {"tenant/a": 593.0, "tenant/b": 10.0}
    stalls = json.loads(server.requests[-1].json["metadata"]["annotations"][STALLS_ANNOTATION])
    assert {pod: clock_seconds(until) - clock.seconds for pod, until in stalls.items()} == {
        "tenant/a": 593.0,
        "tenant/b": 10.0,
    }


@pytest.mark.parametrize("value", ["{", '{"tenant/a": "2026-01-01T00:00:00"}', "[]", '{"tenant/a": 5}'])
async def test_malformed_notes_on_a_lease_are_ignored(
    server: ScriptedServer, elector: LeaderElector, value: str
) -> None:
    released = lease("", renewTime="yesterday")
    released["metadata"]["annotations"] = {STALLS_ANNOTATION: value}
    server.respond("GET", LEASE, response(200, released))
    server.respond("PUT", LEASE, echo(2))
    assert await elector.acquire() == {}


async def test_a_pause_in_a_lease_is_bounded(server: ScriptedServer, elector: LeaderElector) -> None:
    released = lease("", renewTime="yesterday")
    released["metadata"]["annotations"] = {STALLS_ANNOTATION: '{"tenant/a":"2063-04-05T00:00:00Z"}'}
    server.respond("GET", LEASE, response(200, released))
    server.respond("PUT", LEASE, echo(2))
    assert await elector.acquire() == {"tenant/a": 600.0}


async def test_a_released_lease_has_no_holder(server: ScriptedServer, elector: LeaderElector) -> None:
    await leading(server, elector)
    server.respond("GET", LEASE, response(200, lease("me", 2)))
    server.respond("PUT", LEASE, echo(3))
    await elector.release()
    spec = server.requests[1].json["spec"]
    assert (spec["holderIdentity"], spec["leaseDurationSeconds"], spec["leaseTransitions"]) == ("", 1, 3)
    assert not elector.is_leader


async def test_the_lease_of_another_holder_is_not_released(server: ScriptedServer, elector: LeaderElector) -> None:
    await leading(server, elector)
    server.respond("GET", LEASE, response(200, lease("other", 8)))
    await elector.release()
    assert [request.method for request in server.requests] == ["GET"]


async def test_a_failed_release_is_only_logged(
    server: ScriptedServer, elector: LeaderElector, caplog: pytest.LogCaptureFixture
) -> None:
    await leading(server, elector)
    server.respond("GET", LEASE, failure(500, "InternalError", "etcd is down"))
    await elector.release()
    assert "failed to release lease kube-system/kube-scheduler: etcd is down" in caplog.text


async def test_a_malformed_lease_is_retried(server: ScriptedServer, elector: LeaderElector) -> None:
    server.respond("GET", LEASE, response(200, b"<html>"), response(200, lease("")))
    server.respond("PUT", LEASE, echo())
    await elector.acquire()
    assert elector.is_leader


async def test_expiry_follows_the_duration_written_in_the_lease(
    server: ScriptedServer, elector: LeaderElector, clock: AutoAdvancingClock
) -> None:
    server.respond("GET", LEASE, *[response(200, lease("other", leaseDurationSeconds=60))] * 60)
    server.respond("PUT", LEASE, echo())
    await elector.acquire()
    assert clock.seconds - 1000 == 60


async def test_a_renew_time_in_the_future_does_not_delay_expiry(
    server: ScriptedServer, elector: LeaderElector, clock: AutoAdvancingClock
) -> None:
    server.respond("GET", LEASE, *[response(200, lease("other", renewTime="2063-04-05T00:00:00.0Z"))] * 20)
    server.respond("PUT", LEASE, echo())
    await elector.acquire()
    assert clock.seconds - 1000 == 15


async def test_a_leader_that_was_suspended_continues_if_the_lease_is_still_its_own(
    server: ScriptedServer, elector: LeaderElector, clock: AutoAdvancingClock
) -> None:
    await leading(server, elector)
    clock.seconds += 100
    server.respond("GET", LEASE, response(200, lease("me", 2)))
    server.respond("PUT", LEASE, echo(3), echo(4))
    holding = asyncio.create_task(elector.hold())
    await server.wait_for_requests(3)
    holding.cancel()
    assert [request.method for request in server.requests] == ["GET", "PUT", "PUT"]


async def test_events_record_the_start_and_the_end_of_leadership(
    transport: Transport, server: ScriptedServer, clock: AutoAdvancingClock
) -> None:
    events: list[EventRecord] = []
    elector = LeaderElector(LeaseLock(transport, identity="me", record=events.append), clock=clock)
    await leading(server, elector)
    server.respond("PUT", LEASE, *[disconnect] * 20)
    with pytest.raises(LeaseLost):
        await elector.hold()
    assert [event.note for event in events] == ["me became leader", "me stopped leading"]
    assert {(event.reason, event.regarding.kind) for event in events} == {("LeaderElection", "Lease")}


def test_a_renew_deadline_without_time_for_a_second_try_is_rejected() -> None:
    with pytest.raises(InputError, match=r"renewDeadline: 2 s must be greater than 1.2 times retryPeriod"):
        LeaseTimings(renew_deadline=2.0, retry_period=2.0)


async def test_lease_writes_equal_those_of_kube_scheduler(server: ScriptedServer, elector: LeaderElector) -> None:
    create, renew = [exchanges("scheduler-startup", method, "/leases")[0]["reqBody"] for method in ("POST", "PUT")]
    (release,) = exchanges("scheduler-stop", "PUT", "/leases")
    server.respond("GET", LEASE, failure(404, "NotFound"))
    server.respond("POST", COLLECTION, echo(1))
    await elector.acquire()
    assert server.requests[-1].json.keys() == create.keys()
    assert server.requests[-1].json["spec"].keys() == create["spec"].keys()
    server.respond("GET", LEASE, response(200, renew | {"spec": server.requests[-1].json["spec"]}))
    server.respond("PUT", LEASE, echo())
    await elector.release()
    times = {"acquireTime", "renewTime"}
    written = server.requests[-1].json["spec"]
    assert {key: written[key] for key in written.keys() - times} == {
        key: value for key, value in release["reqBody"]["spec"].items() if key not in times
    }
