"""Options of the commands that run an embedded API server, and its start, stop and kubeconfig."""

from __future__ import annotations

import asyncio
import functools
import ipaddress
import json
import signal
from base64 import b64encode
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import yaml

from kubestow.errors import InputError, KubestowError

if TYPE_CHECKING:
    from kubestow.devcluster.apiserver.authentication.users import UserInfo
    from kubestow.devcluster.apiserver.server.tls import TLS
    from kubestow.devcluster.cluster import DevCluster

__all__ = [
    "SecureServing",
    "ServerOptions",
    "is_loopback",
    "server_options",
    "serving",
    "wait_for_signal",
    "write_kubeconfig",
]

_CONTEXT = "kubestow"

_file = click.Path(path_type=Path, dir_okay=False)
_OPTIONS = (
    click.option(
        "--port", default=6443, show_default=True, type=click.IntRange(0, 65535), help="Port; 0 selects a free port."
    ),
    click.option("--bind-address", default="127.0.0.1", show_default=True, help="Address to listen on."),
    click.option(
        "--data-dir",
        type=click.Path(path_type=Path, file_okay=False),
        help="Directory of the cluster's data; an existing cluster is resumed.",
    ),
    click.option("--tls", is_flag=True, help="Serve HTTPS with generated certificates and require authentication."),
    click.option("--tls-cert-file", type=_file, help="Serve HTTPS with this certificate (PEM)."),
    click.option("--tls-private-key-file", type=_file, help="Private key of --tls-cert-file (PEM)."),
    click.option("--client-ca-file", type=_file, help="Authenticate client certificates of these CAs (PEM)."),
    click.option(
        "--token-file", type=_file, help="Authenticate bearer tokens of this file (token,user,uid[,groups] per line)."
    ),
)


@dataclass(frozen=True, slots=True)
class SecureServing:
    """The TLS configuration of a server, if any, and its users by bearer token."""

    tls: TLS | None = None
    tokens: Mapping[str, UserInfo] = field(default_factory=dict)

    @property
    def authenticates(self) -> bool:
        """Whether clients must authenticate."""
        return bool(self.tokens) or (self.tls is not None and bool(self.tls.client_ca))


@dataclass(frozen=True, slots=True)
class ServerOptions:
    """The options of every command that runs an embedded API server."""

    port: int
    bind_address: str
    data_dir: Path | None
    tls: bool
    tls_cert_file: Path | None
    tls_private_key_file: Path | None
    client_ca_file: Path | None
    token_file: Path | None

    def security(self) -> SecureServing:
        """Raises InputError for conflicting options and invalid files."""
        from kubestow.devcluster.apiserver.authentication.token_file import read_token_file

        tokens = {} if self.token_file is None else read_token_file(self.token_file)
        return SecureServing(self._tls(), tokens)

    def server(self, security: SecureServing, **arguments: Any) -> DevCluster:
        """Create the server from these options and further ``arguments`` of :class:`DevCluster`. Raises InputError."""
        from kubestow.devcluster.apiserver.server.api_server import APIServerOptions
        from kubestow.devcluster.apiserver.storage.database import Database
        from kubestow.devcluster.cluster import DevCluster

        database = None if self.data_dir is None else Database(self.data_dir)
        apiserver = APIServerOptions(host=self.bind_address, port=self.port, tls=security.tls, tokens=security.tokens)
        return DevCluster(apiserver=apiserver, database=database, **arguments)

    def _tls(self) -> TLS | None:
        certificate, key = self.tls_cert_file, self.tls_private_key_file
        if (certificate is None) != (key is None):
            raise InputError("--tls-cert-file, --tls-private-key-file", "must be set together")
        if self.tls and certificate is not None:
            raise InputError("--tls", "cannot be used together with --tls-cert-file")
        if not self.tls and certificate is None:
            if self.client_ca_file is not None:
                raise InputError("--client-ca-file", "requires --tls or --tls-cert-file")
            return None
        from kubestow.devcluster.apiserver.server.tls import TLS, serving_hosts

        if certificate is not None and key is not None:
            return TLS.from_files(certificate, key, client_ca=self.client_ca_file)
        directory = None if self.data_dir is None else self.data_dir / "pki"
        return TLS.self_signed(serving_hosts(self.bind_address), directory=directory, client_ca=self.client_ca_file)

    def warn_if_exposed(self, security: SecureServing) -> None:
        """Print a warning if the server is reachable from other machines."""
        if not is_loopback(self.bind_address):
            clients = "clients must authenticate" if security.authenticates else "all clients have full access"
            click.echo(f"warning: reachable from other machines: {clients}", err=True)


