"""Mutated scenarios of recorded cases."""

from __future__ import annotations

from copy import deepcopy
from pathlib import Path
from random import Random

import pytest

from kubestow_lab.differential.scenarios import Mutator, Scenario, scenarios_of

CORPUS = Path(__file__).parents[5] / "tests/conformance/corpus"


@pytest.fixture(scope="module")
def recorded() -> list[Scenario]:
    return scenarios_of([CORPUS / "schedulinggates.jsonl.gz"])


def test_recorded_scenarios_have_one_pending_pod_and_pods_on_nodes(recorded: list[Scenario]) -> None:
    assert len(recorded) > 100
    for scenario in recorded:
        assert "nodeName" not in scenario.pod["spec"] and "schedulingGates" not in scenario.pod["spec"]
        assert all(pod["spec"]["nodeName"] for pod in scenario.cluster["pods"])


def test_a_seed_has_one_sequence_of_scenarios(recorded: list[Scenario]) -> None:
    first, second = [[Mutator(recorded, Random(5)).draw() for _ in range(30)] for _ in range(2)]
    assert first == second


def test_mutations_change_scenarios_and_not_what_they_come_from(recorded: list[Scenario]) -> None:
    before = deepcopy(recorded)
    mutator = Mutator(recorded, Random(1))
    drawn = [mutator.draw() for _ in range(100)]
    assert recorded == before
    by_name = {scenario.origin: scenario.cluster for scenario in recorded}
    changed = [scenario for scenario in drawn if scenario.cluster != by_name[scenario.origin]]
    assert len(changed) > 50
    assert all(scenario.cluster["nodes"] for scenario in drawn)
