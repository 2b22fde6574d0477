"""The election of partitions: each has a Lease, and the schedulers of a cluster share them evenly.

Each Lease is acquired, renewed and lost as in leader election (:mod:`.leader_election`), so a partition has at most one
holder at any time, by the clocks of all. A scheduler that loses one without having handed it over ends, as a leader
does, and until then writes nothing: ``holds_lease`` is true only while all Leases that it holds are valid.

A scheduler takes every partition whose Lease is free or has expired, one after the other with pauses, so that
schedulers that start together share them from the beginning. One that holds at least two partitions less than another
claims one, by an annotation on the Lease. The holder sees that when it renews the Lease: it drains the partition, and
releases the Lease afterwards. The claimant then has precedence over all others for the duration of a lease.

A Lease also names the number of partitions. A scheduler with another number acquires none, because it would take other
nodes for its own than the holders do. So does one beside a leader that schedules everything.
"""

from __future__ import annotations

import asyncio
import logging
import zlib
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, NoReturn, Protocol

from kubestow.client.leader_election import (
    LeaderElector,
    LeaseLock,
    LeaseTimings,
    candidate_identity,
    lease_transport,
)
from kubestow.client.rest.credentials import Credentials
from kubestow.log_fields import fields
from kubestow.scheduling.interfaces import Clock, EventRecord

_log = logging.getLogger(__name__)

COUNT_ANNOTATION = "kubestow.dev/partitions"
"""The number of partitions of the holder of a Lease."""

#: The part of a retry period after which a scheduler looks again that has acquired a partition, or has claimed one.
_SOON = 0.25


class Assignment(Protocol):
    """The scheduler that partitions are assigned to."""

    async def take(self, partition: int, held_back: Mapping[str, float]) -> None:
        """Begin with a partition; ``held_back`` as returned by :meth:`LeaderElector.acquire`."""

    async def drain(self, partition: int) -> None:
        """End with a partition; returns when nothing of it is in progress."""


