"""``kubestow extend``: serve plugins, or the filters and scores of a profile, as a scheduler extender."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import TYPE_CHECKING

import click

from kubestow.cli.ending import run_until, wait_for_signal
from kubestow.cli.input.cluster import ClusterConnection
from kubestow.cli.input.scheduler import newest_valid, parse_minor, plugin_option, warn_of_gates_without_effect
from kubestow.http.addresses import is_loopback
from kubestow.rules.minors import NOT_COMPARED, Minor

if TYPE_CHECKING:
    from kubestow.config import FeatureGates
    from kubestow.extender.extender_app import ExtenderApp


@click.command()
@plugin_option
@click.option(
    "--config",
    "config_file",
    type=click.Path(path_type=Path),
    help="A KubeSchedulerConfiguration file with a profile to serve.",
)
@click.option(
    "--profile", "profile_name", default="", help="schedulerName of the profile to serve. Default: the first profile."
)
@click.option(
    "--cache/--no-cache",
    default=True,
    show_default=True,
    help="Watch the cluster and get node names (nodeCacheCapable), or get full nodes in requests.",
)
@click.option("--bind-pods", is_flag=True, help="Serve the bind verb; requires --cache.")
@click.option("--kubeconfig", default="", help="Path of a kubeconfig. Default: kubectl's default, or in-cluster.")
@click.option("--context", default="", help="Context of the kubeconfig. Default: the current one.")
@click.option("--master", default="", help="URL of the API server; overrides the kubeconfig.")
@click.option("--bind-address", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option(
    "--port", default=8888, show_default=True, type=click.IntRange(0, 65535), help="Port; 0 selects a free port."
)
@click.option("--tls-cert-file", default="", help="Serving certificate for HTTPS (PEM).")
@click.option("--tls-private-key-file", default="", help="Private key of --tls-cert-file (PEM).")
@click.option("--client-ca-file", default="", help="Require client certificates of this CA (PEM).")
@click.option("--url", default="", help="The urlPrefix to print, if kube-scheduler connects to another address.")
@click.option("--feature-gates", default="", help="Feature gates, as Name=true,Other=false.")
@click.option(
    "--emulated-version",
    default="",
    metavar="VERSION",
    help=f"Kubernetes minor to emulate, such as 1.33. Default: that of the API server, with --cache. {NOT_COMPARED}.",
)
def extend(
    plugins: tuple[str, ...],
    config_file: Path | None,
    profile_name: str,
    cache: bool,
    bind_pods: bool,
    kubeconfig: str,
    context: str,
    master: str,
    bind_address: str,
    port: int,
    tls_cert_file: str,
    tls_private_key_file: str,
    client_ca_file: str,
    url: str,
    feature_gates: str,
    emulated_version: str,
) -> None:
    """Serve plugins as a scheduler extender for kube-scheduler."""
    from kubestow.config import FeatureGates
    from kubestow.extender.extender_app import server_tls
    from kubestow.extender.profile_extender import config_snippet

    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    if bind_pods and not cache:
        raise click.UsageError("--bind-pods requires --cache: binding needs a connection to the API server")

    def build(minor: Minor) -> ExtenderApp:
        gates = FeatureGates.parse(feature_gates, minor=minor)
        return _build(plugins, config_file, profile_name, cache=cache, binds=bind_pods, gates=gates)

    app = build(parse_minor(emulated_version)) if emulated_version else newest_valid(build)
    tls = server_tls(tls_cert_file, tls_private_key_file, client_ca_file)
    if not is_loopback(bind_address) and not client_ca_file:
        click.echo("warning: reachable from other machines: all clients have full access", err=True)

    if cache and not emulated_version:
        server = asyncio.run(ClusterConnection(kubeconfig, context, master).server_version())
        app = build(Minor.of_server(server))
        reason = f"the version of the API server is {server}"
        click.echo(f"kubernetes: decides as Kubernetes {app.minor}: {reason}", err=True)
    warn_of_gates_without_effect(FeatureGates.parse(feature_gates, minor=app.minor))

    def print_snippet(actual_port: int) -> None:
        host = f"[{bind_address}]" if ":" in bind_address else bind_address
        prefix = url or f"{'https' if tls else 'http'}://{host}:{actual_port}"
        click.echo(f"serving {', '.join(app.capabilities.verbs)}; add to the configuration of kube-scheduler:\n")
        click.echo(config_snippet(app.capabilities, prefix))
        if names := ", ".join(app.partially_served()):
            click.echo(f"warning: only Filter and Score of these plugins are served: {names}", err=True)

    running = app.run(
        host=bind_address,
        port=port,
        tls=tls,
        kubeconfig=kubeconfig,
        context=context,
        master=master,
        on_listening=print_snippet,
        on_ready=lambda: click.echo("ready"),
    )
    asyncio.run(run_until(running, wait_for_signal()))
    click.echo("stopped")


def _build(
    plugins: tuple[str, ...],
    config_file: Path | None,
    profile_name: str,
    *,
    cache: bool,
    binds: bool,
    gates: FeatureGates,
) -> ExtenderApp:
    """Build the extender. Raises InputError."""
    from kubestow.errors import InputError
    from kubestow.extender.extender_app import ExtenderApp, minimal_configuration
    from kubestow.plugins.configuration_file import read_configuration
    from kubestow.plugins.registry import find_plugins, find_pod_group_apis, referenced_plugins

    if not plugins and config_file is None:
        raise click.UsageError("nothing to serve: set --plugin or --config")
    registry, names = find_plugins(plugins, minor=gates.minor), [plugin.name for plugin in referenced_plugins(plugins)]
    configuration = read_configuration(config_file or minimal_configuration(names), gates, registry)
    profiles = {profile.scheduler_name: profile for profile in configuration.profiles}
    profile = profiles.get(profile_name) if profile_name else configuration.profiles[0]
    if profile is None:
        raise InputError("--profile", f"profile {profile_name} not found, the configuration has {', '.join(profiles)}")
    return ExtenderApp.of(
        profile,
        registry,
        gates,
        pod_group_apis=find_pod_group_apis(),
        node_cache_capable=cache,
        binds=binds,
    )
