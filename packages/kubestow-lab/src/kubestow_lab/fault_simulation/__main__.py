"""Runs many seeds: ``python -m kubestow_lab.fault_simulation --seeds 100 --first 1``.

``--trace`` prints the trace of each.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from functools import partial

import click

from kubestow_lab.fault_simulation.simulation import Outcome, Part, simulate


def _outcome(seed: int, *, required: Sequence[Part], trace: bool) -> Outcome:
    """The outcome of one seed, without its long trace unless it is printed."""
    outcome = simulate(seed, required=required)
    return outcome if trace else replace(outcome, trace=())


def _outcomes(seeds: range, *, jobs: int, required: Sequence[Part], trace: bool) -> Iterator[Outcome]:
    """The outcomes in the order of the seeds, computed by ``jobs`` processes."""
    work = partial(_outcome, required=required, trace=trace)
    if jobs == 1:
        yield from map(work, seeds)
        return
    with ProcessPoolExecutor(jobs) as processes:
        yield from processes.map(work, seeds)


@click.command()
@click.option("--seeds", type=click.IntRange(1), default=100, show_default=True, help="How many seeds to run.")
@click.option("--first", default=1, show_default=True, help="The first seed.")
@click.option("--jobs", type=click.IntRange(1), default=1, show_default=True, help="How many to run in parallel.")
@click.option(
    "--with",
    "required",
    type=click.Choice([part.value for part in Part]),
    multiple=True,
    help="A part that every simulation has; the others are drawn.",
)
@click.option("--trace", is_flag=True, help="Print every run's trace.")
def main(seeds: int, first: int, jobs: int, required: Sequence[str], trace: bool) -> None:
    """Simulate schedulers with injected faults; exit with 1 when an invariant is violated."""
    failed, bound, events = 0, 0, []
    parts = [Part(part) for part in required]
    for outcome in _outcomes(range(first, first + seeds), jobs=jobs, required=parts, trace=trace):
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
