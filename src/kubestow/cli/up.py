"""``kubestow up``: a whole cluster in one command, without containers.

API server, controllers, simulated nodes and the scheduler share one process and one event loop: they start and stop
together, and a plugin can be stopped in a debugger. The scheduler talks HTTP to the server like any other client.
"""

from __future__ import annotations

import asyncio
import logging
import shlex
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from kubestow.cli.serving import interrupted, listening, write_kubeconfig
from kubestow.errors import InputError

if TYPE_CHECKING:
    from kubestow.apiserver import Server
    from kubestow.live import Live
    from kubestow.scheduling.scheduler import Scheduler

__all__ = ["up"]

_NODES = 5


@dataclass(frozen=True)
class _Plan:
    """Everything that was asked for, read and checked."""

    live: Live
    nodes: int
    port: int
    cluster_file: Path | None
    kubeconfig: Path


@click.command()
@click.option(
    "--nodes", type=click.IntRange(0, 100_000), help=f"Simulated nodes. Default: {_NODES}, none with --cluster."
)
@click.option(
    "--cluster",
    "cluster_file",
    type=click.Path(path_type=Path),
    help="Objects to begin with, in YAML or JSON: nodes, or what kubectl get -o json prints of a cluster.",
)
@click.option("--config", "config_file", type=click.Path(path_type=Path), help="A KubeSchedulerConfiguration file.")
@click.option(
    "--plugin", "plugins", multiple=True, metavar="MODULE:CLASS", help="A plugin to add to the registry; repeatable."
)
@click.option("--feature-gates", default="", help="Feature gates as Name=true,Other=false.")
@click.option("--seed", type=int, help="Seed of the choice among equally good nodes. Default: random.")
@click.option(
    "--port", default=6443, show_default=True, type=click.IntRange(0, 65535), help="Port; 0 takes a free one."
)
@click.option(
    "--kubeconfig-out",
    "kubeconfig",
    default="kubestow.kubeconfig",
    show_default=True,
    type=click.Path(path_type=Path, dir_okay=False),
    help="Where to write the kubeconfig.",
)
def up(
    nodes: int | None,
    cluster_file: Path | None,
    config_file: Path | None,
    plugins: tuple[str, ...],
    feature_gates: str,
    seed: int | None,
    port: int,
    kubeconfig: Path,
) -> None:
    """Run a cluster to try things on: API server, controllers, simulated nodes and the scheduler, until Ctrl-C."""
    from kubestow.live import Live

    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    live = Live.of(named=plugins, source=config_file, feature_gates=feature_gates, seed=seed)
    if nodes is None:
        nodes = 0 if cluster_file is not None else _NODES
    plan = _Plan(
        live=live,
        nodes=nodes,
        port=port,
        cluster_file=cluster_file,
        kubeconfig=kubeconfig,
    )
    asyncio.run(_run(plan))


async def _run(plan: _Plan) -> None:
    from kubestow.apiserver import Server

    server = Server(port=plan.port, nodes=plan.nodes, controllers=True)
    if plan.cluster_file is not None:
        _load(server, plan.cluster_file)
    async with listening(server):
        write_kubeconfig(plan.kubeconfig, server.url)
        async with _scheduler(plan, server.url) as scheduler:
            ended = [asyncio.create_task(scheduler.run()), asyncio.create_task(interrupted())]
            ready = asyncio.create_task(scheduler.synced.wait())
            try:
                await asyncio.wait((*ended, ready), return_when=asyncio.FIRST_COMPLETED)
                if ready.done():
                    _announce(plan, server, scheduler)
                    await asyncio.wait(ended, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for task in (*ended, ready):
                    task.cancel()
                results = await asyncio.gather(*ended, ready, return_exceptions=True)
        for result in results:
            if isinstance(result, Exception):
                raise result
    click.echo("stopped; nothing of this cluster is kept")


@asynccontextmanager
async def _scheduler(plan: _Plan, url: str) -> AsyncIterator[Scheduler]:
    from kubestow.client.credentials import load_credentials
    from kubestow.client.pacing import WallClock
    from kubestow.client.remote import RemoteCluster
    from kubestow.scheduling.scheduler import Scheduler

    clock = WallClock()
    credentials = await load_credentials(master=url)
    # The server is ours alone: clientConnection's limits, meant to spare one that others need, do not apply.
    live = plan.live
    async with RemoteCluster(credentials, clock=clock, random=live.random) as api:
        yield Scheduler(
            live.configuration, registry=live.registry, api=api, clock=clock, random=live.random, gates=live.gates
        )


def _load(server: Server, path: Path) -> None:
    from kubestow.apiserver.dump import load

    try:
        content = path.read_bytes()
    except OSError as error:
        raise InputError(str(path), f"cannot be read: {error.strerror or error}") from None
    loaded = load(server.registry, content, subject=str(path))
    click.echo(f"{path}: {_counted(loaded.created)}")
    if loaded.left_out:
        click.echo(f"{path}: left out: {_counted(loaded.left_out)} (not served here, ended or being deleted)", err=True)


def _counted(counts: dict[str, int]) -> str:
    return ", ".join(f"{count} {kind}" for kind, count in sorted(counts.items())) or "nothing"


def _announce(plan: _Plan, server: Server, scheduler: Scheduler) -> None:
    nodes = len(scheduler.cluster.nodes)
    config = shlex.quote(str(plan.kubeconfig))
    click.echo(f"""\
serving the Kubernetes API on {server.url}
{nodes} simulated nodes; scheduling for {", ".join(scheduler.profiles)}
kubeconfig written to {plan.kubeconfig}

try, in another terminal:
  export KUBECONFIG={config}
  kubectl get nodes
  kubectl create deployment web --image=nginx --replicas=10
  kubectl get pods -o wide --watch
  kubectl create job hello --image=busybox -- echo hello
stop with Ctrl-C

ready""")
    sys.stdout.flush()