class PartitionElection:
    """A candidate for the Leases of all partitions; implements :class:`kubestow.client.supervised_election.Elector`.

    ``electors`` are those of the partitions in order. While ``sole_leader`` observes the holder of the Lease of
    schedulers without partitions, none is acquired; None if there is no such Lease.
    """

    def __init__(
        self,
        electors: Sequence[LeaderElector],
        assignment: Assignment,
        *,
        clock: Clock,
        timings: LeaseTimings,
        sole_leader: LeaderElector | None = None,
    ) -> None:
        self._electors, self._assignment, self._sole_leader = electors, assignment, sole_leader
        self._clock, self._timings = clock, timings
        self._identity = electors[0].identity
        #: The partitions whose Leases are held, those that are being drained included.
        self._held: set[int] = set()
        #: The partition that is being handed over, if any.
        self._leaving: int | None = None
        #: When partitions were handed over, in seconds of the clock.
        self._left_at: dict[int, float] = {}
        self._tasks: list[asyncio.Task[None]] = []
        #: Set when a partition has been acquired, or a task has ended.
        self._changed = asyncio.Event()
        self._has_warned = False

    @property
    def is_leader(self) -> bool:
        """Whether any partition is held."""
        return bool(self._held)

    @property
    def holds_lease(self) -> bool:
        """Whether any partition is held, and none of their Leases has expired."""
        return bool(self._held) and all(self._electors[partition].holds_lease for partition in tuple(self._held))

    @property
    def overdue(self) -> float:
        """Seconds since the first of the held Leases expired; zero or less while all are valid."""
        return max((self._electors[partition].overdue for partition in tuple(self._held)), default=0.0)

    @property
    def lease(self) -> str:
        """Namespace and name of the Lease of the first partition held, or of the first one."""
        return self._electors[min(self._held, default=0)].lease

    def holder_of(self, partition: int) -> str:
        """The observed holder of a partition, "" for none."""
        return self._electors[partition].leader

    async def acquire(self) -> dict[str, float]:
        """Return once a partition is held; what is held back is passed on with each partition."""
        self._start(self._contend())
        try:
            while not self._held:
                await self._changed.wait()
                self._raise_failure()
        except BaseException:
            await self._stop()
            raise
        return {}

    async def hold(self) -> NoReturn:
        """Hold partitions, and contend for others, until a Lease is lost. Raises LeaseLost."""
        try:
            while True:
                await self._changed.wait()
                self._raise_failure()
        finally:
            await self._stop()

    async def note_stall(self, pod: str, seconds: float) -> None:
        """As :meth:`LeaderElector.note_stall`, on all Leases that are held."""
        await asyncio.gather(*(self._electors[partition].note_stall(pod, seconds) for partition in self._held))

    async def release(self) -> None:
        """Release all partitions. Failures are only logged."""
        await self._stop()
        await asyncio.gather(*(self._electors[partition].release() for partition in self._held))
        self._held.clear()

    # -- tasks -------------------------------------------------------------------------------------------------------

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        task.add_done_callback(lambda ended: self._changed.set())
        self._tasks.append(task)

    def _raise_failure(self) -> None:
        """Forget the tasks that have ended. Raises what one of them has raised."""
        self._changed.clear()
        ended = [task for task in self._tasks if task.done()]
        self._tasks = [task for task in self._tasks if task not in ended]
        for task in ended:
            task.result()

    async def _stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks.clear()

    # -- acquiring -----------------------------------------------------------------------------------------------------

    async def _contend(self) -> None:
        """Acquire free partitions, and claim others, as long as this scheduler runs."""
        # Schedulers begin with different partitions, so that they seldom contend for the same one.
        first = zlib.crc32(self._identity.encode()) % len(self._electors)
        order = [*range(first, len(self._electors)), *range(first)]
        while True:
            is_waiting = False
            others = [partition for partition in order if partition not in self._held]
            # All are read first: any of them may tell that none may be acquired.
            readable = [partition for partition in others if await self._electors[partition].observe()]
            if await self._may_acquire(others):
                for partition in readable:
                    if self._is_free(partition) and await self._electors[partition].try_acquire_or_renew():
                        self._begin(partition)
                        is_waiting = True
                        break
                else:
                    is_waiting = await self._claim_share()
            await self._clock.sleep(self._pause() * (_SOON if is_waiting else 1.0))

    async def _may_acquire(self, others: Sequence[int]) -> bool:
        sole = None if self._held else self._sole_leader
        if sole is not None and (not await sole.observe() or sole.left_to_other_holder > 0):
            return self._refuse(f"{sole.leader or 'perhaps another'} holds {sole.lease}, without partitions")
        count = str(len(self._electors))
        for elector in map(self._electors.__getitem__, others):
            found = elector.annotation(COUNT_ANNOTATION)
            if elector.left_to_other_holder > 0 and found != count:
                what = f"{elector.lease} of {found or 'no'} partitions, not {count}"
                return self._refuse(f"{elector.leader} holds {what}")
        self._has_warned = False
        return True

    def _refuse(self, problem: str) -> bool:
        if not self._has_warned:
            _log.warning("no partition is acquired: %s", problem, extra=fields(err=problem))
        self._has_warned = True
        return False

    def _is_free(self, partition: int) -> bool:
        """Whether a partition may be acquired: it has no holder, and a claimant has had its time."""
        elector = self._electors[partition]
        if elector.left_to_other_holder > 0:
            return False
        left_at = self._left_at.get(partition)
        claimant = elector.claimant
        if claimant == self._identity or not claimant:
            return True
        since = elector.observed_at if left_at is None else max(left_at, elector.observed_at)
        return self._clock.monotonic() - since > self._timings.lease_duration

    def _begin(self, partition: int) -> None:
        self._held.add(partition)
        self._changed.set()
        self._start(self._hold(partition))
        self._electors[partition].record_event("became leader")
        extra = fields(partition=partition, partitions=len(self._electors))
        _log.info("acquired partition %d of %d", partition, len(self._electors), extra=extra)

    async def _claim_share(self) -> bool:
        """Claim a partition of the scheduler that holds most, if it holds at least two more than this one does.

        Returns whether there is such a scheduler.
        """
        counts = self._counts()
        mine = len(self._held)
        holder, most = max(counts.items(), key=lambda item: (item[1], item[0]), default=("", 0))
        if most - mine < 2:
            return False
        partition = max(p for p, elector in enumerate(self._electors) if elector.leader == holder)
        if self._electors[partition].claimant != self._identity:
            await self._electors[partition].claim()
        return True

    def _counts(self) -> Counter[str]:
        """How many partitions each other scheduler holds, as far as observed."""
        return Counter(
            elector.leader
            for partition, elector in enumerate(self._electors)
            if partition not in self._held and elector.left_to_other_holder > 0
        )

    def _pause(self) -> float:
        """Until the next look: a retry period, or until the next Lease of another holder expires."""
        left = [e.left_to_other_holder for p, e in enumerate(self._electors) if p not in self._held]
        return min([self._timings.retry_period, *(seconds for seconds in left if seconds > 0)])

    # -- holding -------------------------------------------------------------------------------------------------------

    async def _hold(self, partition: int) -> None:
        """Renew the Lease of a partition until it is handed over. Raises LeaseLost."""
        elector = self._electors[partition]
        assigned = asyncio.create_task(self._assignment.take(partition, elector.inherited_stalls))
        try:
            while await elector.renew():
                if assigned.done():
                    assigned.result()
                    if self._leaving == partition:
                        break
                if self._leaving is None and assigned.done() and self._is_to_be_left(partition):
                    self._leaving = partition
                    extra = fields(partition=partition, claimant=elector.claimant)
                    _log.info("handing partition %d over to %s", partition, elector.claimant, extra=extra)
                    assigned = asyncio.create_task(self._assignment.drain(partition))
                await self._sleep_until_done(assigned)
            else:
                raise elector.loss()
        finally:
            assigned.cancel()
            elector.record_event("stopped leading")
        # Nothing of it is in progress any more, so another scheduler may begin.
        self._held.discard(partition)
        self._left_at[partition] = self._clock.monotonic()
        self._leaving = None
        await elector.release()

    async def _sleep_until_done(self, assigned: asyncio.Task[None]) -> None:
        """Sleep for a retry period, or until a partition that is being handed over is drained."""
        sleeping = asyncio.ensure_future(self._clock.sleep(self._timings.retry_period))
        tasks = [sleeping] if assigned.done() else [sleeping, assigned]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            sleeping.cancel()

    def _is_to_be_left(self, partition: int) -> bool:
        """Whether another scheduler claims a partition that is due to it."""
        claimant = self._electors[partition].claimant
        if not claimant or claimant == self._identity:
            return False
        return len(self._held) - self._counts()[claimant] >= 2


