"""Leader election: taking, keeping, losing and releasing a lease, by client-go's timing."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from kubestow.client.leader_election import LeaderElector, LeaseLost, LeaseTimings
from kubestow.client.rest.credentials import Credentials
from kubestow.client.rest.transport import JSON, Transport
from kubestow.errors import InputError
from kubestow.scheduling.ports import EventRecord
from kubestow.testing.virtual_time import VirtualClock, run
from tests.client.clocks import LeapingClock
from tests.client.scripted_server import Answer, ScriptedServer, answer, disconnect, failure
from tests.client.wire import exchanges, needs_wire

COLLECTION = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases"
LEASE = f"{COLLECTION}/kube-scheduler"


def lease(holder: str, version: int = 1, **spec: Any) -> dict[str, Any]:
    """A Lease as the API server sends it."""
    metadata = {"name": "kube-scheduler", "namespace": "kube-system", "resourceVersion": str(version), "labels": {}}
    spec = {"holderIdentity": holder, "leaseDurationSeconds": 15, "leaseTransitions": 3} | spec
    return {"kind": "Lease", "apiVersion": "coordination.k8s.io/v1", "metadata": metadata, "spec": spec}


def echo(version: int = 2) -> Answer:
    """What was sent, with a new version, as the API server answers a write."""

    async def respond(request: Any) -> Any:
        written = json.loads(await request.text())
        written["metadata"]["resourceVersion"] = str(version)
        return await answer(200, written)(request)

    return respond


@pytest.fixture
def leaders() -> list[str]:
    return []


@pytest.fixture
def election(transport: Transport, clock: LeapingClock, leaders: list[str]) -> LeaderElector:
    return LeaderElector(transport, identity="me", clock=clock, on_new_leader=leaders.append)


async def test_a_lease_that_does_not_exist_is_created(
    server: ScriptedServer, election: LeaderElector, leaders: list[str]
) -> None:
    server.answers("GET", LEASE, failure(404, "NotFound"))
    server.answers("POST", COLLECTION, echo(1))
    await election.acquire()
    assert server.asked[1].json["spec"] == {
        "holderIdentity": "me",
        "leaseDurationSeconds": 15,
        "acquireTime": "2026-01-01T00:16:40.000000Z",
        "renewTime": "2026-01-01T00:16:40.000000Z",
        "leaseTransitions": 0,
    }
    assert election.is_leader
    assert leaders == ["me"]


async def test_a_lease_that_was_released_is_taken_over(server: ScriptedServer, election: LeaderElector) -> None:
    server.answers("GET", LEASE, answer(200, lease("", version=9, strategy="OldestEmulationVersion")))
    server.answers("PUT", LEASE, echo())
    await election.acquire()
    written = server.asked[1].json
    assert written["metadata"]["resourceVersion"] == "9"
    assert written["spec"]["leaseTransitions"] == 4
    assert written["spec"]["strategy"] == "OldestEmulationVersion"  # fields that mean nothing to us are kept


async def test_somebody_elses_lease_is_waited_for_until_it_has_not_changed_for_its_duration(
    server: ScriptedServer, election: LeaderElector, clock: LeapingClock, leaders: list[str]
) -> None:
    server.answers("GET", LEASE, *[answer(200, lease("other"))] * 20)
    server.answers("PUT", LEASE, echo())
    await election.acquire()
    assert clock.seconds - 1000 == 15
    assert clock.slept == [2.0] * 7 + [1.0]
    assert leaders == ["other", "me"]


async def test_a_lease_that_is_renewed_is_never_taken(
    server: ScriptedServer, election: LeaderElector, clock: LeapingClock
) -> None:
    renewals = [answer(200, lease("other", n, renewTime=f"2026-01-01T00:00:{n:02}.0Z")) for n in range(30)]
    server.answers("GET", LEASE, *renewals)
    acquiring = asyncio.create_task(election.acquire())
    await server.until_asked(31)
    acquiring.cancel()
    assert clock.seconds - 1000 >= 60
    assert {asked.method for asked in server.asked} == {"GET"}


async def test_of_two_who_try_at_once_the_refused_one_goes_on_waiting(
    server: ScriptedServer, election: LeaderElector
) -> None:
    server.answers("GET", LEASE, answer(200, lease("")), answer(200, lease("", 2)))
    server.answers("PUT", LEASE, failure(409, "Conflict"), echo(3))
    await election.acquire()
    assert [asked.method for asked in server.asked] == ["GET", "PUT", "GET", "PUT"]


async def leading(server: ScriptedServer, election: LeaderElector) -> None:
    server.answers("GET", LEASE, answer(200, lease("")))
    server.answers("PUT", LEASE, echo(2))
    await election.acquire()
    server.asked.clear()


async def test_the_leader_renews_every_two_seconds_without_reading_first(
    server: ScriptedServer, election: LeaderElector, clock: LeapingClock
) -> None:
    await leading(server, election)
    server.answers("PUT", LEASE, echo(3), echo(4), echo(5))
    holding = asyncio.create_task(election.hold())
    await server.until_asked(4)
    holding.cancel()
    assert [asked.method for asked in server.asked[:3]] == ["PUT"] * 3
    assert server.asked[1].json["metadata"]["resourceVersion"] == "3"
    assert server.asked[1].json["spec"]["acquireTime"] == "2026-01-01T00:16:40.000000Z"
    assert server.asked[1].json["spec"]["renewTime"] == "2026-01-01T00:16:42.000000Z"
    assert clock.slept == [2.0, 2.0, 2.0]


async def test_a_renewal_refused_is_tried_again_after_reading(server: ScriptedServer, election: LeaderElector) -> None:
    await leading(server, election)
    server.answers("PUT", LEASE, failure(409, "Conflict"), echo(4))
    server.answers("GET", LEASE, answer(200, lease("me", 3)))
    holding = asyncio.create_task(election.hold())
    await server.until_asked(4)
    holding.cancel()
    assert [asked.method for asked in server.asked] == ["PUT", "GET", "PUT", "PUT"]
    assert server.asked[2].json["spec"]["leaseTransitions"] == 3


class Patient(Transport):
    """Waits for ten minutes before it asks for the first time."""

    waits = 600.0

    async def request(self, method: str, path: str, body: bytes | None = None, *, content_type: str = JSON) -> bytes:
        self.waits, seconds = 0.0, self.waits
        await asyncio.sleep(seconds)
        return json.dumps(lease("")).encode() if body is None else body


def test_a_candidate_is_not_held_up_by_a_server_that_asks_for_patience() -> None:
    async def story() -> None:
        loop = asyncio.get_running_loop()
        transport = Patient(Credentials("http://server"), clock=VirtualClock(loop))
        await LeaderElector(transport, identity="me", clock=VirtualClock(loop)).acquire()
        assert loop.time() == 12.0

    run(story())


async def test_a_lease_that_cannot_be_renewed_for_ten_seconds_is_lost(
    server: ScriptedServer, election: LeaderElector, clock: LeapingClock
) -> None:
    await leading(server, election)
    began = clock.seconds
    server.answers("PUT", LEASE, *[disconnect] * 20)
    with pytest.raises(LeaseLost, match="kube-system/kube-scheduler could not be renewed within 10 s"):
        await election.hold()
    assert clock.seconds - began == 10


async def test_a_lease_that_somebody_else_took_is_lost(server: ScriptedServer, election: LeaderElector) -> None:
    await leading(server, election)
    server.answers("PUT", LEASE, *[failure(409, "Conflict")] * 9)
    server.answers("GET", LEASE, *[answer(200, lease("other", 7))] * 9)
    with pytest.raises(LeaseLost, match="is now held by other"):
        await election.hold()


async def test_a_leader_that_does_not_renew_is_overdue(
    server: ScriptedServer, election: LeaderElector, clock: LeapingClock
) -> None:
    assert election.overdue == 0
    await leading(server, election)
    assert election.overdue == -15
    clock.seconds += 20
    assert election.overdue == 5


async def test_a_released_lease_names_nobody(server: ScriptedServer, election: LeaderElector) -> None:
    await leading(server, election)
    server.answers("GET", LEASE, answer(200, lease("me", 2)))
    server.answers("PUT", LEASE, echo(3))
    await election.release()
    spec = server.asked[1].json["spec"]
    assert (spec["holderIdentity"], spec["leaseDurationSeconds"], spec["leaseTransitions"]) == ("", 1, 3)
    assert not election.is_leader


async def test_a_lease_that_others_hold_is_not_released(server: ScriptedServer, election: LeaderElector) -> None:
    await leading(server, election)
    server.answers("GET", LEASE, answer(200, lease("other", 8)))
    await election.release()
    assert [asked.method for asked in server.asked] == ["GET"]


async def test_a_release_that_fails_is_no_error(
    server: ScriptedServer, election: LeaderElector, caplog: pytest.LogCaptureFixture
) -> None:
    await leading(server, election)
    server.answers("GET", LEASE, failure(500, "InternalError", "etcd is down"))
    await election.release()
    assert "cannot release the lease kube-system/kube-scheduler: etcd is down" in caplog.text


async def test_an_answer_that_is_no_lease_is_an_outage(server: ScriptedServer, election: LeaderElector) -> None:
    server.answers("GET", LEASE, answer(200, b"<html>"), answer(200, lease("")))
    server.answers("PUT", LEASE, echo())
    await election.acquire()
    assert election.is_leader


async def test_a_lease_is_waited_for_as_long_as_it_says_itself(
    server: ScriptedServer, election: LeaderElector, clock: LeapingClock
) -> None:
    server.answers("GET", LEASE, *[answer(200, lease("other", leaseDurationSeconds=60))] * 60)
    server.answers("PUT", LEASE, echo())
    await election.acquire()
    assert clock.seconds - 1000 == 60


async def test_a_lease_from_a_clock_in_the_future_is_taken_as_soon_as_any_other(
    server: ScriptedServer, election: LeaderElector, clock: LeapingClock
) -> None:
    server.answers("GET", LEASE, *[answer(200, lease("other", renewTime="2063-04-05T00:00:00.0Z"))] * 20)
    server.answers("PUT", LEASE, echo())
    await election.acquire()
    assert clock.seconds - 1000 == 15


async def test_a_leader_whose_process_was_halted_goes_on_if_nobody_took_the_lease(
    server: ScriptedServer, election: LeaderElector, clock: LeapingClock
) -> None:
    await leading(server, election)
    clock.seconds += 100
    server.answers("GET", LEASE, answer(200, lease("me", 2)))
    server.answers("PUT", LEASE, echo(3), echo(4))
    holding = asyncio.create_task(election.hold())
    await server.until_asked(3)
    holding.cancel()
    assert [asked.method for asked in server.asked] == ["GET", "PUT", "PUT"]


async def test_beginning_and_end_of_a_lead_are_recorded(
    transport: Transport, server: ScriptedServer, clock: LeapingClock
) -> None:
    events: list[EventRecord] = []
    election = LeaderElector(transport, identity="me", clock=clock, record=events.append)
    await leading(server, election)
    server.answers("PUT", LEASE, *[disconnect] * 20)
    with pytest.raises(LeaseLost):
        await election.hold()
    assert [event.note for event in events] == ["me became leader", "me stopped leading"]
    assert {(event.reason, event.regarding.kind) for event in events} == {("LeaderElection", "Lease")}


def test_a_renew_deadline_too_short_for_a_second_try_is_refused() -> None:
    with pytest.raises(InputError, match=r"renewDeadline: 2 s must be greater than 1.2 times retryPeriod"):
        LeaseTimings(renew_deadline=2.0, retry_period=2.0)


@needs_wire
async def test_lease_writes_are_kube_schedulers(server: ScriptedServer, election: LeaderElector) -> None:
    create, renew = [exchanges("scheduler-startup", method, "/leases")[0]["reqBody"] for method in ("POST", "PUT")]
    (release,) = exchanges("scheduler-stop", "PUT", "/leases")
    server.answers("GET", LEASE, failure(404, "NotFound"))
    server.answers("POST", COLLECTION, echo(1))
    await election.acquire()
    assert server.asked[-1].json.keys() == create.keys()
    assert server.asked[-1].json["spec"].keys() == create["spec"].keys()
    server.answers("GET", LEASE, answer(200, renew | {"spec": server.asked[-1].json["spec"]}))
    server.answers("PUT", LEASE, echo())
    await election.release()
    times = {"acquireTime", "renewTime"}
    written = server.asked[-1].json["spec"]
    assert {key: written[key] for key in written.keys() - times} == {
        key: value for key, value in release["reqBody"]["spec"].items() if key not in times
    }
