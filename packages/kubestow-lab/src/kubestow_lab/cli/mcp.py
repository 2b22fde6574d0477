"""``kubestow mcp``: answers about a cluster for assistants, by the Model Context Protocol."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlencode

import click

from kubestow.cli.input.cluster import ClusterInput, cluster_options, read_live
from kubestow.cli.input.scheduler import SchedulerInput, scheduler_options
from kubestow.errors import InputError
from kubestow.http.addresses import is_loopback

if TYPE_CHECKING:
    from kubestow_lab.assistant.cluster_source import ClusterSource

_MOST_EVENTS = 500


def _address(text: str) -> tuple[str, int]:
    """Host and port of ``--http``."""
    host, colon, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not colon or not host or not port.isdigit() or not 0 < int(port) < 65536:
        raise click.BadParameter(f"expected HOST:PORT such as 127.0.0.1:8000, got {text!r}")
    return host, int(port)


@click.command()
@cluster_options
@scheduler_options
@click.option("--record", type=click.Path(path_type=Path), help="Flight record of the scheduler, a file or its folder.")
@click.option(
    "--http",
    "address",
    type=_address,
    metavar="HOST:PORT",
    help="Serve streamable HTTP at /mcp instead of standard input and output. There is no authentication.",
)
@click.option(
    "--allowed-host",
    "allowed_hosts",
    multiple=True,
    metavar="HOST:PORT",
    help="Host of requests beside the address of --http, which may then be one that other machines reach. Repeatable.",
)
def mcp(
    source: ClusterInput,
    scheduler: SchedulerInput,
    record: Path | None,
    address: tuple[str, int] | None,
    allowed_hosts: tuple[str, ...],
) -> int:
    """Answer an assistant's questions about a cluster by the Model Context Protocol.

    Why pods are pending, what would help, where pods would go, what fits, and what if nodes go or the configuration
    changes. The cluster is a dump, or a live one, which is only read. Needs kubestow-lab[mcp].
    """
    from kubestow_lab.assistant.questions import ClusterQuestions
    from kubestow_lab.assistant.server import http_application, mcp_server, require_sdk

    require_sdk()
    if address is not None and not is_loopback(address[0]) and not allowed_hosts:
        problem = "other machines reach it, and there is no authentication; name the hosts of requests: --allowed-host"
        raise InputError(f"--http {address[0]}", problem)
    if allowed_hosts and address is None:
        raise click.UsageError("--allowed-host needs --http")
    server = mcp_server(ClusterQuestions(cluster_source(source, scheduler), record))
    if address is None:
        asyncio.run(server.run_stdio_async())
        return 0
    import uvicorn

    host, port = address
    hosts = (*own_hosts(host, port), *allowed_hosts)
    click.echo(f"serving the Model Context Protocol on http://{host}:{port}/mcp", err=True)
    config = uvicorn.Config(http_application(server, host, hosts), host=host, port=port, log_level="warning")
    asyncio.run(uvicorn.Server(config).serve())
    return 0


def own_hosts(host: str, port: int) -> list[str]:
    """What the Host header of a request can be to a server that listens there."""
    names = [host, "localhost"] if is_loopback(host) and host != "localhost" else [host]
    return [f"[{name}]:{port}" if ":" in name else f"{name}:{port}" for name in names]


def cluster_source(source: ClusterInput, scheduler: SchedulerInput) -> ClusterSource:
    """The cluster of the options. Files are read now, so that mistakes are reported at once."""
    from kubestow.process import WallClock
    from kubestow_lab.assistant.cluster_source import ClusterSource

    def read() -> Any:
        cluster = source.read(scheduler)
        return cluster, scheduler.read(cluster)

    given: list[tuple[str, Sequence[object]]] = [
        ("--cluster", source.clusters),
        ("--kubeconfig", [source.kubeconfig]),
        ("--context", [source.context]),
        ("--master", [source.master]),
    ]
    of_scheduler: list[tuple[str, Sequence[object]]] = [
        ("--plugin", scheduler.plugins),
        ("--feature-gates", [scheduler.feature_gates]),
        ("--emulated-version", [scheduler.emulated_version]),
    ]
    is_live = not source.clusters
    found = ClusterSource(
        read,
        _arguments(given),
        WallClock().monotonic,
        configuration=str(scheduler.config or ""),
        scheduler_arguments=_arguments(of_scheduler),
        is_live=is_live,
        events=(lambda namespace, name: _events(source, namespace, name)) if is_live else None,
    )
    found.cluster()
    return found


def _arguments(options: Sequence[tuple[str, Sequence[object]]]) -> list[str]:
    return [word for option, values in options for value in values if value for word in (option, str(value))]


def _events(source: ClusterInput, namespace: str, name: str) -> list[dict[str, Any]]:
    """The events about a pod of a live cluster, oldest first. Raises InputError, APIError and Unreachable."""
    from kubestow.api.json_text import UNDECODABLE, parse_json

    selector = f"involvedObject.kind=Pod,involvedObject.name={name}"
    query = urlencode({"fieldSelector": selector, "limit": _MOST_EVENTS})
    path = f"/api/v1/namespaces/{quote(namespace, safe='')}/events?{query}"

    try:
        listed = parse_json(read_live(source, lambda transport: transport.request("GET", path)))
    except UNDECODABLE as error:
        raise InputError(path, f"not a list of events: {error}") from None
    items = listed.get("items") if isinstance(listed, dict) else None
    events = [item for item in items or () if isinstance(item, dict)]
    return sorted(events, key=lambda event: str(event.get("lastTimestamp") or event.get("eventTime") or ""))
