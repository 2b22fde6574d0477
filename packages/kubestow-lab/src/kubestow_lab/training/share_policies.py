"""Gavel's policies as shares of time on types of accelerators, by linear programs over the throughputs of jobs.

Each exists with and without knowledge of throughputs (Narayanan et al., OSDI 2020, sections 4.1 and 4.2). With it, a
job spends its time where it is relatively fastest; without, all types count as equal. It needs SciPy
(``kubestow-lab[experiment]``).
"""

from __future__ import annotations

import math
from random import Random
from typing import Any

import numpy as np

from kubestow_lab.training.jobs import Floats, Integers
from kubestow_lab.training.rounds import WAITING, Situation

#: How exactly a finish-time fairness is found, relative to itself.
_PRECISION = 1e-3


class MaxMinFairness:
    """Least attained service as a share: all jobs get the same GPU time, as far as they can use it.

    ``aware`` of throughputs, the smallest is maximised of the jobs' throughputs, normalised by that on an equal share
    of each type, times their GPUs.
    """

    strict = False

    def __init__(self, *, aware: bool) -> None:
        self._aware = aware

    def shares(self, situation: Situation) -> Floats:
        """The shares of the kinds of jobs; jobs of one kind have equal ones."""
        _, first, of_job, counts = np.unique(
            situation.kinds, return_index=True, return_inverse=True, return_counts=True
        )
        gpus, throughputs, capacity = situation.gpus[first], situation.throughputs[first], situation.capacity
        if not self._aware:
            parts = np.minimum(1.0, equal_service(situation.gpus, int(capacity.sum())) / situation.gpus)
            return in_proportion(parts, capacity)
        usual = throughputs @ (capacity / capacity.sum())
        rates = throughputs * (gpus / usual)[:, np.newaxis]
        _, least = least_progress(rates, gpus * counts, capacity)
        weights = counts.astype(np.float64)
        return fuller_shares(rates * weights[:, np.newaxis], gpus * counts, capacity, least * weights)[of_job]


class Makespan:
    """All jobs end as early as the last: the smallest part of a job's remaining steps that is made is maximised."""

    strict = False

    def shares(self, situation: Situation) -> Floats:
        """The shares of the jobs."""
        rates = situation.throughputs / situation.remaining[:, np.newaxis]
        rates /= rates.max()
        _, least = least_progress(rates, situation.gpus, situation.capacity)
        return fuller_shares(rates, situation.gpus, situation.capacity, least)


class FinishTimeFairness:
    """Themis' fairness: the largest quotient is minimised of a job's time to its end, shared and in isolation.

    In isolation a job has an equal share of every type. What it would have made there so far counts by the number of
    jobs as it was. Without knowledge, the throughput on all types is taken to be that on the first.
    """

    strict = False

    def __init__(self, *, aware: bool) -> None:
        self._aware = aware
        #: By job: the isolated time of the steps made so far, the steps that remained, and the isolated throughput.
        self._before: dict[int, tuple[float, float, float]] = {}
        self._last = 0.0

    def shares(self, situation: Situation) -> Floats:
        """The shares with the least quotient, to a thousandth."""
        throughputs, gpus, capacity = situation.throughputs, situation.gpus, situation.capacity
        if not self._aware:
            throughputs = np.repeat(throughputs[:, :1], throughputs.shape[1], axis=1)
        shares = isolated_shares(gpus, capacity)
        alone = (throughputs * shares).sum(axis=1)
        isolated = self._isolated_times(situation, alone)
        elapsed = situation.time - situation.arrived

        def quotient() -> float:
            made = (throughputs * shares).sum(axis=1)
            return float(((elapsed + situation.remaining / made) / isolated).max())

        # The best progress for one quotient achieves a smaller one, until there is none; the last one is a good guess.
        fairness, before = quotient(), math.inf
        tried = self._last if (self._last * isolated > elapsed).all() else fairness
        while fairness < before * (1 - _PRECISION):
            needed = situation.remaining / (tried * isolated - elapsed)
            if self._aware:
                rates = throughputs / needed[:, np.newaxis]
                shares, least = least_progress(rates, gpus, capacity)
            else:
                parts = needed / throughputs[:, 0]
                least = min(1 / float(parts.max()), float(capacity.sum() / (parts @ gpus)))
                shares = in_proportion(least * parts, capacity)
            before, fairness = fairness, quotient()
            tried = fairness
        self._last = fairness
        return fuller_shares(rates, gpus, capacity, least) if self._aware else shares

    def _isolated_times(self, situation: Situation, alone: Floats) -> Floats:
        """The time that each job would take in isolation: for the steps made so far, and for the rest."""
        now: dict[int, tuple[float, float, float]] = {}
        rows = zip(situation.jobs.tolist(), situation.remaining.tolist(), alone.tolist(), strict=True)
        for job, remaining, throughput in rows:
            time, before, speed = self._before.get(job, (0.0, remaining, throughput))
            now[job] = time + (before - remaining) / speed, remaining, throughput
        self._before = now
        return np.array([time for time, _, _ in now.values()]) + situation.remaining / alone


