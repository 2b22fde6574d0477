"""``kubestow verify``: replay recorded decisions and reports, and compare the results."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kubestow.cli.input.scheduler import parse_minor
from kubestow.cli.output import output_option, print_data
from kubestow.errors import InputError
from kubestow.reports.model import counted

if TYPE_CHECKING:
    from kubestow_lab.conformance.scheduling_replay import ReplayMismatch


@click.command()
@click.argument("files", metavar="FILE_OR_FOLDER...", nargs=-1, required=True, type=click.Path(path_type=Path))
@output_option("table", "json", "yaml")
@click.option("--show", default=5, show_default=True, help="Maximum number of mismatches to print per area.")
@click.option(
    "--emulated-version",
    default="",
    metavar="VERSION",
    help="Kubernetes minor of the recorded program. Default: as recorded, or the folder's name (v1.33), or the newest.",
)
def verify(files: tuple[Path, ...], show: int, emulated_version: str, output: str) -> int:
    """Replay recorded cases and compare every result with that of the recorded program.

    A folder stands for its files that end with .jsonl.gz.

    Prints the number of agreeing cases per area and the first mismatches; the last line is `agree N/M`. The exit status
    is 1 if there is any mismatch.
    """
    from kubestow.plugins import in_tree_registry
    from kubestow_lab.conformance.replay import replay_file

    minor = parse_minor(emulated_version) if emulated_version else None
    cases: dict[str, int] = defaultdict(int)
    agreeing: dict[str, int] = defaultdict(int)
    mismatches: dict[str, list[ReplayMismatch]] = defaultdict(list)
    for path in _recordings(files):
        for case, found in replay_file(path, in_tree_registry, minor):
            cases[case.area] += 1
            agreeing[case.area] += not found
            mismatches[case.area] += found
    agreed, total = sum(agreeing.values()), sum(cases.values())
    if output != "table":
        found = [mismatch for of_area in mismatches.values() for mismatch in of_area]
        print_data({"cases": dict(cases), "agreeing": dict(agreeing), "mismatches": list(map(_as_data, found))}, output)
        return int(agreed != total)
    for area, total_of_area in cases.items():
        click.echo(f"{area:<28} {agreeing[area]:>5}/{total_of_area}")
    for area, found in mismatches.items():
        for mismatch in found[:show]:
            click.echo(f"\n{mismatch.case}  pod {mismatch.pod or '-'}  {mismatch.field}")
            click.echo(f"  expected  {mismatch.expected!r}")
            click.echo(f"  got       {mismatch.actual!r}")
        if len(found) > show:
            click.echo(f"\n{area}: {counted(len(found) - show, 'more mismatch', 'more mismatches')}")
    click.echo(f"agree {agreed}/{total}")
    return int(agreed != total)


def _recordings(paths: tuple[Path, ...]) -> Iterator[Path]:
    """The files, those of folders by name. Raises InputError for a folder without any."""
    for path in paths:
        if not path.is_dir():
            yield path
        elif found := sorted(path.glob("*.jsonl.gz")):
            yield from found
        else:
            raise InputError(str(path), "has no recordings; expected files that end with .jsonl.gz")


def _as_data(mismatch: ReplayMismatch) -> dict[str, Any]:
    expected, actual = repr(mismatch.expected), repr(mismatch.actual)
    return {"case": mismatch.case, "pod": mismatch.pod, "field": mismatch.field, "expected": expected, "got": actual}
