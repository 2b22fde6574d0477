"""The scheduler on a real cluster, as ``kubestow run`` and :func:`kubestow.run` start it.

:meth:`SchedulerApp.create` validates all input (plugins, configuration, feature gates) before the API server is
contacted. :meth:`SchedulerApp.run` then starts the secure port, loads the credentials, connects the client, the
extenders and the leader elector, and runs the scheduler until a signal or until leadership is lost. The first SIGINT or
SIGTERM shuts down gracefully, the second exits at once. SIGUSR2 debugs the cache.
"""

from __future__ import annotations

import asyncio
import logging
import os
import platform
import signal
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

from kubestow import config, gc_tuning
from kubestow.client.cluster_client import ClusterClient
from kubestow.client.leader_election import LeaseTimings, lease_candidate
from kubestow.client.partition_election import AssignmentOnLoop, PartitionElection, partition_candidate
from kubestow.client.raw_object_cache import RawObjectCache
from kubestow.client.rest.credentials import Credentials, load_credentials
from kubestow.client.rest.transport import RateLimit
from kubestow.client.supervised_election import Elector, election_in_thread
from kubestow.cluster.pods.pod_groups import PodGroupAPI
from kubestow.errors import APIError, Unreachable
from kubestow.flight_record.journal import new_recorded_loop
from kubestow.flight_record.recording import FlightRecorder
from kubestow.flight_record.writer import DEFAULT_SIZE, SegmentWriter, create_folder
from kubestow.framework.interface import Plugin
from kubestow.framework.profile import Registry
from kubestow.log_fields import fields
from kubestow.observability.cache_debugger import CacheDebugger
from kubestow.observability.instruments import LabelAllowList
from kubestow.observability.observability import Observability
from kubestow.plugins.configuration_file import never_enabled, read_configuration
from kubestow.plugins.registry import find_plugins, find_pod_group_apis, referenced_plugins
from kubestow.process import Heartbeat, WallClock, new_event_loop, raise_open_file_limit
from kubestow.rules.minors import DEFAULT_MINOR, Minor
from kubestow.scheduling.background_work import BackgroundTasks
from kubestow.scheduling.environment import ComputingInThreads, Environment, Leadership, NoLeaderElection
from kubestow.scheduling.extenders.stages import Extender
from kubestow.scheduling.interfaces import EventRecord
from kubestow.scheduling.observer import Observer
from kubestow.scheduling.partitions.held_partitions import HeldPartitions
from kubestow.scheduling.partitions.scheduler import PartitionedScheduler
from kubestow.scheduling.scheduler import Scheduler
from kubestow.serving.options import ServingOptions
from kubestow.version import KUBERNETES_VERSION, VERSION

if TYPE_CHECKING:
    from kubestow.observability.tracing.attempt_tracer import AttemptTracer
    from kubestow.observability.tracing.record_exporter import RecordExporter

_log = logging.getLogger(__name__)

#: How long an API server has to tell its version before the secure port is opened.
_SECONDS_BEFORE_SERVING = 1.0


@dataclass(frozen=True, slots=True)
class AppOptions:
    """Options of the process that are not part of the configuration.

    Without ``serving`` no port is opened. ``dashboard_socket`` is a Unix socket on which the dashboard is served.
    ``flags`` are shown by /flagz and have no effect here.
    ``pod_max_in_unschedulable_pods`` is the period, in seconds, after which an unschedulable pod is retried without an
    event (semantics 6.7). ``flight_record`` is the folder of the flight record, of at most ``flight_record_size``
    bytes; None for none. ``server_version`` is the version of the API server, such as ``v1.36.2``, for that record, if
    it is known before the scheduler starts.
    With ``partitions`` several schedulers are active and share so many; 0 for one active scheduler.
    A fraction ``trace_sampling`` of attempts is traced, and exported to ``otlp_endpoint``; "" for no traces.
    """

    serving: ServingOptions | None = None
    dashboard_socket: Path | None = None
    flags: Mapping[str, str] = field(default_factory=dict)
    disabled_metrics: tuple[str, ...] = ()
    allowed_labels: Mapping[str, LabelAllowList] = field(default_factory=dict)
    pod_max_in_unschedulable_pods: float = 300.0
    flight_record: Path | None = None
    flight_record_size: int = DEFAULT_SIZE
    server_version: str = ""
    partitions: int = 0
    otlp_endpoint: str = ""
    trace_sampling: float = 0.0


