"""Gavel's mechanism: each job gets accelerators of each type in proportion to its share of time there.

A policy computes the shares: of the time until the next computation, the part that a job should spend on each type. In
every round a job's priority on a type is its share relative to the time that it has had there, and jobs get
accelerators in the order of priorities, type after type (Narayanan et al., "Heterogeneity-Aware Cluster Scheduling
Policies for Deep Learning Workloads", OSDI 2020, section 5). What is left goes to jobs without a share, so that no
accelerator idles beside a job that fits.
"""

from __future__ import annotations

from random import Random
from typing import Protocol

import numpy as np

from kubestow_lab.training.jobs import Floats, Rows
from kubestow_lab.training.rounds import WAITING, Situation, fill


class SharePolicy(Protocol):
    """What computes shares."""

    #: Whether a job without a share on a type may not run there.
    strict: bool

    def shares(self, situation: Situation) -> Floats:
        """The part of the time that each job should spend on each type, shape (jobs, types).

        The sum of a job is at most 1, and the sum of shares times GPUs on a type at most its capacity.
        """


class TimeShares:
    """A policy of rounds that follows shares; state is kept by the number of the job.

    Shares are computed anew when jobs have come or gone, but not within ``reset_seconds`` of the last time unless no
    job runs. Types are filled in their order, or in the order of ``shuffle`` for policies that do not distinguish them.
    """

    def __init__(
        self, policy: SharePolicy, *, round_seconds: float, reset_seconds: float, shuffle: Random | None = None
    ) -> None:
        self._policy = policy
        self._grace = round_seconds / 2
        self._reset_seconds = reset_seconds
        self._shuffle = shuffle
        self._reset: float | None = None
        self._stale = True
        #: By job and type: shares, the time had since they were computed, and the time that was due beyond it before.
        self._shares = self._had = self._deficits = np.zeros((0, 0))

    def assign(self, situation: Situation) -> Rows:
        """The jobs by priority on each type."""
        self._extend_to(situation)
        self._stale |= situation.changed
        idle = (situation.running == WAITING).all()
        if self._stale and (idle or self._reset is None or situation.time - self._reset >= self._reset_seconds):
            self._compute(situation)
        jobs = situation.jobs
        shares, had = self._shares[jobs], self._had[jobs]
        with np.errstate(divide="ignore", invalid="ignore"):
            priorities = np.where(shares > 0, shares / (had / had.sum(axis=0)), 0.0)
        types = list(range(len(situation.capacity)))
        if self._shuffle is not None:
            self._shuffle.shuffle(types)
        assigned = np.full(len(jobs), WAITING, np.intp)
        for kind in types:
            runs = (assigned == WAITING) & (situation.throughputs[:, kind] > 0)
            if self._policy.strict:
                runs &= shares[:, kind] > 0
            candidates = np.flatnonzero(runs)
            keys = (-shares[candidates, kind], -self._deficits[jobs[candidates], kind], -priorities[candidates, kind])
            order = candidates[np.lexsort(keys)]
            assigned[fill(order, situation.gpus, int(situation.capacity[kind]))] = kind
        return assigned

    def ran(self, situation: Situation, assigned: Rows, seconds: float) -> None:
        """Count the time that jobs have had."""
        runs = assigned != WAITING
        self._had[situation.jobs[runs], assigned[runs]] += seconds

    def _compute(self, situation: Situation) -> None:
        if self._reset is not None:
            elapsed = situation.time - self._reset
            self._deficits += self._shares * elapsed - (self._had - self._grace)
        self._had[:] = self._grace
        self._shares[:] = 0.0
        self._shares[situation.jobs] = self._policy.shares(situation)
        self._reset, self._stale = situation.time, False

    def _extend_to(self, situation: Situation) -> None:
        """Extend the state to all jobs that have arrived."""
        count, before = int(situation.jobs.max(initial=-1)) + 1, len(self._shares)
        if count > before:
            shape = max(count, 2 * before), len(situation.capacity)
            self._shares = _extended(self._shares, shape, 0.0)
            self._had = _extended(self._had, shape, self._grace)
            self._deficits = _extended(self._deficits, shape, 0.0)


def _extended(rows: Floats, shape: tuple[int, int], value: float) -> Floats:
    """A larger array that begins with some rows; ``value`` is in the others."""
    found = np.full(shape, value)
    if len(rows):
        found[: len(rows)] = rows
    return found
