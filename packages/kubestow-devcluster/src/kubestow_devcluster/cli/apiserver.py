"""``kubestow apiserver``: serve the embedded API server without a scheduler."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from kubestow import process
from kubestow.cli.ending import wait_for_signal
from kubestow.errors import InputError
from kubestow_devcluster.cli.kubeconfig import write_kubeconfig
from kubestow_devcluster.cli.server import ServerOptions, read_stages_option, server_options, serving, stages_option

if TYPE_CHECKING:
    from kubestow_devcluster.stages import Stages

__all__ = ["apiserver"]


@click.command()
@server_options
@click.option(
    "--nodes", default=0, show_default=True, type=click.IntRange(0, 100_000), help="Number of simulated nodes."
)
@click.option(
    "--simulate/--no-simulate", default=True, show_default=True, help="Whether simulated kubelets run the bound pods."
)
@stages_option
@click.option(
    "--kubeconfig-out",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Write a kubeconfig for the server to this file.",
)
def apiserver(
    options: ServerOptions, nodes: int, simulate: bool, stages_file: Path | None, kubeconfig_out: Path | None
) -> None:
    """Run the embedded API server with simulated nodes."""
    if stages_file is not None and not simulate:
        raise InputError("--stages", "cannot be used together with --no-simulate")
    stages = read_stages_option(stages_file) if simulate else None
    process.run(_serve(options, nodes, stages, kubeconfig_out))


async def _serve(options: ServerOptions, nodes: int, stages: Stages | None, kubeconfig_out: Path | None) -> None:
    """Without ``stages`` nothing is simulated."""
    security = options.security()
    server = options.server(security, nodes=nodes, kubelets=stages is not None, stages=stages)
    async with serving(server):
        click.echo(f"serving the Kubernetes API on {server.url}")
        options.warn_if_exposed(security)
        if kubeconfig_out is not None:
            write_kubeconfig(kubeconfig_out, server.url, security)
            click.echo(f"kubeconfig written; try: kubectl --kubeconfig={kubeconfig_out} get nodes")
        click.echo("ready")
        sys.stdout.flush()
        await wait_for_signal()