class AssignmentOnLoop:
    """Assigns partitions to a scheduler on another event loop, which catches up before it begins with one.

    ``catch_up`` is called on that loop, and returns when everything is known that former holders did.
    """

    def __init__(
        self, assignment: Assignment, catch_up: Callable[[], Awaitable[None]], loop: asyncio.AbstractEventLoop
    ) -> None:
        self._assignment, self._catch_up, self._loop = assignment, catch_up, loop

    async def take(self, partition: int, held_back: Mapping[str, float]) -> None:
        await self._run(self._catch_up_and_take(partition, held_back))

    async def drain(self, partition: int) -> None:
        await self._run(self._assignment.drain(partition))

    async def _catch_up_and_take(self, partition: int, held_back: Mapping[str, float]) -> None:
        await self._catch_up()
        await self._assignment.take(partition, held_back)

    async def _run(self, work: Coroutine[Any, Any, None]) -> None:
        await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, self._loop))


@asynccontextmanager
async def partition_candidate(
    credentials: Credentials,
    *,
    count: int,
    assignment: Assignment,
    namespace: str,
    name: str,
    timings: LeaseTimings,
    record: Callable[[EventRecord], None],
    reporting_controller: str,
    clock: Clock,
    on_new_leader: Callable[[str], None] = lambda identity: None,
) -> AsyncIterator[PartitionElection]:
    """A candidate for the Leases ``name-0`` to ``name-<count - 1>``, with connections of its own."""
    async with lease_transport(credentials, timings, clock) as transport:
        identity = candidate_identity()

        def elector(lease: str, annotations: Mapping[str, str]) -> LeaderElector:
            lock = LeaseLock(
                transport,
                identity=identity,
                namespace=namespace,
                name=lease,
                record=record,
                reporting_controller=reporting_controller,
                annotations=annotations,
            )
            return LeaderElector(lock, clock=clock, timings=timings, on_new_leader=on_new_leader)

        yield PartitionElection(
            [elector(f"{name}-{partition}", {COUNT_ANNOTATION: str(count)}) for partition in range(count)],
            assignment,
            clock=clock,
            timings=timings,
            sole_leader=elector(name, {}),
        )
