"""``kubestow verify``: replay recorded decisions and compare every figure."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

import click

__all__ = ["verify"]


@click.command()
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--show", default=5, show_default=True, help="How many differing figures to print in full, per area.")
def verify(files: tuple[Path, ...], show: int) -> int:
    """Replay recorded cases and compare every figure with what the reference scheduler decided.

    Prints per area how many cases agree and the first differences in full; the last line is `agree N/M`. Exit status 1
    on any difference.
    """
    from kubestow.plugins import in_tree_registry
    from kubestow.simulation.recording import read_cases
    from kubestow.simulation.replay import Difference, replay

    registry = in_tree_registry()
    cases: dict[str, int] = defaultdict(int)
    agreeing: dict[str, int] = defaultdict(int)
    differences: dict[str, list[Difference]] = defaultdict(list)
    for path in files:
        for case in read_cases(path):
            found = replay(case, registry)
            cases[case.area] += 1
            agreeing[case.area] += not found
            differences[case.area] += found
    for area, total in cases.items():
        click.echo(f"{area:<28} {agreeing[area]:>5}/{total}")
    for area, found in differences.items():
        for difference in found[:show]:
            click.echo(f"\n{difference.case}  pod {difference.pod or '-'}  {difference.figure}")
            click.echo(f"  expected  {difference.expected!r}")
            click.echo(f"  got       {difference.got!r}")
        if len(found) > show:
            click.echo(f"\n{area}: {len(found) - show} more figures differ")
    agreed, total = sum(agreeing.values()), sum(cases.values())
    click.echo(f"agree {agreed}/{total}")
    return int(agreed != total)
