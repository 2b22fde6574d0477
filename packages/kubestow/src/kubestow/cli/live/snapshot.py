"""``kubestow snapshot``: a live cluster as a file that the offline commands read."""

from __future__ import annotations

import gzip
import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import click

from kubestow.cli.exit_status import bad_input_is_status_1
from kubestow.cli.inputs.connection import Connection, connection_options

if TYPE_CHECKING:
    from kubestow.cli.inputs.live_cluster import LiveObjects

__all__ = ["snapshot"]


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
@bad_input_is_status_1
def snapshot(connection: Connection, output: str) -> int:
    """Save what scheduling depends on of a live cluster, for --cluster of the other commands.

    It only reads, and each list is of one resourceVersion. Left out are secrets and config maps, environment variables,
    commands and probes of containers, managed fields, and the last-applied annotation.
    """
    from kubestow.cli.inputs.live_cluster import fetch_objects
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
    import msgspec

    from kubestow.engine.input.documents import parse_objects
    from kubestow.engine.input.problems import Problems
    from kubestow.engine.input.redaction import redacted

    counts: Counter[str] = Counter()
    lines = []
    for path, page in found.pages:
        for source in parse_objects(page, path, Problems(strict=True)):
            counts[source.kind] += 1
            manifest = {"apiVersion": source.api_version, "kind": source.kind} | source.manifest
            lines.append(msgspec.json.encode(redacted(manifest)))
    versions = msgspec.json.encode(found.versions)
    head = b'{"apiVersion": "v1", "kind": "List", "resourceVersions": ' + versions + b', "items": [\n'
    return head + b",\n".join(lines) + b"\n]}\n", counts
