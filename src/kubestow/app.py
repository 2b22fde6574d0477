"""The scheduler on a real cluster, as ``kubestow run`` and :func:`kubestow.run` start it.

:meth:`SchedulerApp.create` validates all input (plugins, configuration, feature gates) before the API server is
contacted. :meth:`SchedulerApp.run` then starts the secure port, loads the credentials, connects the client, the
extenders and the leader elector, and runs the scheduler until a signal or until leadership is lost. The first SIGINT or
SIGTERM shuts down gracefully, the second exits at once.
"""

from __future__ import annotations

import asyncio
import logging
import os
import platform
import signal
import socket
import threading
import uuid
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

from kubestow import config, gc_tuning
from kubestow.client.cluster_client import ClusterClient
from kubestow.client.http_extender import HTTPExtenders
from kubestow.client.leader_election import LeaderElector, LeaseTimings
from kubestow.client.lease_lock import LeaseLock
from kubestow.client.raw_object_cache import RawObjectCache
from kubestow.client.rest.credentials import Credentials, load_credentials
from kubestow.client.rest.rate_limiter import RateLimit
from kubestow.client.rest.transport import USER_AGENT, Transport
from kubestow.errors import InputError
from kubestow.framework.interface import Plugin
from kubestow.framework.profile import Registry, implements
from kubestow.observability.instruments import LabelAllowList
from kubestow.observability.logs import fields
from kubestow.observability.observability import Observability
from kubestow.plugins.registry import find_plugins
from kubestow.scheduling.environment import Environment
from kubestow.scheduling.extenders.interface import Extender
from kubestow.scheduling.leadership import Leadership, NoLeaderElection
from kubestow.scheduling.scheduler import Scheduler
from kubestow.serving.options import ServingOptions
from kubestow.serving.routes import ComponentInfo
from kubestow.serving.secure_server import SecureServer
from kubestow.version import KUBERNETES_VERSION, VERSION
from kubestow.wall_clock import WallClock

__all__ = ["AppOptions", "SchedulerApp", "read_configuration", "run"]

_log = logging.getLogger(__name__)


def run(
    *,
    plugins: Mapping[str, type[Plugin]] | None = None,
    config: Path | str | Mapping[str, Any] | None = None,
    kubeconfig: Path | str = "",
    master: str = "",
    feature_gates: str = "",
    seed: int | None = None,
    on_ready: Callable[[Scheduler], None] = lambda scheduler: None,
) -> None:
    """Schedule the pods of a cluster until SIGINT or SIGTERM; with leader election, only while leading.

    ``plugins`` maps names to plugin classes, which are registered in addition to the in-tree plugins and those of
    installed packages; ``config``, a KubeSchedulerConfiguration as a file or plain data, enables and configures them.
    ``kubeconfig`` and ``master`` select the cluster. ``feature_gates`` is spelled ``Name=true,Other=false``. ``seed``
    makes the choice among nodes of equal score repeatable. ``on_ready`` is called once, when scheduling begins.

    Waits for an API server that is not available yet. Raises InputError for invalid input, APIError if the API server
    rejects the credentials, LeaseLost if leadership is lost.
    """
    app = SchedulerApp.create(plugins=plugins, source=config, feature_gates=feature_gates, seed=seed)
    asyncio.run(app.run(kubeconfig=str(kubeconfig), master=master, on_ready=on_ready))


def read_configuration(
    source: Path | str | Mapping[str, Any] | None, gates: config.FeatureGates, registry: Registry
) -> config.KubeSchedulerConfiguration:
    """Load a configuration from a file or from plain data; None stands for the defaults. Raises InputError."""
    if source is None:
        return config.default_configuration(gates)
    if isinstance(source, Mapping):
        return config.load(source, gates=gates, implements=implements(registry))
    try:
        text = Path(source).read_bytes()
    except OSError as error:
        raise InputError(str(source), f"cannot be read: {error.strerror}") from None
    return config.load(text, subject=str(source), gates=gates, implements=implements(registry))


@dataclass(frozen=True, slots=True)
class AppOptions:
    """Options of the process that are not part of the configuration.

    Without ``serving`` no port is opened. ``flags`` are shown by /flagz and have no effect here.
    ``pod_max_in_unschedulable_pods`` is the period, in seconds, after which an unschedulable pod is retried without an
    event (semantics 6.7).
    """

    serving: ServingOptions | None = None
    flags: Mapping[str, str] = field(default_factory=dict)
    disabled_metrics: tuple[str, ...] = ()
    allowed_labels: Mapping[str, LabelAllowList] = field(default_factory=dict)
    pod_max_in_unschedulable_pods: float = 300.0


