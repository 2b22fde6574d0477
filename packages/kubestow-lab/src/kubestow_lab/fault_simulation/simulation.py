"""Seeded runs: faults for a minute or two, then quiescence and the final checks."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from random import Random
from typing import Any

from kubestow.api.core import Namespace, Pod
from kubestow.api.meta import ObjectMeta
from kubestow.errors import LeaseLost
from kubestow.rules.minors import DEFAULT_MINOR, Behaviour
from kubestow.scheduling.interfaces import Clock
from kubestow.testing.virtual_time import VirtualClock
from kubestow_lab.fault_simulation.actors.devices import Devices
from kubestow_lab.fault_simulation.actors.jobs import Jobs
from kubestow_lab.fault_simulation.actors.kubelets import Kubelets
from kubestow_lab.fault_simulation.actors.storage import Storage
from kubestow_lab.fault_simulation.actors.tenants import DEADLY_STALL, STALL, Tenants
from kubestow_lab.fault_simulation.actors.users import Users
from kubestow_lab.fault_simulation.apiserver.client import SimulationContext
from kubestow_lab.fault_simulation.apiserver.outages import Outages
from kubestow_lab.fault_simulation.apiserver.server import SimulatedServer
from kubestow_lab.fault_simulation.event_loop import RecordedShuffledLoop, ShuffledLoop
from kubestow_lab.fault_simulation.faults import Fault, Faults
from kubestow_lab.fault_simulation.marks import Mark, Marks
from kubestow_lab.fault_simulation.recording import Recording
from kubestow_lab.fault_simulation.scenario import Part, Scenario, draw
from kubestow_lab.fault_simulation.scheduler.clock import JumpingClock
from kubestow_lab.fault_simulation.scheduler.faulty_plugin import NAME, InjectedError
from kubestow_lab.fault_simulation.scheduler.lookout import LoggedMarks
from kubestow_lab.fault_simulation.scheduler.process import Features, Process, own_tasks
from kubestow_lab.fault_simulation.specification import Rested, Settled, violations
from kubestow_lab.fault_simulation.trace import Step, StepRandom, Steps, Trace
from kubestow_lab.fault_simulation.witness import Witness
from kubestow_lab.process_pool import process_pool

#: Runs that one worker is handed at once.
_CHUNK = 4
#: Seconds without faults after which the cluster must be quiescent: longer than any backoff, than a stalled watch, and
#: than the time after which a pod is retried without an event.
_LONG_REST = 420.0
#: The same before v1.36: a pod that is retried without an event may lose its nomination then, which helps others at
#: their next retry, and so on.
_LONGEST_REST = 3 * _LONG_REST
#: The same where all queueing hints are known to be complete.
_SHORT_REST = 30.0
#: Single changes after the faults that can make a pod schedulable, and as many in a large simulation.
_HELPFUL_CHANGES, _MANY_HELPFUL_CHANGES = 6, 8
#: The probability that such a change is followed by another one within the longest attempt of a scheduler, in seconds.
_PROBABILITY_OF_ANOTHER, _LONGEST_ATTEMPT = 0.3, 0.03
#: For how many seconds a process is suspended: less than a Lease lasts, or more.
_SUSPENSIONS = (5.0, 20.0, 40.0)
#: Seconds after the faults in which no pod is put aside any more because of a stall.
_STALLS_FORGOTTEN = 660.0
#: Seconds within which a pod is bound that many pods of a tenant come before: two of their attempts, with what follows.
_VICTIM_SECONDS = 2.5 * STALL
#: The same if an attempt of the tenant costs the Lease, which is 45 s, and 15 s until it expires; and the seconds in
#: which no second attempt may cost it.
_VICTIM_SECONDS_BY_ANOTHER_LEADER, _ONE_LEASE_SECONDS = 70.0, 590.0


@dataclass(frozen=True)
class Outcome:
    """The result of a run: the fingerprint and length of its trace, the number of bound pods, and the violations.

    ``marks`` has how often the run has reached each of the rare paths that it reached at all, ``steps`` are what was
    done to the schedulers.
    """

    seed: int
    fingerprint: str
    events: int
    bound: int
    violations: Sequence[str]
    trace: Sequence[str]
    marks: Mapping[Mark, int]
    steps: Sequence[Step]


def simulate(seed: int, *, required: Collection[Part] = (), recordings: list[Recording] | None = None) -> Outcome:
    """Run one seed with the required parts and others drawn at random. Equal arguments give equal outcomes.

    With ``recordings``, every process is recorded, which changes the order of its callbacks and so the run.
    """
    scenario, random = draw(seed, required, is_recorded=recordings is not None)
    return _run(scenario, random, recordings)


def run_scenario(scenario: Scenario) -> Outcome:
    """Run a scenario. That of a seed gives the outcome of the seed."""
    return _run(scenario, draw(scenario.seed, scenario.required)[1])


def outcomes(
    seeds: range, *, jobs: int | None = None, required: Sequence[Part] = (), trace: bool = False
) -> Iterator[Outcome]:
    """The outcomes in the order of the seeds, computed by ``jobs`` processes, by default one for each core.

    They have no traces unless ``trace`` is set, because these are long.
    """
    work = partial(_outcome, required=required, trace=trace)
    pool = process_pool(jobs, preload=__name__)
    if pool is None:
        yield from map(work, seeds)
        return
    with pool:
        yield from pool.map(work, seeds, chunksize=_CHUNK)


def _outcome(seed: int, *, required: Sequence[Part], trace: bool) -> Outcome:
    outcome = simulate(seed, required=required)
    return outcome if trace else replace(outcome, trace=(), steps=())


def _run(scenario: Scenario, random: Random, recordings: list[Recording] | None = None) -> Outcome:
    if Part.RECORDS in scenario.parts:
        recordings = []
    loop = ShuffledLoop if recordings is None else RecordedShuffledLoop
    with asyncio.Runner(loop_factory=lambda: loop(Random(f"{scenario.seed} loop"))) as runner:
        simulation = _Simulation(scenario, random, runner.get_loop(), recordings)
        with _LoggedErrors(simulation.violations, simulation.marks):
            try:
                runner.run(simulation.run())
            except AssertionError as error:
                simulation.violations.append(f"{type(error).__name__}: {error}")
    trace = simulation.trace
    return Outcome(
        scenario.seed,
        trace.fingerprint,
        len(trace.lines),
        len(simulation.server.bound_by),
        simulation.violations,
        trace.lines,
        simulation.marks.counts,
        simulation.steps.taken,
    )


class _Simulation:
    def __init__(
        self,
        scenario: Scenario,
        random: Random,
        loop: asyncio.AbstractEventLoop,
        recordings: list[Recording] | None,
    ) -> None:
        own_tasks(loop)
        loop.set_exception_handler(self._unhandled)
        self._scenario, self._seed, self._recordings = scenario, scenario.seed, recordings
        self._random = random
        clock = VirtualClock(loop)
        self.trace = Trace(clock)
        self.steps = Steps(clock.monotonic, scenario.kept_steps, scenario.end)
        self.violations: list[str] = []
        self.marks = Marks()
        self._parts, self._minor = scenario.parts, scenario.emulated
        loop.freezes = Part.STALLS in self._parts  # type: ignore[attr-defined]  # of the shuffled loop
        self.server = SimulatedServer(self._server_clock(clock), self.trace)
        self._faults = Faults(self._seed, self.steps, scenario.rates)
        self._outages = Outages(Random(f"{self._seed} outages"), self.trace, self.steps, self.server.break_watches)
        self._context = SimulationContext(self.server, self._outages, clock, self._faults, self.trace, self.marks)
        self._processes: list[Process] = []
        self._witness = Witness(self.server, self.report, self._processes)
        self._leader = ""
        self.server.lease_changed = self._lease_changed
        self.server.add_partitions(scenario.partitions)
        self.server.partition_changed = self._partition_changed
        #: The last holder of each partition, by number.
        self._holders: dict[int, str] = {}

    def _server_clock(self, clock: VirtualClock) -> Clock:
        """The clock of the server, which may be an hour ahead or behind."""
        if not self._scenario.clock_offset:
            return clock
        skewed = JumpingClock(clock, Random(f"{self._seed} server clock"))
        skewed.set_offset(self._scenario.clock_offset)
        return skewed

    def _lease_changed(self) -> None:
        holder, before = self.server.lease.holder, self._leader
        if before and holder and holder.partition("/")[0] != before.partition("/")[0]:
            self.marks.reach(Mark.LEASE_CHANGED_HANDS)
        for process in self._processes:
            if process.identity == before:
                process.lookout.lost_lead()
                if not holder:
                    self._witness.lease_released(process)
                if process.is_suspended:
                    self.marks.reach(Mark.SUSPENDED_PAST_LEASE)
                elif process.is_stalled:
                    self.marks.reach(Mark.STALLED_PAST_LEASE)
        self._leader = holder

    def _partition_changed(self, partition: int) -> None:
        holder, before = self.server.partition_leases[partition].holder, self._holders.get(partition, "")
        former = next((process for process in self._processes if process.identity == before), None)
        if former is not None and holder != before and former.is_binding_in(partition):
            self.marks.reach(Mark.PARTITION_LOST_IN_BINDING)
        if not holder:
            if former is not None and former.is_leader and former.stopped_at is None:
                self.marks.reach(Mark.PARTITION_HANDED_OVER)
                self._holders.pop(partition, None)
            return
        if before and holder != before:
            self.marks.reach(Mark.PARTITION_TAKEN_OVER)
        self._holders[partition] = holder

    def _unhandled(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        self.violations.append(f"unhandled: {context.get('message')}: {context.get('exception')!r}")

    async def run(self) -> None:
        """Run with faults, then without them until the final checks."""
        self.server.put(Namespace(metadata=ObjectMeta(name="default")))
        self.trace.note("simulation", f"emulates {self._minor}")
        for number, names in enumerate(self._scenario.processes):
            self._processes.append(self._process(number, names))
        kubelets = Kubelets(self.server, Random(f"{self._seed} kubelets"))
        storage = Storage(self.server, Random(f"{self._seed} storage"))
        devices = Devices(self.server, Random(f"{self._seed} devices"))
        spec_parts = [
            actor.spec_part for part, actor in ((Part.VOLUMES, storage), (Part.DEVICES, devices)) if part in self._parts
        ]
        people = Random(f"{self._seed} people")
        users = Users(
            self.server,
            people,
            scheduler_names=("foreign", *self._scenario.scheduler_names),
            nodes=self._scenario.nodes,
            pods=self._scenario.pods,
            spec_parts=spec_parts,
            steps=self.steps,
            sources=self._sources(people, "people"),
            pod_constraints=self._scenario.pod_constraints,
        )
        controllers = [asyncio.create_task(actor.run()) for actor in (kubelets, storage, devices)]
        disruptive = [asyncio.create_task(users.run())]
        if self._recordings is None:  # it reaches into the schedulers, past everything that is recorded
            disruptive.append(asyncio.create_task(self._decide_waiting_pods()))
        if Part.CLAIM_TEMPLATES in self._parts:
            of_workloads = Random(f"{self._seed} workloads")
            work = devices.run_workloads(users.create_waiting_pod, self.steps, of_workloads)
            disruptive.append(asyncio.create_task(work))
        late_changes: list[Callable[[], None]] = []
        if Part.VOLUMES in self._parts:
            late_changes += storage.helpful_changes(users.create_waiting_pod)
        if Part.DEVICES in self._parts:
            late_changes += devices.helpful_changes(users.create_waiting_pod)
        if Part.GANGS in self._parts:
            names = self._scenario.scheduler_names
            of_jobs = Random(f"{self._seed} jobs")
            jobs = Jobs(
                self.server,
                of_jobs,
                scheduler_names=names,
                spec_parts=spec_parts or [dict],
                steps=self.steps,
                sources=self._sources(of_jobs, "jobs"),
                are_units=self._minor.has(Behaviour.POD_GROUPS_ARE_UNITS),
                mixes_sizes=Part.GANG_SEARCH in self._parts,
            )
            disruptive.append(asyncio.create_task(jobs.run()))
            late_changes += jobs.helpful_changes()
        late_changes += users.helpful_changes(waits_on_permit=Part.PLUGIN in self._parts)
        tenants = Tenants(
            self.server,
            Random(f"{self._seed} tenants"),
            scheduler_name=self._scenario.scheduler_names[0],
            steps=self.steps,
        )
        if Part.STALLS in self._parts:
            disruptive.append(asyncio.create_task(tenants.run()))
        disturbing = [asyncio.create_task(self._disturb(process)) for process in self._processes]
        if Part.OUTAGES in self._parts:
            disturbing.append(asyncio.create_task(self._outages.run(lambda: self._faults.active)))
        restarting = [asyncio.create_task(self._restart(process)) for process in self._processes]
        await asyncio.sleep(self._scenario.seconds)
        while not self._scenario.is_cut and len(self.trace.lines) < self._scenario.min_events:
            await self.server.change()
        self._faults.active = False
        self.trace.note("simulation", "ends all faults")
        for task in disruptive:
            task.cancel()
        for actor in (kubelets, storage, devices):
            actor.churn = False
        for ended in await asyncio.gather(*disruptive, return_exceptions=True):
            if isinstance(ended, Exception):
                raise ended
        await asyncio.gather(*disturbing)
        if Part.STALLS in self._parts:
            await asyncio.sleep(_STALLS_FORGOTTEN)
        # A connection may have stalled long before.
        await self._rest(self._final_violations, shortest=_LONG_REST if Part.HTTP in self._parts else _SHORT_REST)
        is_long = self._has_own_rules or Part.LARGE in self._parts
        changes = [users.make_helpful_change] * (_MANY_HELPFUL_CHANGES if is_long else _HELPFUL_CHANGES)
        changes += [partial(self._take, change) for change in late_changes]
        for change in changes:
            change()
            while self._random.random() < _PROBABILITY_OF_ANOTHER:
                await asyncio.sleep(self._random.uniform(0.0, _LONGEST_ATTEMPT))
                users.make_helpful_change()
            if self._has_own_rules:
                await asyncio.sleep(_SHORT_REST)
                await self._check_that_restarts_change_nothing()
                continue
            # kube-scheduler's hints do not cover every node that the anti-affinity of other pods releases.
            # Before v1.36 they cover less.
            # Between partitions a pod is offered, declined, and tried again after a backoff.
            is_certain = self._minor == DEFAULT_MINOR and not (users.uses_pod_constraints or self._scenario.partitions)
            await self._rest(self._unscheduled, longest=_SHORT_REST if is_certain else None)
        if Part.STALLS in self._parts:
            await self._check_victims(tenants)
            if self._scenario.leader_election:
                await self._suspend_leader(users.create_pods)
        await self._rest(self._final_violations, longest=1.0)
        for task in restarting:
            task.cancel()
        for process in self._processes:
            self._take(users.create_pods)
            await asyncio.sleep(self._random.uniform(0.0, _LONGEST_ATTEMPT))
            await self._stop(process)
        for task in controllers:
            task.cancel()

    def _take(self, change: Callable[[], None]) -> None:
        """Make a change of an actor, which is a step."""
        if self.steps.takes(f"change: {change.__name__.strip('_').replace('_', ' ')}"):
            change()

    def _sources(self, first: Random, actor: str) -> StepRandom:
        return StepRandom(first, f"{self._seed} {actor}", is_independent=self._scenario.independent_steps)

    def _process(self, number: int, names: Sequence[str]) -> Process:
        features = Features(
            faulty_plugin=Part.PLUGIN in self._parts,
            faulty_extender=Part.EXTENDERS in self._parts,
            leader_election=self._scenario.leader_election,
            http=Part.HTTP in self._parts,
            stalls=Part.STALLS in self._parts,
            gang_search=Part.GANG_SEARCH in self._parts,
            full_disk=Part.RECORDS in self._parts,
            flushes=self._scenario.flushes,
            plugins=self._scenario.plugins,
            configuration=self._scenario.configuration,
            minor=self._minor,
            partitions=self._scenario.partitions,
        )
        return Process(f"{self._seed}-{number}", names, self._context, features, self._witness, self._recordings)

    # -- checks of tenants, and reports -----------------------------------------------------------------------------

    async def _check_victims(self, tenants: Tenants) -> None:
        """A pod that fits is bound in time, whatever pods of a tenant come before it, and leaders are lost to one.

        The other pods of the tenant are held back then, but not for ever.
        """
        victim = tenants.create_victim("victim", STALL)
        await self._check_bound(victim, _VICTIM_SECONDS)
        tenants.clear()
        await asyncio.sleep(_STALLS_FORGOTTEN)
        if self._scenario.leader_election:
            victim, before = tenants.create_victim("victim-2", DEADLY_STALL), self.server.lease.acquisitions
            harmless = tenants.create_harmless("harmless")
            await self._check_bound(victim, _VICTIM_SECONDS_BY_ANOTHER_LEADER)
            await asyncio.sleep(_ONE_LEASE_SECONDS - _VICTIM_SECONDS_BY_ANOTHER_LEADER)
            if (leaders := self.server.lease.acquisitions - before) != 1:
                self.report(f"{leaders} leaders within {_ONE_LEASE_SECONDS:g} s of the first attempt that does not end")
            tenants.clear()
            await self._check_bound(harmless, _STALLS_FORGOTTEN)

    async def _suspend_leader(self, create_pods: Callable[[], None]) -> None:
        """Another process becomes the leader, and is quiescent; the former one finds pods to try when it goes on."""
        for process in self._processes:
            if process.alive and process.is_leader and process.may_schedule:
                process.suspend(max(_SUSPENSIONS))
                self._take(create_pods)
        await asyncio.sleep(max(_SUSPENSIONS) + _LONGEST_REST)

    async def _check_bound(self, victim: Pod, seconds: float) -> None:
        await asyncio.sleep(seconds)
        if not any(pod.metadata.uid == victim.metadata.uid and pod.spec.node_name for pod in self.server.pods()):
            self.report(f"{victim.metadata.name} is not bound within {seconds:g} s")

    def report(self, violation: str) -> None:
        self.trace.note("simulation", "VIOLATION", violation)
        self.violations.append(violation)

    @property
    def _has_own_rules(self) -> bool:
        """Whether a user's plugins decide where pods fit, too, so that only a scheduler itself can tell."""
        return bool(self._scenario.plugins or self._scenario.configuration)

    async def _check_that_restarts_change_nothing(self) -> None:
        """A scheduler that is started anew tries every pod: one that it binds was waiting for an event in vain.

        Not so gangs and preemptors: they may fit because others come later than they did before.
        """
        pending = {
            pod.metadata.uid: pod.metadata.name
            for pod in self.server.pods()
            if not pod.spec.node_name and "job" not in pod.metadata.labels and not pod.status.nominated_node_name
        }
        evictions = self.marks.counts[Mark.PREEMPTION]
        for process in self._processes:
            await self._stop(process)
            process.start()
        await asyncio.sleep(_SHORT_REST)
        if self.marks.counts[Mark.PREEMPTION] != evictions:
            return
        for pod in self.server.pods():
            if pod.metadata.uid in pending and pod.spec.node_name:
                self.report(
                    f"a restart changes nothing: {pod.metadata.name} ({pod.metadata.uid}) is bound to "
                    f"{pod.spec.node_name} after a restart; an event that helped it requeued it too late or never"
                )

    # -- faults of processes ---------------------------------------------------------------------------------------

    async def _disturb(self, process: Process) -> None:
        """Kill or stop and restart a process at random times."""
        while self._faults.active:
            await asyncio.sleep(self._random.expovariate(0.5))
            if self._faults.occurs(Fault.CLOCK_JUMPS):
                process.clock.jump()
            if not process.alive:
                continue
            if Part.STALLS in self._parts and self._faults.occurs(Fault.SUSPENDED):
                process.suspend(self._random.choice(_SUSPENSIONS))
            if self._faults.occurs(Fault.KILLED):
                await process.kill()
            elif self._faults.occurs(Fault.STOPPED):
                await self._stop(process)
            else:
                continue
            await asyncio.sleep(self._random.uniform(0.0, 3.0))
            process.start()

    async def _restart(self, process: Process) -> None:
        """Restart a process whenever it ends because it has lost its lease."""
        while True:
            running = process.running
            await asyncio.wait([running])
            await asyncio.sleep(self._random.uniform(0.5, 2.0))
            if running is process.running and not running.cancelled() and isinstance(running.exception(), LeaseLost):
                self.trace.note(process.name, running.exception())
                self._check_tasks(process, await process.reap())
                process.start()

    async def _stop(self, process: Process) -> None:
        self._check_tasks(process, await process.stop())

    def _check_tasks(self, process: Process, left: Sequence[str]) -> None:
        if left:
            self.report(f"{process.name} has ended and left tasks running: {', '.join(left)}")

    async def _decide_waiting_pods(self) -> None:
        """Allow and reject pods that wait at Permit."""
        while True:
            await asyncio.sleep(self._random.uniform(0.1, 2.0))
            for process in self._processes:
                for waiting in process.scheduler.waiting_pods.all():
                    if self._random.random() < 0.3:
                        waiting.allow(NAME)
                    elif self._random.random() < 0.1:
                        waiting.reject(NAME, "no")

    # -- final checks ----------------------------------------------------------------------------------------------

    async def _rest(
        self, check: Callable[[], Iterator[str]], *, shortest: float = _SHORT_REST, longest: float | None = None
    ) -> None:
        """Wait until a check finds no violations; a large simulation always waits for the longest time.

        The last check is repeated after a second, because a timer may fire at the very moment of the check.
        """
        if longest is None:
            longest = _LONG_REST if self._minor == DEFAULT_MINOR else _LONGEST_REST
        shortest = longest if Part.LARGE in self._parts else min(shortest, longest)
        for seconds in (shortest, longest - shortest, 1.0):
            await asyncio.sleep(seconds)
            violations = list(check())
            if not violations:
                return
        self.violations += violations

    def _final_violations(self) -> Iterator[str]:
        for process in self._processes:
            yield from violations(Rested(self.server, process))
        if not self._has_own_rules:
            yield from violations(self._settled(self._processes))

    def _unscheduled(self) -> Iterator[str]:
        if self._has_own_rules:
            return
        yield from violations(self._settled())

    def _settled(self, processes: Sequence[Process] = ()) -> Settled:
        return Settled(self.server, self._scenario.scheduler_names, processes, flushes=self._scenario.flushes)


class _LoggedErrors(logging.Handler):
    """Reports every exception that the scheduler logs, except injected ones, as a violation."""

    def __init__(self, violations: list[str], marks: Marks) -> None:
        super().__init__(logging.ERROR)
        self._violations, self._marks = violations, LoggedMarks(marks)

    def emit(self, record: logging.LogRecord) -> None:
        self._marks.emit(record)
        error = record.exc_info[1] if record.exc_info else None
        if error is not None and not isinstance(error, InjectedError):
            self._violations.append(f"nothing unexpected is logged: {record.getMessage()}: {error!r}")

    def __enter__(self) -> None:
        logger = logging.getLogger("kubestow")
        self._propagated, logger.propagate = logger.propagate, False
        logger.addHandler(self)

    def __exit__(self, *_: object) -> None:
        logger = logging.getLogger("kubestow")
        logger.removeHandler(self)
        logger.propagate = self._propagated
