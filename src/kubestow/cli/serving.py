"""What the commands that serve an API have in common: listening, a kubeconfig for the server, and the end."""

from __future__ import annotations

import asyncio
import ipaddress
import json
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import yaml

from kubestow.errors import InputError, KubestowError

if TYPE_CHECKING:
    from kubestow.apiserver import Server

__all__ = ["interrupted", "is_loopback", "listening", "write_kubeconfig"]

_CONTEXT = "kubestow"


@asynccontextmanager
async def listening(server: Server) -> AsyncIterator[None]:
    """Start a server, and stop it in the end. Raises KubestowError for an address that cannot be had.

    When the server fails meanwhile, what is done in the context is cancelled, and why is raised.
    """
    try:
        await server.start()
    except OSError as error:
        raise KubestowError(f"cannot listen on {server.host}:{server.port}: {error.strerror or error}") from None
    try:
        async with asyncio.TaskGroup() as meanwhile:
            failure = meanwhile.create_task(server.failed())
            yield
            failure.cancel()
    finally:
        await server.stop()


async def interrupted() -> None:
    """Return when the process is asked to end."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    await stop.wait()


def is_loopback(address: str) -> bool:
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return address == "localhost"


def write_kubeconfig(path: Path, url: str, token: str = "") -> None:
    """Write a kubeconfig, in JSON, which is YAML too. Raises InputError, also rather than replace another cluster's."""
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": _CONTEXT, "cluster": {"server": url}}],
        "users": [{"name": "admin", "user": {"token": token} if token else {}}],
        "contexts": [{"name": _CONTEXT, "context": {"cluster": _CONTEXT, "user": "admin"}}],
        "current-context": _CONTEXT,
    }
    try:
        if path.exists() and path.stat().st_size and not _is_ours(path.read_bytes()):
            raise InputError(str(path), "is there already and not a kubeconfig of kubestow's; name another file")
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            json.dump(config, file, indent=2)
            file.write("\n")
    except OSError as error:
        raise InputError(str(path), f"cannot be written: {error.strerror or error}") from None


def _is_ours(content: bytes) -> bool:
    """Whether a kubeconfig has our cluster and no other. kubectl rewrites it as YAML when it changes the namespace."""
    try:
        config = yaml.safe_load(content)
        return [one["name"] for one in config["clusters"]] == [_CONTEXT]
    except (yaml.YAMLError, KeyError, TypeError):
        return False
