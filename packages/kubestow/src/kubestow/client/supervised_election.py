"""Leader election beside the scheduling loop: a Lease that survives a long attempt, and not a dead loop.

A plugin may take longer than a Lease lasts. On the scheduling loop the Lease would be lost with it, the successor would
meet the same pod, and so on from replica to replica. So the elector runs in a thread of its own.

A thread that renews the Lease of a scheduler that does nothing any more would be worse than none. The
:class:`SupervisedElection` therefore lets the Lease go when the scheduling loop has shown no sign of life for
:data:`~kubestow.process.LOOP_ALLOWANCE`. The scheduler may not write from then on, which it knows by ``holds_lease`` at
once and by LeaseLost as soon as its loop runs again.

The process that has stalled cannot keep the pod from being tried again, because its successor knows nothing of the
attempt. So before the Lease is let go, the pod is noted on it, and the successor holds it back.

A standby may have missed the last decisions of the former leader: its watches can be dead without a sign of it, or wait
for their next try. So a new leader catches up before it leads, while the Lease is renewed.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import NoReturn, Protocol, TypeVar

from kubestow.errors import LeaseLost
from kubestow.process import HEARTBEAT_PERIOD, LOOP_ALLOWANCE, Heartbeat, LoopThread
from kubestow.scheduling.environment import Leadership
from kubestow.scheduling.interfaces import Clock, EventRecord
from kubestow.scheduling.queue.budget import MAX_PAUSE

_T = TypeVar("_T")


class Elector(Leadership, Protocol):
    """A candidate for one Lease, as :class:`~kubestow.client.leader_election.LeaderElector` is, or for several."""

    @property
    def lease(self) -> str:
        """Namespace and name of the Lease."""

    async def hold(self) -> NoReturn:
        """Renew until that fails. Raises LeaseLost."""

    async def note_stall(self, pod: str, seconds: float) -> None:
        """Have the next holders hold a pod back for so many seconds. Failures are only logged."""


class SupervisedElection:
    """Implements :class:`~kubestow.scheduling.environment.Leadership`: leads while a loop is alive.

    ``is_leader``, ``holds_lease`` and ``overdue`` may be read in any thread. ``attempted`` returns namespace and name
    of the pod whose attempt is in progress, "" for none; it is called in the thread of this election.
    """

    def __init__(
        self, elector: Elector, heartbeat: Heartbeat, clock: Clock, *, attempted: Callable[[], str] = lambda: ""
    ) -> None:
        self._elector, self._heartbeat, self._clock, self._attempted = elector, heartbeat, clock, attempted
        self._is_let_go = False

    @property
    def is_leader(self) -> bool:
        return self._elector.is_leader and not self._is_let_go

    @property
    def holds_lease(self) -> bool:
        return self._elector.holds_lease and not self._is_let_go

    @property
    def overdue(self) -> float:
        return self._elector.overdue

    async def acquire(self) -> dict[str, float]:
        return await self._elector.acquire()

    async def hold(self) -> NoReturn:
        """Renew the lease until that fails, or until the supervised loop has been dead for too long. Raises LeaseLost.

        The lease is not released then but expires, because requests may be on their way.
        """
        renewing = asyncio.create_task(self._elector.hold())
        watching = asyncio.create_task(self._until_dead())
        try:
            await asyncio.wait((renewing, watching), return_when=asyncio.FIRST_COMPLETED)
            self._is_let_go = True
            if renewing.done():
                renewing.result()
            renewing.cancel()
            await asyncio.wait((renewing,))
            if pod := self._attempted():
                await self._elector.note_stall(pod, MAX_PAUSE)
            problem = f"is let go: the scheduling loop has shown no sign of life for {LOOP_ALLOWANCE:g} s"
            problem += f", in an attempt to schedule pod {pod}" if pod else ""
            raise LeaseLost(self._elector.lease, problem)
        finally:
            renewing.cancel()
            watching.cancel()
            await asyncio.gather(renewing, watching, return_exceptions=True)

    async def release(self) -> None:
        await self._elector.release()

    async def _until_dead(self) -> None:
        """Return when there was no heartbeat for too long.

        Looks are counted, not seconds: a process that was suspended as a whole was not dead.
        """
        seen, silent = self._heartbeat.count, 0
        while silent * HEARTBEAT_PERIOD < LOOP_ALLOWANCE:
            await self._clock.sleep(HEARTBEAT_PERIOD)
            silent = silent + 1 if self._heartbeat.count == seen else 0
            seen = self._heartbeat.count


class _ElectionInThread:
    """Implements :class:`~kubestow.scheduling.environment.Leadership` by one on the event loop of another thread."""

    def __init__(self, election: Leadership, thread: LoopThread, catch_up: Callable[[], Awaitable[None]]) -> None:
        self._election, self._thread, self._catch_up = election, thread, catch_up
        self._holding: asyncio.Task[None] | None = None  # since the lease was acquired

    @property
    def is_leader(self) -> bool:
        return self._election.is_leader

    @property
    def holds_lease(self) -> bool:
        return self._election.holds_lease

    @property
    def overdue(self) -> float:
        return self._election.overdue

    async def acquire(self) -> dict[str, float]:
        """Return once this scheduler leads and has caught up. Raises LeaseLost."""
        inherited = await self._thread.run(self._election.acquire())
        self._holding = asyncio.create_task(self._hold())
        catching_up = asyncio.ensure_future(self._catch_up())
        try:
            await asyncio.wait((self._holding, catching_up), return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            self._holding.cancel()
            await asyncio.wait((self._holding,))
            raise
        finally:
            catching_up.cancel()
        if self._holding.done():
            self._holding.result()
        catching_up.result()
        return inherited

    async def hold(self) -> None:
        if self._holding is not None:
            await self._holding

    async def _hold(self) -> None:
        await self._thread.run(self._election.hold())

    async def release(self) -> None:
        await self._thread.run(self._election.release())


@asynccontextmanager
async def election_in_thread(
    candidate: Callable[[Callable[[EventRecord], None], Callable[[str], None]], AbstractAsyncContextManager[Elector]],
    *,
    record: Callable[[EventRecord], None],
    on_new_leader: Callable[[str], None],
    heartbeat: Heartbeat,
    attempted: Callable[[], str],
    catch_up: Callable[[], Awaitable[None]],
    clock: Clock,
) -> AsyncIterator[Leadership]:
    """The leadership of a candidate that runs in a thread, supervising the loop that this is entered on.

    ``heartbeat`` is that of this loop, ``attempted`` as for :class:`SupervisedElection`. ``catch_up`` is called on this
    loop when the lease is acquired, and returns when everything is known that the former leader did. ``candidate`` is
    entered in the thread, with functions in place of ``record`` and ``on_new_leader``, which run on this loop. What it
    raises on entry is raised.
    """
    here = asyncio.get_running_loop()
    context = candidate(
        lambda event: _call_soon(here, record, event), lambda leader: _call_soon(here, on_new_leader, leader)
    )
    async with LoopThread("leader election") as thread:
        elector = await thread.run(context.__aenter__())
        try:
            yield _ElectionInThread(
                SupervisedElection(elector, heartbeat, clock, attempted=attempted), thread, catch_up
            )
        finally:
            await thread.run(context.__aexit__(None, None, None))


def _call_soon(loop: asyncio.AbstractEventLoop, call: Callable[[_T], None], argument: _T) -> None:
    loop.call_soon_threadsafe(call, argument)
