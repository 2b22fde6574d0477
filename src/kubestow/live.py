"""The scheduler on a real cluster: what ``kubestow run`` and :func:`kubestow.run` put together.

Everything that was given is checked before the API server is spoken to: plugins, then the configuration, then the
credentials. Then the parts are joined (client, clock, random source, scheduler) and run until interrupted.
"""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

from kubestow import config
from kubestow.client.credentials import load_credentials
from kubestow.client.extenders import HTTPExtenders
from kubestow.client.originals import Originals
from kubestow.client.pacing import WallClock
from kubestow.client.remote import RemoteCluster
from kubestow.errors import InputError
from kubestow.framework.plugin import Plugin
from kubestow.framework.profile import Registry, implements
from kubestow.plugins.discovery import find_plugins
from kubestow.scheduling.scheduler import Scheduler

__all__ = ["Live", "read_configuration", "run"]


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
    """Schedule the pods of a cluster until interrupted (SIGINT or SIGTERM).

    ``plugins`` are plugin classes by name, beside the in-tree ones and those of installed packages; they are enabled
    and configured in ``config``, a KubeSchedulerConfiguration as a file or as data. ``kubeconfig`` and ``master`` say
    which cluster, ``feature_gates`` is spelled ``Name=true,Other=false``, ``seed`` makes the choice among equally good
    nodes repeatable. ``on_ready`` is called when scheduling begins.

    Raises InputError for what cannot be used, Unreachable and APIError when the cluster cannot be watched.
    """
    live = Live.of(given=plugins, source=config, feature_gates=feature_gates, seed=seed)
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
class Live:
    """A scheduler that could be started: everything but the cluster."""

    configuration: config.SchedulerConfiguration
    registry: Registry
    gates: config.FeatureGates
    random: Random

    @classmethod
    def of(
        cls,
        *,
        named: Iterable[str] = (),
        given: Mapping[str, type[Plugin]] | None = None,
        source: Path | str | Mapping[str, Any] | None = None,
        feature_gates: str = "",
        seed: int | None = None,
    ) -> Live:
        """From what a person gives; plugins are ``named`` as ``module:Class`` or ``given`` as classes.

        Raises InputError for what cannot be used.
        """
        gates = config.FeatureGates.parse(feature_gates)
        registry = find_plugins(named, given)
        return cls(read_configuration(source, gates, registry), registry, gates, Random(seed))

    async def run(self, *, kubeconfig: str, master: str, on_ready: Callable[[Scheduler], None]) -> None:
        """Schedule until interrupted or cancelled. Raises InputError, Unreachable and APIError."""
        settings, connection = self.configuration.extenders, self.configuration.client_connection
        originals = Originals.wanted_by(settings)
        http_extenders = HTTPExtenders(settings, originals)
        credentials = await load_credentials(kubeconfig or connection.kubeconfig, master=master)
        clock = WallClock()
        async with (
            RemoteCluster(
                credentials,
                clock=clock,
                random=self.random,
                qps=connection.qps or 0.0,
                burst=connection.burst or 0,
                originals=originals if settings else None,
            ) as cluster,
            http_extenders as extenders,
        ):
            scheduler = Scheduler(
                self.configuration,
                registry=self.registry,
                api=cluster,
                clock=clock,
                random=self.random,
                gates=self.gates,
                extenders=extenders,
            )
            await cluster.check()
            running = asyncio.create_task(scheduler.run())
            _end_on_signals(running)
            ready = asyncio.create_task(scheduler.synced.wait())
            await asyncio.wait((running, ready), return_when=asyncio.FIRST_COMPLETED)
            if ready.done():
                on_ready(scheduler)
            await _until_ended(running)


def _end_on_signals(running: asyncio.Task[None]) -> None:
    if threading.current_thread() is threading.main_thread():  # others get no signals
        for signum in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(signum, running.cancel)


async def _until_ended(running: asyncio.Task[None]) -> None:
    """Wait for a task that somebody cancels in the end."""
    try:
        await running
    except asyncio.CancelledError:
        waiting = asyncio.current_task()
        if waiting is not None and waiting.cancelling():  # it was not the task that was cancelled first
            raise