@dataclass(frozen=True, slots=True)
class SchedulerApp:
    """A configured scheduler that is not connected to a cluster yet."""

    configuration: config.KubeSchedulerConfiguration
    registry: Registry
    gates: config.FeatureGates
    random: Random
    options: AppOptions = field(default_factory=AppOptions)

    @classmethod
    def create(
        cls,
        *,
        plugin_references: Iterable[str] = (),
        plugins: Mapping[str, type[Plugin]] | None = None,
        source: Path | str | Mapping[str, Any] | None = None,
        feature_gates: str = "",
        seed: int | None = None,
    ) -> SchedulerApp:
        """Resolve plugins and load the configuration ``source``. Raises InputError for invalid input.

        ``plugin_references`` are spelled ``module:Class``; the other arguments are those of :func:`run`.
        """
        gates = config.FeatureGates.parse(feature_gates)
        registry = find_plugins(plugin_references, plugins)
        return cls(read_configuration(source, gates, registry), registry, gates, Random(seed))

    async def run(
        self,
        *,
        kubeconfig: str,
        master: str,
        on_ready: Callable[[Scheduler], None],
        on_new_leader: Callable[[str], None] = lambda identity: None,
    ) -> None:
        """Schedule until a signal or cancellation. Raises InputError, APIError and LeaseLost.

        ``on_ready`` is called when scheduling begins, ``on_new_leader`` with the identity of each new leader, including
        this process.
        """
        gc_tuning.raise_thresholds()
        extender_settings = self.configuration.extenders
        raw_objects = RawObjectCache.for_extenders(extender_settings)
        http_extenders = HTTPExtenders(extender_settings, raw_objects)
        _log.info("Starting kubestow", extra=fields(version=VERSION, kubernetes=KUBERNETES_VERSION))
        _log.info("Python settings", extra=fields(python=platform.python_version(), platform=platform.platform()))
        async with AsyncExitStack() as stack:
            observability = await self._start_serving(stack)
            connection = self.configuration.client_connection
            credentials = await load_credentials(kubeconfig or connection.kubeconfig, master=master)
            cluster = await stack.enter_async_context(
                ClusterClient(
                    credentials,
                    clock=WallClock(),
                    random=self.random,
                    rate_limit=RateLimit(connection.qps or 0.0, connection.burst or 0),
                    raw_objects=raw_objects if extender_settings else None,
                    on_response=observability.metrics.record_client_request,
                )
            )
            extenders = await stack.enter_async_context(http_extenders)
            leadership = await stack.enter_async_context(self._leadership(credentials, cluster, on_new_leader))
            await self._schedule(observability, cluster, extenders, leadership, on_ready)

    async def _start_serving(self, stack: AsyncExitStack) -> Observability:
        """Open the secure port before there is a scheduler, so that a starting or standby process is observable."""
        options, clock = self.options, WallClock()
        observability = Observability(
            clock, self.gates, disabled_metrics=options.disabled_metrics, allowed_labels=options.allowed_labels
        )
        if options.serving is not None:
            component = ComponentInfo(self.configuration, self.gates, options.flags)
            await stack.enter_async_context(SecureServer(options.serving, component, observability, clock=clock))
        return observability

    async def _schedule(
        self,
        observability: Observability,
        cluster: ClusterClient,
        extenders: Sequence[Extender],
        leadership: Leadership,
        on_ready: Callable[[Scheduler], None],
    ) -> None:
        scheduler = Scheduler(
            self.configuration,
            registry=self.registry,
            environment=Environment(cluster, WallClock(), self.random, observability.observer),
            gates=self.gates,
            extenders=extenders,
            leadership=leadership,
            pod_max_in_unschedulable_pods=self.options.pod_max_in_unschedulable_pods,
        )
        observability.attach(scheduler)
        running = asyncio.create_task(_run_when_available(scheduler, cluster))
        observability.is_shutting_down = lambda: running.cancelling() > 0
        _cancel_on_signals(running)
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
        self, credentials: Credentials, cluster: ClusterClient, on_new_leader: Callable[[str], None]
    ) -> AsyncIterator[Leadership]:
        """A leader elector with connections of its own, so that load on the others cannot delay a renewal."""
        election = self.configuration.leader_election
        if not election.leader_elect:
            yield NoLeaderElection()
            return
        timings = LeaseTimings(
            lease_duration=election.lease_duration.seconds,
            renew_deadline=election.renew_deadline.seconds,
            retry_period=election.retry_period.seconds,
        )
        async with Transport(
            credentials,
            clock=WallClock(),
            user_agent=f"{USER_AGENT}/leader-election",
            timeout=max(1.0, timings.renew_deadline / 2),
        ) as transport:
            lock = LeaseLock(
                transport,
                identity=f"{socket.gethostname()}_{uuid.uuid4()}",
                namespace=election.resource_namespace,
                name=election.resource_name,
                record=cluster.record,
                reporting_controller=self.configuration.profiles[0].scheduler_name,
            )
            yield LeaderElector(lock, clock=WallClock(), timings=timings, on_new_leader=on_new_leader)


async def _run_when_available(scheduler: Scheduler, cluster: ClusterClient) -> None:
    """Static pods of one node start together, so the scheduler may run before the API server is available."""
    await cluster.wait_for_api_server()
    await scheduler.run()


def _cancel_on_signals(running: asyncio.Task[None]) -> None:
    if threading.current_thread() is not threading.main_thread():  # Python delivers signals to the main thread only
        return
    loop = asyncio.get_running_loop()

    def shut_down(signum: signal.Signals) -> None:
        _log.info("received %s, shutting down", signum.name)
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, os._exit, 1)
        running.cancel()

    for signum in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(signum, shut_down, signum)


async def _until_done_or_cancelled(task: asyncio.Task[None]) -> None:
    """Wait for ``task``; its cancellation by a signal is a normal end, that of the waiting task is propagated."""
    try:
        await task
    except asyncio.CancelledError:
        waiting = asyncio.current_task()
        if waiting is not None and waiting.cancelling():
            raise
