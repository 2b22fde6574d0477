"""Caching never changes a decision: cached results equal fresh ones after any sequence of events."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from core_tests.decisions import rejectors_of
from core_tests.framework.cached_plugins import NODES, CachedPlugin, evaluation_of, find_best, harness_of
from core_tests.plugins.affinities import HOST, ZONE, preferred_affinity, required_anti_affinity, term
from kubestow.api.core import Pod, Service
from kubestow.api.meta import convert
from kubestow.cluster.changes.events import Action, EventResource
from kubestow.cluster.nodes.views import NodeRow, Nodes
from kubestow.cluster.pods.shapes import PodInfo
from kubestow.framework.cycle_state import CycleState
from kubestow.framework.event_registration import Invalidation, on
from kubestow.framework.interface import FilterPlugin, PreFilterPlugin, PreScorePlugin, ScorePlugin, Scores, normalized
from kubestow.framework.status import Status, Verdict
from kubestow.scheduling.decision.result import Decision
from kubestow.testing import PluginHarness, node, nodes, pod

NAMES = st.sampled_from([f"n{number}" for number in range(12)])
TAINTS = st.sampled_from([(), ("team=a:NoSchedule",), ("slow=yes:PreferNoSchedule",), ("gone=now:NoExecute",)])
IMAGE = 300 * 2**20

PREFERRED = {
    "nodeAffinity": {
        "preferredDuringSchedulingIgnoredDuringExecution": [
            {"weight": 5, "preference": {"matchExpressions": [{"key": "disk", "operator": "In", "values": ["ssd"]}]}}
        ]
    }
}
PROBES: list[Pod] = [
    pod("small", cpu="100m", memory="64Mi"),
    pod("large", cpu="3", memory="4Gi"),
    pod("nothing"),
    pod("tolerant", cpu="1", tolerations=[{"operator": "Exists"}]),
    pod("selective", cpu="1", node_selector={"disk": "ssd"}),
    pod("picky", cpu="1", affinity=PREFERRED),
    pod("gpu", cpu="1", requests={"example.com/gpu": "1"}),
    pod("port", cpu="1", host_ports=[8080]),
    pod("served", cpu="1", labels={"app": "web"}),
]
#: The affinity of placed pods to the pods of an app.
AFFINITIES: dict[str, Any] = {
    "apart": required_anti_affinity(term("web", HOST)),
    "rather near": preferred_affinity(term("web", ZONE), weight=7),
    "any": None,
}


def service(name: str) -> Service:
    """Selects the pods of an app, so that default topology spread constraints apply to them."""
    return convert(Service, {"metadata": {"name": name, "namespace": "default"}, "spec": {"selector": {"app": "web"}}})


def described(decision: Decision, harness: PluginHarness) -> object:
    """All parts of a decision."""
    if decision.node_name is None:
        return decision.message, sorted(rejectors_of(decision))
    nodes = Nodes(harness.cluster.nodes, decision.candidates)
    assert decision.evaluation is not None
    scores = decision.evaluation.score_by_plugin(decision.pod, decision.candidates)
    return decision.node_name, nodes.names, {found.plugin: found.weighted.tolist() for found in scores}


class CachingMachine(RuleBasedStateMachine):
    """Compares a cluster that has processed all events with one that is created anew."""

    def __init__(self) -> None:
        super().__init__()
        self.harness = PluginHarness()
        self.bound: dict[str, Pod] = {}
        self.step = 0

    @rule(
        name=NAMES,
        cpu=st.integers(1, 6),
        gpus=st.integers(0, 2),
        ssd=st.booleans(),
        taints=TAINTS,
        cordoned=st.booleans(),
        image=st.booleans(),
    )
    def node_is_added_or_updated(
        self, name: str, cpu: int, gpus: int, ssd: bool, taints: tuple[str, ...], cordoned: bool, image: bool
    ) -> None:
        shown = node(
            name,
            cpu=str(cpu),
            allocatable={"example.com/gpu": str(gpus)},
            labels={"disk": "ssd"} if ssd else {},
            zone="z0" if ssd else "z1",
            taints=taints,
            unschedulable=cordoned,
            images={"app:latest": IMAGE} if image else {},
        )
        cluster = self.harness.cluster
        if name in cluster.nodes.rows:
            cluster.update_node(shown)
        else:
            cluster.add_node(shown)

    @rule(name=NAMES)
    def node_is_removed(self, name: str) -> None:
        if name in self.harness.cluster.nodes.rows:
            self.harness.cluster.remove_node(name)

    @rule(
        number=st.integers(0, 9),
        where=NAMES,
        cpu=st.integers(0, 3),
        affinity_name=st.sampled_from(sorted(AFFINITIES)),
        app=st.sampled_from(("web", "db")),
    )
    def pod_is_placed(self, number: int, where: str, cpu: int, affinity_name: str, app: str) -> None:
        # Every pod has its own port: of two that share one, the first to be removed frees it for both (semantics 7.4).
        shown = pod(
            f"b{number}",
            node=where,
            cpu=str(cpu),
            requests={"example.com/gpu": "1"},
            host_ports=[8080 + number],
            labels={"app": app},
            affinity=AFFINITIES[affinity_name],
        )
        self.harness.cluster.put_pod(self.harness.info(shown))
        self.bound[shown.metadata.uid] = shown

    @rule(number=st.integers(0, 9))
    def pod_is_removed(self, number: int) -> None:
        self.harness.cluster.remove_pod(f"uid-default-b{number}")
        self.bound.pop(f"uid-default-b{number}", None)

    @rule(name=st.sampled_from(("one", "other")))
    def service_is_added_or_removed(self, name: str) -> None:
        services = self.harness.cluster.catalog(Service)
        if services.remove("default", name) is None:
            services.put(service(name))

    @invariant()
    def cached_results_equal_fresh_ones(self) -> None:
        fresh = PluginHarness(self.harness.cluster.nodes.objects, self.bound.values())
        for shown in self.harness.cluster.catalog(Service):
            fresh.cluster.catalog(Service).put(shown)
        # A third of the probes each time, so that the cached results of a probe are up to three events old.
        self.step += 1
        for probe in PROBES[self.step % 3 :: 3]:
            assert described(self.harness.decide(probe), self.harness) == described(fresh.decide(probe), fresh)


CachingMachine.TestCase.settings = settings(max_examples=25, stateful_step_count=25)
TestCachingMachine = CachingMachine.TestCase


def test_a_view_of_one_row_gives_the_result_of_the_whole_view() -> None:
    harness = PluginHarness(
        [
            node("a", cpu="1", labels={"disk": "ssd"}),
            node("b", taints=["slow=yes:PreferNoSchedule"]),
            node("c", unschedulable=True, images={"app:latest": IMAGE}),
        ]
    )
    for probe in PROBES:
        decision = harness.decide(probe)
        assert decision.feasibility is not None
        filters = decision.feasibility.filters
        whole = filters.rejections(harness.cluster.all_nodes())
        for row in range(3):
            one = Nodes(harness.cluster.nodes, np.array([row]))
            alone = filters.rejections(one)
            of_row = [(r.plugin, r.verdict.status(row)) for r in whole if r.where[row]]
            assert [(r.plugin, r.verdict.status(row)) for r in alone] == of_row


class Uncacheable(FilterPlugin, PreFilterPlugin, ScorePlugin):
    """Depends on something outside the cluster, so its results must not be cached."""

    name = "Uncacheable"
    calls: ClassVar[list[str]] = []

    def pre_filter(self, state: CycleState, pod: PodInfo, nodes: Nodes) -> Status | None:
        self.calls.append("PreFilter")
        return None

    def filter(self, state: CycleState, pod: PodInfo, nodes: Nodes) -> Verdict | None:
        self.calls.append("Filter")
        return None

    def score(self, state: CycleState, pod: PodInfo, nodes: Nodes) -> Scores:
        self.calls.append("Score")
        return np.zeros(len(nodes), np.int64)


class WhileEmpty(PreFilterPlugin):
    """Has no Filter, and rejects all pods once there is one in the cluster."""

    name = "WhileEmpty"
    events_to_register = (on(EventResource.ASSIGNED_POD, Action.ADD),)

    def signature(self, pod: PodInfo) -> tuple[()]:
        return ()

    def pre_filter(self, state: CycleState, pod: PodInfo, nodes: Nodes) -> Status | None:
        return Status.unschedulable("there is a pod") if nodes.pod_count.any() else None


def test_pre_filter_without_filter_runs_again_when_a_single_node_changes() -> None:
    enabled = {"plugins": {"multiPoint": {"enabled": [{"name": "WhileEmpty"}]}}}
    harness = PluginHarness(nodes(10), profile=enabled, plugins=[WhileEmpty])
    assert harness.decide(pod("a")).node_name is not None
    harness.cluster.put_pod(harness.info(pod("one", node="node-3")))
    assert harness.decide(pod("a")).node_name is None


def test_a_plugin_without_a_signature_is_called_in_every_cycle() -> None:
    enabled = {"plugins": {"multiPoint": {"enabled": [{"name": "Uncacheable"}]}}}
    harness = PluginHarness([node("n"), node("m")], profile=enabled, plugins=[Uncacheable])
    for _ in range(2):
        Uncacheable.calls.clear()
        harness.decide(pod("p"))
        assert Uncacheable.calls == ["PreFilter", "Filter", "Score"]


# -- single rows ---------------------------------------------------------------------------------------------------


class Occupied(CachedPlugin, FilterPlugin, ScorePlugin):
    """Rejects nodes with three pods, and scores the others by their pods, by arrays only."""

    name = "Occupied"

    def filter(self, state: CycleState, pod: PodInfo, nodes: Nodes) -> Verdict | None:
        full = nodes.pod_count >= 3
        return Verdict.rejecting(full, Status.unschedulable("full")) if full.any() else None

    def score(self, state: CycleState, pod: PodInfo, nodes: Nodes) -> Scores:
        return nodes.pod_count * 10


class OccupiedByRows(Occupied):
    """The same, with forms for rows."""

    name = "OccupiedByRows"

    def filter_row(self, state: CycleState, pod: PodInfo, node: NodeRow) -> int:
        return int(node.pod_count >= 3)

    def score_row(self, state: CycleState, pod: PodInfo, node: NodeRow) -> int:
        return node.pod_count * 10


class RelativelyOccupied(Occupied):
    """The same, with normalized scores."""

    name = "RelativelyOccupied"

    def normalize(self, state: CycleState, pod: PodInfo, scores: Scores, nodes: Nodes) -> Scores:
        return normalized(scores)


@pytest.mark.parametrize("kind", [Occupied, OccupiedByRows, RelativelyOccupied])
def test_the_results_of_the_rows_that_change_are_replaced_and_no_others(kind: type[Occupied]) -> None:
    harness, info = harness_of(nodes(24), {kind: 1}), PluginHarness().info(pod())
    everywhere = list(harness.cluster.nodes.names)

    def best_after(*placed: str, removed: str = "") -> list[str]:
        for name in placed:
            numbers[name] = numbers.get(name, 0) + 1
            harness.cluster.put_pod(harness.info(pod(f"{name}-{numbers[name]}", node=name)))
        if removed:
            harness.cluster.remove_pod(f"uid-default-{removed}-{numbers[removed]}")
        return find_best(harness, info)

    numbers: dict[str, int] = {}
    assert best_after() == everywhere
    assert best_after("node-3") == ["node-3"]
    assert best_after("node-5") == ["node-3", "node-5"]
    assert best_after("node-3") == ["node-3"]
    assert best_after("node-3") == ["node-5"], "one is full"
    assert best_after("node-5", "node-5", "node-7") == ["node-7"], "two are full"
    assert best_after(removed="node-3") == ["node-3"]
    assert best_after("node-3", removed="node-7") == sorted({*everywhere} - {"node-3", "node-5"}, key=everywhere.index)
    rejected = {name for name, (plugin, _) in harness.rejections(pod()).items() if plugin == kind.name}
    assert rejected == {"node-3", "node-5"}


class Idle(CachedPlugin, PreFilterPlugin, FilterPlugin, PreScorePlugin, ScorePlugin):
    """Skips Filter and Score."""

    name = "Idle"

    def pre_filter(self, state: CycleState, pod: PodInfo, nodes: Nodes) -> Status:
        return Status.skip()

    def pre_score(self, state: CycleState, pod: PodInfo, nodes: Nodes) -> Status:
        return Status.skip()

    def filter(self, state: CycleState, pod: PodInfo, nodes: Nodes) -> Verdict:
        raise AssertionError("PreFilter has returned a skip")

    def score(self, state: CycleState, pod: PodInfo, nodes: Nodes) -> Scores:
        raise AssertionError("PreScore has returned a skip")


class IdleByRows(Idle):
    """The same, with forms for rows."""

    name = "IdleByRows"

    def filter_row(self, state: CycleState, pod: PodInfo, node: NodeRow) -> int:
        raise AssertionError("PreFilter has returned a skip")

    def score_row(self, state: CycleState, pod: PodInfo, node: NodeRow) -> int:
        raise AssertionError("PreScore has returned a skip")


@pytest.mark.parametrize("kind", [Idle, IdleByRows])
def test_what_is_skipped_is_not_called_for_the_rows_that_change_either(kind: type[Idle]) -> None:
    harness, info = harness_of(nodes(16), {Occupied: 1, kind: 1}), PluginHarness().info(pod())
    assert len(find_best(harness, info)) == 16
    for name in ("node-3", "node-5"):
        harness.cluster.put_pod(harness.info(pod(f"on-{name}", node=name)))
        assert name in find_best(harness, info)


# -- what results depend on ----------------------------------------------------------------------------------------


class Unsigned(Occupied):
    """Has no signature, so that nothing is cached."""

    name = "Unsigned"

    def signature(self, pod: PodInfo) -> Any:
        return None


class FiltersInTurn(Occupied):
    """Filters what has passed before."""

    name = "FiltersInTurn"
    uncached: ClassVar[bool] = True


class SkipsInTurn(Idle):
    """The same, with nothing to filter by."""

    name = "SkipsInTurn"
    uncached: ClassVar[bool] = True


class Everywhere(Occupied):
    """Depends on the pods of all nodes."""

    name = "Everywhere"
    events_to_register = (on(EventResource.ASSIGNED_POD, Action.ADD, invalidates=Invalidation.ALL),)


class ScoresFeasibleSet(Occupied):
    """Has scores that depend on which nodes are feasible."""

    name = "ScoresFeasibleSet"
    scores_feasible_set: ClassVar[bool] = True


class NormalizesZeros(RelativelyOccupied):
    """Has raw scores of 0 on nodes without labels of their own, whatever pods there are."""

    name = "NormalizesZeros"
    events_to_register = (NODES,)

    def score(self, state: CycleState, pod: PodInfo, nodes: Nodes) -> Scores:
        return np.zeros(len(nodes), np.int64)


class NormalizesSizes(NormalizesZeros):
    """Has raw scores above 0, whatever pods there are."""

    name = "NormalizesSizes"

    def score(self, state: CycleState, pod: PodInfo, nodes: Nodes) -> Scores:
        return nodes.allocatable("cpu")


@pytest.mark.parametrize(
    ("kind", "is_local", "filters_are_local"),
    [
        (Occupied, True, True),
        (Idle, True, True),
        (SkipsInTurn, True, True),
        (Unsigned, False, False),
        (FiltersInTurn, False, False),
        (Everywhere, False, False),
        (ScoresFeasibleSet, False, True),
        (RelativelyOccupied, False, True),
        (NormalizesZeros, True, True),
        (NormalizesSizes, False, True),
    ],
)
def test_a_further_pod_changes_its_own_node_only_if_no_result_depends_on_others(
    kind: type[Any], is_local: bool, filters_are_local: bool
) -> None:
    harness = harness_of(nodes(3), {kind: 1})
    info = harness.info(pod())
    find_best(harness, info)
    evaluation = evaluation_of(harness, info)
    assert (evaluation.is_local(), evaluation.filters_are_local()) == (is_local, filters_are_local)
