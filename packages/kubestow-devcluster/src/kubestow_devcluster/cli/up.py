"""``kubestow up``: a whole cluster in one command, without containers.

API server, controllers and simulated nodes share one process and one event loop. The scheduler is in the same process,
so that a debugger can stop in a plugin, or in one of its own (``--scheduler-process``). Either way it connects to the
server over HTTP like any other client.
"""

from __future__ import annotations

import importlib
import os
import secrets
import shlex
import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, NamedTuple

import click

from kubestow import process
from kubestow.api.formats.duration import Duration
from kubestow.cli.embedded import (
    ReadyScheduler,
    SchedulerArguments,
    SchedulerFiles,
    configure_logging,
    run_in_process,
    scheduler_process,
)
from kubestow.cli.input.scheduler import parse_gates, plugin_option
from kubestow.errors import InputError
from kubestow.files import MAX_DUMP, read_file
from kubestow_devcluster.cli.apiserver import ServerOptions, read_stages_option, server_options, serving, stages_option
from kubestow_devcluster.cli.kubeconfig import SecureServing, added_context, has_only_our_cluster, write_kubeconfig

if TYPE_CHECKING:
    from kubestow_devcluster.behaviour.stages import Stages
    from kubestow_devcluster.cluster import DevCluster

RunScheduler = Callable[[SchedulerFiles, Callable[[ReadyScheduler], None]], Awaitable[None]]

_DEFAULT_NODES = 5
_DASHBOARD, _DEBUG, _CONFIGURATION = "/dashboard", "/debug/pods/", "/configz"


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
@plugin_option
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
    "--event-ttl",
    default="1h",
    show_default=True,
    metavar="DURATION",
    help="How long an event is kept after its last update.",
)
@stages_option
@click.option(
    "--flight-record",
    type=click.Path(path_type=Path, file_okay=False),
    help="Folder of a flight record for kubestow replay. Default: none is kept.",
)
@click.option(
    "--scheduler-process",
    "own_process",
    type=click.Choice(["auto", "true", "false"]),
    default="auto",
    show_default=True,
    help="Whether the scheduler is a process of its own; auto: with two or more CPUs and without --plugin.",
)
@click.option(
    "--dashboard/--no-dashboard", default=True, show_default=True, help="Whether to serve the dashboard at /dashboard."
)
@click.option(
    "--kubeconfig-out",
    "kubeconfig",
    default="kubestow.kubeconfig",
    show_default=True,
    type=click.Path(path_type=Path, dir_okay=False),
    help="Path of the kubeconfig to write.",
)
@click.option(
    "--kubeconfig",
    "user_kubeconfig",
    metavar="FILE",
    help="A kubeconfig that gets the context kubestow as its current one until the cluster ends. Default: $KUBECONFIG.",
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
    event_ttl: str,
    stages_file: Path | None,
    flight_record: Path | None,
    own_process: str,
    dashboard: bool,
    kubeconfig: Path,
    user_kubeconfig: str | None,
) -> None:
    """Run a development cluster until Ctrl-C: API server, controllers, simulated nodes and the scheduler."""
    configure_logging()
    config = None if config_file is None else str(config_file)
    scheduler = SchedulerArguments(
        config_file=config,
        plugins=plugins,
        feature_gates=feature_gates,
        emulated_version=str(options.minor),
        seed=seed,
        flight_record=None if flight_record is None else str(flight_record.absolute()),
    )
    is_own_process = own_process == "true" or (own_process == "auto" and scheduler.suits_own_process())
    if user_kubeconfig and Path(user_kubeconfig).expanduser().resolve() == kubeconfig.resolve():
        problem = "the file of --kubeconfig-out, which has the context already; expected another file, or none"
        raise InputError("--kubeconfig", f"{kubeconfig} is {problem}")
    files = _Kubeconfigs(kubeconfig, user_kubeconfig)
    stages = read_stages_option(stages_file)
    durations = _Durations(_seconds("--node-monitor-grace-period", grace_period), _seconds("--event-ttl", event_ttl))
    cluster = _ClusterOptions(nodes, cluster_file, durations, stages, files, dashboard, feature_gates)
    security = options.security()
    if is_own_process:
        process.run(_run_with_child(scheduler, options, security, cluster))
    else:
        app = scheduler.create_app()
        app.run_on_new_loop(_run(partial(run_in_process, app), options, security, cluster))
    data = (
        "the cluster is not persisted" if options.data_dir is None else f"the cluster is stored in {options.data_dir}"
    )
    click.echo(f"stopped; {data}")


