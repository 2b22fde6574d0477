"""``kubestow expander``: which node group cluster-autoscaler should scale up, and simulations as a service."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace

import click

from kubestow.cli.ending import run_until, wait_for_signal
from kubestow.cli.input.cluster import ClusterConnection, connection_options
from kubestow.cli.input.scheduler import SchedulerInput, scheduler_options
from kubestow.http.addresses import is_loopback
from kubestow.rules.minors import Minor


@click.command()
@connection_options
@scheduler_options
@click.option("--bind-address", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option("--port", default=8086, show_default=True, type=click.IntRange(0, 65535), help="Port of gRPC; 0: any.")
@click.option(
    "--http-port", type=click.IntRange(0, 65535), help="Port of HTTP for /v1/simulate; 0: any. Default: no HTTP."
)
@click.option("--tls-cert-file", default="", metavar="FILE", help="Serving certificate (PEM).")
@click.option("--tls-private-key-file", default="", metavar="FILE", help="Private key of --tls-cert-file (PEM).")
@click.option("--client-ca-file", default="", metavar="FILE", help="Require client certificates of this CA (PEM).")
def expander(
    connection: ClusterConnection,
    scheduler: SchedulerInput,
    bind_address: str,
    port: int,
    http_port: int | None,
    tls_cert_file: str,
    tls_private_key_file: str,
    client_ca_file: str,
) -> None:
    """Serve cluster-autoscaler's gRPC expander: the node group that is best by the scheduler's plugins.

    The same port serves simulations: would pods fit with some nodes more. The cluster is only read.
    """
    from kubestow_lab.expander.expander_server import ExpanderServer, TLSFiles, serve_expander

    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    tls = TLSFiles(tls_cert_file, tls_private_key_file, client_ca_file)
    tls.context()  # what is wrong with the files is an error before anything starts
    options = scheduler.read_for_server()
    if not is_loopback(bind_address) and not client_ca_file:
        click.echo("warning: reachable from other machines: all clients may ask", err=True)

    def print_ports(bound: int, http_bound: int | None) -> None:
        click.echo(f"serving gRPC on {bind_address}:{bound}" + (f", HTTP on port {http_bound}" if http_bound else ""))

    async def serve() -> None:
        chosen = options
        if not scheduler.emulated_version:
            minor = Minor.of_server(await connection.server_version())
            chosen = replace(scheduler, emulated_version=str(minor)).read()
        server = ExpanderServer(chosen.read_configuration(), chosen.registry(), chosen.gates)
        await serve_expander(
            server,
            host=bind_address,
            port=port,
            http_port=http_port,
            tls=tls,
            kubeconfig=connection.kubeconfig,
            context=connection.context,
            master=connection.master,
            on_listening=print_ports,
            on_ready=lambda: click.echo("ready"),
        )

    asyncio.run(run_until(serve(), wait_for_signal()))
    click.echo("stopped")
