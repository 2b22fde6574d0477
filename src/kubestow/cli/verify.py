"""``kubestow verify``: replay recorded scheduling decisions and compare the results."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

import click

__all__ = ["verify"]


@click.command()
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--show", default=5, show_default=True, help="Maximum number of mismatches to print per area.")
def verify(files: tuple[Path, ...], show: int) -> int:
    """Replay recorded cases and compare every result with that of kube-scheduler.

    Prints the number of agreeing cases per area and the first mismatches; the last line is `agree N/M`. The exit status
    is 1 if there is any mismatch.
    """
    from kubestow.plugins import in_tree_registry
    from kubestow.simulation.recorded_cases import read_cases
    from kubestow.simulation.replay import ReplayMismatch, replay

    registry = in_tree_registry()
    cases: dict[str, int] = defaultdict(int)
    agreeing: dict[str, int] = defaultdict(int)
    mismatches: dict[str, list[ReplayMismatch]] = defaultdict(list)
    for path in files:
        for case in read_cases(path):
            found = replay(case, registry)
            cases[case.area] += 1
            agreeing[case.area] += not found
            mismatches[case.area] += found
    for area, total in cases.items():
        click.echo(f"{area:<28} {agreeing[area]:>5}/{total}")
    for area, found in mismatches.items():
        for mismatch in found[:show]:
            click.echo(f"\n{mismatch.case}  pod {mismatch.pod or '-'}  {mismatch.field}")
            click.echo(f"  expected  {mismatch.expected!r}")
            click.echo(f"  got       {mismatch.actual!r}")
        if len(found) > show:
            click.echo(f"\n{area}: {len(found) - show} more mismatches")
    agreed, total = sum(agreeing.values()), sum(cases.values())
    click.echo(f"agree {agreed}/{total}")
    return int(agreed != total)
