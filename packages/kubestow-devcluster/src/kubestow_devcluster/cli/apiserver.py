"""``kubestow apiserver``: serve the embedded API server without a scheduler.

Its options, and its start and stop, are those of every command that runs an embedded API server.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kubestow import process
from kubestow.cli.command_group import grouped_options
from kubestow.cli.ending import wait_for_signal
from kubestow.errors import InputError, KubestowError
from kubestow.http.addresses import is_loopback
from kubestow.rules.minors import DEFAULT_MINOR, NEWEST, NOT_COMPARED, OLDEST, Minor
from kubestow_devcluster.cli.kubeconfig import SecureServing, write_kubeconfig

if TYPE_CHECKING:
    from kubestow.config.feature_gates import FeatureGates
    from kubestow_devcluster.apiserver.server.http_handler import ForwardedPaths
    from kubestow_devcluster.apiserver.server.pki import TLS
    from kubestow_devcluster.behaviour.stages import Stages
    from kubestow_devcluster.cluster import DevCluster


_file = click.Path(path_type=Path, dir_okay=False)
_OPTIONS = (
    click.option(
        "--port", default=6443, show_default=True, type=click.IntRange(0, 65535), help="Port; 0 selects a free port."
    ),
    click.option(
        "--kubernetes-version",
        default=str(DEFAULT_MINOR),
        show_default=True,
        metavar="MINOR",
        help=f"Version of Kubernetes to serve and to simulate, {OLDEST} to {NEWEST}. {NOT_COMPARED}.",
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
    click.option(
        "--authorization-mode",
        type=click.Choice(["AlwaysAllow", "RBAC"]),
        default="AlwaysAllow",
        show_default=True,
        help="RBAC enforces roles and role bindings; AlwaysAllow allows authenticated users everything.",
    ),
    click.option(
        "--accept-hosts",
        metavar="REGEXPS",
        help="Without authentication: the host names that clients may use besides IP addresses, as regular expressions"
        " separated by commas. Default: localhost.",
    ),
)


@dataclass(frozen=True, slots=True)
class ServerOptions:
    """The options of every command that runs an embedded API server."""

    port: int
    kubernetes_version: str
    bind_address: str
    data_dir: Path | None
    tls: bool
    tls_cert_file: Path | None
    tls_private_key_file: Path | None
    client_ca_file: Path | None
    token_file: Path | None
    authorization_mode: str
    accept_hosts: str | None

    @property
    def minor(self) -> Minor:
        """The version to serve. Raises InputError for one that cannot be emulated."""
        return Minor.parse(self.kubernetes_version, subject="--kubernetes-version")

    def security(self) -> SecureServing:
        """Raises InputError for conflicting options and invalid files."""
        from kubestow_devcluster.apiserver.security.authentication import read_token_file

        tokens = {} if self.token_file is None else read_token_file(self.token_file)
        return SecureServing(self._tls(), tokens)

    def server(
        self,
        security: SecureServing,
        forwarded: ForwardedPaths | None = None,
        feature_gates: FeatureGates | None = None,
        **arguments: Any,
    ) -> DevCluster:
        """Create the server from these options and further ``arguments`` of :class:`DevCluster`. Raises InputError.

        Requests for the ``forwarded`` paths are served by another process. ``feature_gates`` None are the defaults.
        """
        from kubestow_devcluster.apiserver.server.api_server import APIServerOptions
        from kubestow_devcluster.apiserver.storage.database import Database
        from kubestow_devcluster.cluster import DevCluster

        database = None if self.data_dir is None else Database(self.data_dir)
        apiserver = APIServerOptions(
            host=self.bind_address,
            port=self.port,
            tls=security.tls,
            tokens=security.tokens,
            rbac=self.authorization_mode == "RBAC",
            forwarded=forwarded,
            minor=self.minor,
            feature_gates=feature_gates,
        )
        if self.accept_hosts is not None:
            apiserver = replace(apiserver, accept_hosts=self.accept_hosts)
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
        from kubestow_devcluster.apiserver.server.pki import TLS, serving_hosts

        if certificate is not None and key is not None:
            return TLS.from_files(certificate, key, client_ca=self.client_ca_file)
        directory = None if self.data_dir is None else self.data_dir / "pki"
        return TLS.self_signed(serving_hosts(self.bind_address), directory=directory, client_ca=self.client_ca_file)

    def print_warnings(self, security: SecureServing) -> None:
        """Print what has to be said of the version, and whether the server is reachable from other machines."""
        if not self.minor.is_compared:
            click.echo(f"kubernetes: {NOT_COMPARED}", err=True)
        if not is_loopback(self.bind_address):
            clients = "clients must authenticate" if security.authenticates else "all clients have full access"
            click.echo(f"warning: reachable from other machines: {clients}", err=True)


#: Adds the server options to a command, which gets them as ``options``.
server_options = grouped_options("options", ServerOptions, _OPTIONS)

#: The option of commands with simulated kubelets, as ``stages_file``.
stages_option = click.option(
    "--stages",
    "stages_file",
    type=_file,
    help="Rules for how simulated pods start, run and fail, and for the CPU and memory they use (YAML).",
)


def read_stages_option(stages_file: Path | None) -> Stages:
    """The rules of ``--stages``; without it none. Raises InputError."""
    from kubestow_devcluster.behaviour.stages import NO_STAGES, read_stages

    return NO_STAGES if stages_file is None else read_stages(stages_file)


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
        options.print_warnings(security)
        if kubeconfig_out is not None:
            write_kubeconfig(kubeconfig_out, server.url, security)
            click.echo(f"kubeconfig written; try: kubectl --kubeconfig={kubeconfig_out} get nodes")
        click.echo("ready")
        sys.stdout.flush()
        await wait_for_signal()
