"""Rounds of flow: what the engine accepts is placed, running pods are evicted and moved only as the options allow."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kubestow.api.core import Node, Pod
from kubestow.engine.pipeline.offline_scheduler import OfflineScheduler
from kubestow.testing import builders
from kubestow_lab.flow.cost_models import COST_MODELS, CpuMem, Octopus, Quincy
from lab_tests.flow.clusters import infos, scheduler_of

pytest.importorskip("ortools", reason="kubestow-lab[flow] is not installed")

from kubestow_lab.flow.rounds import FlowRounds, RoundOptions, Running

HOSTNAME = "kubernetes.io/hostname"


class CheapMoves(Octopus):
    """Moving costs half as much as another pod on a node."""

    migration = 50


def anti_affinity(app: str) -> dict[str, object]:
    term = {"topologyKey": HOSTNAME, "labelSelector": {"matchLabels": {"app": app}}}
    return {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}


def where(scheduler: OfflineScheduler, *names: str) -> dict[str, str | None]:
    """The nodes of pods by name."""
    found = {name: scheduler.cache.placed_pod(f"uid-default-{name}") for name in names}
    return {name: placed.node_name if placed else None for name, placed in found.items()}


def running(scheduler: OfflineScheduler, *pods: Pod, seconds: float = 0.0) -> list[Running]:
    """Pods that are placed in a scheduler's cluster."""
    found = [scheduler.cache.placed_pod(pod.metadata.uid) for pod in pods]
    return [Running(placed.info, placed.node_name, seconds) for placed in found if placed is not None]


def test_a_round_spreads_the_pods_of_a_class() -> None:
    scheduler = scheduler_of(builders.nodes(4))
    pods = infos(scheduler, *builders.pods(8, cpu="1"))
    done = FlowRounds(scheduler.cache, scheduler.profiles, CpuMem()).run(pods)
    assert len(done.placed) == 8 and not done.waiting and not done.refused
    assert scheduler.cache.all_nodes().pod_count.tolist() == [2, 2, 2, 2]


def test_rounds_place_large_and_small_pods_until_no_more_fit() -> None:
    scheduler = scheduler_of([builders.node("a", cpu="4")])
    pods = infos(scheduler, builders.pod("large", cpu="2"), *builders.pods(4, cpu="500m"))
    rounds = FlowRounds(scheduler.cache, scheduler.profiles, CpuMem())
    assert 0 < len(rounds.run(pods).placed) < 5
    scheduler = scheduler_of([builders.node("a", cpu="4")])
    done = FlowRounds(scheduler.cache, scheduler.profiles, CpuMem()).run_until_settled(pods)
    assert len(done.placed) == 5 and not done.waiting


def test_the_engine_refuses_what_flow_cannot_model() -> None:
    scheduler = scheduler_of(builders.nodes(2))
    pods = infos(scheduler, *builders.pods(3, cpu="100m", labels={"app": "x"}, affinity=anti_affinity("x")))
    done = FlowRounds(scheduler.cache, scheduler.profiles, CpuMem()).run_until_settled(pods)
    assert len(done.placed) == 2 and len(done.waiting) == 1
    assert len({node for _, node in done.placed}) == 2


def test_without_options_running_pods_stay() -> None:
    scheduler = scheduler_of([builders.node("a", cpu="1")], [low := builders.pod("low", cpu="1", node="a")])
    pods = infos(scheduler, builders.pod("high", cpu="1", priority=9))
    done = FlowRounds(scheduler.cache, scheduler.profiles, CpuMem()).run(pods, running(scheduler, low))
    assert done.waiting == pods and not done.preempted


@pytest.mark.parametrize("model", COST_MODELS)
@pytest.mark.parametrize(("priority", "preempts"), [(9, True), (0, False)])
def test_preemption_evicts_for_higher_priority_alone(model: str, priority: int, preempts: bool) -> None:
    scheduler = scheduler_of([builders.node("a", cpu="1")], [low := builders.pod("low", cpu="1", node="a")])
    pods = infos(scheduler, builders.pod("other", cpu="1", priority=priority))
    rounds = FlowRounds(scheduler.cache, scheduler.profiles, COST_MODELS[model](), RoundOptions(preemption=True))
    done = rounds.run(pods, running(scheduler, low), waited={pods[0].uid: 1e9})
    assert bool(done.preempted) == bool(done.placed) == preempts
    assert where(scheduler, "low", "other") == (
        {"low": None, "other": "a"} if preempts else {"low": "a", "other": None}
    )


