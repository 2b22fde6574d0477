"""``kubestow extend``: serve plugins, or the filters and scores of a profile, as a scheduler extender."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kubestow.cli.server import is_loopback, wait_for_signal

if TYPE_CHECKING:
    from kubestow.extending.running import Extending

__all__ = ["extend"]


@click.command()
@click.option(
    "--plugin", "plugins", multiple=True, metavar="MODULE:CLASS", help="A plugin to serve, or with --config to add."
)
@click.option(
    "--config",
    "config_file",
    type=click.Path(path_type=Path),
    help="Serve a profile of this KubeSchedulerConfiguration.",
)
@click.option("--profile", "profile_name", default="", help="Which profile, by its schedulerName. Default: the first.")
@click.option(
    "--cache/--no-cache",
    default=True,
    show_default=True,
    help="Watch the cluster and be sent names of nodes, or know only the nodes in a request.",
)
@click.option("--bind-pods", is_flag=True, help="Offer to bind pods, too; needs --cache.")
@click.option("--kubeconfig", default="", help="A kubeconfig file. Default: as kubectl finds it, or in-cluster.")
@click.option("--master", default="", help="Address of the API server; overrides the kubeconfig's.")
@click.option("--bind-address", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option(
    "--port", default=8888, show_default=True, type=click.IntRange(0, 65535), help="Port; 0 takes a free one."
)
@click.option("--tls-cert-file", default="", help="Certificate to serve HTTPS with.")
@click.option("--tls-private-key-file", default="", help="Its key.")
@click.option("--client-ca-file", default="", help="Ask clients for a certificate of this authority.")
@click.option("--url", default="", help="The urlPrefix to print, where the scheduler reaches this at another address.")
@click.option("--feature-gates", default="", help="Feature gates as Name=true,Other=false.")
@click.option("-v", "--verbosity", default=0, show_default=True, help="0: warnings, 1: what happens, 2: everything.")
def extend(
    plugins: tuple[str, ...],
    config_file: Path | None,
    profile_name: str,
    cache: bool,
    bind_pods: bool,
    kubeconfig: str,
    master: str,
    bind_address: str,
    port: int,
    tls_cert_file: str,
    tls_private_key_file: str,
    client_ca_file: str,
    url: str,
    feature_gates: str,
    verbosity: int,
) -> None:
    """Serve plugins as an extender, so that a stock kube-scheduler can use them."""
    from kubestow.extending.running import server_tls

    logging.basicConfig(
        level=(logging.WARNING, logging.INFO, logging.DEBUG)[max(0, min(verbosity, 2))],
        format="%(asctime)s %(levelname)s %(name)s: %(message)s",
    )
    if bind_pods and not cache:
        raise click.UsageError("--bind-pods needs --cache: without a connection to the API server nothing can be bound")
    extending = _extending(plugins, config_file, profile_name, cached=cache, binds=bind_pods, gates_text=feature_gates)
    tls = server_tls(tls_cert_file, tls_private_key_file, client_ca_file)
    if not is_loopback(bind_address) and not client_ca_file:
        click.echo("listening beyond this machine: anyone who reaches it may ask", err=True)

    def listening(actual: int) -> None:
        host = f"[{bind_address}]" if ":" in bind_address else bind_address
        _tell(extending, url or f"{'https' if tls else 'http'}://{host}:{actual}")

    running = extending.run(
        host=bind_address,
        port=port,
        tls=tls,
        kubeconfig=kubeconfig,
        master=master,
        on_listening=listening,
        on_ready=lambda: click.echo("ready"),
    )
    asyncio.run(_until_interrupted(running))


def _extending(
    plugins: tuple[str, ...],
    config_file: Path | None,
    profile_name: str,
    *,
    cached: bool,
    binds: bool,
    gates_text: str,
) -> Extending:
    """What is to be served. Raises InputError."""
    from kubestow import config
    from kubestow.app import read_configuration
    from kubestow.errors import InputError
    from kubestow.extending.running import Extending, alone
    from kubestow.plugins.discovery import find_plugins

    if not plugins and config_file is None:
        raise click.UsageError("name what to serve: --plugin module:Class, or --config with a profile")
    gates = config.FeatureGates.parse(gates_text)
    registry, without = find_plugins(plugins), find_plugins()
    given = [name for name in registry if name not in without]
    configuration = read_configuration(config_file or alone(given), gates, registry)
    profiles = {profile.scheduler_name: profile for profile in configuration.profiles}
    profile = profiles.get(profile_name) if profile_name else configuration.profiles[0]
    if profile is None:
        raise InputError("--profile", f"there is no {profile_name}; the configuration has {', '.join(profiles)}")
    return Extending.of(profile, registry, gates, cached=cached, binds=binds)


def _tell(extending: Extending, url: str) -> None:
    from kubestow.extending.stanza import stanza

    click.echo(f"serving {', '.join(extending.offer.verbs)}; for the other scheduler's configuration:\n")
    click.echo(stanza(extending.offer, url))
    if extending.unserved():
        told = ", ".join(extending.unserved())
        click.echo(f"only their filters and scores are served, nothing else that they do: {told}", err=True)


async def _until_interrupted(running: Coroutine[Any, Any, None]) -> None:
    serving = asyncio.create_task(running)
    stopping = asyncio.create_task(wait_for_signal())
    await asyncio.wait((serving, stopping), return_when=asyncio.FIRST_COMPLETED)
    stopping.cancel()
    if serving.done():
        serving.result()
    serving.cancel()
    await asyncio.wait((serving,))
    click.echo("stopped")
