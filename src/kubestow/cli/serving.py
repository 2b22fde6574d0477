"""What the commands that serve an API have in common: their options, listening, a kubeconfig, and the end."""

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
    from kubestow.devcluster.apiserver.requests import User
    from kubestow.devcluster.apiserver.tls import TLS
    from kubestow.devcluster.cluster import DevCluster

__all__ = ["Access", "ServerOptions", "interrupted", "is_loopback", "listening", "server_options", "write_kubeconfig"]

_CONTEXT = "kubestow"

_file = click.Path(path_type=Path, dir_okay=False)
_OPTIONS = (
    click.option(
        "--port", default=6443, show_default=True, type=click.IntRange(0, 65535), help="Port; 0 takes a free one."
    ),
    click.option("--bind-address", default="127.0.0.1", show_default=True, help="Address to listen on."),
    click.option(
        "--data-dir",
        type=click.Path(path_type=Path, file_okay=False),
        help="Keep the cluster in this directory, and go on from what is there.",
    ),
    click.option("--tls", is_flag=True, help="Serve HTTPS and ask for credentials, with certificates made for it."),
    click.option("--tls-cert-file", type=_file, help="Serve HTTPS with this certificate (PEM)."),
    click.option("--tls-private-key-file", type=_file, help="The key of --tls-cert-file."),
    click.option("--client-ca-file", type=_file, help="Know users by client certificates of these authorities (PEM)."),
    click.option(
        "--token-file", type=_file, help="Know users by bearer tokens of this file (token,user,uid[,groups] a line)."
    ),
)


@dataclass(frozen=True, slots=True)
class Access:
    """How a server is reached and whom it knows: TLS if any, and users by bearer token."""

    tls: TLS | None = None
    tokens: Mapping[str, User] = field(default_factory=dict)

    @property
    def is_guarded(self) -> bool:
        """Whether anybody is asked who they are."""
        return bool(self.tokens) or (self.tls is not None and bool(self.tls.client_authorities))


@dataclass(frozen=True, slots=True)
class ServerOptions:
    """The options of every command that serves an API, as given."""

    port: int
    bind_address: str
    data_dir: Path | None
    tls: bool
    tls_cert_file: Path | None
    tls_private_key_file: Path | None
    client_ca_file: Path | None
    token_file: Path | None

    def access(self) -> Access:
        """Raises InputError for options that do not go together and files that cannot be used."""
        from kubestow.devcluster.apiserver.authentication import read_tokens

        tokens = {} if self.token_file is None else read_tokens(self.token_file)
        return Access(self._tls(), tokens)

    def server(self, access: Access, **arguments: Any) -> DevCluster:
        """A server as these options and further ``arguments`` of it say. Raises InputError."""
        from kubestow.devcluster.apiserver.server import APIServerOptions
        from kubestow.devcluster.apiserver.storage.database import Database
        from kubestow.devcluster.cluster import DevCluster

        database = None if self.data_dir is None else Database(self.data_dir)
        apiserver = APIServerOptions(host=self.bind_address, port=self.port, tls=access.tls, tokens=access.tokens)
        return DevCluster(apiserver=apiserver, database=database, **arguments)

    def _tls(self) -> TLS | None:
        certificate, key = self.tls_cert_file, self.tls_private_key_file
        if (certificate is None) != (key is None):
            raise InputError("--tls-cert-file, --tls-private-key-file", "are of use together only")
        if self.tls and certificate is not None:
            raise InputError("--tls", "makes a certificate of its own; leave it out with --tls-cert-file")
        if not self.tls and certificate is None:
            if self.client_ca_file is not None:
                raise InputError("--client-ca-file", "needs --tls or --tls-cert-file")
            return None
        from kubestow.devcluster.apiserver.tls import TLS, hosts_of

        if certificate is not None and key is not None:
            return TLS.of_files(certificate, key, client_ca=self.client_ca_file)
        directory = None if self.data_dir is None else self.data_dir / "pki"
        return TLS.self_made(hosts_of(self.bind_address), directory=directory, client_ca=self.client_ca_file)

    def warn_if_open(self, access: Access) -> None:
        """Say so when others than this machine may come in."""
        if not is_loopback(self.bind_address):
            guard = "credentials are asked for" if access.is_guarded else "anyone who reaches it may do anything"
            click.echo(f"listening beyond this machine: {guard}", err=True)


def server_options(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command all of them, as one :class:`ServerOptions` named ``options``."""

    @functools.wraps(command)
    def gathered(**given: Any) -> None:
        own = {one.name: given.pop(one.name) for one in fields(ServerOptions)}
        command(options=ServerOptions(**own), **given)

    for option in reversed(_OPTIONS):
        gathered = option(gathered)
    return gathered


@asynccontextmanager
async def listening(server: DevCluster) -> AsyncIterator[None]:
    """Start a server, and stop it in the end. Raises KubestowError for an address that cannot be had.

    When the server fails meanwhile, what is done in the context is cancelled, and why is raised.
    """
    try:
        await server.start()
    except OSError as error:
        address = f"{server.apiserver.host}:{server.apiserver.port}"
        raise KubestowError(f"cannot listen on {address}: {error.strerror or error}") from None
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


def write_kubeconfig(path: Path, url: str, access: Access) -> None:
    """Write a kubeconfig, in JSON, which is YAML too. Raises InputError, also rather than replace another cluster's.

    Its user is the administrator, where we can make a certificate for one, or else the first who has a token.
    """
    from kubestow.certificates import write_private

    cluster: dict[str, str | bool] = {"server": url}
    if access.tls is not None and access.tls.trust:
        cluster["certificate-authority-data"] = b64encode(access.tls.trust).decode()
    elif access.tls is not None:
        cluster["insecure-skip-tls-verify"] = True
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": _CONTEXT, "cluster": cluster}],
        "users": [{"name": "admin", "user": _credentials(access)}],
        "contexts": [{"name": _CONTEXT, "context": {"cluster": _CONTEXT, "user": "admin"}}],
        "current-context": _CONTEXT,
    }
    try:
        if path.exists() and path.stat().st_size and not _is_ours(path.read_bytes()):
            raise InputError(str(path), "is there already and not a kubeconfig of kubestow's; name another file")
    except OSError as error:
        raise InputError(str(path), f"cannot be read: {error.strerror or error}") from None
    write_private(path, json.dumps(config, indent=2).encode() + b"\n")


def _credentials(access: Access) -> dict[str, str]:
    if access.tls is not None and access.tls.admin is not None:
        certificate, key = access.tls.admin.certificate, access.tls.admin.key
        return {
            "client-certificate-data": b64encode(certificate).decode(),
            "client-key-data": b64encode(key).decode(),
        }
    return {"token": next(iter(access.tokens))} if access.tokens else {}


def _is_ours(content: bytes) -> bool:
    """Whether a kubeconfig has our cluster and no other. kubectl rewrites it as YAML when it changes the namespace."""
    try:
        config = yaml.safe_load(content)
        return [one["name"] for one in config["clusters"]] == [_CONTEXT]
    except (yaml.YAMLError, KeyError, TypeError):
        return False
