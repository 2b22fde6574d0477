"""LowRiskOverCommitment, with the test tables of scheduler-plugins."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import numpy as np
import pytest

from contrib_tests.watched_nodes import EveryNode, collected
from kubestow.framework.interface import Handle
from kubestow.testing import check_plugin, node, pod
from kubestow_contrib.trimaran.beta_distribution import match_moments
from kubestow_contrib.trimaran.low_risk_over_commitment import (
    Amounts,
    LowRiskOverCommitment,
    LowRiskOverCommitmentArgs,
    limit_risk,
    load_risk,
)

NAME = "LowRiskOverCommitment"


def amounts(requests: int, limits: int, capacity: int) -> Amounts:
    return Amounts(*(np.array([amount]) for amount in (requests, limits, capacity)))


@pytest.mark.parametrize(
    ("with_pod", "without_pod", "mean", "risk"),
    [
        (amounts(2000, 3000, 4000), amounts(1000, 2000, 4000), 0.8, 0.5),
        (amounts(2048, 6144, 4096), amounts(0, 0, 4096), 0.25, 0.25),
        (amounts(4000, 5000, 4000), amounts(3000, 4000, 4000), 0.8, 1.0),
        (amounts(1024, 7168, 4096), amounts(512, 6144, 4096), 0.25, 0.75),
    ],
)
def test_risk_of_a_constant_load(with_pod: Amounts, without_pod: Amounts, mean: float, risk: float) -> None:
    means, deviations = np.array([mean]), np.zeros(1)
    of_load = load_risk(without_pod, means, deviations, match_moments(means, deviations))
    assert 0.5 * limit_risk(with_pod)[0] + 0.5 * of_load[0] == risk


def test_a_varying_load_exceeds_the_requests_with_a_probability() -> None:
    means, deviations = np.array([0.5]), np.array([np.sqrt(1 / 12)])  # uniform
    distribution = match_moments(means, deviations)
    assert load_risk(amounts(300, 1000, 1000), means, deviations, distribution)[0] == pytest.approx(0.7)
    # Given that limits keep it below 60 %, it is below 30 % in half of the cases.
    assert load_risk(amounts(300, 600, 1000), means, deviations, distribution)[0] == pytest.approx(0.5)
    assert load_risk(amounts(0, 0, 1000), means, deviations, distribution)[0] == 0


def test_best_effort_pods_score_0() -> None:
    harness = collected(LowRiskOverCommitment, [node("node-1")], {"node-1": [("CPU", "AVG", 20)]})
    assert harness.scores(pod(), NAME) == {"node-1": 0}


def test_the_pods_on_a_node_count_with_their_limits() -> None:
    resources = {"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"cpu": "6", "memory": "1Gi"}}
    bursting = pod("bursting", node="a", spec={"containers": [{"name": "c", "resources": resources}]})
    metrics = [("CPU", "AVG", 10.0), ("Memory", "AVG", 5.0)]
    nodes = [node(name, cpu="4", memory="16Gi") for name in ("a", "b")]
    harness = collected(LowRiskOverCommitment, nodes, {"a": metrics, "b": metrics}, pods=[bursting])
    # On a: limits of 7 cores, requests of 2, so 3 of 5 burstable cores exceed the capacity. On b, which is empty, the
    # probability is that of a load without requests, 0 of 0.
    assert harness.scores(pod(cpu="1", memory="1Gi"), NAME) == {"a": 70, "b": 100}


def test_values_out_of_range_are_replaced_by_the_defaults() -> None:
    args = LowRiskOverCommitmentArgs(smoothing_window_size=-5, risk_limit_weights={"cpu": 2, "memory": 0.1})
    assert (args.window, args.weight("cpu"), args.weight("memory")) == (5, 0.5, 0.1)


class Measured(LowRiskOverCommitment):
    """With metrics of every node."""

    def __init__(self, args: Any, handle: Handle) -> None:
        super().__init__(args, handle)
        self._collector.usage.replace(EveryNode((handle.now() - timedelta(seconds=1)).timestamp()))


def test_the_contract_is_kept() -> None:
    check_plugin(Measured)
