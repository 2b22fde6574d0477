"""``kubestow apiserver``: the embedded API server alone, until interrupted."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import click

from kubestow.cli.serving import ServerOptions, interrupted, listening, server_options, write_kubeconfig

__all__ = ["apiserver"]


@click.command()
@server_options
@click.option(
    "--nodes", default=0, show_default=True, type=click.IntRange(0, 100_000), help="Simulated nodes to start with."
)
@click.option(
    "--simulate/--no-simulate", default=True, show_default=True, help="Whether nodes run the pods bound to them."
)
@click.option(
    "--kubeconfig-out", type=click.Path(path_type=Path, dir_okay=False), help="Write a kubeconfig for this server here."
)
def apiserver(options: ServerOptions, nodes: int, simulate: bool, kubeconfig_out: Path | None) -> None:
    """Serve the embedded Kubernetes API, with simulated nodes."""
    asyncio.run(_serve(options, nodes, simulate, kubeconfig_out))


async def _serve(options: ServerOptions, nodes: int, simulate: bool, kubeconfig_out: Path | None) -> None:
    access = options.access()
    server = options.server(access, nodes=nodes, kubelets=simulate)
    async with listening(server):
        click.echo(f"serving the Kubernetes API on {server.url}")
        options.warn_if_open(access)
        if kubeconfig_out is not None:
            write_kubeconfig(kubeconfig_out, server.url, access)
            click.echo(f"kubeconfig written; try: kubectl --kubeconfig={kubeconfig_out} get nodes")
        click.echo("ready")
        sys.stdout.flush()
        await interrupted()
