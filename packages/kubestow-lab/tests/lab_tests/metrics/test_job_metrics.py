"""Waits and placements of jobs are what can be counted by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from core_tests.engine.input.manifests import arrivals, cluster, node
from kubestow_lab.metrics.energy_and_cost import NodeUsage, mean_between, median_between
from kubestow_lab.metrics.job_metrics import JobRun, group_excess, job_runs, node_excess, waits_by_size
from kubestow_lab.metrics.run_metrics import metrics_of
from kubestow_lab.simulation.simulation import Simulation, SimulationOptions
from lab_tests.metrics.test_run_metrics import job

JOB = "kubestow.dev/job"


def run(name: str = "j", amount: int = 1, arrived: float = 0.0, started: float | None = 0.0, *nodes: str) -> JobRun:
    return JobRun(name, amount, arrived, started, nodes)


def test_a_job_starts_with_its_last_pod(tmp_path: Path) -> None:
    """Two pods of one core each on a node of one: the second starts when the first has ended."""
    within = cluster(tmp_path, node("a", cpu="1"))

    def member(name: str, of_job: str, **fields: Any) -> Any:
        manifest = job(name, cpu="1", **fields)
        manifest["metadata"]["annotations"][JOB] = of_job
        return manifest

    found = arrivals(
        tmp_path,
        member("x", "first", seconds=100),
        member("y", "first", seconds=50),
        member("z", "second", seconds=10),
        job("alone", seconds=1, cpu="1"),
        within=within,
    )
    result = Simulation(within, found, options=SimulationOptions(attempt_seconds=0.0, until=120)).run()
    first, second = job_runs(result, found, "cpu", JOB)
    assert (first.name, first.amount, first.nodes) == ("first", 2000, ("a", "a"))
    assert first.wait == pytest.approx(100, abs=0.1)
    assert (second.started, second.wait, second.nodes) == (None, None, ())


def test_waits_are_reported_by_class_of_size() -> None:
    runs = [run(amount=amount, arrived=10, started=10 + wait) for amount, wait in ((1, 0), (8, 4), (9, 100), (99, 7))]
    found = waits_by_size([*runs, run(amount=2, started=None)], (8, 64))
    assert list(found) == [8, 64]
    assert (found[8]["mean"], found[8]["P50"], found[64]["P99"]) == (2, 2, 100)


def test_excess_is_relative_to_the_fewest_nodes_and_groups() -> None:
    spread = run("j", 16, 0, 0, "a", "b", "c")
    assert node_excess(spread, 8) == 1.5
    assert group_excess(spread, {"a": "x", "b": "x", "c": "y"}, 64) == 2
    assert node_excess(run("j", 0, 0, 0, "a"), 8) == 1  # a job without GPUs needs a node


def test_partial_nodes_are_neither_empty_nor_full(tmp_path: Path) -> None:
    """For 50 s one node of two is half full, then it is full, and from 100 s on both are empty."""
    within = cluster(tmp_path, node("a", cpu="2"), node("b", cpu="2"))
    late = job("y", seconds=50, cpu="1")
    late["metadata"]["annotations"]["kubestow.dev/arrival"] = "50s"
    found = arrivals(tmp_path, job("x", seconds=100, cpu="1"), late, within=within)
    options = SimulationOptions(attempt_seconds=0.0, ties="name")
    packed = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "profiles": [
            {
                "plugins": {"score": {"disabled": [{"name": "*"}], "enabled": [{"name": "NodeResourcesFit"}]}},
                "pluginConfig": [
                    {
                        "name": "NodeResourcesFit",
                        "args": {"scoringStrategy": {"type": "MostAllocated", "resources": [{"name": "cpu"}]}},
                    }
                ],
            }
        ],
    }
    result = Simulation(within, found, packed, options=options).run()
    usage = NodeUsage(within, found, result)
    times, shares = usage.partial_nodes_over_time("cpu")
    assert mean_between(times, shares, 0, 100) == pytest.approx(0.25, rel=1e-3)
    assert mean_between(times, shares, 60, 90) == 0
    times, shares = usage.requested_over_time("cpu")
    assert mean_between(times, shares, 0, 100) == pytest.approx(0.375, rel=1e-3)
    assert median_between(times, shares, 0, 90) == pytest.approx(0.25)
    assert median_between(times, shares, 0, 110) == pytest.approx(0.25)
    assert median_between(times, shares, 20, 100) == pytest.approx(0.5)
    assert metrics_of(result)["partialNodes.cpu"] == 0
    until = SimulationOptions(attempt_seconds=0.0, until=20)
    half = Simulation(within, found, packed, options=until).run()
    assert metrics_of(half)["partialNodes.cpu"] == 0.5
