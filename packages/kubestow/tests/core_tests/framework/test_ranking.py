"""The feasible rows and totals that are kept from cycle to cycle equal those of the whole computation."""

from __future__ import annotations

from random import Random
from typing import Any

import numpy as np
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from core_tests.plugins.affinities import ZONE, preferred_affinity, term
from kubestow.api.core import Pod
from kubestow.cluster.cache import Cluster
from kubestow.cluster.changes.events import Action, EventResource
from kubestow.cluster.nodes.views import Nodes
from kubestow.cluster.pods.shapes import PodInfo
from kubestow.framework.cycle_state import CycleState
from kubestow.framework.evaluation.evaluation import Evaluation
from kubestow.framework.evaluation.evaluation_cache import EvaluationCache
from kubestow.framework.evaluation.kept_totals import KeptTotals
from kubestow.framework.event_registration import on
from kubestow.framework.interface import ScorePlugin, Scores, normalized
from kubestow.framework.profile import Profile
from kubestow.scheduling.decision.node_selection import RandomTie
from kubestow.scheduling.decision.pipeline import DecisionPipeline
from kubestow.scheduling.decision.result import Scheduled
from kubestow.testing import PluginHarness, node, nodes, pod

NUMBERS = st.integers(0, 39)
PREFERS_SSD = {
    "nodeAffinity": {
        "preferredDuringSchedulingIgnoredDuringExecution": [
            {"weight": 5, "preference": {"matchExpressions": [{"key": "disk", "operator": "In", "values": ["ssd"]}]}}
        ]
    }
}
SPREAD = [
    {
        "maxSkew": 1,
        "topologyKey": ZONE,
        "whenUnsatisfiable": "ScheduleAnyway",
        "labelSelector": {"matchLabels": {"app": "web"}},
    }
]


class Emptiest(ScorePlugin):
    """A normalizing plugin whose raw score changes with the pods of a node."""

    name = "Emptiest"
    label_keys = ()
    events_to_register = (
        on(EventResource.POD, Action.ALL, requeues=False),
        on(EventResource.NODE, Action.ADD, requeues=False),
    )

    def signature(self, pod: PodInfo) -> tuple[()]:
        return ()

    def score(self, state: CycleState, pod: PodInfo, nodes: Nodes) -> Scores:
        return nodes.pod_count.copy()

    def normalize(self, state: CycleState, pod: PodInfo, scores: Scores, nodes: Nodes) -> Scores:
        return normalized(scores, reverse=True)


PROFILES: dict[str, dict[str, Any]] = {
    "default": {},
    "sampling": {"percentageOfNodesToScore": 40},
    "third-party": {"plugins": {"multiPoint": {"enabled": [{"name": "Emptiest", "weight": 2}]}}},
}
#: What pending pods are like.
KINDS: tuple[dict[str, Any], ...] = (
    {"cpu": "500m", "memory": "256Mi"},
    {"cpu": "1", "memory": "64Mi"},
    {"cpu": "1500m", "priority": 10},
    {},
    {"cpu": "1", "affinity": PREFERS_SSD},
    {"cpu": "500m", "labels": {"app": "web"}, "affinity": preferred_affinity(term("web", ZONE))},
    {"cpu": "500m", "labels": {"app": "web"}, "spread": SPREAD},
    {"cpu": "500m", "host_ports": [8080]},
    {"cpu": "500m", "node_selector": {"disk": "ssd"}},
)


def fresh(profile: Profile, cluster: Cluster, info: PodInfo) -> Evaluation:
    """An evaluation without anything kept."""
    return EvaluationCache(profile.runtime, cluster).of(info)


