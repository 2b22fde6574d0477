"""The commands that only read a live cluster: ``kubestow why``, ``snapshot`` and ``record``."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlencode

import click
import msgspec

from kubestow.cli.ending import run_until, wait_for_signal
from kubestow.cli.inputs import (
    ClusterConnection,
    PodName,
    SchedulerInput,
    connection_options,
    pod_argument,
    scheduler_options,
)
from kubestow.cli.output import OUTPUTS, of_minor, output_option, print_result
from kubestow.errors import APIError, InputError, Unreachable

if TYPE_CHECKING:
    from kubestow.cli.inputs import LiveObjects
    from kubestow.client.rest.transport import Transport
    from kubestow.flight_record.writer import SegmentWriter

_SCHEDULER_LABEL = "app.kubernetes.io/name=kubestow"
_SECURE_PORT = 10259
#: How many replicas of the scheduler are tried: only the leader knows the queue.
_MOST_REPLICAS = 3


@click.command()
@pod_argument
@connection_options
@scheduler_options
@output_option(*OUTPUTS)
def why(pod: PodName, connection: ClusterConnection, scheduler: SchedulerInput, output: str) -> int:
    """Say in a few lines why POD (namespace/name) of a live cluster is pending, or on its node.

    The scheduler's own report if it is reachable, otherwise computed from what the API server holds. `kubestow explain`
    is the long form.
    """
    from kubestow.engine.explanation.explain import explain

    found = asyncio.run(_read(connection, *pod.key))
    if isinstance(found, dict):
        click.echo("remark: reported by the scheduler", err=True)
        print_result(lambda: found, _report_text(found), output)
        return 0
    cluster = found.cluster(str(connection))
    options = scheduler.read(cluster)
    explanation = explain(cluster, str(pod), options)
    for remark in (*explanation.remarks, "computed from the objects of the API server"):
        click.echo(f"remark: {remark}", err=True)

    def document() -> dict[str, Any]:
        return {key: value for key, value in explanation.document().items() if key != "byNode"}

    print_result(of_minor(document, options.gates.minor), "\n".join(explanation.summary()), output)
    return 0


async def _read(connection: ClusterConnection, namespace: str, name: str) -> dict[str, Any] | LiveObjects:
    """The scheduler's report about a pod, or else all objects. Raises InputError, APIError and Unreachable."""
    from kubestow.cli.inputs import list_objects
    from kubestow.client.rest.transport import Transport
    from kubestow.process import WallClock

    async with Transport(await connection.credentials(), clock=WallClock()) as transport:
        await transport.request("GET", f"/api/v1/namespaces/{quote(namespace)}/pods/{quote(name)}")  # 404 if unknown
        report = await _scheduler_report(transport, namespace, name)
        return await list_objects(transport) if report is None else report


async def _scheduler_report(transport: Transport, namespace: str, name: str) -> dict[str, Any] | None:
    """What the scheduler's /debug endpoint says about a pod, through the API server's proxy; None without one."""
    from kubestow.api.json_text import UNDECODABLE, parse_json

    try:
        query = urlencode({"labelSelector": _SCHEDULER_LABEL, "fieldSelector": "status.phase=Running"})
        listed = parse_json(await transport.request("GET", f"/api/v1/pods?{query}"))
    except (APIError, Unreachable, *UNDECODABLE):
        return None
    for pod in listed.get("items", ())[:_MOST_REPLICAS]:
        metadata = pod["metadata"]
        proxy = f"/api/v1/namespaces/{metadata['namespace']}/pods/https:{metadata['name']}:{_SECURE_PORT}/proxy"
        try:
            body = await transport.request("GET", f"{proxy}/debug/pods/{quote(namespace)}/{quote(name)}")
            report = parse_json(body)
        except (APIError, Unreachable, *UNDECODABLE):
            continue  # not allowed, a standby, or another program
        if isinstance(report, dict) and isinstance(report.get("summary"), str):
            return report
    return None


def _report_text(report: dict[str, Any]) -> str:
    lines = [f"{report.get('pod', '')}: {report['summary']}"]
    queue = report.get("queue", {})
    lines += [f"{plugin} waits for {', '.join(events)}" for plugin, events in queue.get("requeueEvents", {}).items()]
    now = report.get("now", {})
    if "feasible" in now:
        lines.append(f"now it fits on {now['feasible']:,} of {now['nodes']:,} nodes")
    if now.get("message"):
        lines.append(f"now: {now['message']}")
    return "\n".join(lines)


