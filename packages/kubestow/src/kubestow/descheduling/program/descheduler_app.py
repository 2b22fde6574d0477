"""The descheduler on a live cluster: lists, one loop, and again after the interval, while it holds the Lease."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, nullcontext
from dataclasses import dataclass, field, replace
from random import Random

from kubestow.client.cluster_client import ClusterClient
from kubestow.client.leader_election import LeaseTimings, lease_candidate
from kubestow.client.rest.credentials import Credentials, load_credentials
from kubestow.client.rest.transport import UNLIMITED, RateLimit, TokenBucketRateLimiter, Transport
from kubestow.descheduling.descheduler_policy import DeschedulerPolicy, with_priority_thresholds
from kubestow.descheduling.dry_run.loop_report import LoopReport, read_snapshot, run_loop
from kubestow.descheduling.dry_run.rescheduling import Mode, Rescheduler
from kubestow.descheduling.eviction import EvictionObserver
from kubestow.descheduling.interface import Registry
from kubestow.descheduling.loop import Descheduler
from kubestow.descheduling.program.api_requests import (
    APIEvictions,
    emulating_server,
    find_scheduling_resources,
    list_cluster,
    query_results,
)
from kubestow.descheduling.program.observers import (
    REPORTING_CONTROLLER,
    DeschedulerMetrics,
    EvictionEvents,
    EvictionLog,
    EvictionMetrics,
    descheduler_mux,
)
from kubestow.descheduling.snapshot import QueryResult
from kubestow.engine.input.cluster_objects import ClusterObjects
from kubestow.engine.input.documents import Problems, SourceObject
from kubestow.engine.pipeline.offline_scheduler import SchedulerOptions
from kubestow.errors import APIError, InvalidObject, Unreachable
from kubestow.log_fields import fields
from kubestow.process import Heartbeat, WallClock
from kubestow.scheduling.decision.node_selection import RandomTie
from kubestow.scheduling.environment import Leadership, NoLeaderElection
from kubestow.scheduling.interfaces import Clock, EventRecord, Resource
from kubestow.serving.options import ServingOptions
from kubestow.serving.secure_server import SecureServer

_log = logging.getLogger(__name__)

#: A leader is unhealthy when its lease has been expired for longer than this many seconds.
_LEASE_GRACE = 20.0


@dataclass(frozen=True, slots=True)
class LeaseOptions:
    """The Lease that is held while descheduling."""

    namespace: str = "kube-system"
    name: str = "descheduler"
    timings: LeaseTimings = field(default_factory=lambda: LeaseTimings(137, 107, 26))


@dataclass(frozen=True, slots=True)
class DeschedulerOptions:
    """How a policy is applied to a live cluster.

    ``interval`` is in seconds, from the start of one loop to that of the next; 0 runs one loop. A ``dry_run`` evicts
    nothing. With a ``mode`` the ``scheduler`` is asked where pods come back. Without ``serving`` no port is opened,
    without ``lease`` there is no leader election.
    """

    interval: float = 0.0
    dry_run: bool = False
    mode: Mode | None = None
    scheduler: SchedulerOptions = field(default_factory=SchedulerOptions)
    serving: ServingOptions | None = None
    lease: LeaseOptions | None = None
    rate_limit: RateLimit = UNLIMITED
    seed: int | None = None


class DeschedulerApp:
    """A descheduler that is not connected to a cluster yet."""

    def __init__(
        self,
        policy: DeschedulerPolicy,
        registry: Registry,
        options: DeschedulerOptions,
        *,
        subject: str = "policy",
        on_result: Callable[[LoopReport], None] = lambda result: None,
        clock: Clock | None = None,
    ) -> None:
        """``subject`` names the policy in errors; ``on_result`` is called after each loop."""
        self._policy, self._subject, self._registry = policy, subject, registry
        self._options, self._on_result = options, on_result
        self._clock = clock or WallClock()
        self._random = Random(options.seed)
        self._descheduler: Descheduler | None = None
        self._leadership: Leadership = NoLeaderElection()
        self._for_scheduling: list[Resource] = []
        self.metrics = DeschedulerMetrics()

    async def run(
        self,
        *,
        kubeconfig: str,
        master: str = "",
        context: str = "",
        on_serving: Callable[[int], None] = lambda _: None,
    ) -> None:
        """Deschedule until cancelled, or once. Raises InputError, APIError, Unreachable, PluginError and LeaseLost.

        ``on_serving`` is called with the number of the secure port.
        """
        async with AsyncExitStack() as stack:
            if self._options.serving is not None:
                heartbeat = Heartbeat(self._clock.monotonic)
                beating = asyncio.create_task(heartbeat.run(self._clock.sleep), name="heartbeat")
                stack.callback(beating.cancel)
                mux = descheduler_mux(self.metrics, heartbeat, self._lease_problem)
                server = SecureServer(self._options.serving, mux, self.metrics, clock=self._clock)
                await stack.enter_async_context(server)
                on_serving(server.port)
            credentials = await load_credentials(kubeconfig, context=context, master=master)
            client = ClusterClient(credentials, clock=self._clock, random=self._random)
            cluster = await stack.enter_async_context(client)
            if self._options.interval:
                await cluster.wait_for_api_server()
            if self._options.mode is not None:
                self._for_scheduling = await find_scheduling_resources(cluster)
                scheduler = await emulating_server(self._options.scheduler, cluster)
                self._options = replace(self._options, scheduler=scheduler)
            limit = self._options.rate_limit
            limiter = TokenBucketRateLimiter(limit, clock=self._clock) if limit.qps > 0 else None
            transport = await stack.enter_async_context(Transport(credentials, clock=self._clock, rate_limiter=limiter))
            self._leadership = await stack.enter_async_context(self._candidate(credentials, cluster))
            await self._lead(transport, cluster)

    def _candidate(self, credentials: Credentials, cluster: ClusterClient) -> AbstractAsyncContextManager[Leadership]:
        """The candidate of the Lease; without one, a candidate that always leads."""
        lease = self._options.lease
        if lease is None:
            return nullcontext(NoLeaderElection())
        return lease_candidate(
            credentials,
            namespace=lease.namespace,
            name=lease.name,
            timings=lease.timings,
            record=cluster.record,
            reporting_controller=REPORTING_CONTROLLER,
            clock=self._clock,
        )

    async def _lead(self, transport: Transport, cluster: ClusterClient) -> None:
        """Run the loops while leading; the lead is given up at the end."""
        leadership = self._leadership
        await leadership.acquire()
        holding = asyncio.ensure_future(leadership.hold())
        looping = asyncio.create_task(self._run_loops(transport, cluster))
        try:
            await asyncio.wait((holding, looping), return_when=asyncio.FIRST_COMPLETED)
            if looping.done():
                looping.result()
            else:
                holding.result()  # raises LeaseLost
        finally:
            looping.cancel()
            holding.cancel()
            await asyncio.gather(looping, holding, return_exceptions=True)
            await leadership.release()

    async def _run_loops(self, transport: Transport, cluster: ClusterClient) -> None:
        interval = self._options.interval
        while True:
            started = self._clock.monotonic()
            try:
                await self._run_once(transport, cluster)
            except (APIError, Unreachable, InvalidObject) as error:
                if not interval:
                    raise
                _log.error("The loop failed, the next one is tried: %s", error, extra=fields(err=str(error)))
            seconds = self._clock.monotonic() - started
            self.metrics.loop_duration.labels().observe(seconds)
            if not interval:
                return
            await self._clock.sleep(max(0.0, interval - seconds))

    async def _run_once(self, transport: Transport, cluster: ClusterClient) -> None:
        problems, metrics = Problems(), self._policy.uses_metrics_server
        sources = await list_cluster(transport, for_scheduling=self._for_scheduling, metrics=metrics, problems=problems)
        results = await query_results(self._policy, self._registry, transport)
        loop = asyncio.get_running_loop()
        evictions = APIEvictions(transport, loop)

        def record(event: EventRecord) -> None:
            loop.call_soon_threadsafe(cluster.record, event)

        dry_run = self._options.dry_run
        observers: list[EvictionObserver] = [
            EvictionMetrics(self.metrics, self._clock.monotonic),
            EvictionLog(dry_run=dry_run),
        ]
        if not dry_run:
            failures = bool(self._policy.eviction_failure_event_notification)
            observers.append(EvictionEvents(record, failures=failures))
        running = loop.run_in_executor(None, self._run_loop, sources, results, problems, evictions, observers)
        try:
            result = await asyncio.shield(running)
        finally:
            evictions.stop()
            # Takes note of the exception of a loop that was given up, so that asyncio does not report it.
            running.add_done_callback(lambda done: done.cancelled() or done.exception())
        for problem in problems:
            _log.warning("Object left out: %s", problem, extra=fields(problem=str(problem)))
        self._report(result)

    def _run_loop(
        self,
        sources: Iterable[SourceObject],
        results: Mapping[str, QueryResult],
        problems: Problems,
        evictions: APIEvictions,
        observers: Sequence[EvictionObserver],
    ) -> LoopReport:
        """One loop, in a thread; plugins are built with the priority classes of the first snapshot.

        Raises LoopStopped, InvalidObject and InputError.
        """
        snapshot, usable = read_snapshot(sources, problems)
        snapshot.query_results = results
        if self._descheduler is None:
            policy = with_priority_thresholds(self._policy, snapshot.priority_classes, subject=self._subject)
            self._descheduler = Descheduler(policy, self._registry)
        descheduler = self._descheduler
        backend = None if self._options.dry_run else evictions
        now, mode = self._clock.now(), self._options.mode
        if mode is None or not snapshot.nodes:
            return run_loop(descheduler, snapshot, now=now, backend=backend, observers=observers)
        cluster = ClusterObjects.of_sources(usable, problems, subject="the cluster")
        return run_loop(
            descheduler,
            snapshot,
            now=now,
            backend=backend,
            observers=observers,
            rescheduler=Rescheduler(cluster, self._options.scheduler, now=now, ties=RandomTie(self._random)),
            mode=mode,
        )

    def _report(self, run: LoopReport) -> None:
        result = run.result
        if result.too_few_nodes:
            _log.info("Nothing to do: fewer than two nodes are ready and selected")
        for error in result.errors:
            _log.error("A plugin failed: %s", error, extra=fields(plugin=error.plugin, err=str(error)))
        _log.info("Number of evictions", extra=fields(evicted=len(result.evicted), refused=len(result.refused)))
        self._on_result(run)

    def _lease_problem(self) -> str | None:
        overdue = self._leadership.overdue
        return f"the lease is {overdue:.0f} s overdue" if overdue > _LEASE_GRACE else None
