"""Fair shares: usage that decays as in Kueue, and the division of KAI's scheduler, with the cases of its own tests."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kubestow_contrib.queues.configuration import Amount, JobQueuesArgs, QueueArgs, read_queues
from kubestow_contrib.queues.fair_share import Claimant, DecayedUsage, QueueShares, divide
from kubestow_contrib.shares import water_fill


def claimant(requested: float, **fields: Any) -> Claimant:
    return Claimant(requested, **fields)


def quota(requested: float, deserved: float, weight: float, **fields: Any) -> Claimant:
    return Claimant(requested, guaranteed=deserved, weight=weight, **fields)


@pytest.mark.parametrize(
    ("total", "claimants", "shares", "left"),
    [
        (3, [quota(2, 3, 0)], [2], 1),
        (1, [quota(2, 3, 0)], [2], 0),  # what is deserved is given even beyond the total
        (7, [quota(5, 3, 0)], [3], 4),
        (2, [quota(2, 1.5, 0)], [1.5], 0.5),
        (15, [quota(6, 2, 2), quota(6, 2, 2)], [6, 6], 3),
        (8, [quota(6, 2, 1), quota(6, 2, 3)], [3, 5], 0),
        (12, [quota(6, 2, 2, limit=5), quota(6, 2, 2)], [5, 6], 1),
        (11, [quota(10, 2, 1), quota(10, 2, 4)], [3, 8], 0),  # the larger remainder of 1.4 and 5.6
        (11, [quota(6, 2, 2), quota(6, 2, 2)], [6, 5], 0),  # of equal remainders, the first
        (4, [quota(6, 2, 2, priority=1), quota(6, 2, 2, priority=2)], [2, 2], 0),
        (6, [quota(6, 2, 100, priority=1), quota(6, 2, 1, priority=2)], [2, 4], 0),
        (5, [quota(5, 2, 2, priority=2), quota(5, 2, 2, priority=2), quota(0, 1, 2, priority=1)], [3, 2, 0], 0),
        (6, [quota(5, 1, 1, priority=2), quota(5, 1, 1, priority=2), quota(5, 1, 1, priority=1)], [3, 2, 1], 0),
        (10_000, [quota(10_000, 5_000, 5_000), quota(5_000, 0, 0)], [10_000, 0], 0),
        (10_000, [quota(7_000, 5_000, 5), quota(2_000, 5_000, 5), quota(2_000, 5_000, 5)], [6_000, 2_000, 2_000], 0),
        (1_000, [quota(5_000, 250, 1), quota(5_000, 150, 2, limit=400)], [600, 400], 0),
        (9_999, [quota(10_000, 0, 6), quota(10_000, 0, 2), quota(10_000, 0, 1)], [6_666, 2_222, 1_111], 0),
        (45, [quota(32.55, 12, 12), quota(9.5, 7, 7), quota(1.65, 2, 2, limit=2)], [32.55, 9.5, 1.65], 1.3),
        (5, [quota(3, 2, 2), quota(3, 2, 2)], [3, 2], 0),
    ],
)  # fmt: skip
def test_the_division_is_that_of_kai(total: float, claimants: list[Claimant], shares: list[float], left: float) -> None:
    assert divide(total, claimants) == pytest.approx(left)
    assert [each.share for each in claimants] == pytest.approx(shares)


@pytest.mark.parametrize(
    ("usage", "factor", "shares"),
    [
        ((0.0, 0.0), 1.0, [50, 50]),
        ((0.5, 0.5), 1.0, [50, 50]),
        # w = 1/2 each, k = 1: max(0, 1/2 + (1/2 - 3/4)) = 1/4 and 1/2 + (1/2 - 1/4) = 3/4
        ((0.75, 0.25), 1.0, [25, 75]),
        # k = 2: max(0, 1/2 + 2 (1/2 - 3/4)) = 0 and 1
        ((0.75, 0.25), 2.0, [0, 100]),
        ((1.0, 0.0), 1.0, [0, 100]),
        ((1.0, 0.0), 0.5, [25, 75]),
    ],
)
def test_past_usage_lowers_weights(usage: tuple[float, float], factor: float, shares: list[float]) -> None:
    claimants = [claimant(1000, usage=used) for used in usage]
    divide(100, claimants, usage_factor=factor)
    assert [each.share for each in claimants] == pytest.approx(shares)


@st.composite
def divisions(draw: st.DrawFn) -> tuple[int, list[Claimant]]:
    claimants = draw(
        st.lists(
            st.builds(
                Claimant,
                requested=st.integers(0, 50),
                guaranteed=st.integers(0, 10),
                limit=st.one_of(st.integers(10, 60), st.just(math.inf)),
                weight=st.integers(1, 5),
                priority=st.integers(0, 2),
                usage=st.sampled_from([0.0, 0.1, 0.5]),
            ),
            min_size=1,
            max_size=5,
        )
    )
    return draw(st.integers(0, 150)), claimants


@given(divisions(), st.sampled_from([0.0, 0.5, 1.0]))
def test_a_division_gives_all_that_is_wanted_or_all_there_is(case: tuple[int, list[Claimant]], factor: float) -> None:
    total, claimants = case
    left = divide(total, claimants, usage_factor=factor)
    for each in claimants:
        assert each.share >= min(each.guaranteed, each.requested, each.limit)
        assert each.share <= min(each.requested, each.limit)
    given = sum(each.share for each in claimants)
    guaranteed = sum(min(each.guaranteed, each.requested, each.limit) for each in claimants)
    assert given == pytest.approx(max(total - left, guaranteed))
    if left > 0 and not factor:
        assert all(each.lacking == 0 for each in claimants)
    # Nothing goes to a lower priority while one of higher priority, whose weight is not 0, lacks something.
    if not factor:
        for each in claimants:
            if each.share > min(each.guaranteed, each.requested, each.limit):
                assert all(other.lacking == 0 for other in claimants if other.priority > each.priority)


@given(divisions())
def test_without_guarantees_and_usage_shares_are_those_of_water_filling(case: tuple[int, list[Claimant]]) -> None:
    total, claimants = case
    claimants = [Claimant(each.requested, limit=each.limit, weight=each.weight) for each in claimants]
    divide(total, claimants)
    upper = np.array([[min(each.requested, each.limit)] for each in claimants], float)
    weights = np.array([each.weight for each in claimants], float)
    filled = water_fill(np.array([total], float), weights, np.zeros_like(upper), upper)
    # Both differ by what rounding to whole units moves in a round, of which there are at most as many as claimants.
    assert [each.share for each in claimants] == pytest.approx(filled[:, 0], abs=len(claimants) ** 2)


# -- decay -----------------------------------------------------------------------------------------------------------


def test_usage_halves_with_every_half_life() -> None:
    usage = DecayedUsage(half_life=60)
    usage.observe(0, {"cpu": 8})
    assert usage.amounts == {"cpu": 0}
    usage.observe(60, {"cpu": 8})
    assert usage.amounts == {"cpu": pytest.approx(4)}
    usage.observe(120, {"cpu": 8})
    assert usage.amounts == {"cpu": pytest.approx(6)}
    usage.observe(240, {})
    assert usage.amounts == {"cpu": pytest.approx(1.5)}


def test_without_a_half_life_only_the_last_observation_counts() -> None:
    usage = DecayedUsage(half_life=0)
    usage.observe(0, {"cpu": 8})
    usage.observe(1, {"memory": 2})
    assert usage.amounts == {"memory": 2}


@settings(max_examples=50)
@given(st.lists(st.floats(0, 1000), min_size=1, max_size=8), st.floats(1, 1000))
def test_it_does_not_matter_how_often_usage_is_observed(times: list[float], half_life: float) -> None:
    often, seldom = DecayedUsage(half_life), DecayedUsage(half_life)
    for usage in (often, seldom):
        usage.observe(0, {})
    for time in sorted(times):
        often.observe(time, {"cpu": 5})
    seldom.observe(max(times), {"cpu": 5})
    assert often.amounts["cpu"] == pytest.approx(seldom.amounts["cpu"], abs=1e-9)


# -- the hierarchy ---------------------------------------------------------------------------------------------------


def test_shares_of_queues_are_parts_of_their_parents_shares() -> None:
    queues = read_queues(
        JobQueuesArgs(
            queues=[
                QueueArgs("a", weight=3),
                QueueArgs("b"),
                QueueArgs("a1", parent="a"),
                QueueArgs("a2", parent="a", weight=2),
            ]
        )
    )
    waiting = {name: {"cpu": 100.0} for name in ("a1", "a2", "b")}
    shares = QueueShares(queues, {"cpu": 12.0}, allocated={}, waiting=waiting, usage={})
    assert {name: fair["cpu"] for name, fair in shares.fair.items()} == {"a": 9, "b": 3, "a1": 3, "a2": 6}
    order = []
    for _ in range(12):
        leaf = shares.next_leaf(waiting)
        order.append(leaf)
        shares.add(leaf, {"cpu": 1.0})
    assert {leaf: order.count(leaf) for leaf in waiting} == {"a1": 3, "a2": 6, "b": 3}


def test_queues_below_their_guarantee_come_first_and_those_that_used_most_come_last() -> None:
    queues = read_queues(
        JobQueuesArgs(
            queues=[
                QueueArgs("greedy"),
                QueueArgs("plain"),
                QueueArgs("urgent", priority=1),
                QueueArgs("guaranteed", priority=-1, amounts=[Amount(guaranteed={"cpu": "1"})]),
            ]
        )
    )
    waiting = {name: {"cpu": 400.0} for name in queues}
    usage = {"greedy": {"cpu": 1.0}}
    shares = QueueShares(queues, {"cpu": 2000.0}, allocated={}, waiting=waiting, usage=usage, usage_factor=1.0)
    order = []
    while waiting:
        order.append(shares.next_leaf(waiting))
        del waiting[order[-1]]
    assert order == ["guaranteed", "urgent", "plain", "greedy"]
