"""Run many seeds: ``python -m tests.fault_simulation --seeds 100 --first 1``; ``--trace`` prints every event."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from functools import partial

import click

from tests.fault_simulation.simulation import Outcome, Part, simulate


def _outcome(seed: int, *, certain: Sequence[Part], trace: bool) -> Outcome:
    """The outcome of one seed; its trace, which may be long, only where it is wanted."""
    outcome = simulate(seed, certain=certain)
    return outcome if trace else replace(outcome, trace=())


def _outcomes(seeds: range, *, jobs: int, certain: Sequence[Part], trace: bool) -> Iterator[Outcome]:
    """The outcomes in the order of the seeds, so many worked out at once."""
    work = partial(_outcome, certain=certain, trace=trace)
    if jobs == 1:
        yield from map(work, seeds)
        return
    with ProcessPoolExecutor(jobs) as processes:
        yield from processes.map(work, seeds)


@click.command()
@click.option("--seeds", type=click.IntRange(1), default=100, show_default=True, help="How many seeds to run.")
@click.option("--first", default=1, show_default=True, help="The first of them.")
@click.option("--jobs", type=click.IntRange(1), default=1, show_default=True, help="How many to run at once.")
@click.option(
    "--with",
    "certain",
    type=click.Choice([part.value for part in Part]),
    multiple=True,
    help="What every world has; else it is drawn.",
)
@click.option("--trace", is_flag=True, help="Print every run's trace.")
def main(seeds: int, first: int, jobs: int, certain: Sequence[str], trace: bool) -> None:
    """Simulate living schedulers in a hostile world; exit with 1 when an invariant is violated."""
    failed, bound, events = 0, 0, []
    parts = [Part(part) for part in certain]
    for outcome in _outcomes(range(first, first + seeds), jobs=jobs, certain=parts, trace=trace):
        if trace:
            click.echo("\n".join(outcome.trace))
        for violation in dict.fromkeys(outcome.violations):
            click.echo(f"seed {outcome.seed}: {violation}")
        failed += bool(outcome.violations)
        events.append(outcome.events)
        bound += outcome.bound
    click.echo(
        f"{seeds} seeds from {first}: {sum(events)} events, {min(events)} or more in each, {bound} pods bound, "
        f"{failed} seeds with violations"
    )
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
