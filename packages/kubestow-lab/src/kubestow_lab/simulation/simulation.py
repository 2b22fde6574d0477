"""The simulation of a scheduler on a cluster, in virtual time.

:class:`Simulation` runs the scheduler itself: its queue with backoff and queueing hints, its cycles with Permit,
preemption and gangs, on an API server in memory and a clock that jumps from event to event. Nothing is modelled beside
it but the time that an attempt takes. A run depends on its input and its seed alone.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import repeat
from random import Random
from typing import Any

from kubestow import config, gc_tuning
from kubestow.api.core import Node, Pod
from kubestow.client.http_json import STAND_IN
from kubestow.engine import virtual_time
from kubestow.engine.cluster_api.volume_controller import in_load_order
from kubestow.engine.input.cluster_objects import ClusterObjects, custom_objects
from kubestow.engine.job_admission import AdmissionQueues
from kubestow.engine.pipeline.offline_scheduler import Configuration, SchedulerOptions, emulating, extenders_text
from kubestow.engine.turns import SchedulerInTurns, Turns, TurnTimer
from kubestow.errors import InputError, Unreachable
from kubestow.framework.interface import Plugin, ReportingPlugin
from kubestow.framework.profile import Registry
from kubestow.log_fields import fields
from kubestow.plugins.registry import find_pod_group_apis
from kubestow.reports.model import counted
from kubestow.rules.requests import requests_by_spec
from kubestow.scheduling.decision.node_selection import FirstByName
from kubestow.scheduling.environment import ASYNCIO, Concurrency, Environment
from kubestow.scheduling.queued_pod import Place
from kubestow.scheduling.scheduler import Scheduler
from kubestow_lab.simulation.arrivals import Arrival, Arrivals
from kubestow_lab.simulation.drivers import needs_event_loop
from kubestow_lab.simulation.job_controller import JobController
from kubestow_lab.simulation.loaded_cluster import LoadedCluster
from kubestow_lab.simulation.node_metrics import Measurements
from kubestow_lab.simulation.outcomes import OutcomeRecorder, OutcomeState, PodOutcome
from kubestow_lab.simulation.plugin_failures import collect_failures, hold_back_records
from kubestow_lab.simulation.simulated_cluster import ArrivalListener, SimulatedCluster
from kubestow_lab.simulation.simulation_result import Busiest, NodeState, SimulationResult
from kubestow_lab.simulation.timeline import RequestedAmounts, Timeline, TypicalPods

_log = logging.getLogger(__name__)

#: How long the scheduler may be busy after the last arrival or departure without binding a pod, in virtual seconds.
_MAX_IDLE = 900.0
#: Between two checks whether the scheduler has nothing left to do, in virtual seconds.
_CHECK_PERIOD = 1.0
#: So many decisions pass between two reports of progress.
_PROGRESS_PERIOD = 256


@dataclass(frozen=True, slots=True)
class SimulationOptions:
    """How a simulation is run.

    ``seed`` determines all random choices. ``ties`` is ``random`` or ``name``: which of the nodes with the highest
    score is chosen. ``until`` ends the run at a time, in seconds; None runs until nothing is left to happen. Without
    ``departures`` pods run for ever, without ``replacements`` evicted pods are not created anew.
    ``attempt_seconds`` is the virtual time that one scheduling attempt takes. ``unschedulable_timeout`` is the time, in
    seconds, after which a pod is tried again without an event (semantics 6.7); by default it never is, because nothing
    has changed for it. ``samples`` is about how many samples the timeline has. ``measurements`` are the metrics of
    nodes for plugins that read some; without them, pods use what they request. No server of metrics is asked.
    ``driver`` is ``auto`` or ``scheduler``: the latter runs the scheduler on an event loop even if the simulation is
    one that its engine can do in turns, with the same result (:mod:`kubestow.engine.turns`).
    """

    seed: int = 0
    ties: str = "random"
    until: float | None = None
    departures: bool = True
    replacements: bool = True
    attempt_seconds: float = 0.001
    unschedulable_timeout: float = math.inf
    samples: int = 100
    measurements: Measurements | None = None
    driver: str = "auto"

    def __post_init__(self) -> None:
        for name, values in (("ties", ("random", "name")), ("driver", ("auto", "scheduler"))):
            if getattr(self, name) not in values:
                raise InputError(name, f"expected {' or '.join(values)}, got {getattr(self, name)!r}")


@dataclass(frozen=True, slots=True)
class SimulationProgress:
    """How far a simulation is: pods that have been decided about, of all pods, and virtual time in seconds."""

    pods: int
    total: int
    time: float


@dataclass(slots=True, repr=False)
class Simulation:
    """A cluster, the pods that arrive, and a scheduler with its configuration and plugins.

    ``configuration`` is a KubeSchedulerConfiguration: a file, plain data, or None for the defaults. ``plugins`` are
    further plugin classes. ``emulated_version`` is the minor version to decide as, such as "1.33"; without it, that of
    the ``gates``. Each call of :meth:`run` starts from the same state. ``recorder`` makes the observer of a
    run, which may record more than the outcomes. ``admission`` makes the queues in which the jobs of ``arrivals``
    wait, as they are at a time in seconds since the epoch. Constructing it raises ConfigurationError for an invalid
    configuration.
    """

    cluster: ClusterObjects
    arrivals: Arrivals = field(default_factory=Arrivals)
    configuration: Configuration = None
    plugins: Sequence[type[Plugin]] = ()
    gates: config.FeatureGates = field(default_factory=config.FeatureGates)
    options: SimulationOptions = field(default_factory=SimulationOptions)
    recorder: Callable[..., OutcomeRecorder] = OutcomeRecorder
    emulated_version: str = ""
    admission: Callable[[float], AdmissionQueues] | None = None

    def __post_init__(self) -> None:
        self.gates = emulating(self.gates, self.emulated_version)
        self.registry()  # names clash here rather than in the middle of a notebook
        self.configuration = SchedulerOptions(self.configuration, self.plugins, self.gates).read_configuration()

    def __repr__(self) -> str:
        """The cluster and the pods that arrive."""
        return f"<Simulation of {self.arrivals!r} on {self.cluster!r}>"

    def registry(self) -> Registry:
        """All plugin classes by name."""
        return SchedulerOptions(plugins=self.plugins, gates=self.gates).registry()

    def load_cluster(self) -> LoadedCluster | None:
        """The cluster, listed by a scheduler, for a run of this or another simulation of it with the same gates.

        None if it has to be listed by each scheduler. Raises PluginError when the constructor of a plugin fails.
        """
        if self.cluster.custom_resources or self.admission is not None:
            return None
        pending = [pod for pod in self.cluster.pods if not pod.spec.node_name]
        unplaced = self.cluster.altered(pods=pending)
        with gc_tuning.paused(), hold_back_records() as records:
            begun = RunInTurns(replace(self, arrivals=Arrivals()))
        if begun.turns.refusal or records.any:
            return None
        loaded = LoadedCluster(self.cluster, unplaced, self.gates, begun.api, begun.scheduler.listed)
        return loaded if loaded.suits(begun.scheduler) else None

    def run(
        self,
        progress: Callable[[SimulationProgress], None] = lambda progress: None,
        *,
        loaded: LoadedCluster | None = None,
    ) -> SimulationResult:
        """Run to the end; ``progress`` is called now and then.

        ``loaded`` is this simulation's cluster, loaded before (:meth:`load_cluster`); the run uses it up. Also works
        where an event loop runs already, such as in a notebook. Raises PluginError when the constructor of a plugin
        fails.
        """
        simulation = self
        if loaded is not None and self.admission is None and loaded.holds(self.cluster, self.arrivals, self.gates):
            simulation = replace(self, cluster=loaded.unplaced)
        else:
            loaded = None

        def run() -> SimulationResult:
            options = self.options
            reason = needs_event_loop(
                simulation.cluster,
                self.arrivals,
                driver=options.driver,
                recorder=self.recorder,
                attempt_seconds=options.attempt_seconds,
            )
            with gc_tuning.paused():
                if not reason:
                    with hold_back_records() as records:
                        in_turns = RunInTurns(simulation, progress, loaded)
                        if not in_turns.has_begun:
                            in_turns = RunInTurns(self, progress)
                        done = in_turns.result()
                    reason = in_turns.turns.refusal or records.first_error
                    if done is not None and not reason:
                        records.emit_all()
                        return done
                _log.info("the whole scheduler runs the simulation: %s", reason, extra=fields(reason=reason))
                with collect_failures() as collected:
                    result = virtual_time.run(_run_on_event_loop(self, progress))
            run = {**result.run, "driver": "scheduler", "driverReason": reason}
            return replace(result, plugin_failures=collected.failures, run=run)

        if not _event_loop_runs():
            return run()
        with ThreadPoolExecutor(max_workers=1) as executor:
            return executor.submit(run).result()

    def cluster_after(self, result: SimulationResult) -> ClusterObjects:
        """The cluster as a run left it."""
        api = result.api
        others = [obj for obj in api.all_objects() if not isinstance(obj, (Node, Pod))]
        return self.cluster.altered(nodes=api.nodes(), pods=api.pods(), objects=others, custom_resources=())


def _event_loop_runs() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


class _Run:
    """One run of a simulation in virtual time, whatever makes time pass."""

    def __init__(
        self,
        simulation: Simulation,
        progress: Callable[[SimulationProgress], None],
        time: virtual_time.VirtualTimeLoop | Turns,
        scheduler_kind: Callable[..., Scheduler],
        concurrency: Concurrency = ASYNCIO,
        loaded: LoadedCluster | None = None,
    ) -> None:
        self._simulation, self._options = simulation, simulation.options
        self._progress = progress
        self._pending = [Arrival(pod, 0.0, None, {}) for pod in simulation.cluster.pods if not pod.spec.node_name]
        self._last_change = 0.0
        self._decisions = 0
        #: The servers that plugins wanted to ask, by URL.
        self._unasked: dict[str, None] = {}
        #: The pods that have not arrived yet, in the order of their times.
        self._arriving = deque(simulation.arrivals.pods)
        self._time, options = time, self._options
        clock = virtual_time.VirtualClock(time, simulation.cluster.time(virtual_time.EPOCH))
        self._recorder = recorder = simulation.recorder(
            time.time, after_attempt=self._attempted, on_change=self._changed
        )
        listener: ArrivalListener = recorder
        self._jobs: JobController | None = None
        if simulation.admission is not None:
            self._queues = simulation.admission(clock.now().timestamp())
            admission, jobs = simulation.cluster.admission, simulation.arrivals.jobs
            listener = self._jobs = JobController(self._queues, jobs, admission, clock, time, recorder)
        self.api = api = SimulatedCluster() if loaded is None else loaded.api
        api.serve(
            clock,
            time,
            listener,
            departures=options.departures,
            replaces=options.replacements,
            measurements=options.measurements,
        )
        self._clock, self._random = clock, Random(options.seed)
        # Pending pods arrive once the scheduler runs.
        given, ties = simulation, FirstByName() if options.ties == "name" else None
        objects = in_load_order((*given.cluster.objects, *given.arrivals.objects))
        placed = (pod for pod in given.cluster.pods if pod.spec.node_name)
        for obj in () if loaded is not None else (*given.cluster.nodes, *objects, *placed):
            api.put(obj)
        assert isinstance(given.configuration, config.KubeSchedulerConfiguration)
        self._scheduler = scheduler = scheduler_kind(
            given.configuration,
            registry=given.registry(),
            environment=Environment(
                api,
                clock,
                self._random,
                recorder,
                ties,
                stopwatch=repeat(0.0).__next__,  # calls take no virtual time
                concurrency=concurrency,
            ),
            gates=given.gates,
            pod_group_apis=find_pod_group_apis(),
            pod_max_in_unschedulable_pods=options.unschedulable_timeout,
            listed=None if loaded is None else loaded.listed,
        )
        custom_resources = (*given.cluster.custom_resources, *given.arrivals.custom_resources)
        for obj in custom_objects(custom_resources, scheduler.custom_kinds):
            api.put(obj)
        self._timeline = self._new_timeline()

    def _new_timeline(self) -> Timeline:
        arriving = [arrival.pod for arrival in (*self._pending, *self._simulation.arrivals.pods)]
        typical = TypicalPods(_requests(arriving or self._simulation.cluster.pods))
        departing = sum(1 for arrival in self._simulation.arrivals.pods if arrival.duration is not None)
        changes = 2 * len(arriving) + (departing if self._options.departures else 0)
        return Timeline(
            self._scheduler.cluster,
            typical,
            stride=changes // max(1, self._options.samples),
            pending=lambda: self._recorder.counts.pending,
        )

    def _attempted(self) -> None:
        """A decision about a pod was made, which took some time."""
        self._time.advance(self._options.attempt_seconds)
        self._decisions += 1
        if self._decisions % _PROGRESS_PERIOD == 0:
            self._report_progress()

    def _report_progress(self) -> None:
        total = len(self._pending) + len(self._simulation.arrivals.pods)
        self._progress(SimulationProgress(min(self._recorder.counts.attempted, total), total, self._time.time()))

    def _changed(self) -> None:
        """A pod came or went."""
        self._last_change = now = self._time.time()
        self._timeline.changed(now)

    def _stand_in(self, url: str, path: str, query: Mapping[str, str]) -> Any:
        """The answer of a server to a plugin. Raises Unreachable."""
        measured = self._options.measurements
        answer = None if measured is None else measured.answer(path, self._clock.now())
        if answer is None:
            self._unasked[url] = None
            raise Unreachable(url, "not asked in a simulation")
        return answer

    # -- driving ---------------------------------------------------------------------------------------------------

    def _steps(self) -> Generator[float, None, bool]:
        """Have the pods arrive, until nothing is left to happen; each step ends with the seconds until the next one.

        Returns False if that took too long.
        """
        self._timeline.sample(self._time.time())
        for arrival in self._pending:
            self.api.arrive(arrival)
        if self._jobs is not None:
            self._jobs.start(self.api)
        while True:
            if self._arriving:
                time = self._arriving[0].time
                if not (yield from self._wait_until(time)):
                    return True
                while self._arriving and self._arriving[0].time <= time:
                    self.api.arrive(self._arriving.popleft())
                continue
            if not (yield from self._wait_until(self._time.time() + _CHECK_PERIOD)):
                return True
            if self._is_idle():
                next_event = self._next_event()
                if next_event is None or not (yield from self._wait_until(next_event)):
                    return True
            elif self._time.time() - self._last_change > _MAX_IDLE:
                return False

    def _next_event(self) -> float | None:
        """When the next pod leaves, or something happens to a job; None if nothing does."""
        times = (self.api.next_departure(), None if self._jobs is None else self._jobs.next_event())
        return min((time for time in times if time is not None), default=None)

    def _wait_until(self, time: float) -> Generator[float, None, bool]:
        """Let the scheduler run until a time; False if the simulation ends before that."""
        until = self._options.until
        ends = until is not None and time > until
        seconds = (until if ends and until is not None else time) - self._time.time()
        if seconds > 0:
            yield seconds
        return not ends

    def _is_idle(self) -> bool:
        """Whether nothing happens unless a pod arrives or leaves."""
        scheduler = self._scheduler
        if scheduler.queue.has_work:  # so there is no need to count thousands of pods
            return False
        counts = scheduler.queue.counts()
        if counts[Place.GATED] and self._time.time() - self._last_change <= scheduler.longest_pause:
            return False  # periodic work of a plugin may admit them
        return not scheduler.queue.is_busy(self._last_change) and not scheduler.work_in_progress

    # -- results ---------------------------------------------------------------------------------------------------

    def _collect(self, settled: bool) -> SimulationResult:
        now = self._time.time()
        self._report_progress()
        self._timeline.sample(now)
        outcomes = self._recorder.take_outcomes()
        for uid, outcome in outcomes.items():
            if outcome.state is OutcomeState.PENDING and not outcome.message:
                outcome.message = self._why_untried(uid)
        if self._jobs is not None:
            self._jobs.describe_waiting()
        return SimulationResult(
            outcomes=tuple(outcomes.values()),
            nodes=self._node_states(self._timeline.amounts(now)),
            timeline=tuple(self._timeline.samples),
            resources=tuple(self._timeline.resources),
            mean_requested=tuple(
                amount + self._recorder.placed.mean(name, now)
                for name, amount in zip(self._timeline.resources, self._timeline.samples[0].requested, strict=True)
            ),
            api=self.api,
            remarks=tuple(self._remarks(outcomes.values(), settled)),
            run={
                "emulatedVersion": str(self._simulation.gates.minor),
                **({"serverVersion": server} if (server := self._simulation.cluster.server_version) else {}),
                "seed": self._options.seed,
                "ties": self._options.ties,
                "seconds": round(now, 6),
                "attempts": self._recorder.counts.attempts,
                "preemptions": self._recorder.counts.preemptions,
                "driver": "engine",
            },
            preemptions=tuple(self._recorder.preemptions),
            busiest=self._busiest(),
            refused=(*self._simulation.arrivals.refused, *(() if self._jobs is None else self._jobs.refused())),
            jobs=() if self._jobs is None else tuple(self._jobs.outcomes),
            plugin_reports={
                plugin.name: plugin.report()
                for profile in self._scheduler.profiles.values()
                for plugin in profile.plugins
                if isinstance(plugin, ReportingPlugin)
            },
        )

    def _why_untried(self, uid: str) -> str:
        """Why no attempt was made to schedule a pod."""
        queued = self._scheduler.queue.pods.get(uid)
        if queued is not None:
            reason = f"gated by {queued.gated_by}: {queued.gate_message}"
            return reason if queued.gated_by else "not attempted before the end"
        info = self._scheduler.pods.get(uid)
        if info is not None and info.terminating:
            return "is being deleted"
        if info is not None and info.spec.scheduler_name not in self._scheduler.profiles:
            return f"no profile has the scheduler name {info.spec.scheduler_name}"
        return "not attempted before the end"

    def _node_states(self, amounts: RequestedAmounts) -> tuple[NodeState, ...]:
        nodes, resources = self._scheduler.cluster.all_nodes(), self._timeline.resources
        columns = [(name, amounts.requested[name].tolist(), nodes.allocatable(name).tolist()) for name in resources]
        pods = amounts.pods.tolist()
        states = (
            NodeState(
                name,
                pods[row],
                {resource: requested[row] for resource, requested, _ in columns},
                {resource: allocatable[row] for resource, _, allocatable in columns},
            )
            for row, name in enumerate(nodes.names)
        )
        return tuple(sorted(states, key=lambda state: state.name))

    def _busiest(self) -> Busiest | None:
        """Nodes do not come and go, so the rows are those of the end."""
        busiest, last = self._timeline.busiest, self._timeline.samples[-1]
        if busiest is None or int(busiest.pods.sum()) == last.pods:
            return None
        return Busiest(busiest.time, self._node_states(busiest))

    def _remarks(self, outcomes: Iterable[PodOutcome], settled: bool) -> Iterable[str]:
        configuration = self._simulation.configuration
        assert isinstance(configuration, config.KubeSchedulerConfiguration)
        if configuration.extenders:
            yield extenders_text(len(configuration.extenders))
        yield from self._simulation.arrivals.remarks
        if self._jobs is not None:
            yield from self._queues.remarks
        measured = self._options.measurements
        for url in self._unasked:
            stand_in = "a file can stand in for a load-watcher (--measurements)"
            if measured is not None:
                stand_in = (
                    f"{measured.subject} does not stand in for it, that would be the response to GET {url}/watcher"
                )
            yield f"{url} was not asked for measurements; {stand_in}"
        if not settled:
            yield f"the scheduler was still busy {_MAX_IDLE:.0f} s after the last pod came or went"
        unreplaced = [o for o in outcomes if o.state is OutcomeState.PREEMPTED and not o.owner]
        if unreplaced:
            pods = counted(len(unreplaced), "preempted pod was", "preempted pods were")
            yield f"{pods} not created anew, for want of a controller"


async def _run_on_event_loop(
    simulation: Simulation, progress: Callable[[SimulationProgress], None]
) -> SimulationResult:
    return await _RunOnEventLoop(simulation, progress).result()


class _RunOnEventLoop(_Run):
    """A run on the running event loop, which has virtual time."""

    def __init__(self, simulation: Simulation, progress: Callable[[SimulationProgress], None]) -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, virtual_time.VirtualTimeLoop)
        super().__init__(simulation, progress, loop, Scheduler)

    async def result(self) -> SimulationResult:
        """Run the scheduler until nothing is left to happen, and collect the results."""
        STAND_IN.set(self._stand_in)
        running = asyncio.create_task(self._scheduler.run())
        try:
            await self._scheduler.started()
            settled = await self._drive(running)
            return self._collect(settled)
        finally:
            running.cancel()
            await asyncio.wait((running,))

    async def _drive(self, running: asyncio.Task[None]) -> bool:
        steps = self._steps()
        while True:
            try:
                seconds = next(steps)
            except StopIteration as end:
                settled: bool = end.value
                return settled
            await asyncio.sleep(seconds)
            if running.done():
                running.result()


class RunInTurns(_Run):
    """A run without an event loop, which can be made in parts.

    On a ``loaded`` cluster it only begins (:attr:`has_begun`) if that suits its scheduler.
    """

    def __init__(
        self,
        simulation: Simulation,
        progress: Callable[[SimulationProgress], None] = lambda progress: None,
        loaded: LoadedCluster | None = None,
    ) -> None:
        self.turns = Turns()
        kind = partial(SchedulerInTurns, turns=self.turns)
        super().__init__(simulation, progress, self.turns, kind, concurrency=self.turns, loaded=loaded)
        self._result: SimulationResult | None = None
        self._steps_left = self._steps()
        self._next_step: TurnTimer | None = None
        assert isinstance(self._scheduler, SchedulerInTurns)
        self.scheduler = scheduler = self._scheduler
        self.has_begun = loaded is None or loaded.suits(scheduler)
        if not self.has_begun:
            return
        with self._standing_in():
            if loaded is None:
                scheduler.begin(self.api.begin_watch)
            else:
                self.api.pass_watch_to(scheduler.handlers)
                scheduler.begin_listed()
        self.api.report_pods_to(scheduler.handlers, scheduler.pods.get)
        self.turns.call_soon(self._take_step)

    @contextmanager
    def _standing_in(self) -> Iterator[None]:
        token = STAND_IN.set(self._stand_in)
        try:
            yield
        finally:
            STAND_IN.reset(token)

    def result(self) -> SimulationResult | None:
        """Run until nothing is left to happen, and collect the results; None after a refusal."""
        turns = self.turns
        try:
            with self._standing_in():
                while self._result is None and not turns.refusal:
                    self._turn()
                # What is in progress ends, as when a scheduler is shut down.
                while self.scheduler.work_in_progress and not turns.refusal:
                    self._turn()
        finally:
            turns.close()
        return self._result

    def run_until(self, time: float) -> SimulationProgress:
        """Run until a time, in seconds; everything that is due then has happened. How far the simulation is."""
        with self._standing_in():
            while self._result is None and not self.turns.refusal and self.turns.next_call() <= time:
                self._turn()
        total = len(self._pending) + len(self._simulation.arrivals.pods)
        return SimulationProgress(min(self._recorder.counts.attempted, total), total, self.turns.time())

    def _turn(self) -> None:
        """Make a turn. A failure is left to the scheduler, whose handling of failures needs an event loop."""
        try:
            self.turns.turn()
        except Exception as error:
            self.turns.refuse(f"{type(error).__name__}: {error}")

    def arrive(self, arrivals: Sequence[Arrival]) -> None:
        """Have more pods arrive, at their times or now if these have passed."""
        self._arriving = deque(sorted((*self._arriving, *arrivals), key=lambda arrival: arrival.time))
        timer = self._next_step
        if timer is not None and self._arriving and self._arriving[0].time < timer.when():
            timer.cancel()
            self._continue_after(max(0.0, self._arriving[0].time - self.turns.time()))

    def seed(self, seed: int) -> None:
        """Make the random choices from now on by another seed."""
        self._random.seed(seed)
        self._options = replace(self._options, seed=seed)

    def _take_step(self) -> None:
        self._next_step = None
        self.scheduler.begin_arrivals()
        try:
            seconds = next(self._steps_left)
        except StopIteration as end:
            self.scheduler.handlers.queue_aside()
            self._result = self._collect(end.value)
            self.turns.call_soon(self.scheduler.stop)
        else:
            self._continue_after(seconds)
        self.scheduler.end_arrivals()

    def _continue_after(self, seconds: float) -> None:
        self._next_step = self.turns.continue_after(seconds, self._take_step)


def _requests(pods: Iterable[Pod]) -> Iterator[Mapping[str, int]]:
    """The requests of each pod; most pods share their spec with others."""
    known: dict[int, Mapping[str, int]] = {}
    for pod in pods:
        requests = known.get(id(pod.spec))
        if requests is None:
            requests = known[id(pod.spec)] = requests_by_spec(pod)
        yield requests
