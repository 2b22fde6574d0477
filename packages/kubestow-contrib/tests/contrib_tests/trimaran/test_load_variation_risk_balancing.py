"""LoadVariationRiskBalancing, with the test tables of scheduler-plugins."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import numpy as np
import pytest

from contrib_tests.watched_nodes import EveryNode, Metric, collected
from kubestow.api.core import Pod
from kubestow.framework.interface import Handle
from kubestow.testing import check_plugin, node, pod
from kubestow_contrib.trimaran.load_variation_risk_balancing import (
    LoadVariationRiskBalancing,
    LoadVariationRiskBalancingArgs,
    risk_scores,
)

NAME = "LoadVariationRiskBalancing"
NODE = node("node-1", cpu="1000m", memory="1Gi")


@pytest.mark.parametrize(
    ("subject", "metrics", "score"),
    [
        (pod(), [("CPU", "AVG", 50)], 75),
        (pod(), [("CPU", "AVG", 100)], 50),
        (pod(cpu="200m", memory="256Mi"), [("CPU", "AVG", 30), ("CPU", "STD", 16)], 67),
        (
            pod(cpu="100m", memory="512Mi"),
            [("CPU", "AVG", 40), ("CPU", "STD", 16), ("Memory", "AVG", 50), ("Memory", "STD", 10)],
            45,
        ),
        (
            pod(cpu="100m", memory="512Mi"),
            [("CPU", "AVG", 80), ("CPU", "STD", 20), ("Memory", "AVG", 25), ("Memory", "STD", 15)],
            45,
        ),
        (pod(), [], 0),
        (pod(), [("CPU", "Latest", 50)], 75),
        (pod(), [("CPU", "Latest", 90), ("CPU", "AVG", 50), ("CPU", "Latest", 90)], 75),
    ],
)
def test_scores(subject: Pod, metrics: list[Metric], score: int) -> None:
    harness = collected(LoadVariationRiskBalancing, [NODE], {"node-1": metrics})
    assert harness.scores(subject, NAME) == {"node-1": score}


@pytest.mark.parametrize(
    ("capacity", "used", "deviation", "margin", "sensitivity", "score"),
    [
        (100, 40, 36, 1, 1, 57),
        (0, 40, 36, 1, 2, 0),
        (100, -40, 36, 1, 2, 65),
        (100, 200, 36, 1, 2, 20),
        (100, 40, -36, 1, 2, 75),
        (100, 40, 120, 1, 2, 25),
        (100, 40, 36, -1, 1, 75),
        (100, 40, 36, 1, 0, 75),
    ],
)
def test_risk(capacity: int, used: float, deviation: float, margin: float, sensitivity: float, score: int) -> None:
    (found,) = risk_scores(
        np.array([capacity]), 10, np.array([used]), np.array([deviation]), margin=margin, sensitivity=sensitivity
    )
    assert round(found) == score


def test_negative_args_are_replaced_by_the_defaults() -> None:
    args = LoadVariationRiskBalancingArgs(safe_variance_margin=-5, safe_variance_sensitivity=-1)
    assert (args.margin, args.sensitivity) == (1, 1)


class Measured(LoadVariationRiskBalancing):
    """With metrics of every node."""

    def __init__(self, args: Any, handle: Handle) -> None:
        super().__init__(args, handle)
        self._collector.usage.replace(EveryNode((handle.now() - timedelta(seconds=1)).timestamp()))


def test_the_contract_is_kept() -> None:
    check_plugin(Measured)
