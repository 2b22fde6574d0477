"""How far and how fast replicas follow recommendations."""

from __future__ import annotations

from typing import Any

import pytest

from kubestow_devcluster.controllers.replica_calculator import Limits, ScalingHistory


def behavior(up: dict[str, Any] | None = None, down: dict[str, Any] | None = None) -> dict[str, Any]:
    fast = {"selectPolicy": "Max", "policies": [{"type": "Percent", "value": 1000, "periodSeconds": 15}]}
    slow = {"selectPolicy": "Max", "policies": [{"type": "Percent", "value": 100, "periodSeconds": 15}]}
    return {"scaleUp": fast | (up or {}), "scaleDown": slow | {"stabilizationWindowSeconds": 0} | (down or {})}


def pods(value: int, period: int = 60) -> dict[str, Any]:
    return {"type": "Pods", "value": value, "periodSeconds": period}


def percent(value: int, period: int = 60) -> dict[str, Any]:
    return {"type": "Percent", "value": value, "periodSeconds": period}


@pytest.mark.parametrize(
    ("current", "recommended", "replicas", "reason"),
    [
        (2, 3, 3, "DesiredWithinRange"),
        (1, 9, 4, "ScaleUpLimit"),
        (5, 100, 10, "ScaleUpLimit"),
        (15, 40, 20, "TooManyReplicas"),
        (5, 1, 2, "TooFewReplicas"),
    ],
)
def test_without_a_behavior_replicas_at_most_double(current: int, recommended: int, replicas: int, reason: str) -> None:
    history = ScalingHistory(0, recommended)
    decision = history.decide(1, current, recommended, Limits(2, 20, None))
    assert (decision.replicas, decision.limited[0]) == (replicas, reason)
    assert decision.is_limited == (replicas != recommended)


def test_scaling_down_waits_until_no_recommendation_of_five_minutes_is_higher() -> None:
    history, limits = ScalingHistory(0, 8), Limits(1, 20, None)
    first = history.decide(15, 8, 2, limits)
    assert (first.replicas, first.able[0]) == (8, "ScaleDownStabilized")
    assert history.decide(299, 8, 2, limits).replicas == 8
    last = history.decide(301, 8, 2, limits)
    assert (last.replicas, last.able[0]) == (2, "ReadyForNewScale")


def test_scaling_up_can_be_stabilized() -> None:
    history = ScalingHistory(0, 2)
    limits = Limits(1, 20, behavior(up={"stabilizationWindowSeconds": 60}))
    decision = history.decide(30, 2, 6, limits)
    assert (decision.replicas, decision.able[0]) == (2, "ScaleUpStabilized")
    assert history.decide(61, 2, 6, limits).replicas == 6


@pytest.mark.parametrize(
    ("rules", "replicas"),
    [
        ({"policies": [pods(4), percent(10)]}, 14),
        ({"policies": [pods(4), percent(10)], "selectPolicy": "Min"}, 11),
        ({"policies": [percent(15)]}, 12),
        ({"policies": [pods(4)], "selectPolicy": "Disabled"}, 10),
    ],
)
def test_policies_limit_how_fast_replicas_grow(rules: dict[str, Any], replicas: int) -> None:
    decision = ScalingHistory(0, 10).decide(1, 10, 50, Limits(1, 100, behavior(up=rules)))
    assert (decision.replicas, decision.limited[0]) == (replicas, "ScaleUpLimit")


@pytest.mark.parametrize(
    ("rules", "replicas"),
    [
        ({"policies": [pods(4), percent(10)]}, 6),
        ({"policies": [pods(4), percent(10)], "selectPolicy": "Min"}, 9),
        ({"policies": [pods(4)], "selectPolicy": "Disabled"}, 10),
    ],
)
def test_policies_limit_how_fast_replicas_shrink(rules: dict[str, Any], replicas: int) -> None:
    decision = ScalingHistory(0, 1).decide(1, 10, 1, Limits(1, 100, behavior(down=rules)))
    assert (decision.replicas, decision.limited[0]) == (replicas, "ScaleDownLimit")


def test_changes_count_within_the_period_of_a_policy() -> None:
    history, limits = ScalingHistory(0, 10), Limits(1, 100, behavior(up={"policies": [pods(4)]}))
    history.record_change(1, 3)
    assert history.decide(30, 13, 50, limits).replicas == 14
    assert history.decide(62, 13, 50, limits).replicas == 17


def test_a_history_is_bounded() -> None:
    history, limits = ScalingHistory(0, 1), Limits(1, 10, None)
    for time in range(0, 100_000, 15):
        history.record_change(time, 1)
        history.decide(time, 1, 1, limits)
    assert len(history._changes) <= 121
    assert len(history._recommendations) <= 241
