"""``kubestow apiserver``: the embedded API server alone, until interrupted."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import click

from kubestow.cli.serving import interrupted, is_loopback, listening, write_kubeconfig

__all__ = ["apiserver"]


@click.command()
@click.option(
    "--port", default=6443, show_default=True, type=click.IntRange(0, 65535), help="Port; 0 takes a free one."
)
@click.option("--bind-address", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option(
    "--nodes", default=0, show_default=True, type=click.IntRange(0, 100_000), help="Simulated nodes to start with."
)
@click.option(
    "--simulate/--no-simulate", default=True, show_default=True, help="Whether nodes run the pods bound to them."
)
@click.option(
    "--kubeconfig-out", type=click.Path(path_type=Path, dir_okay=False), help="Write a kubeconfig for this server here."
)
@click.option(
    "--data-dir",
    type=click.Path(path_type=Path, file_okay=False),
    help="Keep the cluster in this directory, and go on from what is there.",
)
@click.option(
    "--token-file",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Ask for a bearer token of this file (token,user,uid[,groups] a line).",
)
def apiserver(
    port: int,
    bind_address: str,
    nodes: int,
    simulate: bool,
    kubeconfig_out: Path | None,
    data_dir: Path | None,
    token_file: Path | None,
) -> None:
    """Serve the embedded Kubernetes API, with simulated nodes."""
    asyncio.run(_serve(port, bind_address, nodes, simulate, kubeconfig_out, data_dir, token_file))


async def _serve(
    port: int,
    address: str,
    nodes: int,
    simulate: bool,
    kubeconfig_out: Path | None,
    data_dir: Path | None,
    token_file: Path | None,
) -> None:
    from kubestow.apiserver import Database, Server
    from kubestow.apiserver.authentication import read_tokens

    tokens = read_tokens(token_file) if token_file is not None else None
    server = Server(
        host=address,
        port=port,
        nodes=nodes,
        simulate=simulate,
        database=None if data_dir is None else Database(data_dir),
        tokens=tokens,
    )
    async with listening(server):
        click.echo(f"serving the Kubernetes API on {server.url}")
        if not is_loopback(address):
            guarded = "a token is asked for" if tokens else "anyone who reaches it may do anything"
            click.echo(f"listening beyond this machine: {guarded}", err=True)
        if kubeconfig_out is not None:
            write_kubeconfig(kubeconfig_out, server.url, next(iter(tokens)) if tokens else "")
            click.echo(f"kubeconfig written; try: kubectl --kubeconfig={kubeconfig_out} get nodes")
        click.echo("ready")
        sys.stdout.flush()
        await interrupted()
