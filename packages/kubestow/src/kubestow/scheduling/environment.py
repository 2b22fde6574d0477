"""The environment of a scheduler: the injected interfaces, how tasks run, the observer of its work, and leadership.

Of several replicas only the leader schedules (semantics 1.3). A standby watches, so that its caches and its queue are
up to date, and writes nothing. A leader that loses its Lease stops at once, because its successor may already be
scheduling the same pods. An implementation of Leadership elects it (:mod:`kubestow.client.leader_election`).
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any, Protocol, TypeVar

from kubestow.scheduling.decision.node_selection import TieBreak
from kubestow.scheduling.interfaces import Clock, ClusterAPI, Computing
from kubestow.scheduling.observer import Observer

T = TypeVar("T")


class Timer(Protocol):
    """A call that is made later."""

    def cancel(self) -> None:
        """Do not make the call."""


class Wake(Protocol):
    """What the scheduling loop waits for while no pod is ready."""

    def set(self) -> None:
        """Have the loop go on."""

    def clear(self) -> None:
        """Have the next :meth:`wait` block."""

    async def wait(self) -> Any:
        """Block until it is set."""


class Concurrency:
    """How a scheduler runs what does not end within a scheduling cycle: here on asyncio's running event loop."""

    def start(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Run a coroutine from the next turn of the event loop on."""
        return asyncio.create_task(work)

    async def run_all(self, works: Sequence[Coroutine[Any, Any, T]]) -> list[T | BaseException]:
        """Run coroutines at the same time; their results or exceptions, once all of them have ended."""
        return await asyncio.gather(*works, return_exceptions=True)

    def call_later(self, seconds: float, callback: Callable[[], object]) -> Timer:
        """Call a function after so many seconds."""
        return asyncio.get_running_loop().call_later(seconds, callback)

    def wake(self) -> Wake:
        """Something to wait for that is not set."""
        return asyncio.Event()


ASYNCIO = Concurrency()


class ComputingAtOnce:
    """Runs computations in the turn that asks for them, for environments in virtual time."""

    async def run(self, computation: Callable[[], object]) -> None:
        """Run a computation."""
        computation()


class ComputingInThreads:
    """Runs each computation in a thread of its own, which does not keep the process from ending."""

    async def run(self, computation: Callable[[], object]) -> None:
        """Run a computation. If the waiting task is cancelled, it goes on, and nothing waits for it."""
        loop = asyncio.get_running_loop()
        ended = loop.create_future()

        def end() -> None:
            if not ended.done():
                ended.set_result(None)

        def compute() -> None:
            try:
                computation()
            finally:
                with contextlib.suppress(RuntimeError):  # the loop has been closed
                    loop.call_soon_threadsafe(end)

        threading.Thread(target=compute, name="computation", daemon=True).start()
        await ended


@dataclass(frozen=True, slots=True)
class Environment:
    """Everything outside the scheduler, injected: the cluster API, time, randomness, and an observer of its work.

    ``ties`` chooses among nodes of equal score; None means a random choice, as in kube-scheduler. ``stopwatch``, in
    seconds, measures durations that are only reported; None means the clock. The number of its readings depends on
    caches, so it is not a part of a flight record. ``concurrency`` runs what takes longer than a scheduling cycle,
    ``computing`` what takes longer than a turn of the event loop may.
    """

    api: ClusterAPI
    clock: Clock
    random: Random
    observer: Observer = field(default_factory=Observer)
    ties: TieBreak | None = None
    stopwatch: Callable[[], float] | None = None
    concurrency: Concurrency = ASYNCIO
    computing: Computing = field(default_factory=ComputingAtOnce)

    @property
    def duration_clock(self) -> Callable[[], float]:
        """The clock of durations that no decision depends on, in seconds."""
        return self.stopwatch or self.clock.monotonic


class Leadership(Protocol):
    """A candidate for leadership, used once: acquire, hold while scheduling, release."""

    @property
    def is_leader(self) -> bool:
        """Whether this scheduler leads, as far as it knows."""

    @property
    def holds_lease(self) -> bool:
        """Whether this scheduler leads and its lease has not expired, so that no other may have begun to lead."""

    @property
    def overdue(self) -> float:
        """Seconds since the lease expired without being renewed; zero or less while it is valid."""

    async def acquire(self) -> dict[str, float]:
        """Return once this scheduler leads: the pods whose attempts cost former leaders their Lease.

        They are named by namespace and name, with the seconds for which they are to be held back from now on.
        """

    async def hold(self) -> None:
        """Keep the lead. Returns or raises when it is lost."""

    async def release(self) -> None:
        """Give up the lead, so that another candidate can acquire it at once. Failures are only logged."""


class NoLeaderElection:
    """A scheduler without leader election always leads."""

    is_leader = holds_lease = True
    overdue = 0.0

    async def acquire(self) -> dict[str, float]:
        """Return at once: nothing is known about former schedulers."""
        return {}

    async def hold(self) -> None:
        """Block until cancelled."""
        await asyncio.get_running_loop().create_future()

    async def release(self) -> None:
        """Nothing to give up."""
