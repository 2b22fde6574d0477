"""Leader election beside the scheduling loop: a Lease that survives a long attempt, and not a dead loop.

A scheduling cycle is synchronous, and a plugin may take longer than a Lease lasts. On the same event loop the Lease
would be lost with it, the successor would meet the same pod, and so on from replica to replica. So the elector runs on
an event loop in a thread of its own. That loop gets its turn every few milliseconds while the other one runs Python
code; code of a C extension that keeps the interpreter's lock delays it.

A thread that renews the Lease of a scheduler that does nothing any more would be worse than none. The scheduling loop
therefore shows a :class:`Heartbeat`, and the :class:`SupervisedElection` lets the Lease go when there has been none for
:data:`LOOP_ALLOWANCE`. The scheduler may not write from then on, which it knows by ``holds_lease`` at once and by
LeaseLost as soon as its loop runs again.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, NoReturn, TypeVar

from kubestow.client.leader_election import LeaderElector
from kubestow.errors import LeaseLost
from kubestow.process import new_event_loop
from kubestow.scheduling.environment import Leadership
from kubestow.scheduling.interfaces import Clock, EventRecord

_T = TypeVar("_T")

#: How long the scheduling loop may show no sign of life before its Lease is let go, in seconds. An object at the limit
#: of 1.5 MB takes less, and the liveness probes of deploy/, which end the process, take longer.
LOOP_ALLOWANCE = 45.0
#: Between two heartbeats, and between two looks at them, in seconds.
_PERIOD = 1.0


class Heartbeat:
    """Counts the signs of life of an event loop; written by that loop and read by another thread, without a lock."""

    def __init__(self) -> None:
        self.count = 0

    async def run(self, clock: Clock) -> NoReturn:
        """Show a sign of life every second until cancelled; run this on the loop that is to be supervised."""
        while True:
            self.count += 1
            await clock.sleep(_PERIOD)


class SupervisedElection:
    """Implements :class:`~kubestow.scheduling.environment.Leadership`: leads while a loop is alive.

    ``is_leader``, ``holds_lease`` and ``overdue`` may be read in any thread.
    """

    def __init__(self, elector: LeaderElector, heartbeat: Heartbeat, clock: Clock) -> None:
        self._elector, self._heartbeat, self._clock = elector, heartbeat, clock
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

    async def acquire(self) -> None:
        await self._elector.acquire()

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
            problem = f"is let go: the scheduling loop has shown no sign of life for {LOOP_ALLOWANCE:g} s"
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
        while silent * _PERIOD < LOOP_ALLOWANCE:
            await self._clock.sleep(_PERIOD)
            silent = silent + 1 if self._heartbeat.count == seen else 0
            seen = self._heartbeat.count


class _ElectionInThread:
    """Implements :class:`~kubestow.scheduling.environment.Leadership` by one on the event loop of another thread."""

    def __init__(self, election: Leadership, loop: asyncio.AbstractEventLoop) -> None:
        self._election, self._loop = election, loop

    @property
    def is_leader(self) -> bool:
        return self._election.is_leader

    @property
    def holds_lease(self) -> bool:
        return self._election.holds_lease

    @property
    def overdue(self) -> float:
        return self._election.overdue

    async def acquire(self) -> None:
        await _run_on(self._loop, self._election.acquire())

    async def hold(self) -> None:
        await _run_on(self._loop, self._election.hold())

    async def release(self) -> None:
        await _run_on(self._loop, self._election.release())


@asynccontextmanager
async def election_in_thread(
    candidate: Callable[
        [Callable[[EventRecord], None], Callable[[str], None]], AbstractAsyncContextManager[LeaderElector]
    ],
    *,
    record: Callable[[EventRecord], None],
    on_new_leader: Callable[[str], None],
    clock: Clock,
) -> AsyncIterator[Leadership]:
    """The leadership of a candidate that runs in a thread, supervising the loop that this is entered on.

    ``candidate`` is entered in the thread, with functions in place of ``record`` and ``on_new_leader``, which run on
    this loop. What it raises on entry is raised.
    """
    here, beside = asyncio.get_running_loop(), new_event_loop()
    thread = threading.Thread(target=beside.run_forever, name="leader election", daemon=True)
    thread.start()
    heartbeat = Heartbeat()
    context = candidate(
        lambda event: _call_soon(here, record, event), lambda leader: _call_soon(here, on_new_leader, leader)
    )
    beating = asyncio.create_task(heartbeat.run(clock), name="heartbeat")
    try:
        elector = await _run_on(beside, context.__aenter__())
        try:
            yield _ElectionInThread(SupervisedElection(elector, heartbeat, clock), beside)
        finally:
            await _run_on(beside, context.__aexit__(None, None, None))
    finally:
        beating.cancel()
        beside.call_soon_threadsafe(beside.stop)
        await asyncio.to_thread(thread.join)
        beside.close()


async def _run_on(loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, _T]) -> _T:
    """The result of a coroutine that runs on the event loop of another thread."""
    return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, loop))


def _call_soon(loop: asyncio.AbstractEventLoop, call: Callable[[_T], None], argument: _T) -> None:
    loop.call_soon_threadsafe(call, argument)
