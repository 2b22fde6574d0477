"""``kubestow run``: schedule the pods of a cluster."""

from __future__ import annotations

import asyncio
import logging
import signal
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

import click

from kubestow.errors import InputError

if TYPE_CHECKING:
    from kubestow.config import FeatureGates, SchedulerConfiguration
    from kubestow.framework.profile import Registry

__all__ = ["read_configuration", "run"]


@click.command()
@click.option("--kubeconfig", default="", help="A kubeconfig file. Default: as kubectl finds it, or in-cluster.")
@click.option("--master", default="", help="Address of the API server; overrides the kubeconfig's.")
@click.option("--config", "config_file", type=click.Path(path_type=Path), help="A KubeSchedulerConfiguration file.")
@click.option(
    "--plugin", "plugins", multiple=True, metavar="MODULE:CLASS", help="A plugin to add to the registry; repeatable."
)
@click.option("--feature-gates", default="", help="Feature gates as Name=true,Other=false.")
@click.option("--seed", type=int, help="Seed of the choice among equally good nodes. Default: random.")
@click.option("-v", "--verbosity", default=0, show_default=True, help="0: warnings, 1: what happens, 2: everything.")
def run(
    kubeconfig: str,
    master: str,
    config_file: Path | None,
    plugins: tuple[str, ...],
    feature_gates: str,
    seed: int | None,
    verbosity: int,
) -> None:
    """Schedule the pods of the cluster that a kubeconfig names, until interrupted."""
    from kubestow.config import FeatureGates
    from kubestow.plugins.discovery import find_plugins

    logging.basicConfig(
        level=(logging.WARNING, logging.INFO, logging.DEBUG)[max(0, min(verbosity, 2))],
        format="%(asctime)s %(levelname)s %(name)s: %(message)s",
    )
    gates = FeatureGates.parse(feature_gates)
    registry = find_plugins(plugins)
    configuration = read_configuration(config_file, gates, registry)
    target = kubeconfig or configuration.client_connection.kubeconfig
    asyncio.run(_run(configuration, gates, registry, target, master, Random(seed)))


def read_configuration(path: Path | None, gates: FeatureGates, registry: Registry) -> SchedulerConfiguration:
    """The configuration in a file, or the default one. Raises InputError for a file that cannot be used."""
    from kubestow import config
    from kubestow.framework.profile import implements

    if path is None:
        return config.default_configuration(gates)
    try:
        text = path.read_bytes()
    except OSError as error:
        raise InputError(str(path), f"cannot be read: {error.strerror}") from None
    return config.load(text, subject=str(path), gates=gates, implements=implements(registry))


async def _run(
    configuration: SchedulerConfiguration,
    gates: FeatureGates,
    registry: Registry,
    kubeconfig: str,
    master: str,
    random: Random,
) -> None:
    from kubestow.client.credentials import load_credentials
    from kubestow.client.pacing import WallClock
    from kubestow.client.remote import RemoteCluster
    from kubestow.scheduling.scheduler import Scheduler

    connection = configuration.client_connection
    credentials = await load_credentials(kubeconfig, master=master)
    clock = WallClock()
    async with RemoteCluster(
        credentials, clock=clock, random=random, qps=connection.qps or 0.0, burst=connection.burst or 0
    ) as cluster:
        await cluster.check()
        scheduler = Scheduler(configuration, registry=registry, api=cluster, clock=clock, random=random, gates=gates)
        running = asyncio.create_task(scheduler.run())
        loop = asyncio.get_running_loop()
        for signum in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(signum, running.cancel)
        ready = asyncio.create_task(scheduler.synced.wait())
        await asyncio.wait((running, ready), return_when=asyncio.FIRST_COMPLETED)
        if ready.done():
            click.echo(f"scheduling {len(scheduler.cluster.nodes)} nodes for {', '.join(scheduler.profiles)}")
        try:
            await running
        except asyncio.CancelledError:
            click.echo("stopped")
