"""``kubestow up``: a whole cluster in one command, without containers.

API server, controllers, simulated nodes and the scheduler share one process and one event loop, so a debugger can stop
in a plugin. The scheduler connects to the server over HTTP like any other client.
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
from kubestow.cli.server import SecureServing, ServerOptions, server_options, serving, write_kubeconfig
from kubestow.errors import InputError

if TYPE_CHECKING:
    from kubestow.app import SchedulerApp
    from kubestow.devcluster.cluster import DevCluster
    from kubestow.scheduling.scheduler import Scheduler

__all__ = ["up"]

_DEFAULT_NODES = 5


@click.command()
@click.option(
    "--nodes",
    type=click.IntRange(0, 100_000),
    help=f"Number of simulated nodes; missing ones are created. Default: {_DEFAULT_NODES} in a new cluster"
    " without --cluster.",
)
@click.option(
    "--cluster",
    "cluster_file",
    type=click.Path(path_type=Path),
    help="Initial objects, in YAML or JSON: nodes, or the output of kubectl get -o json.",
)
@click.option("--config", "config_file", type=click.Path(path_type=Path), help="A KubeSchedulerConfiguration file.")
@click.option(
    "--plugin", "plugins", multiple=True, metavar="MODULE:CLASS", help="A plugin to register; can be repeated."
)
@click.option("--feature-gates", default="", help="Feature gates, as Name=true,Other=false.")
@click.option("--seed", type=int, help="Seed for the choice between nodes with equal scores. Default: random.")
@click.option(
    "--node-monitor-grace-period",
    "grace_period",
    default="50s",
    show_default=True,
    metavar="DURATION",
    help="Time without heartbeats after which a node is marked unhealthy.",
)
@click.option(
    "--kubeconfig-out",
    "kubeconfig",
    default="kubestow.kubeconfig",
    show_default=True,
    type=click.Path(path_type=Path, dir_okay=False),
    help="Path of the kubeconfig to write.",
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
    """Run a development cluster until Ctrl-C: API server, controllers, simulated nodes and the scheduler."""
    from kubestow.app import SchedulerApp

    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    app = _for_embedded_server(
        SchedulerApp.create(plugin_references=plugins, source=config_file, feature_gates=feature_gates, seed=seed)
    )
    seconds = _seconds(grace_period)
    asyncio.run(_run(app, options, nodes=nodes, cluster_file=cluster_file, kubeconfig=kubeconfig, grace_period=seconds))
    data = (
        "the cluster is not persisted" if options.data_dir is None else f"the cluster is stored in {options.data_dir}"
    )
    click.echo(f"stopped; {data}")


def _for_embedded_server(app: SchedulerApp) -> SchedulerApp:
    """Ignore the configured kubeconfig, and disable the client rate limit and leader election."""
    configuration = app.configuration
    connection = structs.replace(configuration.client_connection, kubeconfig="", qps=-1.0)
    election = structs.replace(configuration.leader_election, leader_elect=False)
    configuration = structs.replace(configuration, client_connection=connection, leader_election=election)
    return replace(app, configuration=configuration)


def _seconds(grace_period: str) -> float:
    try:
        duration = Duration.parse(grace_period)
    except ValueError:
        duration = Duration()
    if duration <= Duration():
        raise InputError(
            "--node-monitor-grace-period", f"expected a positive duration such as 50s, got {grace_period!r}"
        )
    return duration.seconds


async def _run(
    app: SchedulerApp,
    options: ServerOptions,
    *,
    nodes: int | None,
    cluster_file: Path | None,
    kubeconfig: Path,
    grace_period: float,
) -> None:
    from kubestow.devcluster.cluster import ControllerManagerOptions

    security = options.security()
    with_scheduler = _with_scheduler_user(security)
    controller_manager = ControllerManagerOptions(node_monitor_grace_period=grace_period)
    server = options.server(with_scheduler, controller_manager=controller_manager)
    if cluster_file is not None and server.is_resumed:
        click.echo(f"{cluster_file}: not loaded, {options.data_dir} already contains a cluster", err=True)
    elif cluster_file is not None:
        _load(server, cluster_file)
    elif nodes is None and not server.is_resumed:
        nodes = _DEFAULT_NODES
    server.add_nodes(nodes or 0)
    async with serving(server):
        write_kubeconfig(kubeconfig, server.url, security)
        options.warn_if_exposed(security)
        with TemporaryDirectory(prefix="kubestow-") as directory:
            scheduler_kubeconfig = Path(directory) / "scheduler.kubeconfig"
            write_kubeconfig(scheduler_kubeconfig, server.url, with_scheduler)
            await app.run(
                kubeconfig=str(scheduler_kubeconfig),
                master="",
                on_ready=lambda scheduler: _announce(server, scheduler, kubeconfig),
            )


def _with_scheduler_user(security: SecureServing) -> SecureServing:
    """Add a bearer token for the scheduler of this process, if clients must authenticate.

    The scheduler does not verify the server's certificate, which may be for other host names: the server is in the same
    process.
    """
    from kubestow.devcluster.apiserver.authentication.users import ALL_AUTHENTICATED, UserInfo

    tls = None if security.tls is None else replace(security.tls, ca_bundle=b"", admin=None)
    if not security.authenticates:
        return replace(security, tls=tls)
    scheduler = {secrets.token_urlsafe(32): UserInfo("system:kube-scheduler", (ALL_AUTHENTICATED,))}
    return SecureServing(tls, {**scheduler, **security.tokens})


def _load(server: DevCluster, path: Path) -> None:
    from kubestow.devcluster.dump import load

    try:
        content = path.read_bytes()
    except OSError as error:
        raise InputError(str(path), f"cannot be read: {error.strerror or error}") from None
    loaded = load(server.registry, content, subject=str(path))
    click.echo(f"{path}: {_format_counts(loaded.created)}")
    if loaded.skipped:
        click.echo(
            f"{path}: skipped {_format_counts(loaded.skipped)} (kind not served, terminated or being deleted)",
            err=True,
        )


def _format_counts(counts: dict[str, int]) -> str:
    return ", ".join(f"{count} {kind}" for kind, count in sorted(counts.items())) or "nothing"


def _announce(server: DevCluster, scheduler: Scheduler, kubeconfig: Path) -> None:
    nodes = len(scheduler.cluster.nodes)
    config = shlex.quote(str(kubeconfig))
    click.echo(f"""\
serving the Kubernetes API on {server.url}
{nodes} simulated nodes; scheduling for {", ".join(scheduler.profiles)}
kubeconfig written to {kubeconfig}

in another terminal, try:
  export KUBECONFIG={config}
  kubectl get nodes
  kubectl create deployment web --image=nginx --replicas=10
  kubectl get pods -o wide --watch
  kubectl create job hello --image=busybox -- echo hello
stop with Ctrl-C

ready""")
    sys.stdout.flush()
