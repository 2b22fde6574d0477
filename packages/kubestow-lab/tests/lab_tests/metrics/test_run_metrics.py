"""The metrics of a run are what their definitions say, on runs that are small enough to count by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from core_tests.engine.input.manifests import arrivals, cluster, node, pod
from kubestow_lab.metrics.run_metrics import (
    METRICS,
    RESOURCE_METRICS,
    jain_index,
    metric_of,
    metrics_of,
    metrics_over_time,
    quantiles_over_time,
)
from kubestow_lab.simulation.simulation import Simulation, SimulationOptions
from kubestow_lab.simulation.simulation_result import SimulationResult

Object = dict[str, Any]


def job(name: str, *, seconds: int, namespace: str = "default", **fields: Any) -> Object:
    """A pod that runs for some seconds."""
    manifest = pod(name, **fields)
    manifest["metadata"] |= {"namespace": namespace, "annotations": {"kubestow.dev/duration": f"{seconds}s"}}
    return manifest


def simulated(folder: Path, *pods: Object) -> SimulationResult:
    """On one node with one core."""
    within = cluster(folder, node("a", cpu="1"))
    found = arrivals(folder, *pods, within=within)
    return Simulation(within, found, options=SimulationOptions(attempt_seconds=0.0, ties="name")).run()


def test_a_queue_of_two_pods(tmp_path: Path) -> None:
    values = metrics_of(simulated(tmp_path, job("a", seconds=100, cpu="1"), job("b", seconds=100, cpu="1")))
    assert values["makespan"] == pytest.approx(200, abs=2)
    assert values["meanSlowdown"] == pytest.approx(1.5, abs=0.02)
    assert values["slowdownP99"] == pytest.approx(1.99, abs=0.02)
    assert values["waitP50"] == pytest.approx(50, abs=1)
    assert values["maxWait"] == pytest.approx(100, abs=2)
    assert values["jain"] == 1.0  # a single namespace


def test_a_short_run_counts_as_ten_seconds(tmp_path: Path) -> None:
    values = metrics_of(simulated(tmp_path, job("a", seconds=20, cpu="1"), job("b", seconds=1, cpu="1")))
    assert values["slowdownP99"] == pytest.approx(2.1, abs=0.15)  # 21 s in the system / 10 s, not / 1 s


def test_unequal_progress_of_namespaces(tmp_path: Path) -> None:
    pods = (job("a", seconds=100, cpu="1"), job("b", seconds=100, cpu="1", namespace="other"))
    values = metrics_of(simulated(tmp_path, *pods))
    assert values["jain"] == pytest.approx(1.5**2 / (2 * 1.25), abs=0.01)  # progress 1 and 1/2


def test_without_completed_pods_there_is_no_makespan(tmp_path: Path) -> None:
    values = metrics_of(simulated(tmp_path, pod("forever")))
    assert (values["makespan"], values["meanSlowdown"], values["jain"]) == (0.0, 0.0, 1.0)


def test_every_metric_has_a_definition(tmp_path: Path) -> None:
    values = metrics_of(simulated(tmp_path, pod("a")))
    defined = METRICS.keys() | RESOURCE_METRICS.keys()
    assert {name.partition(".")[0] for name in values} == defined - {"lost", "won", "moved", "changed"}
    assert metric_of("utilisation.cpu").name == "utilisation"


def test_columns_over_time_end_with_the_values_of_the_end(tmp_path: Path) -> None:
    result = simulated(tmp_path, job("a", seconds=100, cpu="1"), pod("b", cpu="500m"))
    columns, values = metrics_over_time(result), metrics_of(result)
    assert columns["utilisation.cpu"][-1] == values["utilisation.cpu"] == 0.5
    assert {len(column) for column in columns.values()} == {len(result.timeline)}


def test_quantiles_weight_values_with_their_time() -> None:
    columns = {"time": [0.0, 90.0, 100.0], "power": [1.0, 5.0, 9.0]}  # 1 for 90 s, then 5 for 10 s
    assert quantiles_over_time(columns, (0.5, 0.9, 0.95)) == {"quantile": [0.5, 0.9, 0.95], "power": [1.0, 1.0, 5.0]}
    assert quantiles_over_time({"time": [3.0], "power": [2.0]}, (0.5,)) == {"quantile": [0.5], "power": [2.0]}


@given(st.lists(st.floats(0.001, 1000), min_size=1, max_size=20))
def test_jain_index_is_between_equal_and_all_for_one(values: list[float]) -> None:
    index = jain_index(values)
    assert 1 / len(values) - 1e-9 <= index <= 1 + 1e-9
    assert index == pytest.approx(np.mean(values) ** 2 / np.mean(np.square(values)))
