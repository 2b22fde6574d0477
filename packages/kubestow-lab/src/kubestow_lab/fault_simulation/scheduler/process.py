"""A scheduler process that is started, stopped gracefully, killed at any moment, and restarted.

Every task is recorded with the process that started it, so that killing a process cancels all its tasks, and so that
tasks that outlive a graceful shutdown are found.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from contextvars import Context, ContextVar, copy_context
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import Any, Protocol

from msgspec import structs

from kubestow import config
from kubestow.api.core import Pod
from kubestow.client.leader_election import LeaderElector, LeaseLock, LeaseTimings
from kubestow.client.partition_election import COUNT_ANNOTATION, PartitionElection
from kubestow.client.supervised_election import SupervisedElection
from kubestow.cluster.pods.shapes import PodInfo
from kubestow.engine.input.documents import read_yaml
from kubestow.errors import InputError, LeaseLost
from kubestow.flight_record.journal import Journal
from kubestow.flight_record.recording import FlightRecorder
from kubestow.framework.interface import Plugin
from kubestow.framework.profile import implements
from kubestow.observability.observability import CompositeObserver
from kubestow.plugins import in_tree_registry
from kubestow.plugins.registry import find_plugins, find_pod_group_apis, referenced_plugins
from kubestow.process import Heartbeat
from kubestow.rules.minors import DEFAULT_MINOR, Behaviour, Minor
from kubestow.scheduling.decision.result import Decision
from kubestow.scheduling.environment import Environment, Leadership
from kubestow.scheduling.events.resources import PODS
from kubestow.scheduling.interfaces import Clock, EventRecord
from kubestow.scheduling.observer import Disruption, Observer, Offer, Preemptor, Result
from kubestow.scheduling.partitions.held_partitions import HeldPartitions
from kubestow.scheduling.partitions.scheduler import PartitionedScheduler
from kubestow.scheduling.queued_pod import QueuedPod
from kubestow.scheduling.scheduler import Scheduler
from kubestow_lab.fault_simulation.apiserver.client import ClientHooks, SimulatedClient, SimulationContext
from kubestow_lab.fault_simulation.apiserver.server import key_of
from kubestow_lab.fault_simulation.apiserver.watch_view import DecisionSnapshot, WatchView
from kubestow_lab.fault_simulation.event_loop import Freeze, frozen_with
from kubestow_lab.fault_simulation.faults import Faults
from kubestow_lab.fault_simulation.marks import Mark
from kubestow_lab.fault_simulation.recording import RecordedFaults, Recording
from kubestow_lab.fault_simulation.scheduler.clock import JumpingClock
from kubestow_lab.fault_simulation.scheduler.delayed_computing import DelayedComputing
from kubestow_lab.fault_simulation.scheduler.faulty_extender import FaultyExtender
from kubestow_lab.fault_simulation.scheduler.faulty_plugin import ProvisioningPlugin, ReservationLedger, faulty_plugin
from kubestow_lab.fault_simulation.scheduler.lookout import Lookout
from kubestow_lab.fault_simulation.scheduler.stalls import NAME as STALLING_PLUGIN
from kubestow_lab.fault_simulation.scheduler.stalls import ElectionBeside, stalling_plugin

_GANG_SEARCH = "GangPlacementSearch"
#: Those of gangs, with topologies and preemption.
_GATES = dict.fromkeys(
    ("GenericWorkload", "GangScheduling", "TopologyAwareWorkloadScheduling", "WorkloadAwarePreemption"), True
)
#: The same in v1.37.
_GATES_OF_UNITS = dict.fromkeys(("GenericWorkload", "TopologyAwareWorkloadScheduling", "CompositePodGroup"), True)
#: Longest time of a graceful shutdown in seconds, which includes requests in flight.
_GRACE_PERIOD = 30.0
#: How the note of a Preempted event ends if the victim was not bound yet.
_STOPPED_IN_MEMORY = "(in kube-scheduler memory)."
#: How often a chunk of a record cannot be written, where disks are full at times.
_PROBABILITY_OF_FULL_DISK = 0.3
#: Between two looks whether a process has caught up, in seconds.
_CATCH_UP_PAUSE = 0.05

#: An ordered set: the order of a set of tasks does not depend on the seed.
Tasks = dict[asyncio.Task[Any], None]

_owner: ContextVar[Tasks | None] = ContextVar("owner", default=None)


def own_tasks(loop: asyncio.AbstractEventLoop) -> None:
    """Record for every task of a loop the process that started it."""

    def start(
        loop: asyncio.AbstractEventLoop, coroutine: Coroutine[Any, Any, Any], *, context: Context | None = None
    ) -> asyncio.Task[Any]:
        task = asyncio.Task(coroutine, loop=loop, context=context)
        owner = _owner.get()
        if owner is not None:
            owner[task] = None
            # Not a step of the scheduler, should that be recorded.
            task.add_done_callback(lambda done: owner.pop(done, None), context=Journal.outside())
        return task

    loop.set_task_factory(start)  # type: ignore[arg-type]  # typeshed lacks the context argument


@dataclass(frozen=True)
class Features:
    """What a process runs with: the faulty plugin, the faulty extender, leader election, watches over HTTP, gangs.

    ``minor`` is the emulated minor version.
    """

    faulty_plugin: bool
    faulty_extender: bool
    leader_election: bool
    http: bool
    stalls: bool = False
    #: Whether gangs that do not fit pod after pod are searched for, by a plugin of kubestow-contrib.
    gang_search: bool = False
    #: Whether the disk of the flight record, if there is one, is full at times.
    full_disk: bool = False
    #: Whether pods are tried again after five minutes without an event.
    flushes: bool = True
    #: References to plugins of a user, and the path of the configuration whose profiles the schedulers have.
    plugins: tuple[str, ...] = ()
    configuration: str = ""
    minor: Minor = DEFAULT_MINOR
    #: The number of partitions that the processes share, 0 if they share none.
    partitions: int = 0

    @property
    def gates(self) -> config.FeatureGates:
        """The feature gates of the scheduler: the defaults, and those of gangs in the versions that simulate them."""
        of_gangs = _GATES if self.minor == DEFAULT_MINOR else {}
        if self.minor.has(Behaviour.POD_GROUPS_ARE_UNITS):
            of_gangs = _GATES_OF_UNITS
        return config.FeatureGates(of_gangs, minor=self.minor)


def _with_plugins(profile: Mapping[str, Any], scheduler_name: str, names: Iterable[str]) -> dict[str, Any]:
    """A profile for a scheduler name, with further plugins at all their extension points."""
    plugins: Mapping[str, Any] = profile.get("plugins") or {}
    multi_point: Mapping[str, Any] = plugins.get("multiPoint") or {}
    enabled = [*(multi_point.get("enabled") or ()), *({"name": name} for name in names)]
    return {
        **profile,
        "schedulerName": scheduler_name,
        "plugins": {**plugins, "multiPoint": {**multi_point, "enabled": enabled}},
    }


class EndlessAttempts(BaseException):
    """A scheduler tries a pod again and again and lets nothing else happen; no handler of exceptions catches this."""


class SimulatedElector(LeaderElector):
    """Notes when a process gives up a Lease that it could not renew."""

    def __init__(self, process: Process, lock: LeaseLock, *, clock: Clock, timings: LeaseTimings) -> None:
        super().__init__(lock, clock=clock, timings=timings)
        self._process = process

    def loss(self) -> LeaseLost:
        self._process.has_lost_lease = True
        return super().loss()


class CatchingUp:
    """Assigns partitions to a process once its watch has shown what their former holders have written."""

    def __init__(self, process: Process) -> None:
        self._process = process

    async def take(self, partition: int, held_back: Mapping[str, float]) -> None:
        process = self._process
        versions = process.pod_versions()
        while not process.has_seen(versions):
            await process.clock.sleep(_CATCH_UP_PAUSE)
        await process.partitions.take(partition, held_back)

    async def drain(self, partition: int) -> None:
        await self._process.partitions.drain(partition)


class Checks(Protocol):
    """Called by processes at the moments at which invariants are checked."""

    def pod_attempted(self, process: Process, pod: Pod) -> bool:
        """The process has tried to find a node for a pod; whether it tries that for ever, without a pause."""

    def pod_decided(self, process: Process, pod: Pod, node_name: str) -> None:
        """The process has decided to bind a pod to a node."""

    def preemption_started(
        self, process: Process, preemptors: Sequence[Pod], node_name: str, victims: Sequence[Pod]
    ) -> None:
        """The process starts to evict victims on a node, or on several, for a pod or for the pods of a gang."""

    def evictions_ended(self, process: Process, preemptor: Pod, *, succeeded: bool) -> None:
        """The evictions for a pod, or for the gang of which it is the first pod, have been answered."""

    def watch_requested(self, process: Process, what: str, since: int, seen: int) -> None:
        """The process asks for the changes of a collection since a version, and has seen another one."""

    def binding_begun(self, process: Process, pod: Pod) -> None:
        """The process begins to bind a pod that it has placed."""

    def write_requested(self, process: Process, what: str) -> None:
        """The process sends a write that is no binding."""

    def write_cancelled(self, process: Process, what: str) -> None:
        """The process has cancelled a write on its way, a binding or another one."""

    def binding_requested(self, process: Process, uid: str) -> None:
        """The process sends a binding to the server."""

    def pod_bound(self, process: Process, uid: str, node_name: str) -> None:
        """The server has bound a pod at the request of the process."""


class Process(Observer):
    """A scheduler process that can be restarted; ``name`` identifies it to the server across restarts.

    ``recordings`` gets one of each start; None if none is recorded.
    """

    def __init__(
        self,
        name: str,
        scheduler_names: Sequence[str],
        context: SimulationContext,
        features: Features,
        checks: Checks,
        recordings: list[Recording] | None = None,
    ) -> None:
        self.name, self.scheduler_names = name, scheduler_names
        self._context, self.features, self._checks = context, features, checks
        self.minor, self._recordings = features.minor, recordings
        self.clock = JumpingClock(context.clock, Random(f"{name} clock"))
        self._starts = 0
        #: The times of the requests of all starts, and what was requested.
        self.requests: list[tuple[float, str]] = []
        self._tasks: Tasks = {}
        self._heartbeat = Heartbeat(self.clock.monotonic)
        self._recorder: FlightRecorder | None = None
        self._freeze = self._suspension = Freeze(asyncio.get_running_loop())
        self.start()

    # -- lifecycle -----------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Start a new process, which has no state of an older one."""
        self._starts += 1
        self._context.trace.note(self.name, "starts")
        self.ledger = ReservationLedger()
        self.lookout = Lookout(self._context.marks)
        self.view = WatchView(self.name, self._context.trace, self.lookout)
        self.snapshots: dict[str, DecisionSnapshot] = {}
        #: The times at which it has sent a binding of each pod.
        self.bind_attempts: dict[str, list[float]] = {}
        #: The pods that it has bound, as far as the server knows; uid and reason of the events that it has reported.
        self.bound: set[str] = set()
        self.reported: set[tuple[str, str]] = set()
        #: The pods that it has stopped in favour of others since it placed them, by uid.
        self.stopped_victims: set[str] = set()
        #: When it was stopped gracefully, in seconds of its clock; None while it was not.
        self.stopped_at: float | None = None
        #: When the last attempt of each pod has ended, if with an error, by uid, in seconds of its clock.
        self.failed_at: dict[str, float] = {}
        #: Whether it has given up a Lease that it could not renew.
        self.has_lost_lease = False
        #: The partitions that it holds.
        self.partitions = HeldPartitions(max(1, self.features.partitions))
        client = SimulatedClient(
            self.name,
            self._context,
            self.view,
            hooks=ClientHooks(
                before_binding=self._binding_requested,
                bound=self._bound,
                written=lambda what: self._checks.write_requested(self, what),
                cancelled=lambda what: self._checks.write_cancelled(self, what),
                watched=lambda what, since, seen: self._checks.watch_requested(self, what, since, seen),
                recorded=self._recorded,
            ),
            clock=self.clock,
            random=Random(f"{self.name} {self._starts} client"),
            http=self.features.http,
            requests=self.requests,
            stalls=self.features.stalls,
        )
        self.lookout.binding = client.binding
        self._tasks = {}
        context = copy_context()
        context.run(_owner.set, self._tasks)
        if self.features.stalls:
            self._freeze, self._suspension = (Freeze(asyncio.get_running_loop()) for _ in range(2))
            self.clock.ahead = lambda: self._freeze.left
            context.run(frozen_with.set, self._freeze)
        self.running: asyncio.Task[None] = context.run(self._run, client)

    def _run(self, client: SimulatedClient) -> asyncio.Task[None]:
        """Start the scheduler, recorded if the simulation is."""
        if self._recordings is None:
            self.scheduler = self._scheduler(client)
            return asyncio.create_task(self._run_with_heartbeat() if self.features.stalls else self.scheduler.run())
        self._recording = Recording(self.name, self.features.faulty_plugin)
        if self.features.full_disk:
            disk = Random(f"{self.name} {self._starts} disk")
            self._recording.is_full = lambda: self._is_disk_full(disk)
        self._recordings.append(self._recording)
        self._recorder = FlightRecorder(self._recording)
        self.scheduler = self._scheduler(client)
        return asyncio.create_task(self._recorder.run(self.scheduler))

    async def _run_with_heartbeat(self) -> None:
        beating = asyncio.create_task(self._heartbeat.run(self.clock.sleep))
        try:
            await self.scheduler.run()
        finally:
            beating.cancel()

    def _is_disk_full(self, random: Random) -> bool:
        """Whether a chunk of the record cannot be written."""
        is_full = self._context.faults.active and random.random() < _PROBABILITY_OF_FULL_DISK
        if is_full:
            self._context.marks.reach(Mark.RECORD_DISK_FULL)
        return is_full

    def _binding_requested(self, uid: str) -> None:
        self.bind_attempts.setdefault(uid, []).append(self.clock.monotonic())
        self._checks.binding_requested(self, uid)

    def _bound(self, uid: str, node_name: str) -> None:
        self.bound.add(uid)
        self._checks.pod_bound(self, uid, node_name)

    def _recorded(self, event: EventRecord) -> None:
        self.reported.add((event.regarding.uid, event.reason))
        if event.reason == "Preempted" and event.note.endswith(_STOPPED_IN_MEMORY):
            self.stopped_victims.add(event.regarding.uid)

    def _scheduler(self, client: SimulatedClient) -> Scheduler:
        recorder = self._recorder
        faults: Faults | RecordedFaults = self._context.faults
        if recorder is not None:
            faults = RecordedFaults(self._context.faults, self._recording.draws)
        of_permit: list[type[Plugin]] = []
        if self.features.faulty_plugin:
            of_permit += (faulty_plugin(faults, self.ledger), ProvisioningPlugin)
        plugins = [*of_permit]
        if self.features.stalls:
            random = Random(f"{self.name} {self._starts} stalls")
            plugins.append(stalling_plugin(self._freeze, random, lambda: self._context.faults.active))
        gates = self.features.gates
        of_user = referenced_plugins(self.features.plugins)
        if self.features.gang_search:
            plugins.append(find_plugins(minor=gates.minor)[_GANG_SEARCH])
        registry = in_tree_registry(gates.minor) | {plugin.name: plugin for plugin in (*plugins, *of_user)}
        names = ["GangScheduling"] if gates.enabled("GangScheduling") else []
        names += [plugin.name for plugin in of_permit]
        names += [_GANG_SEARCH] if self.features.gang_search else []
        names += [STALLING_PLUGIN] if self.features.stalls else []
        document = self._document(names, of_user)
        extenders = self._extenders(client)
        configuration = config.load(document, subject=self.name, gates=gates, implements=implements(registry))
        if recorder is not None:  # a replay has only the configuration
            configuration = structs.replace(configuration, extenders=[extender.settings for extender in extenders])
        create: Callable[..., Scheduler] = Scheduler if recorder is None else recorder.create_scheduler
        if self.features.partitions:
            create = partial(PartitionedScheduler, partitions=self.partitions)
        observer = CompositeObserver(self, self.lookout, *([] if recorder is None else [recorder]))
        scheduler = create(
            configuration,
            registry=registry,
            pod_group_apis=find_pod_group_apis(),
            gates=gates,
            environment=Environment(
                client,
                self.clock,
                Random(f"{self.name} {self._starts}"),
                observer,
                computing=DelayedComputing(
                    Random(f"{self.name} {self._starts} computing"),
                    lambda: self._context.trace.note(self.name, "computes"),
                ),
            ),
            extenders=extenders,
            leadership=self._leadership(client),
            pod_max_in_unschedulable_pods=300.0 if self.features.flushes else math.inf,
        )
        self.lookout.scheduler = scheduler
        return scheduler

    def _document(self, names: Sequence[str], of_user: Sequence[type[Plugin]]) -> dict[str, Any]:
        """The configuration: a profile for each scheduler name, like the user's if there is one, and further plugins.

        Without a configuration the plugins of the user are enabled as they are. Raises InputError.
        """
        document: dict[str, Any] = {"apiVersion": config.API_VERSION, "kind": config.KIND}
        profiles: list[dict[str, Any]] = [{}]
        if self.features.configuration:
            given = read_yaml(self.features.configuration)
            if not isinstance(given, dict):
                raise InputError(self.features.configuration, "expected a KubeSchedulerConfiguration")
            document["apiVersion"] = given.get("apiVersion", config.API_VERSION)
            profiles = given.get("profiles") or profiles
        else:
            names = [*names, *(plugin.name for plugin in of_user)]
        document["profiles"] = [
            _with_plugins(profiles[number % len(profiles)], name, names)
            for number, name in enumerate(self.scheduler_names)
        ]
        return document

    def _extenders(self, client: SimulatedClient) -> list[FaultyExtender]:
        if not self.features.faulty_extender:
            return []
        random = Random(f"{self.name} extender")
        ignorable, binds = random.random() < 0.5, random.random() < 0.5
        return [FaultyExtender(client, self._context.faults, self._context.marks, ignorable=ignorable, binds=binds)]

    def _leadership(self, client: SimulatedClient) -> Leadership | None:
        if self.features.partitions:
            return self._partition_election(client)
        return self._elector(client) if self.features.leader_election else None

    def _partition_election(self, client: SimulatedClient) -> Leadership:
        timings = LeaseTimings()
        transport = client.transport(timeout=timings.renew_deadline / 2)
        annotations = {COUNT_ANNOTATION: str(self.features.partitions)}
        electors = [
            SimulatedElector(
                self,
                LeaseLock(
                    transport,
                    identity=self.identity,
                    name=f"kube-scheduler-{partition}",
                    record=client.record,
                    annotations=annotations,
                ),
                clock=self.clock,
                timings=timings,
            )
            for partition in range(self.features.partitions)
        ]
        return PartitionElection(electors, CatchingUp(self), clock=self.clock, timings=timings)

    def has_seen(self, versions: Mapping[tuple[str, str], int]) -> bool:
        """Whether its watch has delivered these states of pods, by key, or later ones."""
        known = self.view.pods
        present = self.pod_versions()
        return all(
            int(known[key].metadata.resource_version) >= version if key in known else key not in present
            for key, version in versions.items()
        )

    def pod_versions(self) -> dict[tuple[str, str], int]:
        """The present states of the pods on the server, by key."""
        listed = self._context.server.listed(PODS)
        return {key_of(pod): int(pod.metadata.resource_version) for pod in listed}

    def _elector(self, client: SimulatedClient) -> Leadership:
        timings = LeaseTimings()
        transport = client.transport(timeout=timings.renew_deadline / 2)
        lock = LeaseLock(transport, identity=self.identity, record=client.record)
        if not self.features.stalls:
            return SimulatedElector(self, lock, clock=self.clock, timings=timings)
        clock, self._heartbeat = self.clock.never_ahead(), Heartbeat(self.clock.monotonic)
        elector = SimulatedElector(self, lock, clock=clock, timings=timings)
        election = SupervisedElection(elector, self._heartbeat, clock, attempted=lambda: self._freeze.cause)
        return ElectionBeside(election, self._suspension)

    @property
    def identity(self) -> str:
        """The identity in the Lease, which differs after every restart."""
        return f"{self.name}/{self._starts}"

    @property
    def is_leader(self) -> bool:
        """Whether the process takes itself for the leader, and schedules."""
        return self.scheduler.leadership.is_leader

    @property
    def may_schedule(self) -> bool:
        """Whether the Lease on the server allows the process to schedule, or any of those of partitions."""
        if self.features.partitions:
            return any(lease.holder == self.identity for lease in self._context.server.partition_leases)
        return not self.features.leader_election or self._context.server.lease.holder == self.identity

    def holds_on_server(self, partition: int) -> bool:
        """Whether the process holds the Lease of a partition, according to the server."""
        return self._context.server.partition_leases[partition].holder == self.identity

    def is_binding_in(self, partition: int) -> bool:
        """Whether a pod of a partition is placed, and not known to be bound."""
        if not self.features.partitions:
            return False
        return any(self.partitions.of_pod(placed.info) == partition for placed in self.scheduler.cluster.assumed())

    @property
    def ends_stall(self) -> bool:
        """Whether the process is blocked or suspended, or was until this moment or in the attempt in progress."""
        attempted = self.scheduler._attempted
        of_attempt = 0.0 if attempted is None else self.clock.monotonic() - attempted.attempt_began
        return self._freeze.has_been_within(of_attempt)

    @property
    def is_stalled(self) -> bool:
        """Whether a plugin blocks the process, or it is suspended."""
        return self._freeze.left > 0.0

    @property
    def is_suspended(self) -> bool:
        """Whether nothing of the process runs, its leader election included."""
        return self._suspension.left > 0.0

    def suspend(self, seconds: float) -> None:
        """Have nothing of the process run for so many seconds, its leader election included."""
        self._context.trace.note(self.name, f"is suspended for {seconds:g} s")
        self._suspension.stall(seconds, "")
        self._freeze.stall(seconds, self._freeze.cause)

    @property
    def alive(self) -> bool:
        """Whether the process runs."""
        return not self.running.done()

    async def stop(self) -> list[str]:
        """Stop gracefully; the names of tasks that are left."""
        self._context.trace.note(self.name, "stops")
        self.lookout.stopped()
        self.stopped_at = self.clock.monotonic()
        self.running.cancel()
        return await self.reap()

    async def reap(self) -> list[str]:
        """Wait for the end of the process, up to the grace period; the names of tasks that are left.

        A process that a plugin blocks cannot end by itself, so nothing is left that should not be.
        """
        was_stalled = self.is_stalled
        await asyncio.wait([self.running], timeout=_GRACE_PERIOD)
        await asyncio.sleep(1.0)
        left = sorted(str(task.get_coro().__qualname__) for task in self._tasks)  # type: ignore[union-attr]
        await self.kill()
        return [] if was_stalled else left

    async def kill(self) -> None:
        """Cancel all tasks at once."""
        self._context.trace.note(self.name, "is killed")
        if self.partitions.open_offers:
            self._context.marks.reach(Mark.OFFER_OUTLIVES_PROCESS)
        if self.alive:
            self.lookout.killed()
        self.stopped_at = None
        if self._recorder is not None:
            self._recorder.journal.close()
        while self._tasks:
            tasks = list(self._tasks)
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)

    # -- the observer's interface ----------------------------------------------------------------------------------

    def decision_made(self, decision: Decision, seconds: float) -> None:
        uid, node_name = decision.pod.uid, decision.node_name
        self._context.trace.note(self.name, "decides", decision.pod.key, node_name or decision.message)
        if self._checks.pod_attempted(self, decision.pod.pod):
            raise EndlessAttempts(decision.pod.key)
        if node_name is not None:
            self.stopped_victims.discard(uid)
            self.snapshots[uid] = self.view.snapshot(node_name)
            self._checks.pod_decided(self, decision.pod.pod, node_name)

    def preemption_started(
        self, preemptors: Sequence[PodInfo], node_name: str, victims: Sequence[PodInfo], disruption: Disruption
    ) -> None:
        names = [info.key for info in victims]
        self._context.trace.note(self.name, "preempts", *names, "on", node_name, "for", preemptors[0].key)
        self._checks.preemption_started(
            self, [info.pod for info in preemptors], node_name, [info.pod for info in victims]
        )

    def evictions_ended(self, preemptor: PodInfo, *, kind: Preemptor, succeeded: bool, seconds: float) -> None:
        self._checks.evictions_ended(self, preemptor.pod, succeeded=succeeded)

    def attempt_ended(self, queued: QueuedPod, result: Result, message: str, seconds: float) -> None:
        if result is Result.ERROR:
            self.failed_at[queued.info.uid] = self.clock.monotonic()
        else:
            self.failed_at.pop(queued.info.uid, None)

    def binding_started(self, info: PodInfo) -> None:
        self._checks.binding_begun(self, info.pod)

    def offer_ended(self, offer: Offer) -> None:
        if offer is Offer.ACCEPTED:
            self._context.marks.reach(Mark.OFFER_ACCEPTED)
        elif offer is Offer.DECLINED:
            self._context.marks.reach(Mark.OFFER_DECLINED)

    def pod_bound(self, queued: QueuedPod, node_name: str, seconds: float) -> None:
        self._context.trace.note(self.name, "observes the binding of", queued.info.key, "to", node_name)