def test_a_pod_that_need_not_go_stays() -> None:
    nodes = [builders.node("a", cpu="2"), builders.node("b", cpu="0")]
    placed = [builders.pod(f"low-{i}", cpu="500m", node="a") for i in range(2)]
    scheduler = scheduler_of(nodes, placed)
    pods = infos(scheduler, builders.pod("high", cpu="1", priority=9))
    rounds = FlowRounds(scheduler.cache, scheduler.profiles, CpuMem(), RoundOptions(preemption=True))
    done = rounds.run(pods, running(scheduler, *placed))
    assert len(done.placed) == 1 and not done.preempted
    assert where(scheduler, "low-0", "low-1", "high") == {"low-0": "a", "low-1": "a", "high": "a"}


def test_migration_evens_out_and_never_evicts() -> None:
    placed = [builders.pod(f"p-{i}", cpu="1", node="node-0") for i in range(4)]
    scheduler = scheduler_of(builders.nodes(2), placed)
    rounds = FlowRounds(scheduler.cache, scheduler.profiles, CheapMoves(), RoundOptions(migration=True))
    done = rounds.run([], running(scheduler, *placed))
    assert len(done.migrated) == 2 and not done.preempted
    assert sorted(scheduler.cache.all_nodes().pod_count.tolist()) == [2, 2]


def test_moving_has_to_be_worth_its_cost() -> None:
    placed = [builders.pod(f"p-{i}", cpu="1", node="node-0") for i in range(2)]
    scheduler = scheduler_of(builders.nodes(2), placed)
    rounds = FlowRounds(scheduler.cache, scheduler.profiles, Octopus(), RoundOptions(migration=True))
    assert not rounds.run([], running(scheduler, *placed)).migrated


def test_quincy_waits_for_the_data_until_waiting_costs_more() -> None:
    nodes = [builders.node("data", cpu="1", images={"app:latest": 100 * 2**20}), builders.node("empty", cpu="1")]
    scheduler = scheduler_of(nodes)
    pods = infos(scheduler, *builders.pods(2, cpu="1"))
    rounds = FlowRounds(scheduler.cache, scheduler.profiles, Quincy())
    first = rounds.run(pods)
    assert [name for _, name in first.placed] == ["data"]
    assert not rounds.run(first.waiting).placed
    late = rounds.run(first.waiting, waited={pod.uid: 401 for pod in pods})
    assert [name for _, name in late.placed] == ["empty"]


@st.composite
def small_clusters(draw: st.DrawFn) -> tuple[list[Node], list[Pod], list[Pod]]:
    """Nodes, the pods on them, which fit, and pending pods."""
    cpu = st.sampled_from(["500m", "1", "2"])
    nodes = builders.nodes(draw(st.integers(1, 3)))
    placed = [
        builders.pod(
            f"running-{node.metadata.name}-{i}",
            cpu=draw(cpu),
            node=node.metadata.name,
            priority=draw(st.integers(0, 2)),
        )
        for node in nodes
        for i in range(draw(st.integers(0, 2)))
    ]
    pending = [
        builders.pod(
            f"pending-{i}",
            cpu=draw(cpu),
            priority=draw(st.integers(0, 2)),
            labels={"app": draw(st.sampled_from("xy"))},
            affinity=draw(st.sampled_from([None, anti_affinity("x")])),
        )
        for i in range(draw(st.integers(0, 6)))
    ]
    return nodes, placed, pending


@settings(max_examples=40, deadline=None)
@given(small_clusters(), st.booleans(), st.booleans())
def test_rounds_never_overcommit_lose_a_pod_or_evict_for_an_equal(
    cluster: tuple[list[Node], list[Pod], list[Pod]], preemption: bool, migration: bool
) -> None:
    nodes, placed, pending = cluster
    scheduler = scheduler_of(nodes, placed)
    pods, runs = infos(scheduler, *pending), running(scheduler, *placed)
    options = RoundOptions(preemption, migration)
    done = FlowRounds(scheduler.cache, scheduler.profiles, CpuMem(), options).run(pods, runs)
    view = scheduler.cache.all_nodes()
    assert (view.requested("cpu") <= view.allocatable("cpu")).all()
    evicted = {each.pod.uid for each in done.preempted}
    for each in runs:
        assert (scheduler.cache.placed_pod(each.pod.uid) is None) == (each.pod.uid in evicted)
    assert {pod.uid for pod, _ in done.placed} | {pod.uid for pod in done.waiting} == {pod.uid for pod in pods}
    for pod, name in done.placed:
        found = scheduler.cache.placed_pod(pod.uid)
        assert found is not None and found.node_name == name
    assert preemption or not done.preempted
    for each in done.preempted:
        assert any(name == each.node_name and pod.priority > each.pod.priority for pod, name in done.placed)
    assert migration or not done.migrated