def server_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add the server options to a command, which gets them as one :class:`ServerOptions` named ``options``."""

    @functools.wraps(command)
    def wrapper(**arguments: Any) -> None:
        options = {option.name: arguments.pop(option.name) for option in fields(ServerOptions)}
        command(options=ServerOptions(**options), **arguments)

    for option in reversed(_OPTIONS):
        wrapper = option(wrapper)
    return wrapper


@asynccontextmanager
async def serving(server: DevCluster) -> AsyncIterator[None]:
    """Start a server, and stop it on exit. Raises KubestowError if it cannot bind to its address.

    If the server fails, the body of the context is cancelled and the failure is raised.
    """
    try:
        await server.start()
    except OSError as error:
        address = f"{server.apiserver.host}:{server.apiserver.port}"
        raise KubestowError(f"cannot listen on {address}: {error.strerror or error}") from None
    try:
        async with asyncio.TaskGroup() as tasks:
            failure = tasks.create_task(server.failed())
            yield
            failure.cancel()
    finally:
        await server.stop()


async def wait_for_signal() -> None:
    """Wait for SIGINT or SIGTERM."""
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


def write_kubeconfig(path: Path, url: str, security: SecureServing) -> None:
    """Write a kubeconfig, as JSON. Raises InputError, also if the file is a kubeconfig of another cluster.

    Its user is the administrator if there is a client certificate for it, else the first user with a token.
    """
    from kubestow.certificates import write_private

    cluster: dict[str, str | bool] = {"server": url}
    if security.tls is not None and security.tls.ca_bundle:
        cluster["certificate-authority-data"] = b64encode(security.tls.ca_bundle).decode()
    elif security.tls is not None:
        cluster["insecure-skip-tls-verify"] = True
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": _CONTEXT, "cluster": cluster}],
        "users": [{"name": "admin", "user": _credentials(security)}],
        "contexts": [{"name": _CONTEXT, "context": {"cluster": _CONTEXT, "user": "admin"}}],
        "current-context": _CONTEXT,
    }
    try:
        if path.exists() and path.stat().st_size and not _has_only_our_cluster(path.read_bytes()):
            raise InputError(str(path), "already exists and was not written by kubestow; choose another file")
    except OSError as error:
        raise InputError(str(path), f"cannot be read: {error.strerror or error}") from None
    write_private(path, json.dumps(config, indent=2).encode() + b"\n")


def _credentials(security: SecureServing) -> dict[str, str]:
    if security.tls is not None and security.tls.admin is not None:
        certificate, key = security.tls.admin.certificate, security.tls.admin.key
        return {
            "client-certificate-data": b64encode(certificate).decode(),
            "client-key-data": b64encode(key).decode(),
        }
    return {"token": next(iter(security.tokens))} if security.tokens else {}


def _has_only_our_cluster(content: bytes) -> bool:
    """Whether a kubeconfig has our cluster and no other; it is YAML once kubectl has rewritten it."""
    try:
        config = yaml.safe_load(content)
        return [cluster["name"] for cluster in config["clusters"]] == [_CONTEXT]
    except (yaml.YAMLError, KeyError, TypeError):
        return False
