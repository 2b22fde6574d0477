"""An evaluation: what it answers when PreFilter narrows the nodes, when a plugin fails, and when nothing changes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import numpy as np
import pytest
from numpy.typing import NDArray

from core_tests.framework.cached_plugins import NODES, SEASON, CachedPlugin, find_best, harness_of
from kubestow.cluster.changes.events import Action, EventResource
from kubestow.cluster.nodes.node_info import NodeInfo
from kubestow.cluster.nodes.views import NodeRow, Nodes
from kubestow.cluster.pods.shapes import PodInfo
from kubestow.errors import PluginError
from kubestow.framework.cycle_state import CycleState, PodsToActivate
from kubestow.framework.evaluation.evaluation import Evaluation
from kubestow.framework.evaluation.evaluation_cache import EvaluationCache
from kubestow.framework.event_registration import on
from kubestow.framework.interface import (
    FilterPlugin,
    NodeFilterPlugin,
    Plugin,
    PreFilterPlugin,
    PreFilterResult,
    PreScorePlugin,
    ScorePlugin,
    Scores,
    normalized,
)
from kubestow.framework.runtime.framework_runtime import FrameworkRuntime
from kubestow.framework.runtime.plugin_caller import PluginObserver
from kubestow.framework.status import Code, Status, Verdict
from kubestow.testing import PluginHarness, node, nodes, pod


class _Names(PreFilterPlugin):
    names: frozenset[str]

    def pre_filter(self, state: CycleState, pod: PodInfo, nodes: Nodes) -> PreFilterResult:
        return PreFilterResult(self.names)


class FirstTwo(_Names):
    name = "FirstTwo"
    names = frozenset({"node-0", "node-1", "gone"})


class LastTwo(_Names):
    name = "LastTwo"
    names = frozenset({"node-1", "node-2"})


class Another(_Names):
    name = "Another"
    names = frozenset({"node-3"})


class Unknown(_Names):
    name = "Unknown"
    names = frozenset()


class Fails(FilterPlugin):
    """Fails on all nodes but the first."""

    name = "Fails"

    def filter(self, state: CycleState, pod: PodInfo, nodes: Nodes) -> Verdict:
        return Verdict.rejecting(np.array([name != "node-0" for name in nodes.names]), Status.error("no answer"))


class RejectsAll(NodeFilterPlugin):
    """Runs on the nodes that have passed before, one by one."""

    name = "RejectsAll"

    def filter_node(self, state: CycleState, pod: PodInfo, node_info: NodeInfo) -> Status:
        return Status.unschedulable("never")


class Growing(ScorePlugin):
    """Scores a node by its pods, out of range from the second on."""

    name = "Growing"
    events_to_register = (on(EventResource.ASSIGNED_POD, Action.ADD),)

    def signature(self, pod: PodInfo) -> str:
        return ""

    def score(self, state: CycleState, pod: PodInfo, nodes: Nodes) -> NDArray[np.int64]:
        return nodes.pod_count * 60

    def score_row(self, state: CycleState, pod: PodInfo, node: NodeRow) -> int:
        return node.pod_count * 60


class Prepares(PreScorePlugin):
    """Prepares scores, has none itself, and fails."""

    name = "Prepares"

    def pre_score(self, state: CycleState, pod: PodInfo, nodes: Nodes) -> Status:
        return Status.error(f"not ready for {len(nodes)} nodes")


def harness_with(*plugins: type[Plugin], size: int = 4) -> PluginHarness:
    enabled = {"multiPoint": {"enabled": [{"name": plugin.name} for plugin in plugins]}}
    return PluginHarness(nodes(size), profile={"plugins": enabled}, plugins=plugins)


def evaluation(harness: PluginHarness, info: PodInfo) -> Evaluation:
    return harness.profiles["default-scheduler"].evaluations.of(info)


def test_only_the_nodes_that_all_pre_filters_name_are_left() -> None:
    harness = harness_with(FirstTwo, LastTwo)
    assert harness.feasible(pod()) == {"node-1"}


def test_the_nodes_that_are_not_named_have_a_reason_of_their_own() -> None:
    harness = harness_with(FirstTwo, LastTwo)
    decision = harness.decide(pod(cpu="64"))
    assert decision.message.startswith(
        "0/4 nodes are available: 1 Insufficient cpu, 3 node(s) didn't satisfy plugin(s) [FirstTwo LastTwo]."
    )


@pytest.mark.parametrize(
    ("plugins", "problem"),
    [
        ((FirstTwo, Another), "node(s) didn't satisfy plugin(s) [Another FirstTwo] simultaneously"),
        ((Unknown,), "node(s) didn't satisfy plugin Unknown"),
    ],
)
def test_a_pod_is_rejected_if_no_node_is_left(plugins: tuple[type[Plugin], ...], problem: str) -> None:
    harness = harness_with(*plugins)
    assert harness.decide(pod()).message.startswith(f"0/4 nodes are available: {problem}.")


def test_filters_have_their_rejections_of_all_nodes_and_not_only_the_first_of_each() -> None:
    shown = [node("busy", cpu="1", unschedulable=True), node("cordoned", unschedulable=True), node("free")]
    enabled = {"filter": {"enabled": [{"name": "RejectsAll"}]}}
    harness = PluginHarness(shown, profile={"plugins": enabled}, plugins=[RejectsAll])
    info = harness.info(pod(cpu="2"))
    *results, uncached = evaluation(harness, info).find_feasible(info).filter_results()
    rejected = {result.plugin: result.rejects.tolist() for result in results if result.rejects.any()}
    assert rejected == {"NodeUnschedulable": [True, True, False], "NodeResourcesFit": [True, False, False]}
    assert all(result.ran.all() for result in results)
    assert uncached.plugin == "RejectsAll"
    assert uncached.ran.tolist() == uncached.rejects.tolist() == [False, False, True]


def test_a_filter_that_fails_ends_the_cycle_and_no_node_is_feasible() -> None:
    harness = harness_with(Fails)
    info = harness.info(pod())
    feasibility = evaluation(harness, info).find_feasible(info)
    assert feasibility.count == 0 and not feasibility.passing.any()
    assert feasibility.error is not None
    assert (feasibility.error.code, feasibility.error.plugin) == (Code.ERROR, "Fails")


def test_pods_of_one_group_get_the_same_evaluation_until_what_it_was_made_of_changes() -> None:
    harness = harness_with()
    one, copy = (harness.info(pod(name, cpu="1")) for name in ("a", "b"))
    other = harness.info(pod("c", cpu="2"))
    first = evaluation(harness, one)
    assert evaluation(harness, copy) is first
    assert evaluation(harness, other) is not first
    assert evaluation(harness, one) is first
    named = harness.info(pod("d", cpu="1", node="node-0"))
    assert evaluation(harness, named) is not evaluation(harness, named)


def test_a_score_that_leaves_its_range_when_a_row_changes_is_an_error() -> None:
    harness = harness_with(Growing)
    for number in range(2):
        assert harness.decide(pod()).node_name is not None
        harness.cluster.put_pod(harness.info(pod(f"p{number}", node="node-0")))
    decision = harness.decide(pod())
    assert decision.node_name is None
    assert 'plugin "Growing" returns an invalid score 120' in decision.message


def test_pre_score_is_run_of_plugins_that_do_not_score() -> None:
    decision = harness_with(Prepares).decide(pod())
    assert decision.node_name is None
    assert "not ready for 4 nodes" in decision.message


def test_the_best_rows_of_a_part_of_the_nodes_are_in_it() -> None:
    harness = harness_with()
    info = harness.info(pod())
    of_all, part = evaluation(harness, info), np.array([False, True, True, False])
    assert list(of_all.find_best(info, of_all.find_feasible(info))) == [0, 1, 2, 3]
    assert list(of_all.find_best(info, of_all.find_feasible(info, part))) == [1, 2]


def test_a_total_is_the_sum_of_the_weighted_scores() -> None:
    sizes = [node(f"n{number}", cpu=f"{number + 1}", taints=["slow:PreferNoSchedule"] * number) for number in range(3)]
    harness = PluginHarness(sizes)
    info = harness.info(pod(cpu="1"))
    of_pod = evaluation(harness, info)
    feasibility = of_pod.find_feasible(info)
    totals = of_pod.compute_totals(info, feasibility.rows)
    assert of_pod.totals_depend_on_rows, "taints are counted, and the counts are normalized"
    weighted = [score.weighted for score in of_pod.score_by_plugin(info, feasibility.rows)]
    assert totals.tolist() == np.sum(weighted, axis=0).tolist()
    assert len({total - kept for total, kept in zip(totals, of_pod.find_totals(info, feasibility), strict=True)}) == 1
    harness = harness_with()
    info = harness.info(pod())
    of_pod = evaluation(harness, info)
    of_pod.compute_totals(info, of_pod.find_feasible(info).rows)
    assert not of_pod.totals_depend_on_rows


def test_the_highest_total_and_whether_nodes_are_filtered_are_those_of_the_profile() -> None:
    scores = [{"name": "ImageLocality", "weight": 2}, {"name": "NodeResourcesFit", "weight": 3}]
    enabled = {"multiPoint": {"disabled": [{"name": "*"}]}, "score": {"enabled": scores}}
    binding = {"queueSort": {"enabled": [{"name": "PrioritySort"}]}, "bind": {"enabled": [{"name": "DefaultBinder"}]}}
    harness = PluginHarness(profile={"plugins": {**enabled, **binding}})
    evaluations = harness.profiles["default-scheduler"].evaluations
    assert (evaluations.max_total, evaluations.has_filters) == (500, False)
    assert harness_with().profiles["default-scheduler"].evaluations.has_filters is True


# -- normalized scores ---------------------------------------------------------------------------------------------


class Seasonal(CachedPlugin, ScorePlugin):
    """Scores nodes as the season says, by their row."""

    name = "Seasonal"
    events_to_register = (SEASON,)
    raw: ClassVar[Sequence[int]] = ()

    def score(self, state: CycleState, pod: PodInfo, nodes: Nodes) -> Scores:
        return np.array([self.raw[row] for row in nodes.row_numbers.tolist()], np.int64)

    def normalize(self, state: CycleState, pod: PodInfo, scores: Scores, nodes: Nodes) -> Scores:
        return normalized(scores)


class Empty(CachedPlugin, FilterPlugin):
    """Rejects nodes with pods."""

    name = "Empty"

    def filter(self, state: CycleState, pod: PodInfo, nodes: Nodes) -> Verdict:
        return Verdict.rejecting(nodes.pod_count > 0, Status.unschedulable("has pods"))


def test_the_best_rows_are_all_again_when_normalized_scores_become_zero(monkeypatch: pytest.MonkeyPatch) -> None:
    harness = harness_of(nodes(3), {Seasonal: 1})
    info = harness.info(pod())
    monkeypatch.setattr(Seasonal, "raw", (1, 5, 2))
    assert find_best(harness, info) == ["node-1"]
    monkeypatch.setattr(Seasonal, "raw", (0, 0, 0))
    assert find_best(harness, info) == ["node-1"], "nothing has said that the season changes"
    harness.cluster.record_change(SEASON.event, None)
    assert find_best(harness, info) == ["node-0", "node-1", "node-2"]
    monkeypatch.setattr(Seasonal, "raw", (0, 0, 5))
    harness.cluster.record_change(SEASON.event, None)
    assert find_best(harness, info) == ["node-2"]


def test_scores_are_normalized_again_when_exactly_the_other_nodes_are_feasible(monkeypatch: pytest.MonkeyPatch) -> None:
    harness = harness_of(nodes(4), {Empty: 1, Seasonal: 1})
    info = harness.info(pod())
    monkeypatch.setattr(Seasonal, "raw", (1, 2, 4, 3))
    for name in ("node-0", "node-1"):
        harness.cluster.put_pod(harness.info(pod(f"on-{name}", node=name)))
    assert find_best(harness, info) == ["node-2"]
    for before, after in (("node-0", "node-2"), ("node-1", "node-3")):
        harness.cluster.remove_pod(f"uid-default-on-{before}")
        harness.cluster.put_pod(harness.info(pod(f"on-{after}", node=after)))
    assert find_best(harness, info) == ["node-1"]


class CannotNormalize(CachedPlugin, ScorePlugin):
    """Scores no node, and fails to normalize that."""

    name = "CannotNormalize"

    def score(self, state: CycleState, pod: PodInfo, nodes: Nodes) -> Scores:
        return np.zeros(len(nodes), np.int64)

    def normalize(self, state: CycleState, pod: PodInfo, scores: Scores, nodes: Nodes) -> Scores:
        return scores + 101


def test_normalization_is_checked_even_where_all_raw_scores_are_zero() -> None:
    harness = harness_of(nodes(3), {CannotNormalize: 1})
    info = harness.info(pod())
    for _ in range(2):
        with pytest.raises(PluginError, match="invalid score 101"):
            find_best(harness, info)


class Larger(CachedPlugin, ScorePlugin):
    """Scores nodes by their cores, in relation to the largest."""

    name = "Larger"
    events_to_register = (NODES,)

    def score(self, state: CycleState, pod: PodInfo, nodes: Nodes) -> Scores:
        return nodes.allocatable("cpu")

    def normalize(self, state: CycleState, pod: PodInfo, scores: Scores, nodes: Nodes) -> Scores:
        return normalized(scores)


class Busy(CachedPlugin, ScorePlugin):
    """Scores nodes by their pods."""

    name = "Busy"

    def score(self, state: CycleState, pod: PodInfo, nodes: Nodes) -> Scores:
        return 10 * nodes.pod_count


def test_the_totals_of_the_rows_that_change_keep_what_normalized_scores_have_added() -> None:
    shown = [node(f"n{number:02}", cpu=str(8 if number == 20 else 4)) for number in range(24)]
    harness = harness_of(shown, {Larger: 1, Busy: 2})
    info = harness.info(pod())
    assert find_best(harness, info) == ["n20"]
    bests = []
    for number, name in enumerate(("n03", "n03", "n03", "n20")):
        harness.cluster.put_pod(harness.info(pod(f"p{number}", node=name)))
        bests.append(find_best(harness, info))
    assert bests == [["n20"], ["n20"], ["n03"], ["n20"]], "each pod adds 20 to the 50 and 100 of a node"


# -- cycles --------------------------------------------------------------------------------------------------------


class Points(PluginObserver):
    """Records the extension points that have ended."""

    def __init__(self) -> None:
        self.ended: list[tuple[str, Code]] = []

    def extension_point_ended(self, extension_point: str, code: Code, seconds: float) -> None:
        self.ended.append((extension_point, code))


@pytest.mark.parametrize(
    ("plugins", "ended"),
    [
        ((), [("PreFilter", Code.SUCCESS), ("Filter", Code.SUCCESS), ("Score", Code.SUCCESS)]),
        ((Another, FirstTwo), [("PreFilter", Code.UNSCHEDULABLE_AND_UNRESOLVABLE)]),
        ((Fails,), [("PreFilter", Code.SUCCESS), ("Filter", Code.ERROR)]),
    ],
)
def test_the_extension_points_of_a_cycle_are_observed(
    plugins: tuple[type[Plugin], ...], ended: list[tuple[str, Code]]
) -> None:
    harness, observer = harness_with(*plugins), Points()
    runtime = FrameworkRuntime(harness.profiles["default-scheduler"].runtime.plugins, observer=observer)
    info = harness.info(pod())
    of_pod = EvaluationCache(runtime, harness.cluster).of(info)
    found = of_pod.find_feasible(info)
    if found.count:
        of_pod.find_best(info, found)
    assert observer.ended == ended


def test_an_evaluation_that_is_used_again_follows_the_cluster() -> None:
    harness = harness_of(nodes(3), {Empty: 1, Busy: 1})
    info = harness.info(pod())
    of_pod = evaluation(harness, info)
    assert of_pod.find_feasible(info).passing.tolist() == [True] * 3
    for number, name in enumerate(("node-1", "node-2")):
        harness.cluster.put_pod(harness.info(pod(f"p{number}", node=name)))
        assert of_pod.find_feasible(info).count == 2 - number


def test_whether_only_the_nominated_node_was_tried_is_known() -> None:
    harness = harness_of(nodes(3), {Empty: 1})
    found = []
    for nominated in ("", "node-1", "unknown"):
        info = harness.info(pod(nominated=nominated))
        feasibility = evaluation(harness, info).find_feasible(info)
        found.append((feasibility.tried_nominated_node_only, feasibility.count))
    harness.cluster.put_pod(harness.info(pod("p", node="node-1")))
    info = harness.info(pod(nominated="node-1"))
    feasibility = evaluation(harness, info).find_feasible(info)
    found.append((feasibility.tried_nominated_node_only, feasibility.count))
    assert found == [(False, 3), (True, 1), (False, 3), (False, 2)]


def test_capacity_is_that_of_the_nodes_in_a_part_of_the_cluster() -> None:
    harness = harness_with(FirstTwo)
    info = harness.info(pod(cpu="2"))
    part = np.array([False, True, True, False])
    found = [evaluation(harness, info).capacity(info, 9, within) for within in (None, part)]
    counts = [[] if each is None else each.on(harness.cluster.all_nodes()).tolist() for each in found]
    assert counts == [[2, 2, 0, 0], [0, 2, 0, 0]]


class Writes(PreFilterPlugin):
    """Leaves its name in the state of the cycle."""

    name = "Writes"

    def pre_filter(self, state: CycleState, pod: PodInfo, nodes: Nodes) -> Status | None:
        state.put(self.name)
        return None


class Rejects(PreFilterPlugin):
    """Rejects all pods, with a number in the state of the cycle."""

    name = "Rejects"

    def pre_filter(self, state: CycleState, pod: PodInfo, nodes: Nodes) -> Status | None:
        state.put(7)
        return Status.unresolvable("never")


class WritesLater(PreFilterPlugin):
    """Leaves a fraction in the state of the cycle."""

    name = "WritesLater"

    def pre_filter(self, state: CycleState, pod: PodInfo, nodes: Nodes) -> Status | None:
        state.put(0.5)
        return None


class Broken(PreFilterPlugin):
    """Fails at PreFilter."""

    name = "Broken"

    def pre_filter(self, state: CycleState, pod: PodInfo, nodes: Nodes) -> Status:
        return Status.error("no answer")


@pytest.mark.parametrize("kind", [Broken, Rejects])
def test_no_node_is_feasible_if_pre_filter_fails_or_rejects_the_pod(kind: type[Plugin]) -> None:
    harness = harness_of(nodes(2), {kind: 1})
    info = harness.info(pod())
    found = evaluation(harness, info).find_feasible(info)
    assert (found.count, found.passing.tolist(), list(found.filter_results())) == (0, [False, False], [])
    if kind is Broken:
        message = 'running PreFilter plugin "Broken": no answer'
        assert found.error == Status(Code.ERROR, (message,), "Broken")
    else:
        assert found.error is None
        assert found.diagnose().pre_filter_status == Status.unresolvable("never").by("Rejects")


@pytest.mark.parametrize("rejects", [False, True])
def test_the_state_of_a_cycle_has_what_the_plugins_have_left_that_were_called(rejects: bool) -> None:
    kinds = (Writes, Rejects, WritesLater) if rejects else (Writes, WritesLater)
    harness = harness_of(nodes(2), dict.fromkeys(kinds, 1))
    info = harness.info(pod())
    of_pod = evaluation(harness, info)
    assert (of_pod.find_feasible(info).count == 0) == rejects
    state = of_pod.state()
    found = [state.get(kind) for kind in (str, int, float)]
    assert found == (["Writes", 7, None] if rejects else ["Writes", None, 0.5])


def test_a_node_is_rejected_by_the_first_filter_only() -> None:
    shown = [node("both", cpu="1", unschedulable=True), node("full", cpu="1"), node("cordoned", unschedulable=True)]
    harness = PluginHarness(shown)
    info = harness.info(pod(cpu="2", node_selector={"disk": "ssd"}))
    diagnosis = evaluation(harness, info).find_feasible(info).diagnose()
    rejected = {rejection.plugin: rejection.where.tolist() for rejection in diagnosis.rejections}
    assert rejected == {"NodeUnschedulable": [True, False, True], "NodeAffinity": [False, True, False]}


# -- filters and nominated pods ------------------------------------------------------------------------------------


class FailsInCrowds(CachedPlugin, FilterPlugin):
    """Fails on nodes with two pods."""

    name = "FailsInCrowds"

    def filter(self, state: CycleState, pod: PodInfo, nodes: Nodes) -> Verdict | None:
        crowded = nodes.pod_count >= 2
        return Verdict.rejecting(crowded, Status.error("a crowd")) if crowded.any() else None


def test_a_filter_that_fails_with_nominated_pods_on_a_node_ends_the_cycle_if_no_node_passes() -> None:
    harness = harness_of(nodes(3), {FailsInCrowds: 1, Empty: 1})
    info = harness.info(pod())
    for number in range(3):
        harness.cluster.put_pod(harness.info(pod(f"p{number}", node=f"node-{number}")))
    assert evaluation(harness, info).find_feasible(info).error is None
    harness.cluster.nominate(harness.info(pod("nominated")), "node-1")
    found = evaluation(harness, info).find_feasible(info)
    assert found.count == 0 and not found.passing.any()
    assert found.error == Status(Code.ERROR, ('running "FailsInCrowds" filter plugin: a crowd',), "FailsInCrowds")


def test_a_filter_that_fails_with_nominated_pods_on_a_node_that_passes_without_them_ends_the_cycle() -> None:
    harness = harness_of(nodes(3), {FailsInCrowds: 1})
    info = harness.info(pod())
    harness.cluster.put_pod(harness.info(pod("p", node="node-1")))
    harness.cluster.nominate(harness.info(pod("nominated")), "node-1")
    found = evaluation(harness, info).find_feasible(info)
    assert found.error is not None and found.error.plugin == "FailsInCrowds"


def test_nominated_pods_of_lower_priority_reject_no_node_and_leave_the_others_to_be_ranked() -> None:
    harness = harness_of(nodes(3), {Empty: 1})
    info = harness.info(pod(priority=5))
    harness.cluster.nominate(harness.info(pod("lower", priority=4)), "node-1")
    assert find_best(harness, info) == ["node-0", "node-1", "node-2"]
    harness.cluster.nominate(harness.info(pod("equal", priority=5)), "node-2")
    assert find_best(harness, info) == ["node-0", "node-1"]


class InTurn(PreFilterPlugin, FilterPlugin):
    """Runs on the nodes that have passed before, if there is anything to filter by."""

    uncached = True
    skips: ClassVar[bool] = False
    tried: ClassVar[list[tuple[str, list[str]]]] = []

    def pre_filter(self, state: CycleState, pod: PodInfo, nodes: Nodes) -> Status | None:
        return Status.skip() if self.skips else None

    def filter(self, state: CycleState, pod: PodInfo, nodes: Nodes) -> Verdict:
        self.tried.append((self.name, list(nodes.names)))
        return Verdict.rejecting(np.array([name == f"not-{self.name}" for name in nodes.names]), Status.unschedulable())


class FirstInTurn(InTurn):
    name = "First"


class SkippedInTurn(InTurn):
    name = "Skipped"
    skips = True


class LastInTurn(InTurn):
    name = "Last"


def test_filters_in_turn_run_on_what_has_passed_unless_there_is_nothing_to_filter_by() -> None:
    shown = [node("any"), node("not-First"), node("not-Skipped"), node("full")]
    harness = harness_of(shown, dict.fromkeys((FirstInTurn, SkippedInTurn, LastInTurn, Empty), 1))
    harness.cluster.put_pod(harness.info(pod("p", node="full")))
    InTurn.tried.clear()
    assert harness.feasible(pod()) == {"any", "not-Skipped"}
    assert InTurn.tried == [
        ("First", ["any", "not-First", "not-Skipped", "full"]),
        ("Last", ["any", "not-Skipped", "full"]),
    ]


def test_the_plugins_of_a_cycle_share_the_pods_to_activate() -> None:
    state, info = CycleState(), PluginHarness().info(pod())
    PodsToActivate.of(state).add(info, info)
    assert PodsToActivate.of(state).take() == [info]
    assert PodsToActivate.of(state).take() == []
