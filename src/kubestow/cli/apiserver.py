"""``kubestow apiserver``: serve the embedded API server without a scheduler."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import click

from kubestow.cli.server import ServerOptions, server_options, serving, wait_for_signal, write_kubeconfig

__all__ = ["apiserver"]


@click.command()
@server_options
@click.option(
    "--nodes", default=0, show_default=True, type=click.IntRange(0, 100_000), help="Number of simulated nodes."
)
@click.option(
    "--simulate/--no-simulate", default=True, show_default=True, help="Whether simulated kubelets run the bound pods."
)
@click.option(
    "--kubeconfig-out",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Write a kubeconfig for the server to this file.",
)
def apiserver(options: ServerOptions, nodes: int, simulate: bool, kubeconfig_out: Path | None) -> None:
    """Run the embedded API server with simulated nodes."""
    asyncio.run(_serve(options, nodes, simulate, kubeconfig_out))


async def _serve(options: ServerOptions, nodes: int, simulate: bool, kubeconfig_out: Path | None) -> None:
    security = options.security()
    server = options.server(security, nodes=nodes, kubelets=simulate)
    async with serving(server):
        click.echo(f"serving the Kubernetes API on {server.url}")
        options.warn_if_exposed(security)
        if kubeconfig_out is not None:
            write_kubeconfig(kubeconfig_out, server.url, security)
            click.echo(f"kubeconfig written; try: kubectl --kubeconfig={kubeconfig_out} get nodes")
        click.echo("ready")
        sys.stdout.flush()
        await wait_for_signal()
