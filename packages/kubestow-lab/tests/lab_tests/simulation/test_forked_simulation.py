"""A fork of a simulation goes on as one built anew would, and nothing that it does changes the original."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from benchmarks.random_workloads import RandomWorkload, assert_same

from kubestow.errors import KubestowError
from kubestow.testing import builders
from kubestow_lab import ForkedSimulation
from kubestow_lab.simulation.arrivals import Arrival, Arrivals
from kubestow_lab.simulation.forked_simulation import NotForkable
from kubestow_lab.simulation.outcomes import OutcomeState, PodOutcome
from kubestow_lab.simulation.simulation_result import SimulationResult


def count_placed(result: SimulationResult) -> int:
    return sum(outcome.state.is_placed for outcome in result.outcomes)


def placements(result: SimulationResult) -> dict[str, PodOutcome]:
    return {outcome.key: outcome for outcome in result.outcomes}


def rounded(result: SimulationResult) -> list[Any]:
    """The rows of the pods by name; times are rounded in it."""
    return sorted(result.as_json()["pods"], key=lambda row: str(row["name"]))


@pytest.mark.parametrize("seed", [2, 5, 9])
def test_forks_go_on_as_simulations_built_anew_and_leave_the_original_alone(seed: int) -> None:
    workload = RandomWorkload(seed)
    workload.options = replace(workload.options, until=None)
    simulation = workload.simulation()
    more = [Arrival(builders.pod(f"more-{n}", cpu="500m", priority=50), 40.0 + n, None, {}) for n in range(5)]
    with ForkedSimulation(simulation) as original:
        reseeded = original.fork(seed=77)
        original.run_until(20.0)
        with original.fork() as fork, original.fork() as other:
            expected = simulation.run()
            other.arrive(more)
            with other.fork() as copied:
                copied.run_until(41.5)
                arrived = copied.result()
            assert_same(fork.result(), expected)
            assert other.evaluate(count_placed) == count_placed(arrived)
        assert_same(original.result(), expected)
        assert_same(reseeded.result(), replace(simulation, options=replace(simulation.options, seed=77)).run())
    merged = sorted([*workload.arrivals.pods, *more], key=lambda arrival: arrival.time)
    assert rounded(arrived) == rounded(replace(simulation, arrivals=Arrivals(merged)).run())


def test_pods_that_arrive_in_a_fork_have_not_arrived_in_the_original() -> None:
    workload = RandomWorkload(1)
    with ForkedSimulation(workload.simulation()) as original:
        with original.fork() as fork:
            fork.arrive([Arrival(builders.pod("late", cpu="10m"), 0.0, None, {})])
            outcome = placements(fork.result())["default/late"]
        assert outcome.state is OutcomeState.RUNNING
        assert "default/late" not in placements(original.result())
        with pytest.raises(KubestowError, match="ended"):
            original.result()
    with pytest.raises(KubestowError, match="closed"):
        original.run_until(1.0)


def test_a_simulation_that_needs_an_event_loop_cannot_be_forked() -> None:
    workload = RandomWorkload(1)
    workload.version = "1.31"
    with pytest.raises(NotForkable, match="SchedulerAsyncPreemption"):
        ForkedSimulation(workload.simulation())
