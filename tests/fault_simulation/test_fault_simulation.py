"""A few seeds of the simulation; ``make simulate`` runs more."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from kubestow_lab.fault_simulation.scenario import Part
from kubestow_lab.fault_simulation.simulation import simulate


@pytest.mark.parametrize("seed", range(1, 36))
def test_no_invariant_is_violated(seed: int) -> None:
    assert simulate(seed).violations == []


def test_a_gang_that_shares_claims_backs_off_while_its_claims_cannot_be_written() -> None:
    assert simulate(1_500_826).violations == []


def test_a_stall_leaves_no_time_to_notice_what_was_delivered_just_before_it() -> None:
    assert simulate(4485).violations == []


@pytest.mark.parametrize("seed", range(1001, 1021))
def test_no_invariant_is_violated_by_outages_of_a_server_with_a_wrong_clock(seed: int) -> None:
    assert simulate(seed, required=[Part.OUTAGES, Part.SERVER_CLOCK]).violations == []


@pytest.mark.parametrize("seed", range(100, 113))
def test_no_invariant_is_violated_by_stalls_of_a_leader(seed: int) -> None:
    assert simulate(seed, required=[Part.STALLS, Part.ELECTION]).violations == []


@pytest.mark.parametrize("seed", range(202, 207))
def test_no_invariant_is_violated_by_searches_for_gangs(seed: int) -> None:
    assert simulate(seed, required=[Part.GANG_SEARCH]).violations == []


@pytest.mark.parametrize("seed", range(2, 7))
def test_no_invariant_is_violated_by_schedulers_that_share_partitions(seed: int) -> None:
    assert simulate(seed, required=[Part.PARTITIONS]).violations == []


def test_searches_for_gangs_are_a_part_of_the_run_that_a_seed_reproduces() -> None:
    first, second = (simulate(203, required=[Part.GANG_SEARCH]) for _ in range(2))
    assert first.fingerprint == second.fingerprint
    assert any("computes" in line for line in first.trace)


def test_a_seed_reproduces_a_run_exactly() -> None:
    first, second = simulate(7), simulate(7)
    assert first.fingerprint == second.fingerprint
    assert first.events > 500
    assert first.marks == second.marks != {}


def test_a_run_does_not_depend_on_string_hashing() -> None:
    program = "from kubestow_lab.fault_simulation.simulation import simulate; print(simulate(8).fingerprint)"
    fingerprints = {
        subprocess.run(
            [sys.executable, "-c", program],
            env=os.environ | {"PYTHONHASHSEED": number},
            capture_output=True,
            check=True,
            text=True,
        ).stdout
        for number in ("1", "2")
    }
    assert len(fingerprints) == 1


def test_different_seeds_give_different_runs() -> None:
    assert simulate(1).fingerprint != simulate(2).fingerprint
