"""The optimum is no worse than what the scheduler did, is accepted by the engine, and the best where it says so."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kubestow.api.core import Node, Pod
from kubestow.engine.input.cluster_objects import ClusterObjects
from kubestow.engine.placement.engine_placement import EnginePlacement
from kubestow.testing import builders
from kubestow_lab.simulation.arrivals import Arrival, Arrivals
from kubestow_lab.simulation.outcomes import OutcomeState
from kubestow_lab.simulation.simulation import Simulation
from kubestow_lab.simulation.simulation_result import SimulationResult

pytest.importorskip("ortools", reason="kubestow-lab[flow] is not installed")

from kubestow_lab.optimum import EndState, OptimumOptions, find_optimum
from kubestow_lab.simulation.gap import Gap, Move

HOSTNAME = "kubernetes.io/hostname"
ZONE = "topology.kubernetes.io/zone"


def required(kind: str, app: str) -> dict[str, object]:
    term = {"topologyKey": HOSTNAME, "labelSelector": {"matchLabels": {"app": app}}}
    return {kind: {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}


def simulated(
    nodes: list[Node], pods: list[Pod], placed: list[Pod] | None = None
) -> tuple[Simulation, SimulationResult]:
    """A simulation of pods that arrive one after another."""
    arrivals = Arrivals(pods=[Arrival(pod, float(i), None, {}) for i, pod in enumerate(pods)])
    simulation = Simulation(ClusterObjects.of(nodes, placed or []), arrivals)
    return simulation, simulation.run()


def gap_of(nodes: list[Node], pods: list[Pod], placed: list[Pod] | None = None, **options: object) -> Gap:
    """The gap after such a simulation."""
    return find_optimum(*simulated(nodes, pods, placed), OptimumOptions(**options))  # type: ignore[arg-type]


def spread_then_large() -> tuple[list[Node], list[Pod]]:
    """Two small pods, which the scheduler spreads, and one for which it then has no room."""
    return builders.nodes(2, cpu="4"), [*builders.pods(2, prefix="small", cpu="2"), builders.pod("large", cpu="4")]


def test_the_optimum_makes_room_for_a_pending_pod() -> None:
    gap = gap_of(*spread_then_large())
    assert (gap.greedy.placed, gap.optimum.placed, gap.bound, gap.proven) == (2, 3, 3, True)
    assert [move.pod for move in gap.newly_placed] == ["default/large"]
    assert len(gap.moved) == 1 and not gap.displaced and not gap.refused
    assert (gap.greedy.utilisation["cpu"], gap.optimum.utilisation["cpu"]) == (0.5, 1.0)


def test_the_pods_of_the_cluster_keep_their_nodes() -> None:
    nodes, [*_, large] = spread_then_large()
    placed = [builders.pod("one", cpu="2", node="node-0"), builders.pod("two", cpu="2", node="node-1")]
    gap = gap_of(nodes, [large], placed)
    assert (gap.pods, gap.optimum.placed, gap.bound, gap.proven) == (1, 0, 0, True)


def test_higher_priority_counts_more_than_the_number_of_pods() -> None:
    low = builders.pods(2, prefix="low", cpu="2", priority=1)
    high = builders.pod("high", cpu="4", priority=2, spec={"preemptionPolicy": "Never"})
    gap = gap_of(builders.nodes(1, cpu="4"), [*low, high])
    assert (gap.greedy.placed, gap.optimum.placed, gap.proven) == (2, 1, True)
    assert [move.pod for move in gap.displaced] == ["default/low-0", "default/low-1"]


def test_a_placement_that_the_engine_refuses_is_reported_and_not_counted() -> None:
    apart = required("podAntiAffinity", "x")
    gap = gap_of(builders.nodes(2), builders.pods(3, cpu="100m", labels={"app": "x"}, affinity=apart))
    assert (gap.greedy.placed, gap.optimum.placed, gap.bound, gap.proven) == (2, 2, 3, False)
    assert len(gap.refused) >= 1


def test_pods_with_affinity_stay_while_the_others_are_packed() -> None:
    nodes, pods = spread_then_large()
    apart = builders.pods(3, prefix="apart", cpu="0", labels={"app": "x"}, affinity=required("podAntiAffinity", "x"))
    gap = gap_of(nodes, [*pods, *apart])
    assert (gap.greedy.placed, gap.optimum.placed) == (4, 5)
    assert "default/large" in [move.pod for move in gap.newly_placed]


def test_pods_that_need_each_other_are_placed_in_whatever_order() -> None:
    follower = builders.pod("follower", cpu="1", affinity=required("podAffinity", "leader"))
    leader = builders.pod("leader", cpu="1", labels={"app": "leader"})
    gap = gap_of(builders.nodes(2), [follower, leader])
    assert gap.optimum.placed == 2


def test_pods_that_cannot_take_part_say_why() -> None:
    volume = {"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "missing"}}]}
    gap = gap_of(
        builders.nodes(1),
        [
            builders.pod("plain", cpu="1"),
            builders.pod("volume", spec=volume),
            builders.pod("gated", gates=["x"]),
            builders.pod("other", scheduler="mine"),
        ],
    )
    assert gap.pods == 1
    assert gap.unmodelled == {"default/volume": "has volumes"}
    assert gap.ineligible == {
        "default/gated": "gated by SchedulingGates",
        "default/other": "no profile has the scheduler name mine",
    }


def test_pods_that_were_preempted_are_gone() -> None:
    low = builders.pod("low", cpu="2", node="node-0")
    gap = gap_of(builders.nodes(1, cpu="2"), [builders.pod("high", cpu="2", priority=9)], [low])
    assert (gap.pods, gap.greedy.placed, gap.optimum.placed, gap.proven) == (1, 1, 1, True)
    assert gap.optimum.utilisation["cpu"] == 1.0


def test_a_simulation_without_pods_has_no_gap() -> None:
    gap = gap_of(builders.nodes(1), [])
    assert (gap.pods, gap.bound, gap.proven, gap.moves) == (0, 0, True, ())


def test_pods_of_daemon_sets_keep_their_nodes() -> None:
    owner = {"kind": "DaemonSet", "name": "agent", "apiVersion": "apps/v1", "uid": "u", "controller": True}
    daemon = builders.pod("agent-1", cpu="1", metadata={"ownerReferences": [owner]})
    gap = gap_of(builders.nodes(1, cpu="2"), [daemon, builders.pod("plain", cpu="2")])
    assert (gap.pods, gap.optimum.placed, gap.bound, gap.proven) == (1, 0, 0, True)


@pytest.mark.parametrize("model", ["cpu-mem", "octopus", "quincy"])
def test_each_cost_model_gives_a_report_of_the_same_form(model: str) -> None:
    gap = gap_of(*spread_then_large(), cost_model=model)
    report = gap.as_json()
    assert report["costModel"] == model
    assert report["gap"] == {"pods": 1, "cost": report["greedy"]["cost"] - report["optimum"]["cost"]}
    assert report["newlyPlaced"][0]["pod"] == "default/large"
    assert set(report["greedy"]) == set(report["flow"]) == set(report["optimum"])


# -- properties ----------------------------------------------------------------------------------------------------


@st.composite
def workloads(draw: st.DrawFn, *, plain: bool) -> tuple[list[Node], list[Pod]]:
    """A few nodes and pods, of which brute force can try every placement if they are plain."""
    nodes = [
        builders.node(
            f"node-{i}",
            cpu=draw(st.sampled_from(["1", "2", "3"])),
            zone=f"zone-{i % 2}",
            max_pods=draw(st.integers(1, 4)),
        )
        for i in range(draw(st.integers(1, 3)))
    ]
    constraints: list[dict[str, object]] = [{}, {"node_selector": {ZONE: "zone-0"}}, {"host_ports": [80]}]
    if not plain:
        spread = {"maxSkew": 1, "topologyKey": ZONE, "whenUnsatisfiable": "DoNotSchedule"}
        constraints += [
            {"affinity": required("podAntiAffinity", "x")},
            {"affinity": required("podAffinity", "x")},
            {"spread": [{**spread, "labelSelector": {"matchLabels": {"app": "x"}}}]},
        ]
    pods = [
        builders.pod(
            f"pod-{i}",
            cpu=draw(st.sampled_from(["500m", "1", "1500m", "2"])),
            priority=draw(st.integers(0, 1)),
            labels={"app": draw(st.sampled_from("xy"))},
            **draw(st.sampled_from(constraints)),  # type: ignore[arg-type]
        )
        for i in range(draw(st.integers(1, 4)))
    ]
    return nodes, pods


def by_priority(pods: list[Pod], placed: set[str]) -> tuple[int, ...]:
    """How many of the placed pods (namespace/name) have priority 1, and 0."""
    return tuple(
        sum((pod.spec.priority or 0) == priority for pod in pods if f"default/{pod.metadata.name}" in placed)
        for priority in (1, 0)
    )


def placements(simulation: Simulation, result: SimulationResult, gap: Gap) -> tuple[set[str], dict[str, str]]:
    """The pods that the scheduler placed, and the nodes of those of the optimum, by namespace/name."""
    greedy = {outcome.key: outcome.node for outcome in result.outcomes if outcome.state is OutcomeState.RUNNING}
    optimum = dict(greedy)
    for move in gap.moves:
        optimum.pop(move.pod, None)
        if move.target:
            optimum[move.pod] = move.target
    return set(greedy), optimum


@settings(max_examples=15, deadline=None)
@given(workloads(plain=True))
def test_the_optimum_of_plain_pods_is_that_of_brute_force(workload: tuple[list[Node], list[Pod]]) -> None:
    nodes, pods = workload
    simulation, result = simulated(nodes, pods)
    gap = find_optimum(simulation, result)
    assert gap.proven
    state = EndState.of(simulation, result)
    scheduler = state.scheduler()
    infos = state.infos(scheduler)
    engine = EnginePlacement(scheduler.cache, scheduler.profiles)

    def accepted(names: tuple[str, ...]) -> tuple[int, ...]:
        """The pods by priority that the engine accepts on these nodes."""
        wanted = [(pod, name) for pod, name in zip(infos, names, strict=True) if name]
        with scheduler.cache.simulate():
            refused = {pod.key for pod, _ in engine.place_all(wanted)}
        return by_priority(pods, {pod.key for pod, _ in wanted} - refused)

    every = product(["", *(each.metadata.name for each in nodes)], repeat=len(infos))
    _, optimum = placements(simulation, result, gap)
    assert by_priority(pods, set(optimum)) == max(map(accepted, every))


@settings(max_examples=20, deadline=None)
@given(workloads(plain=False))
def test_the_engine_accepts_the_optimum_and_the_scheduler_never_beats_it(
    workload: tuple[list[Node], list[Pod]],
) -> None:
    nodes, pods = workload
    simulation, result = simulated(nodes, pods)
    gap = find_optimum(simulation, result)
    greedy, optimum = placements(simulation, result, gap)
    assert by_priority(pods, set(optimum)) >= by_priority(pods, greedy)
    if by_priority(pods, set(optimum)) == by_priority(pods, greedy):
        assert gap.optimum.cost <= gap.greedy.cost
    assert gap.optimum.placed == len(optimum)
    if gap.proven:
        assert gap.bound == gap.optimum.placed
    if gap.found_by != "greedy":  # the scheduler's own placements have passed its filters
        state = EndState.of(simulation, result)
        scheduler = state.scheduler()
        engine = EnginePlacement(scheduler.cache, scheduler.profiles)
        wanted = [(pod, optimum[pod.key]) for pod in state.infos(scheduler) if pod.key in optimum]
        assert not engine.place_all(wanted)


def test_moves_lead_from_the_scheduler_to_the_optimum() -> None:
    simulation, result = simulated(*spread_then_large())
    gap = find_optimum(simulation, result)
    greedy, optimum = placements(simulation, result, gap)
    assert all(isinstance(move, Move) for move in gap.moves)
    assert set(optimum) - greedy == {"default/large"}