@dataclass(frozen=True, slots=True)
class SchedulerApp:
    """A configured scheduler that is not connected to a cluster yet."""

    configuration: config.KubeSchedulerConfiguration
    registry: Registry
    pod_group_apis: tuple[PodGroupAPI, ...]
    gates: config.FeatureGates
    random: Random
    options: AppOptions = field(default_factory=AppOptions)
    #: The plugins given as ``module:Class``, which a replay of the flight record has to import.
    plugin_references: tuple[str, ...] = ()

    @classmethod
    def create(
        cls,
        *,
        plugin_references: Iterable[str] = (),
        plugins: Mapping[str, type[Plugin]] | None = None,
        source: Path | str | Mapping[str, Any] | None = None,
        feature_gates: str = "",
        minor: Minor = DEFAULT_MINOR,
        seed: int | None = None,
    ) -> SchedulerApp:
        """Resolve plugins and load the configuration ``source``. Raises InputError for invalid input.

        ``plugin_references`` are spelled ``module:Class`` or ``file.py:Class``, ``minor`` is the version of Kubernetes
        to emulate; the other arguments are those of :func:`kubestow.run`.
        """
        gates = config.FeatureGates.parse(feature_gates, minor=minor)
        references = tuple(plugin_references)
        registry = find_plugins(references, plugins, minor=minor)
        configuration = read_configuration(source, gates, registry)
        named = [plugin.name for plugin in referenced_plugins(references)]
        for name in never_enabled((*named, *(plugins or {})), configuration, registry):
            _log.warning("no profile enables plugin %s, so it is never called", name, extra=fields(plugin=name))
        return cls(configuration, registry, find_pod_group_apis(), gates, Random(seed), plugin_references=references)

    def run_on_new_loop(self, program: Coroutine[Any, Any, None]) -> None:
        """Run a program that runs this scheduler, on an event loop that can record it if that is configured."""
        factory = new_event_loop if self.options.flight_record is None else new_recorded_loop
        with asyncio.Runner(loop_factory=factory) as runner:
            runner.run(program)

    async def server_version(self, *, kubeconfig: str, master: str, context: str = "") -> str | None:
        """Wait for the API server, and ask it for its version; None if a signal ends the process before.

        The secure port serves meanwhile if the server does not answer at once. Raises InputError and APIError.
        """
        _debug_when_started()
        if self.options.flight_record is not None:
            create_folder(self.options.flight_record)  # what cannot be written is an error at once
        connection = self.configuration.client_connection
        credentials = await load_credentials(kubeconfig or connection.kubeconfig, context=context, master=master)
        async with AsyncExitStack() as stack:
            client = ClusterClient(credentials, clock=WallClock(), random=self.random)
            cluster = await stack.enter_async_context(client)
            with suppress(APIError, Unreachable, TimeoutError):
                async with asyncio.timeout(_SECONDS_BEFORE_SERVING):
                    return await cluster.server_version()
            await self._start_serving(stack, (), _beating_heartbeat(stack))
            asking = asyncio.create_task(cluster.wait_for_api_server())
            _cancel_on_signals(asking)
            try:
                await _until_done_or_cancelled(asking)
            finally:
                _handle_no_signals()
                asking.cancel()
                await asyncio.gather(asking, return_exceptions=True)
        return None if asking.cancelled() else asking.result()

    async def run(
        self,
        *,
        kubeconfig: str,
        master: str,
        context: str = "",
        on_ready: Callable[[Scheduler], None],
        on_new_leader: Callable[[str], None] = lambda identity: None,
    ) -> None:
        """Schedule until a signal or cancellation. Raises InputError, APIError and LeaseLost.

        ``on_ready`` is called when scheduling begins, ``on_new_leader`` with the identity of each new leader, including
        this process.
        """
        gc_tuning.raise_thresholds()
        raise_open_file_limit()
        _debug_when_started()
        extender_settings = self.configuration.extenders
        raw_objects = RawObjectCache.for_extenders(extender_settings)
        http_extenders = _http_extenders(extender_settings, raw_objects)
        _log.info("Starting kubestow", extra=fields(version=VERSION, kubernetes=KUBERNETES_VERSION))
        if gates := ", ".join(self.gates.without_effect):
            problem = "Feature gates are enabled but not implemented, so they have no effect: %s"
            _log.warning(problem, gates, extra=fields(gates=gates))
        loop = type(asyncio.get_running_loop())
        settings = {"python": platform.python_version(), "platform": platform.platform()}
        _log.info("Python settings", extra=fields(**settings, eventLoop=f"{loop.__module__}.{loop.__qualname__}"))
        async with AsyncExitStack() as stack:
            recorder = self._flight_recorder(stack)
            heartbeat = _beating_heartbeat(stack)
            exporter, tracer = await self._tracing(stack)
            observability = await self._start_serving(stack, [recorder, tracer], heartbeat)
            if exporter is not None:
                exporter.count = observability.metrics.record_traces
            connection = self.configuration.client_connection
            load = partial(load_credentials, kubeconfig or connection.kubeconfig, context=context, master=master)
            credentials = await load()
            cluster = await stack.enter_async_context(
                ClusterClient(
                    credentials,
                    clock=WallClock(),
                    random=self.random,
                    rate_limit=RateLimit(connection.qps, connection.burst),
                    raw_objects=raw_objects if extender_settings else None,
                    on_response=observability.metrics.record_client_request,
                    tracer=tracer,
                )
            )
            observability.broken_watches = cluster.broken_watches
            cluster.events.on_drop = observability.metrics.record_dropped_event
            extenders = [await stack.enter_async_context(extender) for extender in http_extenders]
            partitions = HeldPartitions(self.options.partitions) if self.options.partitions else None
            leadership = await stack.enter_async_context(
                self._leadership(load, cluster, observability, heartbeat, on_new_leader, partitions)
            )
            computing = ComputingInThreads()
            environment = Environment(cluster, WallClock(), self.random, observability.observer, computing=computing)
            create: Callable[..., Scheduler] = Scheduler
            if recorder is not None:
                create = partial(recorder.create_scheduler, plugins=self.plugin_references)
            if partitions is not None:
                create = partial(PartitionedScheduler, partitions=partitions)
            scheduler = create(
                self.configuration,
                registry=self.registry,
                environment=environment,
                pod_group_apis=self.pod_group_apis,
                gates=self.gates,
                extenders=extenders,
                leadership=leadership,
                pod_max_in_unschedulable_pods=self.options.pod_max_in_unschedulable_pods,
            )
            observability.attach(scheduler)
            run = scheduler.run if recorder is None else partial(recorder.run, scheduler)
            await self._schedule(observability, cluster, scheduler, run, on_ready)

    def _flight_recorder(self, stack: AsyncExitStack) -> FlightRecorder | None:
        """The flight recorder, whose record is complete when the stack is closed. Raises InputError."""
        if self.options.flight_record is None:
            return None
        writer = SegmentWriter.in_folder(self.options.flight_record, self.options.flight_record_size)
        recorder = FlightRecorder(writer, server_version=self.options.server_version)
        stack.callback(lambda: writer.close(recorder.journal.dropped))
        return recorder

    async def _tracing(self, stack: AsyncExitStack) -> tuple[RecordExporter | None, AttemptTracer | None]:
        """The exporter of traces, which is closed with the stack, and the tracer of attempts; None without traces."""
        if not self.options.otlp_endpoint or not self.options.trace_sampling:
            return None, None
        # Imported here because most schedulers have no traces.
        from kubestow.observability.tracing.attempt_tracer import AttemptTracer
        from kubestow.observability.tracing.record_exporter import RecordExporter

        exporter = await stack.enter_async_context(RecordExporter(self.options.otlp_endpoint, clock=WallClock()))
        # Identifiers have a random source of their own: decisions must not depend on traces.
        return exporter, AttemptTracer(self.options.trace_sampling, exporter.export, random=Random())

    async def _start_serving(
        self, stack: AsyncExitStack, observers: Iterable[Observer | None], heartbeat: Heartbeat
    ) -> Observability:
        """Open the secure port before there is a scheduler, so that a starting or standby process is observable."""
        options, clock = self.options, WallClock()
        observability = Observability(
            clock,
            self.gates,
            disabled_metrics=options.disabled_metrics,
            allowed_labels=options.allowed_labels,
            also=[observer for observer in observers if observer is not None],
        )
        if options.serving is not None:
            # Imported here because `kubestow up` has no secure port, and cryptography would slow its start.
            from kubestow.serving.routes import ComponentInfo, SchedulerRoutes
            from kubestow.serving.secure_server import SecureServer

            component = ComponentInfo(self.configuration, self.gates, options.flags)
            routes = SchedulerRoutes(component, observability, heartbeat, clock)
            mux, metrics, close = routes.mux(), observability.metrics, routes.dashboard.close
            server = SecureServer(options.serving, mux, metrics, clock=clock, before_stop=close)
            await stack.enter_async_context(server)
        if options.dashboard_socket is not None:
            # Imported here because few schedulers have one.
            from kubestow.serving.dashboard_socket import DashboardSocket

            dashboard = DashboardSocket(options.dashboard_socket, observability, clock, self.configuration, self.gates)
            await stack.enter_async_context(dashboard)
        return observability

    async def _schedule(
        self,
        observability: Observability,
        cluster: ClusterClient,
        scheduler: Scheduler,
        run: Callable[[], Coroutine[Any, Any, None]],
        on_ready: Callable[[Scheduler], None],
    ) -> None:
        running = asyncio.create_task(_run_when_available(run, cluster, observability))
        observability.is_shutting_down = lambda: running.cancelling() > 0
        _cancel_on_signals(running)
        _debug_on_signal(CacheDebugger(scheduler, cluster.list_names))
        ready = asyncio.create_task(scheduler.started())
        try:
            await asyncio.wait((running, ready), return_when=asyncio.FIRST_COMPLETED)
            if ready.done():
                on_ready(scheduler)
            await _until_done_or_cancelled(running)
        finally:
            ready.cancel()
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)

    @asynccontextmanager
    async def _leadership(
        self,
        load: Callable[[], Awaitable[Credentials]],
        cluster: ClusterClient,
        observability: Observability,
        heartbeat: Heartbeat,
        on_new_leader: Callable[[str], None],
        partitions: HeldPartitions | None,
    ) -> AsyncIterator[Leadership]:
        """The candidate of the configured Lease, in a thread; without leader election, one that always leads.

        ``load`` loads the credentials of its connections. With partitions, it is the candidate of their Leases.
        """
        election = self.configuration.leader_election
        if not election.leader_elect:
            yield NoLeaderElection()
            return
        timings = LeaseTimings(
            lease_duration=election.lease_duration.seconds,
            renew_deadline=election.renew_deadline.seconds,
            retry_period=election.retry_period.seconds,
        )
        clock = WallClock()

        create: Callable[..., AbstractAsyncContextManager[Elector]] = lease_candidate
        if partitions is not None:
            assignment = AssignmentOnLoop(partitions, cluster.catch_up, asyncio.get_running_loop())
            create = partial(partition_candidate, count=partitions.count, assignment=assignment)

        @asynccontextmanager
        async def candidate(
            record: Callable[[EventRecord], None], on_new_leader: Callable[[str], None]
        ) -> AsyncIterator[Elector]:
            async with create(
                await load(),  # not shared between threads
                namespace=election.resource_namespace,
                name=election.resource_name,
                timings=timings,
                record=record,
                reporting_controller=self.configuration.profiles[0].scheduler_name,
                clock=clock,
                on_new_leader=on_new_leader,
            ) as elector:
                if partitions is not None and isinstance(elector, PartitionElection):
                    partitions.holder_of = elector.holder_of
                yield elector

        def attempted() -> str:
            return "" if observability.scheduler is None else observability.scheduler.attempted

        async with election_in_thread(
            candidate,
            record=cluster.record,
            on_new_leader=on_new_leader,
            heartbeat=heartbeat,
            attempted=attempted,
            catch_up=cluster.catch_up,
            clock=clock,
        ) as leadership:
            yield leadership


