"""Recording: a scheduler built on recorded interfaces, and run so that each of its steps is known.

The scheduler is the same as without a recorder. Its event loop has to be a
:class:`~kubestow.flight_record.journal.RecordedLoop`. While the scheduler waits for a call, its task belongs to the
environment: what the client does there, and what wakes it up, is no step of the scheduler. The only thing that the
scheduler gets is the result, at one point of its execution.

A cluster is recorded without a scheduler of our own as well: what its watches deliver. It holds which node each pod got
from whatever scheduler there is, so a re-decision can be compared with it.
"""

from __future__ import annotations

import asyncio
import platform
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any, Protocol

from msgspec import structs

from kubestow import config
from kubestow.api.meta import ObjectMeta
from kubestow.cluster.pods.pod_groups import PodGroupAPI
from kubestow.config.rendering import render
from kubestow.flight_record.entries import (
    Answered,
    AttemptEnded,
    Called,
    Changed,
    Decided,
    Header,
    Listed,
    Stopped,
    Undecodable,
)
from kubestow.flight_record.interfaces import WITHHELD, Method, create_proxy, describe_resources, failure_of
from kubestow.flight_record.journal import ChunkSink, Journal, RecordedLoop, recorded_by
from kubestow.framework.profile import Registry
from kubestow.scheduling.decision.result import Decision, Scheduled, Unschedulable
from kubestow.scheduling.environment import Environment, Leadership, NoLeaderElection
from kubestow.scheduling.extenders.stages import Extender
from kubestow.scheduling.interfaces import Clock, ClusterAPI, Computing, Resource, Subscriber
from kubestow.scheduling.observer import Observer, Result
from kubestow.scheduling.queued_pod import QueuedPod
from kubestow.scheduling.scheduler import Scheduler
from kubestow.version import VERSION

#: What is recorded is written after so many seconds at the latest.
_FLUSH_SECONDS = 1.0
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
#: What plugins may read with requests of their own, and a record never has.
_CONFIDENTIAL_PATH = re.compile(r"/(secrets|configmaps|token)\b")


