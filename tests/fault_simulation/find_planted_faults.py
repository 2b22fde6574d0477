"""How many seeds it takes to find each planted fault: ``python -m tests.fault_simulation.find_planted_faults``."""

from __future__ import annotations

import sys

import click

from kubestow_lab.process_pool import process_pool
from tests.fault_simulation.planted_faults import FAULTS, find


@click.command()
@click.option("--limit", default=500, show_default=True, help="Seeds per fault.")
@click.option("--jobs", type=int, help="Faults at the same time. Default: one for each core.")
@click.option("--only", default="", help="Faults whose names contain this text.")
def main(limit: int, jobs: int | None, only: str) -> None:
    """Find how many seeds it takes to find each planted fault; exit with 1 when one is not found."""
    chosen = [number for number, fault in enumerate(FAULTS) if only in fault.name]
    pool = process_pool(jobs, preload=find.__module__)
    limits = [limit] * len(chosen)
    results = map(find, chosen, limits) if pool is None else pool.map(find, chosen, limits)
    click.echo("| Fault | Seeds | Rule that it breaks |\n|---|---|---|")
    missed = 0
    for found in results:
        missed += found.seeds is None
        click.echo(f"| {found.name} | {found.seeds or 'not found'} | {found.rule} |")
        sys.stdout.flush()
    click.echo(f"\n{len(chosen) - missed} of {len(chosen)} faults found within {limit} seeds", err=True)
    sys.exit(1 if missed else 0)


if __name__ == "__main__":
    main()