def _beating_heartbeat(stack: AsyncExitStack) -> Heartbeat:
    """The signs of life of the running loop, until the end of the stack."""
    heartbeat = Heartbeat(WallClock.monotonic)
    beating = asyncio.create_task(heartbeat.run(asyncio.sleep), name="heartbeat")
    stack.callback(beating.cancel)
    return heartbeat


def _http_extenders(
    settings: Sequence[config.Extender], raw_objects: RawObjectCache
) -> Sequence[AbstractAsyncContextManager[Extender]]:
    """Raises InputError for invalid TLS settings."""
    if not settings:
        return ()
    # Imported here because aiohttp slows the start of every scheduler, and few have extenders.
    from kubestow.client.http_extender import HTTPExtender

    return [HTTPExtender(extender, raw_objects) for extender in settings]


async def _run_when_available(
    run: Callable[[], Coroutine[Any, Any, None]], cluster: ClusterClient, observability: Observability
) -> None:
    """Static pods of one node start together, so the scheduler may run before the API server is available."""
    observability.server_version = await cluster.wait_for_api_server()
    await cluster.versions.discover()
    await run()


def _on_signal(signum: signal.Signals, handle: Callable[..., object], *arguments: object) -> None:
    if threading.current_thread() is threading.main_thread():  # Python delivers signals to the main thread only
        asyncio.get_running_loop().add_signal_handler(signum, handle, *arguments)


