"""Deserved amounts: properties of fair shares, agreement with Volcano's rounds, and examples from its documents."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from kubestow_contrib.shares import TOLERANCE, dominant_share, water_fill

Amounts = NDArray[np.float64]


def rounds(total: Amounts, weights: Amounts, request: Amounts, capability: Amounts) -> Amounts:
    """Deserved amounts as Volcano computes them without guarantees: round by round, what remains by weight."""
    deserved = np.zeros_like(request)
    remaining, met = total.astype(float), np.zeros(len(weights), np.bool_)
    while not met.all() and (remaining > 1e-9).any():
        before = deserved.copy()
        share = remaining * weights[:, np.newaxis] / weights[~met].sum()
        raised = np.minimum(np.minimum(deserved + share, capability), request)
        deserved[~met] = raised[~met]
        met |= (request <= deserved).all(axis=1) | (deserved == before).all(axis=1)
        remaining = np.maximum(remaining - (deserved - before).sum(axis=0), 0)
        if np.array_equal(before, deserved):
            break
    return deserved


@st.composite
def clusters(draw: st.DrawFn) -> tuple[Amounts, Amounts, Amounts, Amounts, Amounts]:
    """A total, and weights, guarantees, requests and capabilities of queues, with one to three resources."""
    queues, resources = draw(st.integers(1, 6)), draw(st.integers(1, 3))

    def amounts(low: int, high: int, *shape: int) -> Amounts:
        count = int(np.prod(shape))
        return np.array(draw(st.lists(st.integers(low, high), min_size=count, max_size=count)), float).reshape(shape)

    total, weights = amounts(0, 200, resources), amounts(1, 9, queues)
    request, capability = amounts(0, 120, queues, resources), amounts(0, 150, queues, resources)
    guarantee = np.minimum(amounts(0, 60, queues, resources), capability)
    return total, weights, guarantee, request, capability


@given(clusters())
def test_no_queue_is_above_its_share_while_another_starves_below_it(case: tuple[Amounts, ...]) -> None:
    total, weights, guarantee, request, capability = case
    upper = np.maximum(np.minimum(request, capability), guarantee)
    deserved = water_fill(total, weights, guarantee, upper)
    assert (deserved >= guarantee - TOLERANCE).all()
    assert (deserved <= upper + TOLERANCE).all()
    available = np.maximum(total, guarantee.sum(axis=0))
    np.testing.assert_allclose(deserved.sum(axis=0), np.minimum(available, upper.sum(axis=0)), atol=TOLERANCE)
    level = deserved / weights[:, np.newaxis]
    starving, above_guarantee = deserved < upper - TOLERANCE, deserved > guarantee + TOLERANCE
    for resource in range(len(total)):
        for starved in np.flatnonzero(starving[:, resource]):
            rich = above_guarantee[:, resource] & (level[:, resource] > level[starved, resource] + TOLERANCE)
            assert not rich.any()


@given(clusters())
def test_it_agrees_with_volcano_without_guarantees(case: tuple[Amounts, ...]) -> None:
    total, weights, _, request, capability = case
    none = np.zeros_like(request)
    found = water_fill(total, weights, none, np.minimum(request, capability))
    np.testing.assert_allclose(found, rounds(total, weights, request, capability), atol=1e-3)


@pytest.mark.parametrize(
    ("total", "weights", "lower", "upper", "deserved"),
    [
        # Weights 1 and 3 on four CPUs: one and three of them.
        (4, [1, 3], [0, 0], [4, 4], [1, 3]),
        # What a queue does not ask for goes to the other.
        (4, [1, 3], [0, 0], [4, 1], [3, 1]),
        # A third queue with the weight of the others takes a third of the cluster.
        (6, [1, 1, 1], [0, 0, 0], [6, 6, 6], [2, 2, 2]),
        # A capability caps the share, and the rest is divided.
        (9, [1, 1, 1], [0, 0, 0], [1, 9, 9], [1, 4, 4]),
        # A guarantee comes first, and nothing is given twice.
        (100, [1, 1, 1], [50, 0, 0], [100, 50, 50], [50, 25, 25]),
        (10, [1, 1], [8, 8], [8, 8], [8, 8]),
        (0, [1, 2], [0, 0], [5, 5], [0, 0]),
    ],
)
def test_examples(
    total: float, weights: list[float], lower: list[float], upper: list[float], deserved: list[float]
) -> None:
    column = [np.array(each, float)[:, np.newaxis] for each in (lower, upper)]
    found = water_fill(np.array([total], float), np.array(weights, float), *column)
    np.testing.assert_allclose(found[:, 0], deserved)


def test_no_queue_deserves_anything_without_queues() -> None:
    assert water_fill(np.ones(2), np.empty(0), np.empty((0, 2)), np.empty((0, 2))).shape == (0, 2)


def test_dominant_share() -> None:
    assert dominant_share({"cpu": 2, "memory": 1}, {"cpu": 8, "memory": 2}) == 0.5
    assert dominant_share({}, {"cpu": 8}) == 0
    assert dominant_share({"cpu": 1}, {"cpu": 0}) == 1
    assert dominant_share({"gpu": 1}, {"cpu": 8}) == 0
