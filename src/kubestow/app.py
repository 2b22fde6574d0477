"""The scheduler on a real cluster: what ``kubestow run`` and :func:`kubestow.run` put together.

Everything that was given is checked before the API server is spoken to: plugins, then the configuration, then the
credentials. Then the parts are joined (client, clock, random source, leader election, scheduler) and run until
interrupted: the first time in good order, the second time at once.
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
from kubestow.client.raw_object_cache import RawObjectCache
from kubestow.client.rest.credentials import Credentials, load_credentials
from kubestow.client.rest.transport import USER_AGENT, Transport
from kubestow.errors import InputError
from kubestow.framework.interface import Plugin
from kubestow.framework.profile import Registry, implements
from kubestow.observability.instruments import LabelAllowList
from kubestow.observability.logs import fields
from kubestow.observability.observability import Observability
from kubestow.plugins.discovery import find_plugins
from kubestow.scheduling.extenders.port import Extender
from kubestow.scheduling.leadership import Leadership, NoLeaderElection
from kubestow.scheduling.scheduler import Scheduler
from kubestow.serving.options import ServingOptions
from kubestow.serving.secure_server import ComponentInfo, SecureServer
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
    """Schedule the pods of a cluster until interrupted (SIGINT or SIGTERM), while leading if leaders are elected.

    ``plugins`` are plugin classes by name, beside the in-tree ones and those of installed packages; they are enabled
    and configured in ``config``, a KubeSchedulerConfiguration as a file or as data. ``kubeconfig`` and ``master`` say
    which cluster, ``feature_gates`` is spelled ``Name=true,Other=false``, ``seed`` makes the choice among equally good
    nodes repeatable. ``on_ready`` is called when scheduling begins.

    A cluster that does not answer is waited for. Raises InputError for what cannot be used, APIError when the cluster
    turns us away, LeaseLost when another scheduler may lead from now on.
    """
    live = SchedulerApp.create(plugins=plugins, source=config, feature_gates=feature_gates, seed=seed)
    asyncio.run(live.run(kubeconfig=str(kubeconfig), master=master, on_ready=on_ready))


def read_configuration(
    source: Path | str | Mapping[str, Any] | None, gates: config.FeatureGates, registry: Registry
) -> config.SchedulerConfiguration:
    """The configuration in a file or in data, or the default one. Raises InputError for one that cannot be used."""
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
    """What an operator chooses beside the configuration. Without ``serving`` no port is opened.

    ``pod_max_in_unschedulable_pods`` is how many seconds a refused pod waits for an event; ``flags`` are shown, not read.
    """

    serving: ServingOptions | None = None
    flags: Mapping[str, str] = field(default_factory=dict)
    disabled_metrics: tuple[str, ...] = ()
    allowed_labels: Mapping[str, LabelAllowList] = field(default_factory=dict)
    pod_max_in_unschedulable_pods: float = 300.0


@dataclass(frozen=True, slots=True)
class SchedulerApp:
    """A scheduler that could be started: everything but the cluster."""

    configuration: config.SchedulerConfiguration
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
        """From what a person gives; ``plugin_references`` are spelled ``module:Class``, ``plugins`` are classes.

        Raises InputError for what cannot be used.
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
        """Schedule until interrupted or cancelled. Raises InputError, APIError and LeaseLost.

        ``on_ready`` is called when scheduling begins, ``on_new_leader`` with the identity of every leader, ourselves too.
        """
        gc_tuning.raise_thresholds()
        settings, connection = self.configuration.extenders, self.configuration.client_connection
        raw_objects = RawObjectCache.wanted_by(settings)
        http_extenders = HTTPExtenders(settings, raw_objects)
        _log.info("Starting kubestow", extra=fields(version=VERSION, kubernetes=KUBERNETES_VERSION))
        _log.info("Python settings", extra=fields(python=platform.python_version(), platform=platform.platform()))
        async with AsyncExitStack() as stack:
            observability = await self._observed(stack)
            credentials = await load_credentials(kubeconfig or connection.kubeconfig, master=master)
            cluster = await stack.enter_async_context(
                ClusterClient(
                    credentials,
                    clock=WallClock(),
                    random=self.random,
                    qps=connection.qps or 0.0,
                    burst=connection.burst or 0,
                    raw_objects=raw_objects if settings else None,
                    on_answer=observability.metrics.answered,
                )
            )
            extenders = await stack.enter_async_context(http_extenders)
            leadership = await stack.enter_async_context(self._leadership(credentials, cluster, on_new_leader))
            await self._schedule(observability, cluster, extenders, leadership, on_ready)

    async def _observed(self, stack: AsyncExitStack) -> Observability:
        """Watch, and serve from here on: before there is a scheduler, and also while another one leads."""
        options, clock = self.options, WallClock()
        observability = Observability(
            clock, self.gates, disabled_metrics=options.disabled_metrics, allowed_labels=options.allowed_labels
        )
        if options.serving is not None:
            about = ComponentInfo(self.configuration, self.gates, options.flags)
            await stack.enter_async_context(SecureServer(options.serving, about, observability, clock=clock))
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
            api=cluster,
            clock=WallClock(),
            random=self.random,
            gates=self.gates,
            extenders=extenders,
            leadership=leadership,
            observer=observability.observer,
            pod_max_in_unschedulable_pods=self.options.pod_max_in_unschedulable_pods,
        )
        observability.attach(scheduler)
        running = asyncio.create_task(_scheduling(scheduler, cluster))
        observability.is_ending = lambda: running.cancelling() > 0
        _end_on_signals(running)
        ready = asyncio.create_task(scheduler.begun())
        try:
            await asyncio.wait((running, ready), return_when=asyncio.FIRST_COMPLETED)
            if ready.done():
                on_ready(scheduler)
            await _until_ended(running)
        finally:
            ready.cancel()
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)

    @asynccontextmanager
    async def _leadership(
        self, credentials: Credentials, cluster: ClusterClient, on_new_leader: Callable[[str], None]
    ) -> AsyncIterator[Leadership]:
        """A candidacy, on connections of its own: a busy scheduler must not lose its lease to its own requests."""
        wanted = self.configuration.leader_election
        if not wanted.leader_elect:
            yield NoLeaderElection()
            return
        times = LeaseTimings(
            duration=wanted.lease_duration.seconds,
            renew_deadline=wanted.renew_deadline.seconds,
            retry_period=wanted.retry_period.seconds,
        )
        clock = WallClock()
        async with Transport(
            credentials,
            clock=clock,
            user_agent=f"{USER_AGENT}/leader-election",
            timeout=max(1.0, times.renew_deadline / 2),
        ) as transport:
            yield LeaderElector(
                transport,
                identity=f"{socket.gethostname()}_{uuid.uuid4()}",
                clock=clock,
                namespace=wanted.resource_namespace,
                name=wanted.resource_name,
                times=times,
                on_new_leader=on_new_leader,
                record=cluster.record,
                reporter=self.configuration.profiles[0].scheduler_name,
            )


async def _scheduling(scheduler: Scheduler, cluster: ClusterClient) -> None:
    """A scheduler may be up before its API server is, as where both are pods of one node that has just started."""
    await cluster.wait_for_api_server()
    await scheduler.run()


def _end_on_signals(running: asyncio.Task[None]) -> None:
    if threading.current_thread() is not threading.main_thread():  # others get no signals
        return
    loop = asyncio.get_running_loop()

    def end(signum: signal.Signals) -> None:
        _log.info("asked to end by %s", signum.name)
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, os._exit, 1)
        running.cancel()

    for signum in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(signum, end, signum)


async def _until_ended(running: asyncio.Task[None]) -> None:
    """Wait for a task that somebody cancels in the end."""
    try:
        await running
    except asyncio.CancelledError:
        waiting = asyncio.current_task()
        if waiting is not None and waiting.cancelling():  # it was not the task that was cancelled first
            raise