class FifoShares:
    """First come, first served: each job has one type for itself, and none passes one that does not fit.

    ``aware``, the jobs get the fastest type that is free, anew in each computation; without knowledge they get a random
    one and keep it.
    """

    strict = True

    def __init__(self, *, aware: bool, random: Random | None = None) -> None:
        self._aware = aware
        self._random = random or Random(0)

    def shares(self, situation: Situation) -> Floats:
        """1 for the type of a job that runs."""
        free = situation.capacity.copy()
        found = np.zeros(situation.throughputs.shape)
        kept = np.full(len(situation.jobs), WAITING) if self._aware else situation.running
        for row in np.flatnonzero(kept != WAITING):
            found[row, kept[row]] = 1.0
            free[kept[row]] -= situation.gpus[row]
        for row in np.flatnonzero(kept == WAITING):
            speeds = situation.throughputs[row]
            types = np.flatnonzero((free >= situation.gpus[row]) & (speeds > 0))
            if not len(types):
                break
            chosen = types[np.argmax(speeds[types])] if self._aware else self._random.choice(types.tolist())
            found[row, chosen] = 1.0
            free[chosen] -= situation.gpus[row]
        return found


# -- programs ----------------------------------------------------------------------------------------------------------


def equal_service(gpus: Integers, total: int) -> float:
    """The most GPUs that every job can have at a time on average, of ``total``, where none has more than it runs on."""
    ascending = np.sort(gpus)
    before = np.append(0, np.cumsum(ascending)[:-1])
    levels = (total - before) / np.arange(len(gpus), 0, -1)  # if all smaller jobs have all that they run on
    limited = np.flatnonzero(levels < ascending)
    return float(levels[limited[0]] if len(limited) else ascending[-1])


def in_proportion(parts: Floats, capacity: Integers) -> Floats:
    """Shares of each job, shape (jobs, types), whose sums are ``parts``: as much of each type as there is."""
    shares: Floats = parts[:, np.newaxis] * (capacity / capacity.sum())
    return shares


def isolated_shares(gpus: Integers, capacity: Integers) -> Floats:
    """An equal part of each type for each job, shape (jobs, types); at most all of the time, types in proportion."""
    parts = capacity / len(gpus) / gpus[:, np.newaxis]
    shares: Floats = parts / np.maximum(parts.sum(axis=1, keepdims=True), 1.0)
    return shares


def least_progress(rates: Floats, gpus: Integers, capacity: Integers) -> tuple[Floats, float]:
    """Shares with the largest least progress, and that: of each job the sum over types of rate times share.

    ``rates`` and the shares have shape (jobs, types), ``gpus`` (jobs,), ``capacity`` (types,). No job has shares of
    more than 1 in sum, no type gives more GPUs than it has.
    """
    from scipy.optimize import linprog

    matrix, bounds = _limits(rates, np.ones(len(rates)), gpus, capacity)
    found = linprog(np.append(np.zeros(rates.size), -1.0), A_ub=matrix, b_ub=bounds, method="highs").x
    shares: Floats = np.clip(found[:-1], 0.0, 1.0).reshape(rates.shape)
    return shares, float(found[-1])


def fuller_shares(rates: Floats, gpus: Integers, capacity: Integers, least: float | Floats) -> Floats:
    """Of the shares with at least so much progress of each job, those with the largest sum of progress.

    A program for the least progress alone leaves open what is done with the rest of the time.
    """
    from scipy.optimize import linprog

    matrix, bounds = _limits(rates, np.broadcast_to(least, len(rates)), gpus, capacity)
    limits = [(0.0, None)] * rates.size + [(1 - 1e-9, 1 - 1e-9)]
    found = linprog(np.append(-rates.ravel(), 0.0), A_ub=matrix, b_ub=bounds, bounds=limits, method="highs").x
    shares: Floats = np.clip(found[:-1], 0.0, 1.0).reshape(rates.shape)
    return shares


def _limits(rates: Floats, least: Floats, gpus: Integers, capacity: Integers) -> tuple[Any, Floats]:
    """A sparse matrix and upper bounds of its product with the shares, job by job, and a common factor.

    A row for each job: the factor times ``least`` is not above its progress; for each type: its GPUs; for each job: its
    time.
    """
    from scipy.sparse import csr_array

    jobs, types = rates.shape
    shares = np.arange(jobs * types, dtype=np.int32).reshape(jobs, types)
    progress = np.column_stack((-rates, least))
    columns = np.column_stack((shares, np.full(jobs, jobs * types, np.int32)))
    used = np.broadcast_to(gpus.astype(np.float64), (types, jobs))
    data = np.concatenate((progress.ravel(), used.ravel(), np.ones(jobs * types)))
    indices = np.concatenate((columns.ravel(), shares.T.ravel(), shares.ravel()))
    lengths = np.concatenate((np.full(jobs, types + 1), np.full(types, jobs), np.full(jobs, types)))
    matrix = csr_array((data, indices, np.append(0, np.cumsum(lengths))), shape=(2 * jobs + types, jobs * types + 1))
    return matrix, np.concatenate((np.zeros(jobs), capacity, np.ones(jobs))).astype(np.float64)
