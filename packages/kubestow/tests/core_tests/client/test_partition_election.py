"""The election of partitions: shares, orderly hand-over, and takeover."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest

from kubestow.client.leader_election import LeaderElector, LeaseLock, LeaseTimings
from kubestow.client.partition_election import COUNT_ANNOTATION, AssignmentOnLoop, PartitionElection
from kubestow.client.rest.credentials import Credentials
from kubestow.client.rest.transport import Transport
from kubestow.errors import APIError, LeaseLost, Unreachable
from kubestow.process import LoopThread
from kubestow.testing.virtual_time import VirtualClock, run

#: Until schedulers have shared the partitions, in seconds.
SETTLED = 10.0


class LeaseServer:
    """The Leases of an API server by name, with optimistic concurrency."""

    def __init__(self) -> None:
        self.leases: dict[str, dict[str, Any]] = {}
        self.versions = 0

    def respond(self, method: str, path: str, body: bytes | None) -> bytes:
        name = path.rpartition("/")[2]
        if body is not None:
            lease = json.loads(body)
            name = lease["metadata"]["name"]
            known = self.leases.get(name, lease)
            if known["metadata"].get("resourceVersion") != lease["metadata"].get("resourceVersion"):
                raise APIError(409, "Conflict", "the lease has been modified")
            self.versions += 1
            lease["metadata"]["resourceVersion"] = str(self.versions)
            self.leases[name] = lease
        if name not in self.leases:
            raise APIError(404, "NotFound", "")
        return json.dumps(self.leases[name]).encode()

    def holder(self, partition: int) -> str:
        """The holder of a partition, "" for none."""
        lease = self.leases.get(f"scheduler-{partition}")
        return "" if lease is None else lease["spec"]["holderIdentity"]


class LeaseTransport(Transport):
    """Connections to a lease server, which can be cut."""

    def __init__(self, server: LeaseServer, clock: VirtualClock) -> None:
        super().__init__(Credentials("http://server"), clock=clock)
        self._leases, self.is_cut = server, False

    async def request(self, method: str, path: str, body: bytes | None = None, **options: Any) -> bytes:
        await asyncio.sleep(0.001)
        if self.is_cut:
            raise Unreachable("server", "cut")
        return self._leases.respond(method, path, body)


@dataclass
class Candidate:
    """A scheduler: the partitions that are assigned to it, and the log of the assignments."""

    name: str
    server: LeaseServer
    count: int
    drain_seconds: float = 0.0
    held: set[int] = field(default_factory=set)
    log: list[tuple[str, int]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.changed = asyncio.Event()
        self.clock = VirtualClock(asyncio.get_running_loop())
        self.transport = LeaseTransport(self.server, self.clock)
        electors = [
            self._elector(f"scheduler-{partition}", {COUNT_ANNOTATION: str(self.count)})
            for partition in range(self.count)
        ]
        sole = self._elector("scheduler", {})
        self.election = PartitionElection(electors, self, clock=self.clock, timings=LeaseTimings(), sole_leader=sole)

    def _elector(self, name: str, annotations: Mapping[str, str]) -> LeaderElector:
        lock = LeaseLock(self.transport, identity=self.name, name=name, annotations=annotations)
        return LeaderElector(lock, clock=self.clock)

    async def take(self, partition: int, held_back: Mapping[str, float]) -> None:
        self.held.add(partition)
        self.changed.set()
        self.log.append(("take", partition))

    async def drain(self, partition: int) -> None:
        self.held.discard(partition)
        self.changed.set()
        await asyncio.sleep(self.drain_seconds)
        assert self.server.holder(partition) == self.name, "the Lease is held until the partition is drained"
        self.log.append(("drained", partition))

    async def until(self, condition: Callable[[], bool]) -> None:
        """Return as soon as a condition on what is held is true."""
        while not condition():
            self.changed.clear()
            await self.changed.wait()

    async def run(self) -> None:
        await self.election.acquire()
        await self.election.hold()


@asynccontextmanager
async def running(*candidates: Candidate) -> AsyncIterator[list[asyncio.Task[None]]]:
    """Run candidates from now on."""
    tasks = [asyncio.create_task(candidate.run()) for candidate in candidates]
    try:
        yield tasks
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def test_a_single_scheduler_holds_all_partitions() -> None:
    async def scenario() -> None:
        alone = Candidate("alone", LeaseServer(), 3)
        async with running(alone):
            await asyncio.sleep(SETTLED)
            assert alone.held == {0, 1, 2}
            assert alone.election.holds_lease

    run(scenario())


@pytest.mark.parametrize(("count", "schedulers"), [(2, 2), (4, 2), (4, 3), (2, 3)])
def test_schedulers_that_start_one_after_the_other_hold_their_shares(count: int, schedulers: int) -> None:
    async def scenario() -> list[int]:
        server = LeaseServer()
        candidates = []
        async with AsyncExitStack() as stack:
            for number in range(schedulers):
                candidates.append(Candidate(f"scheduler-{number}", server, count))
                await stack.enter_async_context(running(candidates[-1]))
                await asyncio.sleep(3 * SETTLED)
            assert sorted(partition for each in candidates for partition in each.held) == list(range(count))
            for partition in range(count):
                assert partition in next(each for each in candidates if each.name == server.holder(partition)).held
            return sorted(len(each.held) for each in candidates)

    shares = run(scenario())
    assert shares[-1] - shares[0] <= 1


def test_a_partition_is_drained_before_its_lease_is_released() -> None:
    async def scenario() -> None:
        server = LeaseServer()
        first = Candidate("first", server, 2, drain_seconds=20.0)  # longer than a Lease lasts
        second = Candidate("second", server, 2)
        async with running(first):
            await asyncio.sleep(SETTLED)
            async with running(second):
                await asyncio.sleep(SETTLED)
                assert (len(first.held), second.held) == (1, set())
                await asyncio.sleep(20.0)
                assert first.held | second.held == {0, 1}
                assert len(second.held) == 1
        assert [what for what, _ in first.log] == ["take", "take", "drained"]

    run(scenario())


def test_the_partitions_of_a_dead_scheduler_are_taken_over_within_a_lease_duration_and_a_retry_period() -> None:
    async def scenario() -> None:
        server, timings = LeaseServer(), LeaseTimings()
        first, second = Candidate("first", server, 2), Candidate("second", server, 2)
        async with running(second):
            async with running(first):
                await asyncio.sleep(3 * SETTLED)
                assert (len(first.held), len(second.held)) == (1, 1)
            await asyncio.sleep(timings.lease_duration + timings.retry_period)
            assert second.held == {0, 1}

    run(scenario())


def test_a_scheduler_that_loses_one_lease_ends_and_writes_nothing_before() -> None:
    async def scenario() -> None:
        server = LeaseServer()
        alone = Candidate("alone", server, 2)
        async with running(alone) as (task,):
            await asyncio.sleep(SETTLED)
            stolen = server.leases["scheduler-1"]
            stolen["spec"]["holderIdentity"] = "another"
            stolen["metadata"]["resourceVersion"] = "0"
            await asyncio.wait([task], timeout=15.0)
            assert not alone.election.holds_lease
            with pytest.raises(LeaseLost, match="scheduler-1 is now held by another"):
                task.result()

    run(scenario())


def test_a_scheduler_that_cannot_reach_the_server_holds_no_valid_lease_when_others_take_over() -> None:
    async def scenario() -> None:
        server = LeaseServer()
        first, second = Candidate("first", server, 2), Candidate("second", server, 2)
        async with running(first, second):
            await asyncio.sleep(3 * SETTLED)
            first.transport.is_cut = True
            await second.until(lambda: len(second.held) == 2)
            assert not first.election.holds_lease

    run(scenario())


def test_no_partition_is_acquired_beside_a_scheduler_with_another_number_of_partitions() -> None:
    async def scenario() -> None:
        server = LeaseServer()
        two, three = Candidate("two", server, 2), Candidate("three", server, 3)
        async with running(two):
            await asyncio.sleep(SETTLED)
            async with running(three):
                await asyncio.sleep(3 * SETTLED)
                assert (two.held, three.held) == ({0, 1}, set())

    run(scenario())


def test_no_partition_is_acquired_beside_a_leader_without_partitions() -> None:
    async def scenario() -> None:
        server = LeaseServer()
        transport = LeaseTransport(server, clock := VirtualClock(asyncio.get_running_loop()))
        leader = LeaderElector(LeaseLock(transport, identity="leader", name="scheduler"), clock=clock)
        await leader.acquire()
        holding = asyncio.create_task(leader.hold())
        partitioned = Candidate("partitioned", server, 2)
        async with running(partitioned):
            await asyncio.sleep(3 * SETTLED)
            assert partitioned.held == set()
            holding.cancel()
            await asyncio.sleep(2 * SETTLED)
            assert partitioned.held == {0, 1}

    run(scenario())


def test_a_partition_that_its_claimant_does_not_take_is_taken_back() -> None:
    async def scenario() -> None:
        server = LeaseServer()
        first, second = Candidate("first", server, 2, drain_seconds=5.0), Candidate("second", server, 2)
        async with running(first):
            await asyncio.sleep(SETTLED)
            async with running(second):
                await first.until(lambda: len(first.held) == 1)
            await asyncio.sleep(5.0 + LeaseTimings().lease_duration + 2 * LeaseTimings().retry_period)
            assert first.held == {0, 1}

    run(scenario())


def test_a_scheduler_that_ends_releases_all_its_partitions() -> None:
    async def scenario() -> None:
        server = LeaseServer()
        alone = Candidate("alone", server, 2)
        async with running(alone):
            await asyncio.sleep(SETTLED)
        await alone.election.release()
        assert [server.holder(partition) for partition in range(2)] == ["", ""]

    run(scenario())


async def test_a_scheduler_on_another_loop_catches_up_before_it_begins_with_a_partition() -> None:
    here, log = asyncio.get_running_loop(), []

    class Scheduler:
        async def take(self, partition: int, held_back: Mapping[str, float]) -> None:
            log.append(("take", partition, dict(held_back), asyncio.get_running_loop() is here))

        async def drain(self, partition: int) -> None:
            log.append(("drain", partition, {}, asyncio.get_running_loop() is here))

    async def catch_up() -> None:
        log.append(("catch up", -1, {}, asyncio.get_running_loop() is here))

    assignment = AssignmentOnLoop(Scheduler(), catch_up, here)
    async with LoopThread("election") as thread:
        await thread.run(assignment.take(1, {"a/b": 2.0}))
        await thread.run(assignment.drain(1))
    assert log == [("catch up", -1, {}, True), ("take", 1, {"a/b": 2.0}, True), ("drain", 1, {}, True)]
