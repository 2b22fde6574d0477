"""The commands that save what a live cluster is and does: ``kubestow snapshot`` and ``record``."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import sys
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec

from kubestow.cli.ending import run_until, wait_for_signal
from kubestow.cli.input.cluster import ClusterConnection, connection_options
from kubestow.cli.input.scheduler import SchedulerInput, scheduler_options
from kubestow.errors import InputError

if TYPE_CHECKING:
    from kubestow.api.custom import CustomObject
    from kubestow.cli.input.cluster import LiveObjects
    from kubestow.flight_record.writer import SegmentWriter


@click.command()
@connection_options
@scheduler_options
@click.option(
    "--resource",
    "resources",
    multiple=True,
    metavar="PLURAL.VERSION.GROUP",
    help="A further custom resource, such as widgets.v1.example.com. Can be repeated.",
)
@click.option(
    "-o",
    "--output",
    default="-",
    show_default=True,
    metavar="FILE",
    help="File to write, mode 0600, compressed if it ends in .gz; - is stdout.",
)
def snapshot(connection: ClusterConnection, scheduler: SchedulerInput, resources: tuple[str, ...], output: str) -> int:
    """Save what scheduling depends on of a live cluster, for --cluster of the other commands.

    With --config and --plugin, also the custom resources that the scheduler's plugins read. It only reads, and each
    list is of one resourceVersion. Left out are secrets and config maps, environment variables, commands and probes of
    containers, managed fields, what volume drivers are given, and annotations of projects that scheduling does not
    know.
    """
    from kubestow.cli.input.cluster import fetch_objects
    from kubestow.files import write_private

    named = {_path(resource): "--resource" for resource in resources}
    found = fetch_objects(connection, named | scheduler.custom_paths())
    content, counts = snapshot_document(found)
    if output == "-":
        sys.stdout.buffer.write(content)
        sys.stdout.flush()
    else:
        write_private(Path(output), gzip.compress(content, mtime=0) if output.endswith(".gz") else content)
    kinds = ", ".join(f"{count:,} {kind}" for kind, count in sorted(counts.items()))
    click.echo(f"snapshot: {kinds or 'nothing'}", err=True)
    for paths, reason in ((found.not_served, "not served"), (found.forbidden, "not allowed")):
        if paths:
            click.echo(f"snapshot: {reason}: {', '.join(paths)}", err=True)
    return 0


def _path(resource: str) -> str:
    """The API path of a custom resource that is written ``plural.version.group``. Raises InputError."""
    plural, _, rest = resource.partition(".")
    version, _, group = rest.partition(".")
    if not (plural and version and "." in group) or "/" in resource:
        problem = f"expected PLURAL.VERSION.GROUP such as widgets.v1.example.com, got {resource!r}"
        raise InputError("--resource", problem)
    return f"/apis/{group}/{version}/{plural}"


def snapshot_document(found: LiveObjects) -> tuple[bytes, Counter[str]]:
    """A List of all objects of a cluster, one per line, as it is saved; and their numbers by kind."""
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
    head = b'{"apiVersion": "v1", "kind": "List", "serverVersion": ' + version
    head += b', "resourceVersions": ' + versions + b', "items": [\n'
    return head + b",\n".join(lines) + b"\n]}\n", counts


@click.command()
@connection_options
@scheduler_options
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
def record(
    connection: ClusterConnection, scheduler: SchedulerInput, duration: str | None, max_size: str, output: Path
) -> int:
    """Record a live cluster for `kubestow replay`: nodes, pods and what else scheduling depends on.

    It only reads, and does not schedule. The record shows when pods arrived and on which nodes the scheduler of the
    cluster put them. It has the fields that scheduling reads, without environment variables, commands and annotations;
    with --config and --plugin, also the custom resources that the plugins read.
    """
    from kubestow.flight_record.writer import SegmentWriter, parse_size

    seconds = None if duration is None else parse_seconds(duration)
    kinds = scheduler.custom_kinds()
    writer = SegmentWriter(output, parse_size(max_size, "--max-size"))
    counts, dropped = asyncio.run(_record(writer, seconds, connection, kinds))
    numbers = ", ".join(f"{count:,} {kind}" for kind, count in sorted(counts.items()) if count)
    click.echo(f"{output}: states of objects: {numbers or 'none'}", err=True)
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
    writer: SegmentWriter,
    seconds: float | None,
    connection: ClusterConnection,
    kinds: Iterable[type[CustomObject]],
) -> tuple[dict[str, int], int]:
    """Record until a signal, or for some seconds; the number of recorded states by kind, and of those missing."""
    from random import Random

    from kubestow.client.cluster_client import ClusterClient
    from kubestow.flight_record.recording import ClusterRecorder
    from kubestow.plugins.registry import find_pod_group_apis
    from kubestow.process import WallClock
    from kubestow.scheduling.events.resources import with_custom

    credentials = await connection.credentials()
    resources = with_custom(dict.fromkeys((*(api.kind for api in find_pod_group_apis()), *kinds)))
    async with ClusterClient(credentials, clock=WallClock(), random=Random()) as client:
        version = await client.wait_for_api_server()
        await client.versions.discover()
        recorder = ClusterRecorder(writer, WallClock(), resources, server_version=version)
        try:
            await run_until(recorder.run(client), wait_for_signal(), seconds=seconds)
        finally:
            writer.close(recorder.journal.dropped)
    return dict(recorder.events), recorder.journal.dropped
