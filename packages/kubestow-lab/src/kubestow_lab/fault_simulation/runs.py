"""Many runs, in a pool of processes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial

from kubestow_lab.fault_simulation.scenario import Part
from kubestow_lab.fault_simulation.simulation import Outcome, simulate
from kubestow_lab.process_pool import process_pool

#: Runs that one worker is handed at once.
_CHUNK = 4


def outcomes(
    seeds: range, *, jobs: int | None = None, required: Sequence[Part] = (), trace: bool = False
) -> Iterator[Outcome]:
    """The outcomes in the order of the seeds, computed by ``jobs`` processes, by default one for each core.

    They have no traces unless ``trace`` is set, because these are long.
    """
    work = partial(_outcome, required=required, trace=trace)
    pool = process_pool(jobs, preload=__name__)
    if pool is None:
        yield from map(work, seeds)
        return
    with pool:
        yield from pool.map(work, seeds, chunksize=_CHUNK)


def _outcome(seed: int, *, required: Sequence[Part], trace: bool) -> Outcome:
    outcome = simulate(seed, required=required)
    return outcome if trace else replace(outcome, trace=(), steps=())
