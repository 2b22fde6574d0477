"""``kubestow up``: a whole cluster in one command, without containers.

API server, controllers, simulated nodes and the scheduler share one process and one event loop: they start and stop
together, and a plugin can be stopped in a debugger. The scheduler talks HTTP to the server like any other client.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import shlex
import sys
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import click
from msgspec import structs

from kubestow.api.duration import Duration
from kubestow.cli.serving import Access, ServerOptions, listening, server_options, write_kubeconfig
from kubestow.errors import InputError

if TYPE_CHECKING:
    from kubestow.app import SchedulerApp
    from kubestow.devcluster.cluster import DevCluster
    from kubestow.scheduling.scheduler import Scheduler

__all__ = ["up"]

_NODES = 5


@click.command()
@click.option(
    "--nodes",
    type=click.IntRange(0, 100_000),
    help=f"Simulated nodes; those that are missing are made. Default: {_NODES} in a new cluster without --cluster.",
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
    "--node-monitor-grace-period",
    "grace_period",
    default="50s",
    show_default=True,
    metavar="DURATION",
    help="How long a node may be silent before it is taken to be lost.",
)
@click.option(
    "--kubeconfig-out",
    "kubeconfig",
    default="kubestow.kubeconfig",
    show_default=True,
    type=click.Path(path_type=Path, dir_okay=False),
    help="Where to write the kubeconfig.",
)
@server_options
def up(
    options: ServerOptions,
    nodes: int | None,
    cluster_file: Path | None,
    config_file: Path | None,
    plugins: tuple[str, ...],
    feature_gates: str,
    seed: int | None,
    grace_period: str,
    kubeconfig: Path,
) -> None:
    """Run a cluster to try things on: API server, controllers, simulated nodes and the scheduler, until Ctrl-C."""
    from kubestow.app import SchedulerApp

    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    live = _at_home(
        SchedulerApp.create(plugin_references=plugins, source=config_file, feature_gates=feature_gates, seed=seed)
    )
    seconds = _seconds(grace_period)
    asyncio.run(
        _run(live, options, nodes=nodes, cluster_file=cluster_file, kubeconfig=kubeconfig, grace_period=seconds)
    )
    kept = "nothing of this cluster is kept" if options.data_dir is None else f"{options.data_dir} has the cluster"
    click.echo(f"stopped; {kept}")


def _at_home(live: SchedulerApp) -> SchedulerApp:
    """The same, on a server that is ours alone: no other cluster's kubeconfig, nobody whom a limit would spare, and
    nobody to elect a leader with.
    """
    given = live.configuration
    connection = structs.replace(given.client_connection, kubeconfig="", qps=-1.0)
    alone = structs.replace(given.leader_election, leader_elect=False)
    return replace(live, configuration=structs.replace(given, client_connection=connection, leader_election=alone))


def _seconds(grace_period: str) -> float:
    try:
        length = Duration.parse(grace_period)
    except ValueError:
        length = Duration()
    if length <= Duration():
        raise InputError("--node-monitor-grace-period", f"{grace_period!r} is not a duration such as 50s")
    return length.seconds


async def _run(
    live: SchedulerApp,
    options: ServerOptions,
    *,
    nodes: int | None,
    cluster_file: Path | None,
    kubeconfig: Path,
    grace_period: float,
) -> None:
    from kubestow.devcluster.cluster import ControllerManagerOptions

    access = options.access()
    ours = _with_scheduler(access)
    controller_manager = ControllerManagerOptions(node_monitor_grace_period=grace_period)
    server = options.server(ours, controller_manager=controller_manager)
    if cluster_file is not None and server.is_resumed:
        click.echo(f"{cluster_file}: not read again; {options.data_dir} has a cluster already", err=True)
    elif cluster_file is not None:
        _load(server, cluster_file)
    elif nodes is None and not server.is_resumed:
        nodes = _NODES
    server.add_nodes(nodes or 0)
    async with listening(server):
        write_kubeconfig(kubeconfig, server.url, access)
        options.warn_if_open(access)
        with TemporaryDirectory(prefix="kubestow-") as private:
            scheduler_config = Path(private) / "scheduler.kubeconfig"
            write_kubeconfig(scheduler_config, server.url, ours)
            await live.run(
                kubeconfig=str(scheduler_config),
                master="",
                on_ready=lambda scheduler: _announce(server, scheduler, kubeconfig),
            )


def _with_scheduler(access: Access) -> Access:
    """The same for the scheduler in this process: where users are told apart, it is known by a token of its own.

    It need not check the server's certificate, which may be for other names: the address is held by this very process.
    """
    from kubestow.devcluster.apiserver.authentication import AUTHENTICATED
    from kubestow.devcluster.apiserver.requests import User

    tls = None if access.tls is None else replace(access.tls, trust=b"", admin=None)
    if not access.is_guarded:
        return replace(access, tls=tls)
    scheduler = {secrets.token_urlsafe(32): User("system:kube-scheduler", (AUTHENTICATED,))}
    return Access(tls, {**scheduler, **access.tokens})


def _load(server: DevCluster, path: Path) -> None:
    from kubestow.devcluster.dump import load

    try:
        content = path.read_bytes()
    except OSError as error:
        raise InputError(str(path), f"cannot be read: {error.strerror or error}") from None
    loaded = load(server.registry, content, subject=str(path))
    click.echo(f"{path}: {_counted(loaded.created)}")
    if loaded.skipped:
        click.echo(f"{path}: skipped: {_counted(loaded.skipped)} (not served here, ended or being deleted)", err=True)


def _counted(counts: dict[str, int]) -> str:
    return ", ".join(f"{count} {kind}" for kind, count in sorted(counts.items())) or "nothing"


def _announce(server: DevCluster, scheduler: Scheduler, kubeconfig: Path) -> None:
    nodes = len(scheduler.cluster.nodes)
    config = shlex.quote(str(kubeconfig))
    click.echo(f"""\
serving the Kubernetes API on {server.url}
{nodes} simulated nodes; scheduling for {", ".join(scheduler.profiles)}
kubeconfig written to {kubeconfig}

try, in another terminal:
  export KUBECONFIG={config}
  kubectl get nodes
  kubectl create deployment web --image=nginx --replicas=10
  kubectl get pods -o wide --watch
  kubectl create job hello --image=busybox -- echo hello
stop with Ctrl-C

ready""")
    sys.stdout.flush()