class RankingMachine(RuleBasedStateMachine):
    """Places and removes pods and nodes, in simulations too, and compares what is kept with what is computed anew."""

    profile: dict[str, Any] = PROFILES["default"]

    def __init__(self) -> None:
        super().__init__()
        self.harness = PluginHarness(profile=self.profile, plugins=[Emptiest])
        self.cluster = self.harness.cluster
        self.profile_under_test = self.harness.profiles["default-scheduler"]
        self.seed = 0
        self.placed: list[str] = []
        self.totals: dict[Evaluation, KeptTotals | None] = {}
        for number in range(36):  # row by row up to an eighth of them
            self.node_is_added_or_updated(number, 1 + number % 4, number < 6, number // 30, False)

    @rule(number=NUMBERS, cpu=st.integers(1, 4), ssd=st.booleans(), taints=st.integers(0, 2), cordoned=st.booleans())
    def node_is_added_or_updated(self, number: int, cpu: int, ssd: bool, taints: int, cordoned: bool) -> None:
        shown = node(
            f"n{number}",
            cpu=str(cpu),
            zone=f"z{number % 3}",
            labels={"disk": "ssd"} if ssd else {},
            taints=[f"slow-{each}=yes:PreferNoSchedule" for each in range(taints)],
            unschedulable=cordoned,
            allocatable={"pods": "2"},
        )
        if shown.metadata.name in self.cluster.nodes.rows:
            self.cluster.update_node(shown)
        else:
            self.cluster.add_node(shown)

    @rule(number=NUMBERS)
    def node_is_removed(self, number: int) -> None:
        if f"n{number}" in self.cluster.nodes.rows:
            self.cluster.remove_node(f"n{number}")

    @rule(kind=st.sampled_from(KINDS), copies=st.integers(1, 8))
    def copies_are_scheduled(self, kind: dict[str, Any], copies: int) -> None:
        for _ in range(copies):
            self.seed += 1
            shown = pod(f"p{self.seed}", **kind)
            if self.decides_as_computed_anew(shown):
                self.placed.append(shown.metadata.uid)

    @rule(position=st.integers(0, 1000))
    def pod_is_forgotten(self, position: int) -> None:
        if self.placed:
            self.cluster.forget(self.placed.pop(position % len(self.placed)))

    @rule(number=NUMBERS, kind=st.sampled_from(KINDS))
    def pod_is_nominated(self, number: int, kind: dict[str, Any]) -> None:
        if f"n{number}" in self.cluster.nodes.rows:
            self.cluster.nominate(self.harness.info(pod("nominated", **{"priority": 5} | kind)), f"n{number}")

    @rule()
    def nomination_is_dropped(self) -> None:
        self.cluster.drop_nomination("uid-default-nominated")

    @rule(kinds=st.lists(st.sampled_from(KINDS), min_size=1, max_size=4), removed=st.integers(0, 3))
    def pods_are_simulated(self, kinds: list[dict[str, Any]], removed: int) -> None:
        with self.cluster.simulate() as simulation:
            for uid in self.placed[:removed]:
                simulation.remove_pod(uid)
            for number, kind in enumerate(kinds):
                self.decides_as_computed_anew(pod(f"simulated-{number}", **kind))

    def decides_as_computed_anew(self, shown: Pod) -> bool:
        """Schedule a pod; whether a node was found."""
        info, profile = self.harness.info(shown), self.profile_under_test
        self.compare(info)
        decision = DecisionPipeline(
            self.cluster, self.harness.profiles, RandomTie(Random(self.seed))
        ).decide_by_plugins(info)
        whole = fresh(profile, self.cluster, info)
        found = whole.find_feasible(info)
        if not isinstance(decision, Scheduled):
            assert not found.count
            return False
        rows = decision.candidates
        chosen = self.cluster.nodes.rows[decision.node_name]
        if decision.candidate_count > 1:
            totals = whole.compute_totals(info, rows)
            best = Nodes(self.cluster.nodes, rows).row_numbers[totals == totals.max()]
            assert chosen == (best[0] if len(best) == 1 else best[Random(self.seed).randrange(len(best))])
        self.cluster.assume(info, decision.node_name)
        return True

    def compare(self, info: PodInfo) -> None:
        kept, whole = (
            self.profile_under_test.evaluations.of(info),
            fresh(self.profile_under_test, self.cluster, info),
        )
        known = None if self.cluster.has_nominations else self.totals.get(kept)
        known_best = None if known is None else known.find_best(info)
        every_node = np.ones(len(self.cluster.nodes), np.bool_)  # a scope, for which nothing is kept
        found, expected = kept.find_feasible(info), whole.find_feasible(info, every_node)
        assert (found.count, found.passing.tolist()) == (expected.count, expected.passing.tolist())
        assert found.diagnose().message() == expected.diagnose().message()
        if expected.count:
            totals = whole.compute_totals(info, expected.rows)
            best = Nodes(self.cluster.nodes, expected.rows).row_numbers[totals == totals.max()]
            assert kept.find_best(info, found).tolist() == best.tolist()
            assert known_best is None or known_best.tolist() == best.tolist()
        else:
            assert known_best is None
        if known_best is None:
            self.totals[kept] = KeptTotals.of(kept, info, found, self.cluster) if expected.count else None

    @invariant()
    def kept_results_equal_those_computed_anew(self) -> None:
        if len(self.cluster.nodes):
            for number in (self.seed % len(KINDS), 4):
                self.compare(self.harness.info(pod(f"probe-{number}", **KINDS[number])))


class SamplingMachine(RankingMachine):
    profile = PROFILES["sampling"]


class ThirdPartyMachine(RankingMachine):
    profile = PROFILES["third-party"]


def test_scores_are_normalized_again_when_the_only_node_with_the_highest_raw_score_becomes_infeasible() -> None:
    """NodeAffinity's scores do not change with the pods on a node, but by which of the nodes are feasible they do."""
    weighted = [
        {"weight": weight, "preference": {"matchExpressions": [{"key": key, "operator": "Exists"}]}}
        for key, weight in (("fast", 100), ("near", 10))
    ]
    picky = {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": weighted}}
    harness = PluginHarness(
        [
            node("both", cpu="1", labels={"fast": "yes", "near": "yes"}),
            node("near", cpu="2", labels={"near": "yes"}),
            *(node(f"neither-{number}", cpu="64", memory="256Gi") for number in range(20)),
        ]
    )
    pods = [pod(f"p{number}", cpu="1", memory="1Gi", affinity=picky) for number in range(2)]
    placed = [harness.schedule(each).node_name for each in pods]
    # A raw score of 10 is normalized to 9 beside a node with 110, which is less than the others gain by their size.
    assert placed == ["both", "near"]


def test_the_best_rows_follow_the_nodes_that_change_one_by_one() -> None:
    harness = PluginHarness(nodes(10, cpu="2", memory="2Gi"))
    info = harness.info(pod("next", cpu="1", memory="1Gi"))

    def best_after(placed: tuple[str, int] | None = None, forgotten: str | None = None) -> tuple[int, list[int]]:
        if placed is not None:
            name, number = placed
            harness.cluster.put_pod(harness.info(pod(name, cpu="1", memory="1Gi", node=f"node-{number}")))
        if forgotten is not None:
            harness.cluster.remove_pod(f"uid-default-{forgotten}")
        evaluation = harness.profiles["default-scheduler"].evaluations.of(info)
        found = evaluation.find_feasible(info)
        return found.count, list(evaluation.find_best(info, found))

    everywhere = list(range(10))
    assert best_after() == (10, everywhere)
    assert best_after(("a", 4)) == (10, [0, 1, 2, 3, 5, 6, 7, 8, 9])
    assert best_after(("b", 4)) == (9, [0, 1, 2, 3, 5, 6, 7, 8, 9])
    assert best_after(("c", 7)) == (9, [0, 1, 2, 3, 5, 6, 8, 9])
    assert best_after(forgotten="c") == (9, [0, 1, 2, 3, 5, 6, 7, 8, 9])
    for number in (0, 1, 2, 3, 5, 6, 7, 8):
        best_after((f"p{number}", number))
    assert best_after() == (9, [9])
    assert best_after(("p9", 9)) == (9, [0, 1, 2, 3, 5, 6, 7, 8, 9])
    assert best_after(forgotten="a") == (10, everywhere)
    assert best_after(forgotten="p6") == (10, [6])
    assert best_after(forgotten="p2") == (10, [2, 6])


def test_what_normalized_scores_have_added_to_totals_goes_when_all_of_them_are_zero() -> None:
    slow = node("slow", cpu="64", memory="64Gi", taints=["slow=yes:PreferNoSchedule"])
    harness = PluginHarness([slow, *(node(f"n{number}", cpu="2", memory="2Gi") for number in range(9))])
    assert harness.decide(pod("p", cpu="1")).node_name != "slow"
    harness.cluster.update_node(node("slow", cpu="64", memory="64Gi"))
    assert harness.decide(pod("p", cpu="1")).node_name == "slow"


def test_a_node_that_is_not_feasible_is_not_chosen_where_the_others_have_negative_totals() -> None:
    weights = [{"name": "ImageLocality", "weight": 2}, {"name": "NodeResourcesFit", "weight": -1}]
    score = {"disabled": [{"name": "*"}], "enabled": weights}
    profile = {"plugins": {"score": score, "preScore": {"disabled": [{"name": "*"}]}}}
    sizes = [node("full", cpu="1"), node("large", cpu="64", memory="64Gi"), node("larger", cpu="96", memory="96Gi")]
    harness = PluginHarness(sizes, profile=profile)
    assert [harness.schedule(pod(f"p{number}", cpu="2", memory="1Gi")).node_name for number in range(2)] == [
        "large",
        "large",
    ]


for machine, examples in ((RankingMachine, 25), (SamplingMachine, 15), (ThirdPartyMachine, 15)):
    machine.TestCase.settings = settings(max_examples=examples, stateful_step_count=20)
TestRanking = RankingMachine.TestCase
TestRankingWithSampling = SamplingMachine.TestCase
TestRankingWithThirdPartyPlugin = ThirdPartyMachine.TestCase
