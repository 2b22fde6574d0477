"""One seeded run: a hostile world for a minute or two, then rest, then judgement."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from random import Random
from typing import Any

from kubestow.api.core import Namespace
from kubestow.api.meta import ObjectMeta
from kubestow.errors import LeaseLost
from kubestow.testing.virtual_time import VirtualClock
from tests.fault_simulation.actors import Kubelets, People
from tests.fault_simulation.devices import Devices, device_objections, devices_given_twice
from tests.fault_simulation.faults import Fault, Faults
from tests.fault_simulation.gangs import Jobs, half_gangs, missed_gangs
from tests.fault_simulation.interference import Mischief
from tests.fault_simulation.invariants import haste, leaks, misplacements, missed_pods, untruths
from tests.fault_simulation.loop import ShuffledLoop
from tests.fault_simulation.process import Process, own_tasks
from tests.fault_simulation.server import Server
from tests.fault_simulation.storage import Storage
from tests.fault_simulation.trace import Trace

__all__ = ["Outcome", "Part", "simulate"]


@dataclass(frozen=True)
class _House:
    """Who schedules whose pods: processes with their scheduler names, and whether they elect one that does."""

    processes: tuple[tuple[str, ...], ...]
    elected: bool = False

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(name for names in self.processes for name in names))


_HOUSES = (
    _House((("one",),)),
    _House((("one", "two"),)),
    _House((("one",), ("two",))),
)
_HOUSES_WITH_LEADERS = (
    _House((("one",), ("one",)), elected=True),
    _House((("one", "two"),) * 3, elected=True),
)
#: Seconds after which nothing may be left to do: longer than any backoff, than a watch may be silent, and than a pod
#: waits that nobody told of what helps it.
_REST = 420.0
#: The same where all hints are known to be complete.
_SHORT_REST = 30.0
#: How much has to have happened before the world may come to rest: so many lines of the trace.
_LEAST_EVENTS = 600


@dataclass(frozen=True)
class _Size:
    """How large a world may be, and for how many seconds it is hostile.

    After that, something happens ``favours`` times, all by itself, that may help a pod.
    """

    nodes: Sequence[int]
    pods: Sequence[int]
    seconds: Sequence[float]
    favours: int


_SMALL = _Size(nodes=(2, 3, 5), pods=(6, 10, 20), seconds=(5.0, 10.0, 20.0), favours=2)
_LARGE = _Size(nodes=(5, 8), pods=(10, 25, 60), seconds=(20.0, 60.0, 120.0), favours=8)


class Part(StrEnum):
    """What not every world has; most are not large, because many short runs find more in the same time."""

    GANGS = "gangs"
    EXTENDERS = "extenders"
    ELECTION = "election"
    MEDDLER = "meddler"
    VOLUMES = "volumes"
    DEVICES = "devices"
    WIRE = "wire"
    LARGE = "large"


_ODDS = {
    Part.GANGS: 0.6,
    Part.EXTENDERS: 0.35,
    Part.ELECTION: 0.4,
    Part.MEDDLER: 0.5,
    Part.VOLUMES: 0.6,
    Part.DEVICES: 0.6,
    Part.WIRE: 0.5,
    Part.LARGE: 0.05,
}


@dataclass(frozen=True)
class Outcome:
    """How a run ended: the trace's fingerprint and length, how many pods were bound, and what was violated."""

    seed: int
    fingerprint: str
    events: int
    bound: int
    violations: Sequence[str]
    trace: Sequence[str]


def simulate(seed: int, *, certain: Collection[Part] = ()) -> Outcome:
    """Run one seed, in a world that has certain parts and perhaps others. Equal arguments give equal outcomes."""
    with asyncio.Runner(loop_factory=lambda: ShuffledLoop(Random(f"{seed} loop"))) as runner:
        world = _World(seed, runner.get_loop(), certain)
        with _Complaints(world.violations):
            try:
                runner.run(world.live())
            except AssertionError as error:
                world.violations.append(f"{type(error).__name__}: {error}")
    return Outcome(
        seed,
        world.trace.fingerprint,
        len(world.trace.lines),
        len(world.server.bound_by),
        world.violations,
        world.trace.lines,
    )


