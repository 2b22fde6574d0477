"""How many seeds it takes to find each planted fault: ``python -m tests.fault_simulation.find_planted_faults``."""

from __future__ import annotations

import sys

import click

from kubestow_lab.process_pool import process_pool
from tests.fault_simulation.planted_faults import AREAS, FAULTS, Found, find


def _table(found: list[Found]) -> str:
    """The faults by area, each with the seeds that it took."""
    by_name = {FAULTS[each.number].name: each for each in found}
    lines = ["| Fault | In runs with | Seeds | Rule that it breaks |", "|---|---|---|---|"]
    for area, faults in AREAS.items():
        chosen = [fault for fault in faults if fault.name in by_name]
        lines += [f"| **{area}** | | | |"] if chosen else []
        for fault in chosen:
            each = by_name[fault.name]
            lines.append(f"| {fault.name} | {fault.condition} | {each.seeds or 'not found'} | {each.rule} |")
    return "\n".join(lines)


@click.command()
@click.option("--limit", default=500, show_default=True, help="Seeds per fault.")
@click.option("--jobs", type=int, help="Faults at the same time. Default: one for each core.")
@click.option("--only", default="", help="Faults whose names contain this text.")
def main(limit: int, jobs: int | None, only: str) -> None:
    """Find how many seeds it takes to find each planted fault; exit with 1 when one is not found."""
    chosen = [number for number, fault in enumerate(FAULTS) if only in fault.name]
    pool = process_pool(jobs, preload=find.__module__)
    limits = [limit] * len(chosen)
    found = []
    for each in map(find, chosen, limits) if pool is None else pool.map(find, chosen, limits):
        click.echo(f"{FAULTS[each.number].name}: {each.seeds or 'not found'}", err=True)
        found.append(each)
    missed = sum(each.seeds is None for each in found)
    click.echo(_table(found))
    click.echo(f"\n{len(chosen) - missed} of {len(chosen)} faults found within {limit} seeds", err=True)
    sys.exit(1 if missed else 0)


if __name__ == "__main__":
    main()
