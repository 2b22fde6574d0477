"""A run on a cluster that another scheduler has listed is the run on the cluster itself."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from benchmarks.random_workloads import KIND, RandomWorkload, assert_same

from kubestow.api.meta import ObjectMeta
from kubestow.api.policy import PodDisruptionBudget
from kubestow.cluster.nodes.views import Nodes
from kubestow.cluster.pods.shapes import PodInfo
from kubestow.engine.input.cluster_objects import ClusterObjects
from kubestow.framework.cycle_state import CycleState
from kubestow.framework.interface import ScorePlugin, Scores
from kubestow.testing import builders
from kubestow_lab.simulation.arrivals import Arrivals
from kubestow_lab.simulation.simulation import Simulation

_PACKED = {
    "pluginConfig": [{"name": "NodeResourcesFit", "args": {"scoringStrategy": {"type": "MostAllocated"}}}],
    "plugins": {"multiPoint": {"disabled": [{"name": "ImageLocality"}]}},
}


class Last(ScorePlugin):
    """Prefers nodes that joined late."""

    name = "Last"

    def score(self, state: CycleState, pod: PodInfo, nodes: Nodes) -> Scores:
        return np.minimum(nodes.row_numbers, 100)


@pytest.mark.parametrize("seed", range(8))
def test_a_run_on_a_loaded_cluster_is_the_run_on_the_cluster(seed: int) -> None:
    simulation = RandomWorkload(seed).simulation()
    other: Any = KIND | {"profiles": [_PACKED]}
    loaded = Simulation(simulation.cluster, configuration=other, gates=simulation.gates).load_cluster()
    assert loaded is not None
    found = simulation.run(loaded=loaded)
    assert found.api is loaded.api
    assert_same(found, simulation.run())


def test_a_plugin_that_may_have_followed_the_list_has_the_cluster_listed_again() -> None:
    workload = RandomWorkload(3)
    workload.plugins, workload.configuration = [Last], KIND | {"profiles": [{"plugins": _enabled("Last")}]}
    simulation = workload.simulation()
    assert simulation.load_cluster() is None
    loaded = replace(simulation, configuration=None, plugins=()).load_cluster()
    assert loaded is not None
    found = simulation.run(loaded=loaded)
    assert found.api is not loaded.api
    assert_same(found, simulation.run())


def test_only_pods_that_come_alone_find_their_cluster_loaded() -> None:
    workload = RandomWorkload(3)
    simulation = workload.simulation()
    budget = PodDisruptionBudget(metadata=ObjectMeta(name="budget", namespace="default"))
    others = (
        replace(simulation, arrivals=replace(simulation.arrivals, objects=[budget])),
        replace(simulation, cluster=ClusterObjects.of([builders.node("n")], [])),
        Simulation(simulation.cluster, simulation.arrivals, emulated_version="1.31"),
        Simulation(simulation.cluster, Arrivals(), gates=simulation.gates),
    )
    for other in others[: 3 if workload.cluster.pods[-1].spec.node_name == "" else 4]:
        loaded = simulation.load_cluster()
        assert loaded is not None
        found = other.run(loaded=loaded)
        assert found.api is not loaded.api
        assert_same(found, other.run())


def _enabled(name: str) -> dict[str, Any]:
    return {"multiPoint": {"enabled": [{"name": name}]}}