def _seconds(option: str, text: str) -> float:
    try:
        duration = Duration.parse(text)
    except ValueError:
        duration = Duration()
    if duration <= Duration():
        raise InputError(option, f"expected a positive duration such as 50s, got {text!r}")
    return duration.seconds


class _Durations(NamedTuple):
    """Options of the controllers, in seconds."""

    node_monitor_grace_period: float
    event_ttl: float


@dataclass(frozen=True, slots=True)
class _ClusterOptions:
    """The options of the cluster: its initial objects, its simulation, and the kubeconfigs that are written."""

    nodes: int | None
    cluster_file: Path | None
    durations: _Durations
    stages: Stages
    kubeconfigs: _Kubeconfigs
    has_dashboard: bool
    #: The text of ``--feature-gates``.
    feature_gates: str


async def _run_with_child(
    arguments: SchedulerArguments, options: ServerOptions, security: SecureServing, cluster: _ClusterOptions
) -> None:
    async with scheduler_process(arguments) as process:
        # Imported while the child starts, and before anything is served or written: a mistake ends the command at once.
        for module in ("kubestow_devcluster.cluster", "kubestow_devcluster.controllers"):
            importlib.import_module(module)
        await process.wait_until_configured()
        await _run(process.run, options, security, cluster)


async def _run(
    run_scheduler: RunScheduler, options: ServerOptions, security: SecureServing, cluster: _ClusterOptions
) -> None:
    """Serve the cluster until ``run_scheduler`` returns."""
    with_scheduler = _with_scheduler_user(security)
    kubeconfigs = cluster.kubeconfigs
    with TemporaryDirectory(prefix="kubestow-") as directory:  # of mode 0700
        socket = Path(directory) / "dashboard.sock" if cluster.has_dashboard else None
        server = _create_server(options, with_scheduler, cluster, socket)
        async with serving(server):
            write_kubeconfig(kubeconfigs.own, server.url, security)
            options.print_warnings(security)
            with kubeconfigs.context_of_user(server.url, security):
                scheduler_kubeconfig = Path(directory) / "scheduler.kubeconfig"
                write_kubeconfig(scheduler_kubeconfig, server.url, with_scheduler)
                files = SchedulerFiles(str(scheduler_kubeconfig), str(socket or ""))
                dashboard = f"{server.url}{_DASHBOARD}" if cluster.has_dashboard else ""
                await run_scheduler(files, partial(_announce, server, kubeconfig=kubeconfigs.own, dashboard=dashboard))


def _create_server(
    options: ServerOptions, security: SecureServing, cluster: _ClusterOptions, dashboard: Path | None
) -> DevCluster:
    """The cluster with its initial objects, or the one that is resumed. ``dashboard`` is the scheduler's socket."""
    from kubestow_devcluster.apiserver.server.http_handler import ForwardedPaths
    from kubestow_devcluster.cluster import ControllerManagerOptions

    controller_manager = ControllerManagerOptions(**cluster.durations._asdict())
    forwarded = None
    if dashboard is not None:
        forwarded = ForwardedPaths(_DASHBOARD, f"{_DASHBOARD}/assets/", dashboard, (_DEBUG, _CONFIGURATION))
    gates = parse_gates(cluster.feature_gates, str(options.minor)) if cluster.feature_gates else None
    server = options.server(security, forwarded, gates, controller_manager=controller_manager, stages=cluster.stages)
    nodes, file = cluster.nodes, cluster.cluster_file
    if file is not None and server.is_resumed:
        click.echo(f"{file}: not loaded, {options.data_dir} already contains a cluster", err=True)
    elif file is not None:
        _load(server, file)
    elif nodes is None and not server.is_resumed:
        nodes = _DEFAULT_NODES
    server.add_nodes(nodes or 0)
    return server


