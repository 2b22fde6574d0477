"""The planted faults can be planted, and some that one or two seeds find are found."""

from __future__ import annotations

import re

import pytest
from click.testing import CliRunner

from kubestow_lab.fault_simulation.simulation import simulate
from tests.fault_simulation.find_planted_faults import main
from tests.fault_simulation.planted_faults import FAULTS, find

QUICK = "a changed node keeps its old state"
#: Faults that only one rule, or one change after the faults of a run, can show, each by the first seed.
SHOWN_AT_ONCE = [
    "of several events of one update only the first counts",
    "pods behind one whose binding failed are not requeued",
    "a watch is resumed where it began",
    "a backoff takes a hundredth of a second",
    "a pod that joins a gang requeues no other",
    "events during an attempt are not kept",
    "a watch that has expired is not listed anew",
    "a lease that has expired counts as held",
    "the lease is released before work in progress has ended",
    "a written claim is not known until the watch shows it",
]


def test_there_are_enough_faults_each_with_a_name_of_its_own() -> None:
    assert len({fault.name for fault in FAULTS}) == len(FAULTS) >= 100


def test_planted_faults_are_removed() -> None:
    before = simulate(8).fingerprint
    for fault in FAULTS:
        with fault.plant():
            pass
    assert simulate(8).fingerprint == before


@pytest.mark.parametrize("name", SHOWN_AT_ONCE)
def test_the_first_seed_finds_a_fault(name: str) -> None:
    (number,) = (number for number, fault in enumerate(FAULTS) if fault.name == name)
    assert find(number, limit=1).seeds == 1


def test_the_command_says_how_many_seeds_found_a_fault() -> None:
    result = CliRunner().invoke(main, ["--only", QUICK, "--limit", "50", "--jobs", "1"])
    assert result.exit_code == 0
    assert re.search(rf"\| {QUICK} \|  \| \d+ \| ", result.output)


def test_the_command_fails_when_a_fault_is_not_found() -> None:
    result = CliRunner().invoke(main, ["--only", QUICK, "--limit", "0", "--jobs", "1"])
    assert result.exit_code == 1
    assert f"| {QUICK} |  | not found |" in result.output
