"""Leader election beside the scheduling loop: long attempts keep the Lease, a dead loop loses it."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import pytest

from core_tests.client.clocks import AutoAdvancingClock
from core_tests.client.scripted_server import ScriptedServer, response
from core_tests.client.test_leader_election import LEASE, echo, lease
from kubestow.client.leader_election import LeaderElector, LeaseLock, LeaseTimings
from kubestow.client.rest.credentials import Credentials
from kubestow.client.rest.transport import Transport
from kubestow.client.supervised_election import SupervisedElection, election_in_thread
from kubestow.errors import LeaseLost
from kubestow.process import LOOP_ALLOWANCE, Heartbeat, WallClock
from kubestow.scheduling.environment import Leadership
from kubestow.scheduling.interfaces import EventRecord
from kubestow.testing.virtual_time import VirtualClock, run


class RenewingElector(LeaderElector):
    """Holds its Lease for ever, without a server."""

    def __init__(self, clock: VirtualClock) -> None:
        super().__init__(LeaseLock(Transport(Credentials("http://server"), clock=clock), identity="me"), clock=clock)
        self.leader = "me"
        self._observed_at = clock.monotonic()

    async def hold(self) -> Any:
        while True:
            self._observed_at = self._clock.monotonic()
            await self._clock.sleep(2.0)


def supervised(scenario: Callable[[SupervisedElection, Heartbeat], Any]) -> None:
    async def main() -> None:
        clock = VirtualClock(asyncio.get_running_loop())
        heartbeat = Heartbeat(clock.monotonic)
        await scenario(SupervisedElection(RenewingElector(clock), heartbeat, clock), heartbeat)

    run(main())


def test_a_lease_is_held_while_the_loop_is_silent_for_less_than_its_allowance() -> None:
    async def scenario(election: SupervisedElection, heartbeat: Heartbeat) -> None:
        holding = asyncio.create_task(election.hold())
        for _ in range(10):
            await asyncio.sleep(LOOP_ALLOWANCE - 2)
            heartbeat.beat()
        assert not holding.done()
        assert election.is_leader
        assert election.holds_lease
        holding.cancel()

    supervised(scenario)


def test_the_lease_of_a_dead_loop_is_let_go() -> None:
    async def scenario(election: SupervisedElection, heartbeat: Heartbeat) -> None:
        with pytest.raises(LeaseLost, match="no sign of life for 45 s"):
            await election.hold()
        assert LOOP_ALLOWANCE <= asyncio.get_running_loop().time() <= LOOP_ALLOWANCE + 2
        assert (election.is_leader, election.holds_lease) == (False, False)

    supervised(scenario)


@pytest.mark.parametrize("attempted", ["tenant/stalls", ""])
def test_the_pod_that_a_loop_died_in_is_noted_before_the_lease_is_let_go(attempted: str) -> None:
    noted: list[tuple[str, float]] = []

    class NotingElector(RenewingElector):
        async def note_stall(self, pod: str, seconds: float) -> None:
            noted.append((pod, seconds))
            assert self.holds_lease

    async def main() -> None:
        clock = VirtualClock(asyncio.get_running_loop())
        elector = NotingElector(clock)
        election = SupervisedElection(elector, Heartbeat(clock.monotonic), clock, attempted=lambda: attempted)
        with pytest.raises(LeaseLost, match="in an attempt to schedule pod tenant/stalls$" if attempted else "45 s$"):
            await election.hold()

    run(main())
    assert noted == [(attempted, 600.0)] * bool(attempted)


def test_a_lease_that_cannot_be_renewed_is_let_go_before_it_expires() -> None:
    class FailingElector(RenewingElector):
        async def hold(self) -> Any:
            raise LeaseLost("ns/name", "could not be renewed")

    async def main() -> None:
        clock = VirtualClock(asyncio.get_running_loop())
        elector = FailingElector(clock)
        election = SupervisedElection(elector, Heartbeat(clock.monotonic), clock)
        with pytest.raises(LeaseLost, match="could not be renewed"):
            await election.hold()
        assert elector.holds_lease
        assert not election.holds_lease

    run(main())


def test_a_process_that_was_suspended_as_a_whole_was_not_dead() -> None:
    async def scenario(election: SupervisedElection, heartbeat: Heartbeat) -> None:
        holding = asyncio.create_task(election.hold())
        await asyncio.sleep(1.5)
        asyncio.get_running_loop().advance(1000)  # type: ignore[attr-defined]  # virtual time
        await asyncio.sleep(LOOP_ALLOWANCE - 5)
        assert not holding.done()
        holding.cancel()

    supervised(scenario)


async def test_a_lease_that_was_not_renewed_is_held_no_longer(
    server: ScriptedServer, transport: Transport, clock: AutoAdvancingClock
) -> None:
    elector = LeaderElector(LeaseLock(transport, identity="me"), clock=clock)
    assert not elector.holds_lease
    server.respond("GET", LEASE, response(200, lease("")))
    server.respond("PUT", LEASE, echo())
    await elector.acquire()
    assert elector.holds_lease
    clock.seconds += 15.1
    assert elector.is_leader
    assert not elector.holds_lease


class Lock(LeaseLock):
    """A Lease without a server. ``renewed`` is set by the second write."""

    def __init__(self, transport: Transport, record: Callable[[EventRecord], None] = lambda event: None) -> None:
        super().__init__(transport, identity="me", record=record)
        self.writes, self.renewed = 0, threading.Event()

    async def read(self) -> dict[str, Any]:
        return {}

    async def update(self, spec: dict[str, Any]) -> dict[str, Any]:
        if self.writes:
            self.renewed.set()
        self.writes += 1
        return json.loads(json.dumps(spec))  # type: ignore[no-any-return]


def leading(elector: LeaderElector, catch_up: Callable[[], Awaitable[None]]) -> AbstractAsyncContextManager[Leadership]:
    """The leadership of an elector in a thread."""

    @asynccontextmanager
    async def candidate(record: Any, on_new_leader: Any) -> AsyncIterator[LeaderElector]:
        yield elector

    return election_in_thread(
        candidate,
        record=lambda event: None,
        on_new_leader=lambda leader: None,
        heartbeat=Heartbeat(WallClock.monotonic),
        attempted=str,
        catch_up=catch_up,
        clock=WallClock(),
    )


async def caught_up() -> None:
    """There is nothing to catch up with."""


async def test_a_thread_renews_the_lease_of_a_blocked_loop_and_reports_on_that_loop() -> None:
    """The loop of this test is blocked until the Lease has been renewed."""
    holders: list[str] = []
    threads: set[int] = set()
    locks: list[Lock] = []

    def on_new_leader(leader: str) -> None:
        holders.append(leader)
        threads.add(threading.get_ident())

    @asynccontextmanager
    async def candidate(
        record: Callable[[EventRecord], None], on_new_leader: Callable[[str], None]
    ) -> AsyncIterator[LeaderElector]:
        async with Transport(Credentials("http://unused"), clock=WallClock()) as transport:
            locks.append(Lock(transport, record))
            yield LeaderElector(locks[0], clock=WallClock(), on_new_leader=on_new_leader)

    events: list[EventRecord] = []
    heartbeat = Heartbeat(WallClock.monotonic)
    async with election_in_thread(
        candidate,
        record=events.append,
        on_new_leader=on_new_leader,
        heartbeat=heartbeat,
        attempted=str,
        catch_up=caught_up,
        clock=WallClock(),
    ) as leadership:
        await leadership.acquire()
        holding = asyncio.create_task(leadership.hold())
        await asyncio.sleep(0)
        locks[0].renewed.wait()  # blocks the loop
        assert leadership.holds_lease
        holding.cancel()
        await asyncio.wait([holding])
        await leadership.release()
        assert not leadership.is_leader
    assert holders == ["me"]
    assert threads == {threading.get_ident()}
    assert [event.note for event in events] == ["me became leader", "me stopped leading"]


async def test_a_new_leader_catches_up_before_it_leads_and_renews_the_lease_meanwhile() -> None:
    async with Transport(Credentials("http://unused"), clock=WallClock()) as transport:
        lock, catching_up, behind = Lock(transport), asyncio.Event(), asyncio.Event()

        async def catch_up() -> None:
            catching_up.set()
            await behind.wait()

        timings = LeaseTimings(renew_deadline=1.0, retry_period=0.01)
        async with leading(LeaderElector(lock, clock=WallClock(), timings=timings), catch_up) as leadership:
            acquiring = asyncio.create_task(leadership.acquire())
            await catching_up.wait()
            await asyncio.to_thread(lock.renewed.wait)
            assert not acquiring.done()
            behind.set()
            await acquiring
            assert leadership.holds_lease
            holding = asyncio.create_task(leadership.hold())
            await asyncio.sleep(0)
            holding.cancel()
            await asyncio.wait([holding])


async def test_a_lease_can_be_lost_while_catching_up() -> None:
    class LosingElector(LeaderElector):
        async def hold(self) -> Any:
            raise LeaseLost("ns/name", "could not be renewed")

    async with Transport(Credentials("http://unused"), clock=WallClock()) as transport:
        elector = LosingElector(Lock(transport), clock=WallClock())
        async with leading(elector, asyncio.Event().wait) as leadership:  # type: ignore[arg-type]  # it never returns
            with pytest.raises(LeaseLost, match="could not be renewed"):
                await leadership.acquire()


async def test_a_candidate_that_cannot_be_created_ends_its_thread() -> None:
    @asynccontextmanager
    async def candidate(record: Any, on_new_leader: Any) -> AsyncIterator[LeaderElector]:
        raise LeaseLost("ns/name", "cannot be created")
        yield

    before = threading.active_count()
    with pytest.raises(LeaseLost, match="cannot be created"):
        heartbeat = Heartbeat(WallClock.monotonic)
        async with election_in_thread(
            candidate,
            record=print,
            on_new_leader=print,
            heartbeat=heartbeat,
            attempted=str,
            catch_up=caught_up,
            clock=WallClock(),
        ):
            raise AssertionError("entered")
    assert threading.active_count() <= before + 1  # and asyncio's own worker