@dataclass(frozen=True, slots=True)
class _Kubeconfigs:
    """The kubeconfig that the command writes, and that of the user, to which it adds a context.

    ``users`` is the value of ``--kubeconfig``: None for ``$KUBECONFIG``, "" for none.
    """

    own: Path
    users: str | None

    @contextmanager
    def context_of_user(self, url: str, security: SecureServing) -> Iterator[None]:
        """Add the context to the user's kubeconfig, if there is one besides ours, and remove it on exit.

        Raises InputError; only warns if the file is that of ``$KUBECONFIG``, which is meant for other programs too.
        """
        with ExitStack() as stack:
            try:
                path = self._file_of_user()
                if path is not None:
                    stack.enter_context(added_context(path, url, security))
                    click.echo(f'context "kubestow" added to {path} until the cluster ends')
            except InputError as error:
                if self.users is not None:
                    raise
                click.echo(f"warning: {error}", err=True)
            yield

    def _file_of_user(self) -> Path | None:
        if self.users is not None:
            return Path(self.users) if self.users else None
        files = [Path(name).expanduser() for name in os.environ.get("KUBECONFIG", "").split(os.pathsep) if name]
        path = next((file for file in files if file.exists()), files[-1] if files else None)
        return None if path is None or has_only_our_cluster(path) else path


def _with_scheduler_user(security: SecureServing) -> SecureServing:
    """Add a bearer token for the scheduler, if clients must authenticate.

    The scheduler does not verify the server's certificate, which may be for other host names: the server is in the same
    process, or in the one that has started it.
    """
    from kubestow.http.messages import ALL_AUTHENTICATED, UserInfo

    tls = None if security.tls is None else replace(security.tls, ca_bundle=b"", admin=None)
    if not security.authenticates:
        return replace(security, tls=tls)
    scheduler = {secrets.token_urlsafe(32): UserInfo("system:kube-scheduler", (ALL_AUTHENTICATED,))}
    return SecureServing(tls, {**scheduler, **security.tokens})


def _load(server: DevCluster, path: Path) -> None:
    from kubestow_devcluster.dump import load

    content = read_file(path, limit=MAX_DUMP)
    loaded = load(server.registry, content, subject=str(path))
    click.echo(f"{path}: {_format_counts(loaded.created)}")
    for message in loaded.left_out:
        click.echo(f"{path}: left out: {message}", err=True)
    if loaded.skipped:
        click.echo(
            f"{path}: skipped {_format_counts(loaded.skipped)} (kind not served, terminated or being deleted)", err=True
        )


def _format_counts(counts: dict[str, int]) -> str:
    return ", ".join(f"{count} {kind}" for kind, count in sorted(counts.items())) or "nothing"


def _announce(server: DevCluster, scheduler: ReadyScheduler, kubeconfig: Path, dashboard: str) -> None:
    config = shlex.quote(str(kubeconfig))
    at = f"dashboard: {dashboard}\n" if dashboard else ""
    click.echo(f"""\
serving the Kubernetes API on {server.url}
{scheduler.nodes} simulated nodes; scheduling for {", ".join(scheduler.scheduler_names)}
{at}kubeconfig written to {kubeconfig}

in another terminal, try:
  export KUBECONFIG={config}
  kubectl get nodes
  kubectl create deployment web --image=nginx --replicas=10
  kubectl get pods -o wide --watch
  kubectl create job hello --image=busybox -- echo hello
stop with Ctrl-C

ready""")
    sys.stdout.flush()
