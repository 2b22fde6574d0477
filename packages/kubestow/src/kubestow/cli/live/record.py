"""``kubestow record``: what happens on a live cluster, as a file for ``kubestow replay``."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path
from typing import TYPE_CHECKING

import click

from kubestow.cli.exit_status import bad_input_is_status_1
from kubestow.cli.inputs.connection import Connection, connection_options

if TYPE_CHECKING:
    from kubestow.flight_record.writer import SegmentWriter

__all__ = ["record"]


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
@bad_input_is_status_1
def record(connection: Connection, duration: str | None, max_size: str, output: Path) -> int:
    """Record a live cluster for `kubestow replay`: nodes, pods and what else scheduling depends on.

    It only reads, and does not schedule. The record shows when pods arrived and on which nodes the scheduler of the
    cluster put them. It has the fields that scheduling reads, without environment variables, commands and annotations.
    """
    from kubestow.flight_record.writer import SegmentWriter, parse_size

    seconds = None if duration is None else _seconds(duration)
    writer = SegmentWriter(output, parse_size(max_size, "--max-size"))
    counts, dropped = asyncio.run(_record(writer, seconds, connection))
    kinds = ", ".join(f"{count:,} {kind}" for kind, count in sorted(counts.items()) if count)
    click.echo(f"{output}: states of objects: {kinds or 'none'}", err=True)
    if dropped:
        click.echo(f"{output}: {dropped:,} entries are missing", err=True)
    return 0


def _seconds(text: str) -> float:
    from kubestow.api.formats.duration import Duration
    from kubestow.errors import InputError

    with contextlib.suppress(ValueError):
        if (seconds := Duration.parse(text).seconds) > 0:
            return seconds
    raise InputError("--duration", f"expected a positive duration such as 10m, got {text!r}")


async def _record(writer: SegmentWriter, seconds: float | None, connection: Connection) -> tuple[dict[str, int], int]:
    """Record until a signal, or for some seconds; the number of recorded states by kind, and of those missing."""
    from random import Random

    from kubestow.cli.signals import wait_for_signal
    from kubestow.client.cluster_client import ClusterClient
    from kubestow.flight_record.recording import ClusterRecorder
    from kubestow.process import WallClock

    credentials = await connection.credentials()
    recorder = ClusterRecorder(writer, WallClock())
    async with ClusterClient(credentials, clock=WallClock(), random=Random()) as client:
        await client.wait_for_api_server()
        stopped = asyncio.create_task(wait_for_signal())
        recording = asyncio.create_task(recorder.run(client))
        try:
            await asyncio.wait((stopped, recording), timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
            if recording.done():
                recording.result()
        finally:
            for task in (stopped, recording):
                task.cancel()
            await asyncio.gather(stopped, recording, return_exceptions=True)
            writer.close(recorder.journal.dropped)
    return dict(recorder.events), recorder.journal.dropped
