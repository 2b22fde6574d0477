"""The replicas that the usage of pods asks for."""

from __future__ import annotations

import pytest

from kubestow_devcluster.controllers.replica_calculator import (
    AverageValueTarget,
    MeasuredPod,
    MetricUnavailable,
    Target,
    Tolerance,
    UtilizationTarget,
    propose_replicas,
)


def pods(*usages: int | None, request: int = 100, ready: bool = True) -> list[MeasuredPod]:
    return [MeasuredPod(usage, request, ready) for usage in usages]


@pytest.mark.parametrize(
    ("measured", "target", "replicas"),
    [
        (pods(150, 150), UtilizationTarget(50), 6),
        (pods(10, 10, 10, 10), UtilizationTarget(50), 1),
        (pods(54, 54), UtilizationTarget(50), 2),  # within the tolerance of 10 %
        (pods(56, 56), UtilizationTarget(50), 3),
        (pods(300, 300), AverageValueTarget(200), 3),
        # A pod without a measurement counts as using nothing when replicas grow, what it requests when they shrink.
        (pods(200, 200, None), UtilizationTarget(100), 4),
        (pods(10, 10, None), UtilizationTarget(100), 2),
        (pods(40, 40, None), AverageValueTarget(100), 2),
        # Less usage with it than without would turn growing into shrinking.
        (pods(120, None, None), UtilizationTarget(100), 3),
        # Pods that are not ready count when replicas grow only.
        (pods(300) + pods(300, 300, ready=False), UtilizationTarget(100), 3),
        (pods(20, 20) + pods(300, ready=False), UtilizationTarget(100), 1),
    ],
)
def test_replicas_follow_the_ratio_of_usage_to_target(
    measured: list[MeasuredPod], target: Target, replicas: int
) -> None:
    assert propose_replicas(measured, target, len(measured), Tolerance()).replicas == replicas


def test_the_usage_is_that_of_the_measured_pods() -> None:
    usage = propose_replicas(pods(30, 50, None), UtilizationTarget(50), 3, Tolerance()).usage
    assert (usage.average, usage.utilization) == (40, 40)


def test_the_tolerance_can_differ_by_direction() -> None:
    tolerance = Tolerance(scale_down=0.5, scale_up=0.0)
    assert propose_replicas(pods(51, 51), UtilizationTarget(50), 2, tolerance).replicas == 3
    assert propose_replicas(pods(30, 30), UtilizationTarget(50), 2, tolerance).replicas == 2


@pytest.mark.parametrize(
    ("measured", "problem"),
    [
        (pods(None), "did not receive metrics for targeted pods"),
        (pods(10, ready=False), "did not receive metrics for targeted pods"),
        (pods(10, request=0), "no metrics returned matched known pods"),
    ],
)
def test_without_usage_there_is_no_proposal(measured: list[MeasuredPod], problem: str) -> None:
    with pytest.raises(MetricUnavailable, match=problem):
        propose_replicas(measured, UtilizationTarget(50), 1, Tolerance())