@click.command()
@connection_options
@click.option(
    "-o",
    "--output",
    default="-",
    show_default=True,
    metavar="FILE",
    help="File to write, mode 0600, compressed if it ends in .gz; - is stdout.",
)
def snapshot(connection: ClusterConnection, output: str) -> int:
    """Save what scheduling depends on of a live cluster, for --cluster of the other commands.

    It only reads, and each list is of one resourceVersion. Left out are secrets and config maps, environment variables,
    commands and probes of containers, managed fields, what volume drivers are given, and annotations of projects that
    scheduling does not know.
    """
    from kubestow.cli.inputs import fetch_objects
    from kubestow.files import write_private

    found = fetch_objects(connection)
    content, counts = _document(found)
    if output == "-":
        sys.stdout.buffer.write(content)
        sys.stdout.flush()
    else:
        write_private(Path(output), gzip.compress(content, mtime=0) if output.endswith(".gz") else content)
    kinds = ", ".join(f"{count:,} {kind}" for kind, count in sorted(counts.items()))
    click.echo(f"snapshot: {kinds or 'nothing'}", err=True)
    if found.missing:
        click.echo(f"snapshot: not served or not allowed: {', '.join(found.missing)}", err=True)
    return 0


def _document(found: LiveObjects) -> tuple[bytes, Counter[str]]:
    """A List of all objects, one per line, and their numbers by kind."""
    from kubestow.engine.input.documents import Problems, parse_objects
    from kubestow.engine.input.redaction import redacted

    counts: Counter[str] = Counter()
    lines = []
    for path, page in found.pages:
        for source in parse_objects(page, path, Problems(strict=True)):
            counts[source.kind] += 1
            manifest = {"apiVersion": source.api_version, "kind": source.kind} | source.manifest
            lines.append(msgspec.json.encode(redacted(manifest)))
    versions = msgspec.json.encode(found.versions)
    version = msgspec.json.encode(found.server_version)
    head = b'{"apiVersion": "v1", "kind": "List", "kubernetesVersion": ' + version
    head += b', "resourceVersions": ' + versions + b', "items": [\n'
    return head + b",\n".join(lines) + b"\n]}\n", counts


@click.command()
@connection_options
@click.option("--duration", metavar="DURATION", help="How long to record, such as 10m. Default: until Ctrl-C.")
@click.option("--max-size", default="256Mi", show_default=True, metavar="QUANTITY", help="Limit of the file in bytes.")
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path, dir_okay=False),
    default="record.bin",
    show_default=True,
    help="File to write, with mode 0600; it must not exist.",
)
def record(connection: ClusterConnection, duration: str | None, max_size: str, output: Path) -> int:
    """Record a live cluster for `kubestow replay`: nodes, pods and what else scheduling depends on.

    It only reads, and does not schedule. The record shows when pods arrived and on which nodes the scheduler of the
    cluster put them. It has the fields that scheduling reads, without environment variables, commands and annotations.
    """
    from kubestow.flight_record.writer import SegmentWriter, parse_size

    seconds = None if duration is None else parse_seconds(duration)
    writer = SegmentWriter(output, parse_size(max_size, "--max-size"))
    counts, dropped = asyncio.run(_record(writer, seconds, connection))
    kinds = ", ".join(f"{count:,} {kind}" for kind, count in sorted(counts.items()) if count)
    click.echo(f"{output}: states of objects: {kinds or 'none'}", err=True)
    if dropped:
        click.echo(f"{output}: {dropped:,} entries are missing", err=True)
    return 0


def parse_seconds(text: str) -> float:
    """The seconds of ``--duration``. Raises InputError."""
    from kubestow.api.formats.duration import Duration

    with contextlib.suppress(ValueError):
        if (seconds := Duration.parse(text).seconds) > 0:
            return seconds
    raise InputError("--duration", f"expected a positive duration such as 10m, got {text!r}")


async def _record(
    writer: SegmentWriter, seconds: float | None, connection: ClusterConnection
) -> tuple[dict[str, int], int]:
    """Record until a signal, or for some seconds; the number of recorded states by kind, and of those missing."""
    from random import Random

    from kubestow.client.cluster_client import ClusterClient
    from kubestow.flight_record.recording import ClusterRecorder
    from kubestow.plugins.registry import find_pod_group_apis
    from kubestow.process import WallClock
    from kubestow.scheduling.events.resources import with_custom

    credentials = await connection.credentials()
    resources = with_custom(api.kind for api in find_pod_group_apis())
    async with ClusterClient(credentials, clock=WallClock(), random=Random()) as client:
        version = await client.wait_for_api_server()
        await client.versions.discover()
        recorder = ClusterRecorder(writer, WallClock(), resources, server_version=version)
        try:
            await run_until(recorder.run(client), wait_for_signal(), seconds=seconds)
        finally:
            writer.close(recorder.journal.dropped)
    return dict(recorder.events), recorder.journal.dropped