class RecordingBoundary:
    """Implements :class:`~kubestow.flight_record.interfaces.Boundary`: makes the calls, and records what comes back.

    Clocks may be read by other code than the scheduler's as well, such as metrics; that is not recorded.
    """

    def __init__(self, journal: Journal, clock: Clock) -> None:
        self._journal, self._clock = journal, clock
        self._calls = 0

    async def call(
        self, method: Method, implementation: Any, arguments: tuple[Any, ...], keywords: Mapping[str, Any]
    ) -> Any:
        """The result of the implementation, which runs in the scheduler's task and yet outside of the scheduler.

        It ends in another turn of the event loop than it began, so the scheduler's step always ends with the call. Of a
        confidential result only that there was one is recorded.
        """
        journal = self._journal
        self._calls += 1
        call = self._calls
        journal.append(Called(call, method.name, method.describe(arguments, keywords)))
        if method.name == "subscribe":
            resources, subscriber = arguments
            arguments = (resources, RecordedSubscriber(subscriber, resources, journal, self._clock))
        recorded_by.set(None)
        turns: list[None] = []
        asyncio.get_running_loop().call_soon(turns.append, None)  # far cheaper than a turn that every call would take
        try:
            try:
                value = await implementation(*arguments, **keywords)
            finally:
                if not turns:
                    await asyncio.sleep(0)
        except BaseException as error:
            recorded_by.set(journal)
            journal.append(Answered(journal.steps, journal.readings, call, failure=failure_of(error)))
            raise
        recorded_by.set(journal)
        is_confidential = method.name == "request" and _CONFIDENTIAL_PATH.search(arguments[1])
        answer = (None, WITHHELD) if is_confidential else (value, None)
        journal.append(Answered(journal.steps, journal.readings, call, *answer))
        return value

    def notify(self, implementation: Any, arguments: tuple[Any, ...]) -> None:
        """Hand a notification over, outside of the scheduler."""
        token = recorded_by.set(None)
        try:
            implementation(*arguments)
        finally:
            recorded_by.reset(token)

    def read(self, kind: type[Any], implementation: Any) -> Any:
        """The reading, which is recorded if the scheduler wants to know it."""
        reading = implementation()
        journal = recorded_by.get()
        if journal is not None:
            if kind is datetime:
                journal.read_wall((reading - _EPOCH) // _MICROSECOND)
            else:
                journal.read_monotonic(reading)
        return reading


class RecordedSubscriber:
    """Records what the watch delivers, and hands it to the scheduler."""

    def __init__(self, subscriber: Subscriber, resources: Sequence[Resource], journal: Journal, clock: Clock) -> None:
        self._subscriber, self._journal, self._read = subscriber, journal, clock.monotonic
        self._inside = journal.inside()
        self._resources = list(resources)
        #: By identity, because a resource takes long to hash.
        self._positions = {id(resource): position for position, resource in enumerate(resources)}

    def replace(self, resource: Resource, objects: Sequence[Any]) -> None:
        position, journal = self._position(resource), self._journal
        if position is not None:
            journal.append(Listed(journal.steps, journal.readings, self._read(), position, list(objects)))
        self._inside.copy().run(self._subscriber.replace, resource, objects)

    def apply(self, resource: Resource, event_type: str, obj: Any) -> None:
        position, journal = self._position(resource), self._journal
        if position is not None:
            journal.append(Changed(journal.steps, journal.readings, self._read(), position, event_type, obj))
        self._inside.copy().run(self._subscriber.apply, resource, event_type, obj)

    def unreadable(self, resource: Resource, metadata: ObjectMeta, problem: str) -> None:
        position, journal = self._position(resource), self._journal
        if position is not None:
            journal.append(Undecodable(journal.steps, journal.readings, position, metadata, problem))
        self._inside.copy().run(self._subscriber.unreadable, resource, metadata, problem)

    def _position(self, resource: Resource) -> int | None:
        """The position of a resource among those subscribed to; None for one that was not asked for."""
        position = self._positions.get(id(resource))
        if position is None and resource in self._resources:
            position = self._resources.index(resource)
        return position


class SegmentSink(ChunkSink, Protocol):
    """Where a recording goes: a header, then chunks."""

    def begin_segment(self, header: Header) -> None:
        """Begin the record."""


class FlightRecorder(Observer):
    """Records one scheduler. It is also an observer, which the scheduler's environment has to include.

    ``server_version`` is the version of its API server, such as ``v1.36.2``; "" if it is not known.
    """

    def __init__(self, sink: SegmentSink, *, server_version: str = "") -> None:
        self._sink, self._server_version = sink, server_version
        self.journal = Journal(sink)

    def create_scheduler(
        self,
        configuration: config.KubeSchedulerConfiguration,
        *,
        registry: Registry,
        environment: Environment,
        gates: config.FeatureGates,
        pod_group_apis: Iterable[PodGroupAPI] = (),
        extenders: Sequence[Extender] = (),
        leadership: Leadership | None = None,
        pod_max_in_unschedulable_pods: float = 300.0,
        plugins: Sequence[str] = (),
    ) -> Scheduler:
        """A recorded scheduler, with the arguments of :class:`Scheduler`; :meth:`run` it.

        ``plugins`` are the references, as ``module:Class``, of those in the registry that a replay has to import. The
        scheduler has a random source of its own, which starts in the state of the given one.
        """
        version, state, gauss = environment.random.getstate()
        random = Random()
        random.setstate((version, state, gauss))
        now = environment.clock.now()
        self._sink.begin_segment(
            Header(
                kubestow=VERSION,
                python=platform.python_version(),
                began=now.isoformat(),
                monotonic=environment.clock.monotonic(),
                configuration=render(_without_secrets(configuration)),
                gates=dict(gates),
                emulated_version=str(gates.minor),
                server_version=self._server_version,
                plugins=list(plugins),
                pod_max_in_unschedulable_pods=pod_max_in_unschedulable_pods,
                random=[version, list(state), gauss],
            )
        )
        boundary = RecordingBoundary(self.journal, environment.clock)
        recorded = replace(
            environment,
            api=create_proxy(ClusterAPI, boundary, environment.api),
            clock=create_proxy(Clock, boundary, environment.clock),
            random=random,
            stopwatch=environment.duration_clock,
            computing=create_proxy(Computing, boundary, environment.computing),
        )
        return self.journal.inside().run(
            lambda: Scheduler(
                configuration,
                registry=registry,
                environment=recorded,
                pod_group_apis=pod_group_apis,
                gates=gates,
                extenders=[create_proxy(Extender, boundary, extender) for extender in extenders],
                leadership=create_proxy(Leadership, boundary, leadership or NoLeaderElection()),
                pod_max_in_unschedulable_pods=pod_max_in_unschedulable_pods,
            )
        )

    async def run(self, scheduler: Scheduler) -> None:
        """Run the scheduler as :meth:`Scheduler.run` does, and hand over the rest of the record when it ends."""
        loop = asyncio.get_running_loop()
        if not isinstance(loop, RecordedLoop):
            raise RuntimeError(f"a recorded scheduler needs a RecordedLoop, got {type(loop).__name__}")
        running = loop.create_task(scheduler.run(), context=self.journal.inside())
        while not running.done():
            try:
                await asyncio.wait((running,), timeout=_FLUSH_SECONDS)
            except asyncio.CancelledError:
                self.journal.append(Stopped(self.journal.steps, self.journal.readings))
                running.cancel()
            self.journal.flush()
        running.result()

    # -- the observer's interface ----------------------------------------------------------------------------------

    def decision_made(self, decision: Decision, seconds: float) -> None:
        self.journal.append(decided(decision))

    def attempt_ended(self, queued: QueuedPod, result: Result, message: str, seconds: float) -> None:
        self.journal.append(AttemptEnded(queued.info.uid, queued.attempts, result.value))


def decided(decision: Decision) -> Decided:
    """A decision as a record has it."""
    pod = decision.pod
    if isinstance(decision, Scheduled):
        return Decided(pod.key, pod.uid, decision.node_name, "", decision.candidate_count, "", [])
    nominated, victims = "", []
    if isinstance(decision, Unschedulable) and (result := decision.post_filter.nominating_result) is not None:
        nominated, victims = result.nominated_node_name or "", [victim.uid for victim in result.victims]
    return Decided(pod.key, pod.uid, "", decision.message, 0, nominated, victims)


def _without_secrets(configuration: config.KubeSchedulerConfiguration) -> config.KubeSchedulerConfiguration:
    """The configuration without the client certificates and keys of extenders, and without the kubeconfig's path."""
    extenders = [structs.replace(extender, tls_config=None) for extender in configuration.extenders]
    connection = structs.replace(configuration.client_connection, kubeconfig="")
    return structs.replace(configuration, extenders=extenders, client_connection=connection)


class ClusterRecorder:
    """Records some resources of a cluster; ``events`` counts what is recorded by kind.

    Implements :class:`~kubestow.scheduling.interfaces.Subscriber`, to count it.
    """

    def __init__(
        self, sink: SegmentSink, clock: Clock, resources: Sequence[Resource], *, server_version: str = ""
    ) -> None:
        self._sink, self._clock, self._resources = sink, clock, resources
        self._server_version = server_version
        self.journal = Journal(sink)
        self.events: Counter[str] = Counter()

    async def run(self, api: ClusterAPI) -> None:
        """Record until cancelled. Raises what ends the watch."""
        self._sink.begin_segment(
            Header(
                kubestow=VERSION,
                python=platform.python_version(),
                began=self._clock.now().isoformat(),
                monotonic=self._clock.monotonic(),
                has_scheduler=False,
                resources=describe_resources(self._resources),
                server_version=self._server_version,
            )
        )
        subscriber = RecordedSubscriber(self, self._resources, self.journal, self._clock)
        watching = asyncio.create_task(api.subscribe(self._resources, subscriber))
        try:
            while not watching.done():
                await asyncio.wait((watching,), timeout=_FLUSH_SECONDS)
                self.journal.flush()
            watching.result()
        finally:
            watching.cancel()
            await asyncio.gather(watching, return_exceptions=True)
            self.journal.flush()

    # -- the subscriber's interface --------------------------------------------------------------------------------

    def replace(self, resource: Resource, objects: Sequence[Any]) -> None:
        self.events[resource.kind] += len(objects)

    def apply(self, resource: Resource, event_type: str, obj: Any) -> None:
        self.events[resource.kind] += 1

    def unreadable(self, resource: Resource, metadata: ObjectMeta, problem: str) -> None:
        self.events[resource.kind] += 1
