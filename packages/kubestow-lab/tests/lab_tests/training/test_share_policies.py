"""Shares are the best there are: by hand, by closed forms, and by bounds."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kubestow_lab.training.jobs import Floats, TrainingJobs
from kubestow_lab.training.rounds import Situation, completion_times
from kubestow_lab.training.share_policies import (
    FifoShares,
    FinishTimeFairness,
    Makespan,
    MaxMinFairness,
    equal_service,
    fuller_shares,
    isolated_shares,
    least_progress,
)
from kubestow_lab.training.time_shares import TimeShares

pytest.importorskip("scipy")
EACH_ONE = np.ones(2, np.int64)


def situation(
    throughputs: list[list[float]], gpus: list[int] | None = None, steps: list[float] | None = None, *capacity: int
) -> Situation:
    """Jobs that have just arrived."""
    count = len(throughputs)
    speeds, amounts = np.array(throughputs, float), np.array(gpus or [1] * count)
    made = np.array(steps or [100.0] * count)
    whole = TrainingJobs(np.zeros(count), amounts, made, speeds)
    rows, nothing = np.arange(count), np.zeros(count)
    waiting = np.full(count, -1)
    there = np.array(capacity or [1] * speeds.shape[1])
    return Situation(0.0, rows, nothing, amounts, whole.kinds, speeds, made, made, nothing, waiting, there, True)


def check_limits(shares: Floats, given: Situation) -> None:
    assert (shares >= 0).all()
    assert (shares.sum(axis=1) <= 1 + 1e-6).all()
    assert (given.gpus @ shares <= given.capacity + 1e-6).all()


def test_jobs_go_where_they_are_relatively_fastest() -> None:
    """Each job is twice as fast on another type, so that each gets that one."""
    found = MaxMinFairness(aware=True).shares(situation([[2, 1], [1, 2]]))
    assert found == pytest.approx(np.eye(2), abs=1e-6)
    # Equal jobs share both types equally: no other shares give both as much.
    alike = MaxMinFairness(aware=True).shares(situation([[4, 1], [4, 1]]))
    assert alike == pytest.approx(np.full((2, 2), 0.5), abs=1e-6)
    # A job that cannot use the second type is not given time there.
    cannot = MaxMinFairness(aware=True).shares(situation([[4, 0], [4, 1]]))
    assert cannot[0, 0] > 0.5


def test_the_least_progress_is_that_of_the_papers_bound() -> None:
    shares, least = least_progress(np.array([[4.0, 1.0], [4.0, 1.0]]), EACH_ONE, EACH_ONE)
    assert least == pytest.approx(2.5)
    assert shares.sum() == pytest.approx(2)
    # With a free type the least is the slower job's; the other one then gets all that it can use.
    rates = np.array([[1.0, 0.0], [0.0, 9.0]])
    assert least_progress(rates, EACH_ONE, EACH_ONE)[1] == pytest.approx(1)
    assert fuller_shares(rates, EACH_ONE, EACH_ONE, 1.0) == pytest.approx(np.eye(2), abs=1e-6)


@settings(max_examples=25, deadline=None)
@given(
    st.lists(
        st.tuples(st.floats(0.5, 8), st.floats(0.5, 8), st.sampled_from((1, 2, 4)), st.floats(1, 500)),
        min_size=1,
        max_size=6,
    ),
    st.tuples(st.integers(4, 6), st.integers(4, 6)),
)
def test_shares_are_within_limits_and_no_worse_than_isolation(
    each: list[tuple[float, float, int, float]], capacity: tuple[int, int]
) -> None:
    speeds, gpus, steps = [list(row[:2]) for row in each], [row[2] for row in each], [row[3] for row in each]
    given = situation(speeds, gpus, steps, *capacity)
    alone = (given.throughputs * isolated_shares(given.gpus, given.capacity)).sum(axis=1)
    for policy in (
        *(kind(aware=aware) for kind in (MaxMinFairness, FinishTimeFairness) for aware in (False, True)),
        Makespan(),
        FifoShares(aware=True),
        FifoShares(aware=False),
    ):
        check_limits(policy.shares(given), given)
    # Isolated shares are possible, so that the fairest are at least as good for each job (to a thousandth).
    fair = FinishTimeFairness(aware=True).shares(given)
    assert ((given.throughputs * fair).sum(axis=1) >= alone * (1 - 3e-3)).all()
    # The last job under the shares for the makespan ends no later than the last one in isolation.
    early = (given.remaining / (given.throughputs * Makespan().shares(given)).sum(axis=1)).max()
    assert early <= (given.remaining / alone).max() * (1 + 1e-6)


@given(st.lists(st.integers(1, 8), min_size=1, max_size=10), st.integers(1, 40))
def test_equal_service_uses_all_there_is(gpus: list[int], total: int) -> None:
    level = equal_service(np.array(gpus), total)
    used = sum(min(each, level) for each in gpus)
    assert used == pytest.approx(min(total, sum(gpus)))


def test_first_come_first_served_keeps_types_without_knowledge() -> None:
    given = situation([[1, 3], [1, 3], [1, 3]])
    assert FifoShares(aware=True).shares(given).tolist() == [[0, 1], [1, 0], [0, 0]]
    # The second job needs more than is left of either type: none after it runs.
    blocked = situation([[1, 3], [1, 3], [1, 3]], [1, 2, 1], None, 1, 1)
    assert FifoShares(aware=True).shares(blocked).tolist() == [[0, 1], [0, 0], [0, 0]]


def test_the_makespan_reaches_the_bound() -> None:
    """Three equal jobs on two GPUs: the bound is one and a half run times, in short rounds."""
    jobs = TrainingJobs(np.zeros(3), np.ones(3, np.int64), np.full(3, 1000.0), np.ones((3, 1)))
    shares = TimeShares(Makespan(), round_seconds=10, reset_seconds=10)
    found = completion_times(jobs, np.array([2]), shares, round_seconds=10)
    assert found.max() == pytest.approx(1500, abs=30)