class _World:
    def __init__(self, seed: int, loop: asyncio.AbstractEventLoop, certain: Collection[Part]) -> None:
        own_tasks(loop)
        loop.set_exception_handler(self._unhandled)
        self._seed = seed
        self._random = Random(f"{seed} world")
        self._clock = VirtualClock(loop)
        self.trace = Trace(self._clock)
        self.violations: list[str] = []
        self.server = Server(self._clock, self.trace)
        self._faults = Faults(Random(f"{seed} faults"))
        self._parts = {part for part, odds in _ODDS.items() if self._random.random() < odds or part in certain}
        self._house = self._random.choice(_HOUSES_WITH_LEADERS if Part.ELECTION in self._parts else _HOUSES)
        self._size = _LARGE if Part.LARGE in self._parts else _SMALL
        self._processes: list[Process] = []

    def _unhandled(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        self.violations.append(f"unhandled: {context.get('message')}: {context.get('exception')!r}")

    async def live(self) -> None:
        """The whole run."""
        self.server.put(Namespace(metadata=ObjectMeta(name="default")))
        self._processes = [self._process(number, names) for number, names in enumerate(self._house.processes)]
        kubelets = Kubelets(self.server, Random(f"{self._seed} kubelets"))
        storage = Storage(self.server, Random(f"{self._seed} storage"))
        devices = Devices(self.server, Random(f"{self._seed} devices"))
        wishes = [
            whose.wishes for part, whose in ((Part.VOLUMES, storage), (Part.DEVICES, devices)) if part in self._parts
        ]
        people = People(
            self.server,
            Random(f"{self._seed} people"),
            scheduler_names=("foreign", *self._house.names),
            nodes=self._random.choice(self._size.nodes),
            pods=self._random.choice(self._size.pods),
            wishes=wishes,
        )
        running = [asyncio.create_task(who.live()) for who in (kubelets, storage, devices)]
        hostile = [asyncio.create_task(people.live()), asyncio.create_task(self._permit())]
        if Part.GANGS in self._parts:
            names = self._house.names
            jobs = Jobs(self.server, Random(f"{self._seed} jobs"), scheduler_names=names, wishes=wishes or [dict])
            hostile.append(asyncio.create_task(jobs.live()))
        disturbing = [asyncio.create_task(self._disturb(process)) for process in self._processes]
        reviving = [asyncio.create_task(self._revive(process)) for process in self._processes]
        await asyncio.sleep(self._random.choice(self._size.seconds))
        while len(self.trace.lines) < _LEAST_EVENTS:
            await self.server.change()
        self._faults.active = False
        self.trace.note("world", "comes to rest")
        for task in hostile:
            task.cancel()
        for restless in (kubelets, storage, devices):
            restless.restless = False
        for ended in await asyncio.gather(*hostile, return_exceptions=True):
            if isinstance(ended, Exception):
                raise ended
        await asyncio.gather(*disturbing)
        # A connection may have fallen silent long before.
        await self._rest(self._judged, shortest=_REST if Part.WIRE in self._parts else _SHORT_REST)
        for _ in range(self._size.favours):
            people.do_a_favour()
            # The hints of the reference do not know every node that the anti-affinity of others leaves free.
            await self._rest(self._missed, longest=_REST if people.sociable else _SHORT_REST)
        await self._rest(self._judged, longest=1.0)
        for task in reviving:
            task.cancel()
        for process in self._processes:
            await self._stop(process)
        for task in running:
            task.cancel()

    def _process(self, number: int, names: Sequence[str]) -> Process:
        return Process(
            f"{self._seed}-{number}",
            names,
            server=self.server,
            clock=self._clock,
            faults=self._faults,
            trace=self.trace,
            meddled=Part.MEDDLER in self._parts,
            extended=Part.EXTENDERS in self._parts,
            elected=self._house.elected,
            wired=Part.WIRE in self._parts,
            before_bind=self._check_request,
            after_bind=self._check_binding,
            complain=self._complain,
        )

    def _check_request(self, process: Process, uid: str) -> None:
        for violation in (*half_gangs(self.server, process, uid), *haste(process, uid)):
            self._complain(violation)

    def _check_binding(self, process: Process, uid: str, node_name: str) -> None:
        if not process.may_act:
            self._complain(f"{process.identity} binds while {self.server.lease.holder or 'nobody'} leads")
        for violation in misplacements(self.server, process, uid, node_name):
            self._complain(violation)
        pod = next(pod for pod in self.server.pods() if pod.metadata.uid == uid)
        for violation in device_objections(self.server, pod, node_name):
            self._complain(violation)
        if not self._house.elected:  # a new leader may not have been told yet what the old one gave away
            for violation in devices_given_twice(self.server):
                self._complain(violation)

    def _complain(self, violation: str) -> None:
        self.trace.note("world", "VIOLATION", violation)
        self.violations.append(violation)

    async def _disturb(self, process: Process) -> None:
        """Kill or stop a process now and then, and start another."""
        while self._faults.active:
            await asyncio.sleep(self._random.expovariate(0.5))
            if self._faults.strikes(Fault.CLOCK_JUMPS):
                process.clock.jump()
            if not process.alive:
                continue
            if self._faults.strikes(Fault.KILLED):
                await process.kill()
            elif self._faults.strikes(Fault.STOPPED):
                await self._stop(process)
            else:
                continue
            await asyncio.sleep(self._random.uniform(0.0, 3.0))
            process.start()

    async def _revive(self, process: Process) -> None:
        """Start a process again that ended because it does not lead any more."""
        while True:
            running = process.running
            await asyncio.wait([running])
            await asyncio.sleep(self._random.uniform(0.5, 2.0))
            if running is process.running and not running.cancelled() and isinstance(running.exception(), LeaseLost):
                self.trace.note(process.name, running.exception())
                self._look_after(process, await process.reap())
                process.start()

    async def _stop(self, process: Process) -> None:
        self._look_after(process, await process.stop())

    def _look_after(self, process: Process, left: Sequence[str]) -> None:
        if left:
            self._complain(f"{process.name} has ended and left running: {', '.join(left)}")

    async def _permit(self) -> None:
        """Decide about pods that wait for permission."""
        while True:
            await asyncio.sleep(self._random.uniform(0.1, 2.0))
            for process in self._processes:
                for waiting in process.scheduler.waiting_pods.all():
                    if self._random.random() < 0.3:
                        waiting.allow("Meddler")
                    elif self._random.random() < 0.1:
                        waiting.reject("Meddler", "no")

    async def _rest(
        self, judged: Callable[[], Iterator[str]], *, shortest: float = _SHORT_REST, longest: float = _REST
    ) -> None:
        """Leave the world alone until it is judged to be in order; a large one always for as long as it may take.

        At last it is looked at twice: a timer may fire in that very moment, and there is something to do for once.
        """
        shortest = longest if Part.LARGE in self._parts else min(shortest, longest)
        for seconds in (shortest, longest - shortest, 1.0):
            await asyncio.sleep(seconds)
            violations = list(judged())
            if not violations:
                return
        self.violations += violations

    def _judged(self) -> Iterator[str]:
        for process in self._processes:
            if not process.alive:
                error = None if process.running.cancelled() else process.running.exception()
                yield f"{process.name} has ended: {error!r}"
            yield from untruths(self.server, process)
            if process.leads:
                yield from leaks(self.server, process)
        if not any(process.leads for process in self._processes):
            yield "nobody leads"
        yield from self._missed()

    def _missed(self) -> Iterator[str]:
        yield from missed_pods(self.server, self._house.names)
        yield from missed_gangs(self.server, self._house.names)


class _Complaints(logging.Handler):
    """Takes the scheduler's log: an exception in it that no plugin raised on purpose is a violation."""

    def __init__(self, violations: list[str]) -> None:
        super().__init__(logging.ERROR)
        self._violations = violations

    def emit(self, record: logging.LogRecord) -> None:
        error = record.exc_info[1] if record.exc_info else None
        if error is not None and not isinstance(error, Mischief):
            self._violations.append(f"logged: {record.getMessage()}: {error!r}")

    def __enter__(self) -> None:
        logger = logging.getLogger("kubestow")
        self._propagated, logger.propagate = logger.propagate, False
        logger.addHandler(self)

    def __exit__(self, *_: object) -> None:
        logger = logging.getLogger("kubestow")
        logger.removeHandler(self)
        logger.propagate = self._propagated
