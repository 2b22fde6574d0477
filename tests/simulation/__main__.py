"""Run many seeds: ``python -m tests.simulation --seeds 100 --first 1``; ``--trace`` prints what happened in each."""

from __future__ import annotations

import sys

import click

from tests.simulation.simulation import simulate


@click.command()
@click.option("--seeds", default=100, show_default=True, help="How many seeds to run.")
@click.option("--first", default=1, show_default=True, help="The first of them.")
@click.option("--trace", is_flag=True, help="Print every run's trace.")
def main(seeds: int, first: int, trace: bool) -> None:
    """Simulate living schedulers in a hostile world; exit with 1 when an invariant is violated."""
    failed, events, bound = 0, 0, 0
    for seed in range(first, first + seeds):
        outcome = simulate(seed)
        if trace:
            click.echo("\n".join(outcome.trace))
        for violation in dict.fromkeys(outcome.violations):
            click.echo(f"seed {seed}: {violation}")
        failed += bool(outcome.violations)
        events += outcome.events
        bound += outcome.bound
    click.echo(f"{seeds} seeds from {first}: {events} events, {bound} pods bound, {failed} seeds with violations")
    sys.exit(1 if failed else 0)


main()
