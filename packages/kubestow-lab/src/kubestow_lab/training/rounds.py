"""The simulation of training jobs in rounds: a policy decides which jobs run on which type, until the next round.

A round is over after a fixed time, or as soon as all running jobs have ended. The accelerators of a job that ends
within a round are free from the next round on, and a job that arrives waits for it (as in Gavel, section 5).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from kubestow_lab.training.jobs import Floats, Integers, Rows, TrainingJobs

WAITING = -1
"""What a policy assigns to a job that does not run in a round."""


@dataclass(frozen=True, slots=True)
class Situation:
    """What a policy sees at the beginning of a round: the jobs that have arrived and not ended, in order of arrival.

    ``time`` is in seconds. ``jobs`` are their numbers; ``remaining`` steps, ``service`` in GPU-seconds attained, and
    ``running``, the type of accelerator in the last round or :data:`WAITING`, have shape (jobs,). ``capacity`` is the
    number of accelerators, shape (types,). ``changed``: a job has arrived or ended since the last round.
    """

    time: float
    jobs: Rows
    arrived: Floats
    gpus: Integers
    kinds: Rows
    throughputs: Floats
    steps: Floats
    remaining: Floats
    service: Floats
    running: Rows
    capacity: Integers
    changed: bool


class Policy(Protocol):
    """What decides about rounds; it may remember earlier ones."""

    def assign(self, situation: Situation) -> Rows:
        """The type of accelerator of each job of the situation, or :data:`WAITING`; never more than the capacity."""

    def ran(self, situation: Situation, assigned: Rows, seconds: float) -> None:
        """What became of the decision: so long the jobs ran, or until they ended."""


def completion_times(
    jobs: TrainingJobs, capacity: Integers, policy: Policy, *, round_seconds: float, watched: Rows | None = None
) -> Floats:
    """The time from arrival to end of each job in seconds, shape (jobs,); NaN for one that did not end.

    The simulation is over once the ``watched`` jobs have ended, or all, or if no job ever runs again.
    """
    count, kinds = len(jobs), jobs.kinds
    remaining, service = jobs.steps.astype(np.float64), np.zeros(count)
    running = np.full(count, WAITING, np.intp)
    ended = np.full(count, np.nan)
    active = np.zeros(0, np.intp)
    time, arrivals, changed = float(jobs.arrived[0]) if count else 0.0, 0, True
    expected = np.arange(count) if watched is None else watched
    left = len(expected)
    is_expected = np.zeros(count, np.bool_)
    is_expected[expected] = True
    while left:
        if not len(active) and arrivals < count:
            time = max(time, float(jobs.arrived[arrivals]))
        until = int(np.searchsorted(jobs.arrived, time, side="right"))
        if until > arrivals:
            active, arrivals, changed = np.append(active, np.arange(arrivals, until)), until, True
        situation = Situation(
            time,
            active,
            jobs.arrived[active],
            jobs.gpus[active],
            kinds[active],
            jobs.throughputs[active],
            jobs.steps[active],
            remaining[active],
            service[active],
            running[active],
            capacity,
            changed,
        )
        assigned = policy.assign(situation)
        runs = assigned != WAITING
        running[active] = assigned
        chosen = active[runs]
        if not len(chosen):
            if arrivals == count:
                break
            time, changed = max(time + round_seconds, float(jobs.arrived[arrivals])), False
            continue
        speeds = situation.throughputs[runs, assigned[runs]]
        needed = remaining[chosen] / speeds
        seconds = min(round_seconds, float(needed.max()))
        policy.ran(situation, assigned, seconds)
        ran = np.minimum(needed, seconds)
        remaining[chosen] -= ran * speeds
        service[chosen] += ran * jobs.gpus[chosen]
        done = chosen[needed <= seconds]
        ended[done] = time + needed[needed <= seconds]
        left -= int(np.count_nonzero(is_expected[done]))
        changed = bool(len(done))
        if changed:
            active = active[np.isnan(ended[active])]
        time += seconds
    return ended - jobs.arrived


def fill(order: Rows, gpus: Integers, free: int, *, stops: bool = False) -> list[int]:
    """The jobs of an order that get ``free`` accelerators, one after the other; those that do not fit are skipped.

    With ``stops`` the first that does not fit ends the list.
    """
    chosen = []
    for position, wanted in zip(order.tolist(), gpus[order].tolist(), strict=True):
        if wanted <= free:
            free -= wanted
            chosen.append(position)
            if not free:
                break
        elif stops:
            break
    return chosen