def _cancel_on_signals(running: asyncio.Task[Any]) -> None:
    def shut_down(signum: signal.Signals) -> None:
        _log.info("received %s, shutting down", signum.name, extra=fields(signal=signum.name))
        for number in (signal.SIGINT, signal.SIGTERM):
            _on_signal(number, os._exit, 1)
        running.cancel()

    for signum in (signal.SIGINT, signal.SIGTERM):
        _on_signal(signum, shut_down, signum)


def _handle_no_signals() -> None:
    """Undo :func:`_cancel_on_signals`."""
    if threading.current_thread() is threading.main_thread():
        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().remove_signal_handler(number)


def _debug_when_started() -> None:
    """Answer SIGUSR2 until there is a scheduler; without a handler it would end the process."""
    _on_signal(signal.SIGUSR2, _log.warning, "Unable to debug the cache: the scheduler is still starting")


def _debug_on_signal(debugger: CacheDebugger) -> None:
    """Debug the cache on SIGUSR2, unless a former signal is still being handled."""
    tasks = BackgroundTasks()

    def debug() -> None:
        if not len(tasks):
            tasks.spawn(debugger.run())

    _on_signal(signal.SIGUSR2, debug)


async def _until_done_or_cancelled(task: asyncio.Task[Any]) -> None:
    """Wait for ``task``; its cancellation by a signal is a normal end, that of the waiting task is propagated."""
    try:
        await task
    except asyncio.CancelledError:
        waiting = asyncio.current_task()
        if waiting is not None and waiting.cancelling():
            raise
