"""FlowPlacement: rounds of flow decide about gated pods, and scheduling cycles place them."""

from __future__ import annotations

from collections import Counter
from typing import Any, ClassVar

import pytest

from kubestow.api.core import Pod
from kubestow.cluster.pods.shapes import PodInfo
from kubestow.engine.input.cluster_objects import ClusterObjects
from kubestow.errors import ConfigurationError
from kubestow.framework.cycle_state import CycleState
from kubestow.framework.interface import ReservePlugin
from kubestow.framework.status import Status
from kubestow.testing import builders
from kubestow_lab.flow.rounds import FlowRounds
from kubestow_lab.simulation.arrivals import Arrival, Arrivals
from kubestow_lab.simulation.outcomes import OutcomeState
from kubestow_lab.simulation.simulation import Simulation, SimulationOptions
from kubestow_lab.simulation.simulation_result import SimulationResult

pytest.importorskip("ortools", reason="kubestow-lab[flow] is not installed")


def configuration(**args: Any) -> dict[str, Any]:
    return {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "profiles": [
            {
                "plugins": {"preEnqueue": {"enabled": [{"name": "FlowPlacement"}]}},
                "pluginConfig": [{"name": "FlowPlacement", "args": args}],
            }
        ],
    }


def simulate(cluster: ClusterObjects, *pods: Pod, **args: Any) -> SimulationResult:
    """Pods that arrive together, placed with FlowPlacement."""
    arrivals = Arrivals([Arrival(pod, 1.0, None, {}) for pod in pods])
    return Simulation(cluster, arrivals, configuration(**args), options=SimulationOptions(seed=1)).run()


def nodes_of(result: SimulationResult) -> dict[str, str]:
    return {outcome.name: outcome.node for outcome in result.outcomes}


def large_and_small() -> ClusterObjects:
    return ClusterObjects.of([builders.node("large", cpu="4"), builders.node("small", cpu="2")])


#: Scored by free capacity, the flexible pod is placed on the large node, where the other then does not fit any more.
FLEXIBLE = builders.pod("flexible", cpu="2", priority=1)
DEMANDING = builders.pod("demanding", cpu="4")


def test_pods_are_placed_together() -> None:
    one_by_one = Simulation(large_and_small(), Arrivals([Arrival(pod, 1.0, None, {}) for pod in (FLEXIBLE, DEMANDING)]))
    assert nodes_of(one_by_one.run()) == {"flexible": "large", "demanding": ""}
    for cost_model in ("cpu-mem", "octopus", "quincy"):
        result = simulate(large_and_small(), FLEXIBLE, DEMANDING, costModel=cost_model)
        assert nodes_of(result) == {"flexible": "small", "demanding": "large"}


def test_a_round_decides_about_so_many_pods_of_highest_priority() -> None:
    result = simulate(large_and_small(), FLEXIBLE, DEMANDING, maxPods=1)
    assert nodes_of(result) == {"flexible": "large", "demanding": ""}
    pods = [builders.pod(f"p{i}", cpu="1") for i in range(6)]
    assert Counter(nodes_of(simulate(large_and_small(), *pods, maxPods=4)).values()) == {"large": 4, "small": 2}


def test_pods_that_do_not_fit_say_why() -> None:
    result = simulate(large_and_small(), builders.pod("huge", cpu="9"))
    [group] = result.pending_groups()
    assert group.message.startswith("0/2 nodes are available: 2 Insufficient cpu.")


def test_pods_that_flow_cannot_model_are_not_gated() -> None:
    disk = {"name": "data", "gcePersistentDisk": {"pdName": "disk"}}
    plain, with_disk = builders.pod("plain", cpu="1"), builders.pod("with-disk", cpu="1", spec={"volumes": [disk]})
    arrivals = Arrivals([Arrival(pod, 1.0, None, {}) for pod in (plain, with_disk)])
    options = SimulationOptions(until=100.0)
    result = Simulation(large_and_small(), arrivals, configuration(intervalSeconds=1e6), options=options).run()
    states = {outcome.name: outcome.state for outcome in result.outcomes}
    assert states == {"plain": OutcomeState.PENDING, "with-disk": OutcomeState.RUNNING}
    [group] = result.pending_groups()
    assert group.message == "gated by FlowPlacement: waiting for the next round of FlowPlacement"


def test_a_suggested_node_that_is_full_leaves_the_pod_to_the_scores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FlowRounds, "simulate", lambda self, pods, waited: [(pod, "small") for pod in pods])
    pods = [builders.pod(f"p{i}", cpu="2") for i in range(3)]
    assert Counter(nodes_of(simulate(large_and_small(), *pods)).values()) == {"small": 1, "large": 2}


def test_a_round_that_fails_leaves_the_pods_to_the_scores(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*args: object) -> None:
        raise RuntimeError("no solution")

    monkeypatch.setattr(FlowRounds, "simulate", fail)
    result = simulate(large_and_small(), FLEXIBLE)
    assert nodes_of(result) == {"flexible": "large"}
    assert "periodic work of a plugin failed" in caplog.text


class Reserving(ReservePlugin):
    """Knows for which pods it reserves something."""

    name = "Reserving"
    reserved: ClassVar[set[str]] = set()

    def reserve(self, state: CycleState, pod: PodInfo, node_name: str) -> Status | None:
        if pod.name in self.reserved:
            return Status.unschedulable("reserved already")
        self.reserved.add(pod.name)
        return None

    def unreserve(self, state: CycleState, pod: PodInfo, node_name: str) -> None:
        self.reserved.discard(pod.name)


def test_reservations_of_a_round_are_given_back() -> None:
    Reserving.reserved.clear()
    with_reserving = configuration()
    with_reserving["profiles"][0]["plugins"]["reserve"] = {"enabled": [{"name": "Reserving"}]}
    pods = [builders.pod(f"p{i}", cpu="1") for i in range(6)]
    arrivals = Arrivals([Arrival(pod, 1.0, None, {}) for pod in pods])
    result = Simulation(large_and_small(), arrivals, with_reserving, plugins=[Reserving]).run()
    assert result.count(OutcomeState.RUNNING) == 6
    assert len(Reserving.reserved) == 6


@pytest.mark.parametrize(
    ("args", "problem"),
    [
        ({"costModel": "firmament"}, 'costModel is "firmament", expected one of cpu-mem, octopus, quincy'),
        ({"intervalSeconds": 0}, "intervalSeconds is 0, expected a positive number"),
        ({"maxPods": 0}, "maxPods is 0, expected at least 1"),
    ],
)
def test_invalid_args_are_refused(args: dict[str, Any], problem: str) -> None:
    with pytest.raises(ConfigurationError, match=problem):
        simulate(large_and_small(), **args)
