"""Runs many seeds: ``python -m kubestow_lab.fault_simulation --seeds 100 --first 1``.

``--trace`` prints the trace of each.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Mapping, Sequence

import click

from kubestow_lab.fault_simulation.marks import MARKS_OF_PARTITIONS, Mark
from kubestow_lab.fault_simulation.scenario import Part
from kubestow_lab.fault_simulation.simulation import outcomes

#: So many runs have to reach every mark.
_SEEDS_FOR_ALL_MARKS = 1000


def marks_table(counts: Mapping[Mark, int], runs: Mapping[Mark, int]) -> str:
    """How often each mark was reached, and in how many runs, as text."""
    lines = [f"{'reached':>9} {'in runs':>8}  mark"]
    lines += [f"{counts.get(mark, 0):>9} {runs.get(mark, 0):>8}  {mark}" for mark in Mark]
    return "\n".join(lines)


@click.command()
@click.option("--seeds", type=click.IntRange(1), default=100, show_default=True, help="How many seeds to run.")
@click.option("--first", default=1, show_default=True, help="The first seed.")
@click.option("--jobs", type=click.IntRange(1), help="How many to run in parallel. Default: one for each core.")
@click.option(
    "--with",
    "required",
    type=click.Choice([part.value for part in Part]),
    multiple=True,
    help="A part that every simulation has; the others are drawn.",
)
@click.option("--trace", is_flag=True, help="Print every run's trace.")
def main(seeds: int, first: int, jobs: int | None, required: Sequence[str], trace: bool) -> None:
    """Simulate schedulers with injected faults.

    Exits with 1 when an invariant is violated, or when 1000 seeds or more have not reached every mark: those of
    partitions with this part, all others without it.
    """
    failed, bound, events = 0, 0, []
    counts: Counter[Mark] = Counter()
    runs: Counter[Mark] = Counter()
    parts = [Part(part) for part in required]
    for outcome in outcomes(range(first, first + seeds), jobs=jobs, required=parts, trace=trace):
        if trace:
            click.echo("\n".join(outcome.trace))
        for violation in dict.fromkeys(outcome.violations):
            click.echo(f"seed {outcome.seed}: {violation}")
        failed += bool(outcome.violations)
        events.append(outcome.events)
        bound += outcome.bound
        counts.update(outcome.marks)
        runs.update(outcome.marks.keys())
    click.echo(marks_table(counts, runs))
    click.echo(
        f"{seeds} seeds from {first}: {sum(events)} events, {min(events)} or more in each, {bound} pods bound, "
        f"{len(runs)} of {len(Mark)} marks reached, {failed} seeds with violations"
    )
    expected = [mark for mark in Mark if (mark in MARKS_OF_PARTITIONS) is (Part.PARTITIONS in parts)]
    missing = [mark for mark in expected if mark not in runs]
    unreached = missing and seeds >= _SEEDS_FOR_ALL_MARKS
    if unreached:
        click.echo("marks that no run has reached: " + "; ".join(missing))
    sys.exit(1 if failed or unreached else 0)


if __name__ == "__main__":
    main()
