"""``kubestow node``: stop and start simulated nodes.

The commands set an annotation on the Node (``kubestow.dev/kubelet``); ``kubectl annotate`` has the same effect.
"""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import click

from kubestow.cli.command_group import CommandGroup
from kubestow.cli.input.cluster import ClusterConnection, connection_options
from kubestow.cli.output import output_option, print_data
from kubestow.errors import KubestowError

if TYPE_CHECKING:
    from collections.abc import Callable


@click.group(cls=CommandGroup)
def node() -> None:
    """Stop and start simulated nodes of an embedded cluster."""


def _for_nodes(command: Callable[..., None]) -> Callable[..., None]:
    """Add the arguments of both commands."""
    command = output_option("name", "json", "yaml")(command)
    return click.argument("names", nargs=-1, required=True, metavar="NAME...")(connection_options(command))


@node.command()
@_for_nodes
@click.option("--graceful", is_flag=True, help="Graceful node shutdown: mark the node and terminate its pods first.")
def stop(names: tuple[str, ...], graceful: bool, output: str, connection: ClusterConnection) -> None:
    """Stop the kubelets of nodes: they send no heartbeats and no pod status updates."""
    from kubestow_devcluster.behaviour.pod_behaviour import SHUT_DOWN, STOPPED

    _set(names, SHUT_DOWN if graceful else STOPPED, output, connection)


@node.command()
@_for_nodes
def start(names: tuple[str, ...], output: str, connection: ClusterConnection) -> None:
    """Start the kubelets of stopped nodes."""
    _set(names, None, output, connection)


def _set(names: tuple[str, ...], state: str | None, output: str, connection: ClusterConnection) -> None:
    asyncio.run(_annotate(names, state, output, connection))
    if output != "name":
        print_data([{"name": name, "kubelet": "running" if state is None else state} for name in names], output)


async def _annotate(names: tuple[str, ...], state: str | None, output: str, connection: ClusterConnection) -> None:
    from kubestow.client.rest.transport import MERGE_PATCH, Transport
    from kubestow.process import WallClock
    from kubestow_devcluster.behaviour.pod_behaviour import KUBELET

    async with Transport(await connection.credentials(), clock=WallClock()) as transport:
        # Kubelets of other clusters do not act on the annotation.
        version: dict[str, Any] = json.loads(await transport.request("GET", "/version"))
        if version.get("compiler") != "kubestow":
            raise KubestowError(f"{transport.server}: not an embedded cluster, its nodes cannot be stopped or started")
        for name in names:
            patch = json.dumps({"metadata": {"annotations": {KUBELET: state}}}).encode()
            await transport.request("PATCH", f"/api/v1/nodes/{quote(name, safe='')}", patch, content_type=MERGE_PATCH)
            if output == "name":
                click.echo(f"node/{name} {'started' if state is None else 'stopped'}")
