"""Rounds are what can be computed by hand, and never give more accelerators than there are."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kubestow_lab.training.job_orders import (
    FirstInFirstOut,
    GittinsIndex,
    LeastAttainedService,
    ShortestRemainingService,
    ShortestRemainingTime,
    gittins_index,
)
from kubestow_lab.training.jobs import Rows, TrainingJobs
from kubestow_lab.training.rounds import WAITING, Policy, Situation, completion_times, fill
from kubestow_lab.training.share_policies import FifoShares, MaxMinFairness
from kubestow_lab.training.time_shares import TimeShares

ONE, TWO = np.array([1]), np.array([2])


def jobs(*each: tuple[float, int, float]) -> TrainingJobs:
    """Jobs by arrival, GPUs and run time."""
    arrived, gpus, run_times = zip(*each, strict=True)
    return TrainingJobs.of_run_times(np.array(arrived, float), np.array(gpus), np.array(run_times, float))


def times(policy: Policy, gpus: int, *each: tuple[float, int, float], round_seconds: float = 10.0) -> list[float]:
    found: list[float] = completion_times(jobs(*each), np.array([gpus]), policy, round_seconds=round_seconds).tolist()
    return found


def test_first_in_first_out_lets_no_job_pass_one_that_does_not_fit() -> None:
    # The first two run from 0 to 100; the third needs both GPUs, and the last one waits behind it.
    assert times(FirstInFirstOut(), 2, (0, 1, 100), (0, 1, 50), (0, 2, 20), (0, 1, 10)) == [100, 50, 120, 130]


def test_the_shortest_job_preempts_and_both_keep_their_progress() -> None:
    assert times(ShortestRemainingTime(), 1, (0, 1, 100), (20, 1, 30)) == [130, 30]
    # One GPU for 100 s is less service than two for 60 s, and more time.
    assert times(ShortestRemainingService(), 2, (0, 1, 100), (0, 2, 60)) == [100, 160]
    assert times(ShortestRemainingTime(), 2, (0, 1, 100), (0, 2, 60)) == [160, 60]


def test_a_job_that_has_attained_the_threshold_gives_way() -> None:
    """With 50 GPU-seconds the first job leaves the first queue; it goes on once the second has ended."""
    assert times(LeastAttainedService((50,)), 1, (0, 1, 100), (10, 1, 40)) == [140, 80]
    # On two GPUs it is there in half the time.
    assert times(LeastAttainedService((40,)), 2, (0, 2, 100), (10, 1, 10), round_seconds=20) == [110, 20]


def test_queues_are_in_order_of_arrival() -> None:
    assert times(LeastAttainedService((1000,)), 1, (0, 1, 100), (10, 1, 40)) == times(
        FirstInFirstOut(), 1, (0, 1, 100), (10, 1, 40)
    )
    with pytest.raises(ValueError, match="expected ascending thresholds above 0"):
        LeastAttainedService((3, 2))


def test_the_gittins_index_prefers_jobs_that_are_likely_to_end() -> None:
    """Half of the jobs need 10, half 1,000: one that has had 10 is certain to need more."""
    policy = GittinsIndex((5000.0,), np.array([10.0, 1000.0]))
    assert times(policy, 1, (0, 1, 1000), (0, 1, 10), round_seconds=10) == [1010, 20]


@given(
    st.lists(st.integers(1, 40), min_size=1, max_size=12),
    st.lists(st.tuples(st.integers(0, 50), st.integers(1, 50)), min_size=1, max_size=6),
)
def test_the_gittins_index_is_probability_by_expected_service(
    needs: list[int], positions: list[tuple[int, int]]
) -> None:
    attained, quantum = (np.array(column, float) for column in zip(*positions, strict=True))
    found = gittins_index(np.array(needs, float), attained, quantum)
    for index, had, more in zip(found, attained, quantum, strict=True):
        alive = [need for need in needs if need > had]
        more = min(more, max(max(needs) - had, 0))
        expected = 0.0
        if alive and more:
            service = sum(min(need - had, more) for need in alive)
            expected = sum(need <= had + more for need in alive) / service
        assert index == pytest.approx(expected)


class Checked:
    """A policy whose assignments are held to the capacity and to the jobs of the situation."""

    def __init__(self, policy: Policy) -> None:
        self.policy = policy

    def assign(self, situation: Situation) -> Rows:
        assigned = self.policy.assign(situation)
        assert assigned.shape == situation.jobs.shape
        for kind, capacity in enumerate(situation.capacity):
            on_type = assigned == kind
            assert situation.gpus[on_type].sum() <= capacity
            assert (situation.throughputs[on_type, kind] > 0).all()
        return assigned

    def ran(self, situation: Situation, assigned: Rows, seconds: float) -> None:
        assert seconds > 0
        self.policy.ran(situation, assigned, seconds)


POLICIES: dict[str, Callable[[], Policy]] = {
    "fifo": FirstInFirstOut,
    "srtf": ShortestRemainingTime,
    "las": lambda: LeastAttainedService((30.0, 90.0)),
    "gittins": lambda: GittinsIndex((30.0,), np.array([10.0, 40.0, 200.0])),
    "shares": lambda: TimeShares(MaxMinFairness(aware=False), round_seconds=7, reset_seconds=20, shuffle=Random(0)),
    "fifo shares": lambda: TimeShares(FifoShares(aware=True), round_seconds=7, reset_seconds=20),
}


@settings(max_examples=20, deadline=None)
@given(
    st.sampled_from(sorted(POLICIES)),
    st.lists(st.tuples(st.integers(0, 60), st.integers(1, 4), st.integers(1, 50)), min_size=1, max_size=6),
)
def test_every_job_ends_and_gets_what_there_is(name: str, each: list[tuple[int, int, int]]) -> None:
    drawn = jobs(*sorted(each))
    found = completion_times(drawn, np.array([4]), Checked(POLICIES[name]()), round_seconds=7)
    assert (found >= drawn.steps - 1e-6).all()
    ends = (drawn.arrived + found).max()
    assert ends >= (drawn.steps * drawn.gpus).sum() / 4 - 1e-6
    alone = completion_times(drawn, np.array([100]), Checked(POLICIES[name]()), round_seconds=7)
    assert (alone <= found.max() + 28).all()


def test_two_jobs_share_one_gpu_in_turns() -> None:
    shares = TimeShares(MaxMinFairness(aware=False), round_seconds=10, reset_seconds=1000)
    assert sorted(times(shares, 1, (0, 1, 100), (0, 1, 100))) == [190, 200]


def test_the_simulation_ends_with_the_watched_jobs() -> None:
    drawn = jobs((0, 1, 10), (0, 1, 1000))
    found = completion_times(drawn, TWO, FirstInFirstOut(), round_seconds=10, watched=np.array([0]))
    assert found[0] == 10
    assert np.isnan(found[1])
    never = completion_times(jobs((0, 2, 10)), ONE, FirstInFirstOut(), round_seconds=10)
    assert np.isnan(never).all()


def test_jobs_that_do_not_fit_are_skipped_or_end_the_list() -> None:
    gpus = np.array([2, 4, 1, 1])
    assert fill(np.arange(4), gpus, 4) == [0, 2, 3]
    assert fill(np.arange(4), gpus, 4, stops=True) == [0]
    assert fill(np.array([1, 0]), gpus, 4) == [1]
    assert WAITING < 0
