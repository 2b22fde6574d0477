"""Policies that order jobs and give accelerators of one type to the first of them, preempting others.

Tiresias (Gu et al., "Tiresias: A GPU Cluster Manager for Distributed Deep Learning", NSDI 2019) orders by attained
service in two dimensions, GPUs times time: least attained service needs no knowledge, the Gittins index the
distribution of the service that jobs need. Both are discretized: within a queue, whose jobs have attained about the
same, jobs start in order of arrival, so that they do not preempt each other again and again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from kubestow_lab.training.jobs import Floats, Rows
from kubestow_lab.training.rounds import WAITING, Situation, fill


class JobOrder:
    """A policy that gives accelerators of one type to jobs in an order, smallest key first."""

    def keys(self, situation: Situation) -> Sequence[Floats | Rows]:
        """The keys of the jobs, the most significant first, each of shape (jobs,); ties go to the earlier arrival."""
        raise NotImplementedError

    def assign(self, situation: Situation) -> Rows:
        """The jobs that fit, in order; one that does not fit is passed by later ones."""
        order = np.lexsort((situation.jobs, *reversed(self.keys(situation))))
        assigned = np.full(len(situation.jobs), WAITING, np.intp)
        assigned[fill(order, situation.gpus, int(situation.capacity[0]))] = 0
        return assigned

    def ran(self, situation: Situation, assigned: Rows, seconds: float) -> None:
        """Nothing is remembered: what counts is in the next situation."""


@dataclass(frozen=True, slots=True)
class FirstInFirstOut:
    """Jobs run to their ends in order of arrival, and none passes one that does not fit: YARN's queue in Tiresias."""

    def assign(self, situation: Situation) -> Rows:
        """The running jobs, and waiting ones up to the first that does not fit."""
        assigned = np.where(situation.running == WAITING, WAITING, 0)
        free = int(situation.capacity[0] - situation.gpus[assigned == 0].sum())
        waiting = np.flatnonzero(assigned == WAITING)
        assigned[fill(waiting, situation.gpus, free, stops=True)] = 0
        return assigned

    def ran(self, situation: Situation, assigned: Rows, seconds: float) -> None:
        """Nothing is remembered."""


class ShortestRemainingTime(JobOrder):
    """The job with the shortest remaining run time first, which needs perfect knowledge."""

    def keys(self, situation: Situation) -> Sequence[Floats]:
        """The remaining run times in seconds."""
        return (situation.remaining / situation.throughputs[:, 0],)


class ShortestRemainingService(JobOrder):
    """The job with the least remaining GPU time first: the same in two dimensions."""

    def keys(self, situation: Situation) -> Sequence[Floats]:
        """The remaining GPU-seconds."""
        return (situation.gpus * situation.remaining / situation.throughputs[:, 0],)


def _check_thresholds(thresholds: Sequence[float]) -> None:
    if list(thresholds) != sorted(set(thresholds)) or min(thresholds, default=1) <= 0:
        raise ValueError(f"expected ascending thresholds above 0, got {list(thresholds)}")


@dataclass(frozen=True)
class LeastAttainedService(JobOrder):
    """Discretized 2D-LAS: queues by attained GPU-seconds, first come first served within each (Tiresias-L).

    A job is in the queue of as many ``thresholds`` as its service has reached. The first queue comes first.
    """

    thresholds: Sequence[float]

    def __post_init__(self) -> None:
        _check_thresholds(self.thresholds)

    def keys(self, situation: Situation) -> Sequence[Rows]:
        """The queues of the jobs."""
        return (np.searchsorted(np.asarray(self.thresholds), situation.service, side="right"),)


@dataclass(frozen=True)
class GittinsIndex(JobOrder):
    """Discretized 2D-Gittins: within the same queues, the highest index by the distribution of service (Tiresias-G).

    ``distribution`` has the GPU-seconds that jobs are known to need, such as those of earlier jobs. The quantum of a
    queue is its width: the index of a job says how likely it ends before it leaves the queue, relative to the service
    that is expected until one of the two (:func:`gittins_index`). In the last queue jobs are in order of arrival.
    """

    thresholds: Sequence[float]
    distribution: Floats = field(repr=False)

    def __post_init__(self) -> None:
        _check_thresholds(self.thresholds)

    def keys(self, situation: Situation) -> Sequence[Floats | Rows]:
        """The queues of the jobs, then their indices, negative."""
        bounds = np.asarray(self.thresholds, np.float64)
        queues = np.searchsorted(bounds, situation.service, side="right")
        quantum = np.append(bounds, np.inf)[queues] - situation.service
        return queues, -gittins_index(self.distribution, situation.service, quantum)


def gittins_index(distribution: Floats, attained: Floats, quantum: Floats) -> Floats:
    """The Gittins index of jobs that have attained some service and may get a quantum more: P / E, shape (jobs,).

    P is the probability that a job ends within the quantum, E the expected service until it ends or the quantum is
    over, both given that it has not ended yet; 0 for a job that has attained more than any of the distribution.
    """
    needs = np.sort(np.asarray(distribution, np.float64))
    sums = np.append(0.0, np.cumsum(needs))
    quantum = np.minimum(quantum, np.maximum(needs[-1] - attained, 0.0))  # nothing needs more
    first = np.searchsorted(needs, attained, side="right")
    last = np.searchsorted(needs, attained + quantum, side="right")
    alive = len(needs) - first
    ending = last - first
    # Those that end within the quantum need their rest, all others the whole quantum.
    service = sums[last] - sums[first] - ending * attained + (len(needs) - last) * quantum
    indices: Floats = np.divide(ending, service, out=np.zeros(len(attained)), where=(alive > 0) & (service > 0))
    return indices
