"""``kubestow genpod`` and the console script ``genpod``: the largest pod that a namespace's limits allow."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click
import msgspec

from kubestow.cli.input.cluster import ClusterConnection, connection_options, read_live
from kubestow.cli.output import output_option
from kubestow.errors import InputError, KubestowError

if TYPE_CHECKING:
    from kubestow.client.rest.transport import Transport

Object = dict[str, Any]


@click.command()
@click.option("--cluster", "clusters", multiple=True, help="Dump with the namespace and its LimitRanges; - is stdin.")
@connection_options
@click.option("-n", "--namespace", default="default", show_default=True, help="Namespace of the limits.")
@output_option("yaml", "json")
@click.option("--verbose", is_flag=True, help="Accepted for compatibility; it changes nothing.")
def genpod(clusters: tuple[str, ...], connection: ClusterConnection, namespace: str, output: str, verbose: bool) -> int:
    """Print a pod whose requests and limits are the least maxima of the namespace's LimitRanges for pods."""
    from kubestow_lab.capacity.pod_template import limit_range_pod

    if clusters and connection.is_given:
        raise click.UsageError("--cluster excludes --kubeconfig, --context and --master")
    found, limit_ranges = _from_files(clusters, namespace) if clusters else _from_cluster(connection, namespace)
    pod = limit_range_pod(found, limit_ranges)
    if output == "json":
        click.echo(msgspec.json.encode(pod))
    else:
        import yaml

        click.echo(yaml.safe_dump(pod), nl=False)
    return 0


def genpod_script() -> None:
    """The console script ``genpod``."""
    try:
        status = genpod.main(prog_name="genpod", standalone_mode=False)
    except click.ClickException as error:
        error.show()
        status = error.exit_code
    except KubestowError as error:
        click.echo(f"genpod: {error}", err=True)
        status = 1
    sys.exit(status if isinstance(status, int) else 0)


def _from_files(paths: tuple[str, ...], namespace: str) -> tuple[Object, list[Object]]:
    from kubestow.engine.input.documents import Problems, read_objects

    namespaces, limit_ranges = [], []
    for source in read_objects(paths, Problems(strict=True)):
        manifest = source.manifest
        metadata = manifest.get("metadata") or {}
        if source.kind == "Namespace" and metadata.get("name") == namespace:
            namespaces.append(manifest)
        elif source.kind == "LimitRange" and (metadata.get("namespace") or "default") == namespace:
            limit_ranges.append(manifest)
    if not namespaces and not limit_ranges:
        raise InputError(", ".join(paths), f"has neither the namespace {namespace} nor LimitRanges of it")
    return namespaces[0] if namespaces else {"metadata": {"name": namespace}}, limit_ranges


def _from_cluster(connection: ClusterConnection, namespace: str) -> tuple[Object, list[Object]]:
    async def fetch(transport: Transport) -> tuple[bytes, bytes]:
        path = f"/api/v1/namespaces/{namespace}"
        return await transport.request("GET", path), await transport.request("GET", f"{path}/limitranges")

    found, limit_ranges = read_live(connection, fetch)
    return msgspec.json.decode(found), msgspec.json.decode(limit_ranges).get("items") or []
