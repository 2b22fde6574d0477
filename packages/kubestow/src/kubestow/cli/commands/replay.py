"""``kubestow replay``: the decisions of a flight record again, exactly or under another configuration."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kubestow.cli.input.scheduler import parse_minor, plugin_option, warn_of_gates_without_effect
from kubestow.cli.output import OUTPUTS, output_option, print_result, with_versions
from kubestow.errors import InputError
from kubestow.rules.minors import NOT_COMPARED

if TYPE_CHECKING:
    from kubestow.flight_record.exact_replay import ReplayResult
    from kubestow.flight_record.redecision import PodComparison, Redecision
    from kubestow.flight_record.segment import Segment

#: The differences of one kind that a table shows.
_SHOWN = 20


@click.command()
@click.argument("record", metavar="RECORD", type=click.Path(path_type=Path))
@click.option(
    "--config",
    "config_file",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Decide again under this KubeSchedulerConfiguration, and report what differs.",
)
@plugin_option
@click.option("--feature-gates", help="Feature gates with --config, as Name=true,Other=false. Default: the recorded.")
@click.option(
    "--emulated-version",
    default="",
    metavar="VERSION",
    help="Decide again as this Kubernetes minor, such as 1.33, and report what differs. Default: the recorded. "
    f"{NOT_COMPARED}.",
)
@output_option(*OUTPUTS)
def replay(
    record: Path,
    config_file: Path | None,
    plugins: tuple[str, ...],
    feature_gates: str | None,
    emulated_version: str,
    output: str,
) -> int:
    """Replay RECORD, a file of a flight record or the folder with its files.

    The recorded scheduler runs again on what it received, and every decision, attempt and write is compared with the
    recorded one. The exit status is 1 if any differs. With --config or --emulated-version, and for a record of
    `kubestow record`, the pods are scheduled anew instead, and the placements are compared.
    """
    from kubestow.flight_record.segment import Segment
    from kubestow.flight_record.writer import segment_paths

    logging.getLogger("kubestow").setLevel(logging.CRITICAL)  # what the recorded scheduler logged, it logged then
    paths = segment_paths(record) if record.is_dir() else [record]
    if not paths:
        click.echo(f"kubestow: {record}: contains no flight record", err=True)
        return 1
    status, documents, texts = 0, [], []
    for path in paths:
        segment = Segment(path)
        header = segment.header
        check_plugins(segment, plugins)
        if config_file is None and not emulated_version and header.has_scheduler and header.snapshot is None:
            document, text, found = _replayed(segment, plugins)
        else:
            document, text, found = _redecided(segment, config_file, plugins, feature_gates, emulated_version)
        documents.append({"file": str(path), **document})
        texts.append(f"{path}\n{text}")
        status = max(status, found)
    print_result(lambda: {"records": documents}, "\n\n".join(texts), output)
    for document in documents:
        if document["damage"]:
            click.echo(f"kubestow: {document['damage']}", err=True)
    return status


def check_plugins(segment: Segment, plugins: Sequence[str]) -> None:
    """A record comes from elsewhere, so it does not decide what code is imported. Raises InputError."""
    for reference in segment.header.plugins:
        if reference not in plugins:
            problem = f"recorded with a plugin that is not installed; to import its code, give --plugin {reference}"
            raise InputError(str(segment.path), problem)


# -- exactly ---------------------------------------------------------------------------------------------------------


def _replayed(segment: Segment, plugins: tuple[str, ...]) -> tuple[dict[str, Any], str, int]:
    from kubestow.engine.input.cluster_version import versions_text
    from kubestow.flight_record import exact_replay
    from kubestow.plugins.registry import referenced_plugins

    result = exact_replay.replay(segment, {plugin.name: plugin for plugin in referenced_plugins(plugins)})
    status = int(result.divergence is not None or result.damage is not None)
    minor, server = exact_replay.recorded_minor(segment.header), segment.header.server_version
    lines = [f"decided as {versions_text(str(minor), server_version=server)}", *_replay_lines(result)]
    return with_versions(lambda: _replay_document(result), minor, server)(), "\n".join(lines), status


def _replay_document(result: ReplayResult) -> dict[str, Any]:
    divergence = result.divergence
    return {
        "began": result.began.isoformat(),
        "seconds": round(result.seconds, 3),
        "decisions": result.decisions,
        "attempts": result.attempts,
        "calls": result.calls,
        "identical": divergence is None,
        "divergence": None
        if divergence is None
        else {
            "time": divergence.time.isoformat(),
            "afterDecisions": divergence.decisions,
            "recorded": divergence.recorded,
            "replayed": divergence.replayed,
        },
        "endedBy": "" if result.end is None else result.end.reason,
        "nextFile": "" if result.end is None else result.end.next_file,
        "dropped": 0 if result.end is None else result.end.dropped,
        "damage": "" if result.damage is None else str(result.damage),
    }


def _replay_lines(result: ReplayResult) -> list[str]:
    lines = [
        f"recorded from {result.began.isoformat(timespec='seconds')}, {result.seconds:,.1f} s",
        f"{result.decisions:,} decisions, {result.attempts:,} attempts and {result.calls:,} calls are identical",
    ]
    if result.end is not None and result.end.next_file:
        lines.append(f"the record goes on in {result.end.next_file}")
    if result.end is not None and result.end.reason:
        lines.append(f"the record ends early: {result.end.reason}; at least {result.end.dropped:,} entries are missing")
    divergence = result.divergence
    if divergence is not None:
        time = divergence.time.isoformat(timespec="milliseconds")
        lines += [
            f"first difference at {time}, after {divergence.decisions:,} decisions:",
            f"  recorded  {divergence.recorded or 'nothing'}",
            f"  replayed  {divergence.replayed or 'nothing'}",
        ]
    return lines


# -- under another configuration -------------------------------------------------------------------------------------


def _redecided(
    segment: Segment,
    config_file: Path | None,
    plugins: tuple[str, ...],
    feature_gates: str | None,
    emulated_version: str,
) -> tuple[dict[str, Any], str, int]:
    from kubestow import config
    from kubestow.engine.input.cluster_version import versions_text
    from kubestow.flight_record.exact_replay import recorded_gates, recorded_minor
    from kubestow.flight_record.redecision import redecide
    from kubestow.plugins.configuration_file import read_configuration
    from kubestow.plugins.registry import find_plugins, find_pod_group_apis

    header = segment.header
    minor = parse_minor(emulated_version) if emulated_version else recorded_minor(header)
    given = None if feature_gates is None else config.FeatureGates.parse(feature_gates, minor=minor)
    if given is not None:
        warn_of_gates_without_effect(given)
    gates = given or recorded_gates(header).emulating(minor)
    registry = find_plugins(plugins, minor=minor)
    source = header.configuration or None if config_file is None else config_file
    configuration = read_configuration(source, gates, registry)
    result = redecide(segment, configuration, registry, gates, find_pod_group_apis())
    remarks = list(result.remarks)
    if config_file is None and header.snapshot is not None:
        remarks.append("decided again from the cluster at the beginning of this file, which goes on with another one")
    for remark in remarks:
        click.echo(f"remark: {remark}", err=True)
    document = with_versions(lambda: _redecision_document(result), minor, header.server_version)()
    lines = [
        f"decided as {versions_text(str(minor), server_version=header.server_version)}",
        *_redecision_lines(result),
    ]
    return document, "\n".join(lines), int(result.damage is not None)


def _redecision_document(result: Redecision) -> dict[str, Any]:
    return {
        "seconds": round(result.seconds, 3),
        "pods": len(result.pods),
        "same": result.same(),
        "moved": [_placements(pod) for pod in result.moved()],
        "newlyPending": [_placements(pod) | {"message": pod.message} for pod in result.newly_pending()],
        "newlyPlaced": [_placements(pod) for pod in result.newly_placed()],
        "evictedOnlyInRecord": [pod.pod for pod in result.victims_differ() if pod.was_victim],
        "evictedOnlyNow": [pod.pod for pod in result.victims_differ() if pod.is_victim],
        "damage": "" if result.damage is None else str(result.damage),
    }


def _placements(pod: PodComparison) -> dict[str, Any]:
    return {"pod": pod.pod, "recorded": pod.recorded, "redecided": pod.redecided}


def _redecision_lines(result: Redecision) -> list[str]:
    differing, count = result.victims_differ(), len(result.pods)
    return [
        f"{count:,} {'pod' if count == 1 else 'pods'} in {result.seconds:,.1f} s, {result.same():,} as recorded",
        *_section("on another node", [f"{p.pod}  {p.recorded} -> {p.redecided}" for p in result.moved()]),
        *_section("no longer placed", [f"{p.pod}  {p.recorded} -> -  {p.message}" for p in result.newly_pending()]),
        *_section("newly placed", [f"{p.pod}  - -> {p.redecided}" for p in result.newly_placed()]),
        *_section("no longer evicted", [p.pod for p in differing if p.was_victim]),
        *_section("newly evicted", [p.pod for p in differing if p.is_victim]),
    ]


def _section(title: str, lines: list[str]) -> list[str]:
    if not lines:
        return []
    more = [f"  … {len(lines) - _SHOWN:,} more"] if len(lines) > _SHOWN else []
    return [f"{title}: {len(lines):,}", *(f"  {line}" for line in lines[:_SHOWN]), *more]
