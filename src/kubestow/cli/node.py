"""``kubestow node``: stop and start simulated nodes.

The commands set an annotation on the Node (``kubestow.dev/kubelet``); ``kubectl annotate`` has the same effect.
"""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import click

from kubestow.errors import KubestowError

if TYPE_CHECKING:
    from collections.abc import Callable

    from kubestow.client.rest.transport import Transport

__all__ = ["node"]


@click.group()
def node() -> None:
    """Stop and start simulated nodes of an embedded cluster."""


def _for_nodes(command: Callable[..., None]) -> Callable[..., None]:
    """Add the arguments of both commands."""
    command = click.option("--master", default="", help="URL of the API server; overrides the kubeconfig.")(command)
    command = click.option("--kubeconfig", default="", help="Path of a kubeconfig. Default: kubectl's default.")(
        command
    )
    return click.argument("names", nargs=-1, required=True, metavar="NAME...")(command)


@node.command()
@_for_nodes
@click.option("--graceful", is_flag=True, help="Graceful node shutdown: mark the node and terminate its pods first.")
def stop(names: tuple[str, ...], kubeconfig: str, master: str, graceful: bool) -> None:
    """Stop the kubelets of nodes: they send no heartbeats and no pod status updates."""
    from kubestow.devcluster.annotations import SHUT_DOWN, STOPPED

    _set(names, SHUT_DOWN if graceful else STOPPED, kubeconfig, master)


@node.command()
@_for_nodes
def start(names: tuple[str, ...], kubeconfig: str, master: str) -> None:
    """Start the kubelets of stopped nodes."""
    _set(names, None, kubeconfig, master)


def _set(names: tuple[str, ...], state: str | None, kubeconfig: str, master: str) -> None:
    asyncio.run(_annotate(names, state, kubeconfig, master))


async def _annotate(names: tuple[str, ...], state: str | None, kubeconfig: str, master: str) -> None:
    from kubestow.client.rest.credentials import load_credentials
    from kubestow.client.rest.transport import Transport
    from kubestow.wall_clock import WallClock

    async with Transport(await load_credentials(kubeconfig, master=master), clock=WallClock()) as transport:
        await _require_simulation(transport)
        for name in names:
            await _annotate_one(transport, name, state)
            click.echo(f"node/{name} {'started' if state is None else 'stopped'}")


async def _require_simulation(transport: Transport) -> None:
    """Raise KubestowError for any other cluster: its kubelets do not act on the annotation."""
    version: dict[str, Any] = json.loads(await transport.request("GET", "/version"))
    if version.get("compiler") != "kubestow":
        raise KubestowError(f"{transport.server}: not an embedded cluster, its nodes cannot be stopped or started")


async def _annotate_one(transport: Transport, name: str, state: str | None) -> None:
    from kubestow.client.rest.transport import MERGE_PATCH
    from kubestow.devcluster.annotations import KUBELET

    patch = json.dumps({"metadata": {"annotations": {KUBELET: state}}}).encode()
    await transport.request("PATCH", f"/api/v1/nodes/{quote(name, safe='')}", patch, content_type=MERGE_PATCH)
