"""Totals that are kept while single rows change: which rows are best, what ends them, and which pods have them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import numpy as np
import pytest

from core_tests.framework.cached_plugins import NODES, PODS, SEASON, CachedPlugin, harness_of
from kubestow.cluster.changes.events import Action, ClusterEvent, EventResource
from kubestow.cluster.nodes.views import NodeRow, Nodes
from kubestow.cluster.pods.shapes import PodInfo
from kubestow.errors import PluginError
from kubestow.framework.cycle_state import CycleState
from kubestow.framework.evaluation.evaluation_cache import EvaluationCache
from kubestow.framework.evaluation.kept_totals import KeptTotals
from kubestow.framework.event_registration import Invalidation, on
from kubestow.framework.interface import (
    FilterPlugin,
    PermitPlugin,
    Plugin,
    PreFilterPlugin,
    PreScorePlugin,
    ScorePlugin,
    Scores,
)
from kubestow.framework.status import Status, Verdict
from kubestow.testing import node, pod

FULL, NO_ZONE = Status.unschedulable("two pods"), Status.unschedulable("no zone")
ZONE = "topology.kubernetes.io/zone"


class Room(CachedPlugin, PreFilterPlugin, FilterPlugin):
    """Rejects nodes with two pods, by a form for rows too."""

    name = "Room"

    def pre_filter(self, state: CycleState, pod: PodInfo, nodes: Nodes) -> None:
        return None

    def filter(self, state: CycleState, pod: PodInfo, nodes: Nodes) -> Verdict:
        return Verdict.rejecting(nodes.pod_count >= 2, FULL)

    def filter_row(self, state: CycleState, pod: PodInfo, node: NodeRow) -> int:
        return int(node.pod_count >= 2)


class Zoned(CachedPlugin, FilterPlugin):
    """Rejects nodes without a zone, by arrays only."""

    name = "Zoned"
    events_to_register = (NODES,)

    def filter(self, state: CycleState, pod: PodInfo, nodes: Nodes) -> Verdict:
        return Verdict.rejecting(nodes.label(ZONE) == 0, NO_ZONE)


class Crowd(CachedPlugin, ScorePlugin):
    """Scores nodes by their pods, by a form for rows too."""

    name = "Crowd"
    events_to_register = (PODS, SEASON)

    def score(self, state: CycleState, pod: PodInfo, nodes: Nodes) -> Scores:
        return 10 * nodes.pod_count

    def score_row(self, state: CycleState, pod: PodInfo, node: NodeRow) -> int:
        return 10 * node.pod_count


class Size(CachedPlugin, ScorePlugin):
    """Scores nodes by their cores, by arrays only."""

    name = "Size"
    events_to_register = (NODES,)

    def score(self, state: CycleState, pod: PodInfo, nodes: Nodes) -> Scores:
        return nodes.allocatable("cpu") // 1000


class Level(CachedPlugin, ScorePlugin):
    """Has nothing to score, so what it normalizes is the same everywhere."""

    name = "Level"
    events_to_register = (NODES,)

    def score(self, state: CycleState, pod: PodInfo, nodes: Nodes) -> Scores:
        return np.zeros(len(nodes), np.int64)

    def normalize(self, state: CycleState, pod: PodInfo, scores: Scores, nodes: Nodes) -> Scores:
        return 100 - scores


class Unasked(CachedPlugin, PreScorePlugin, ScorePlugin):
    """Skips Score."""

    name = "Unasked"

    def pre_score(self, state: CycleState, pod: PodInfo, nodes: Nodes) -> Status:
        return Status.skip()

    def score(self, state: CycleState, pod: PodInfo, nodes: Nodes) -> Scores:
        raise AssertionError("PreScore has returned a skip")


class Unfiltered(Room):
    """Skips Filter."""

    name = "Unfiltered"

    def pre_filter(self, state: CycleState, pod: PodInfo, nodes: Nodes) -> Any:
        return Status.skip()

    def filter(self, state: CycleState, pod: PodInfo, nodes: Nodes) -> Verdict:
        raise AssertionError("PreFilter has returned a skip")


WEIGHTS: dict[type[Plugin], int] = {Room: 1, Zoned: 1, Crowd: 2, Size: 3, Level: 5, Unasked: 7, Unfiltered: 1}


class Fixture:
    """A cluster with a profile of few plugins, and the totals for a pod that are kept in it.

    ``sizes`` are the cores of nodes in a zone. There are ``others`` without one, since rows are only brought up to date
    by themselves if they are few of all.
    """

    def __init__(
        self, weights: dict[type[Plugin], int], sizes: Sequence[int] = (4, 8, 2, 8), *, others: int = 40
    ) -> None:
        shown = [node(f"n{number:02}", cpu=str(size), zone="z") for number, size in enumerate(sizes)]
        shown += [node(f"other-{number}", cpu="1") for number in range(others)]
        self.harness = harness_of(shown, weights)
        self.cluster = self.harness.cluster
        self.info = self.harness.info(pod("next"))
        self.evaluations = self.harness.profiles["default-scheduler"].evaluations
        self.totals: KeptTotals | None = None
        self.number = 0

    def keep(self) -> bool:
        """Evaluate the pod; whether the totals are kept."""
        evaluation = self.evaluations.of(self.info)
        found = evaluation.find_feasible(self.info)
        evaluation.find_best(self.info, found)
        self.totals = KeptTotals.of(evaluation, self.info, found, self.cluster)
        return self.totals is not None

    def find_best(self) -> list[int] | None:
        """The best rows by the totals that are kept."""
        assert self.totals is not None
        self.evaluations.of(self.info)  # begins a cycle
        best = self.totals.find_best(self.info)
        return None if best is None else list(best)

    def find_best_anew(self) -> list[int]:
        """The best rows by an evaluation without anything kept."""
        evaluation = EvaluationCache(self.harness.profiles["default-scheduler"].runtime, self.cluster).of(self.info)
        return list(evaluation.find_best(self.info, evaluation.find_feasible(self.info)))

    def place(self, *rows: int) -> None:
        """Place a pod on each of some rows."""
        for row in rows:
            self.number += 1
            self.cluster.put_pod(self.harness.info(pod(f"p{self.number}", node=f"n{row:02}")))

    def remove(self, number: int) -> None:
        self.cluster.remove_pod(f"uid-default-p{number}")

    def record(self, event: ClusterEvent) -> None:
        self.cluster.record_change(event, None)


def test_the_best_rows_are_those_of_the_weighted_sum_of_all_scores() -> None:
    fixture = Fixture(WEIGHTS)
    assert fixture.keep()
    assert fixture.find_best() == [1, 3], "the largest nodes"
    fixture.place(2)
    assert fixture.find_best() == [2], "twice 10 for a pod, and three times 2 for its size, are more than 24"
    fixture.place(3)
    assert fixture.find_best() == fixture.find_best_anew() == [3]
    fixture.place(3)
    assert fixture.find_best() == fixture.find_best_anew() == [2], "two pods are as many as fit"
    fixture.remove(1)
    assert fixture.find_best() == fixture.find_best_anew() == [1]
    fixture.remove(2)
    assert fixture.find_best() == fixture.find_best_anew() == [3]


def test_many_rows_are_brought_up_to_date_in_parts() -> None:
    fixture = Fixture(WEIGHTS, [1] * 50, others=350)
    assert fixture.keep()
    fixture.place(*range(40))
    assert fixture.find_best() == fixture.find_best_anew() == list(range(40))
    fixture.place(*range(1, 39))
    assert fixture.find_best() == fixture.find_best_anew() == [0, 39]
    fixture.place(0, 39)
    assert fixture.find_best() == fixture.find_best_anew() == list(range(40, 50))


def test_totals_are_kept_while_one_row_changes_after_another() -> None:
    fixture = Fixture(WEIGHTS, [4] * 12)
    assert fixture.keep()
    for row in range(12):
        fixture.place(row)
        assert fixture.find_best() == list(range(row + 1)), "each of them has a pod now"


def test_there_are_no_best_rows_without_a_feasible_one() -> None:
    fixture = Fixture(WEIGHTS, (1, 1))
    assert fixture.keep()
    fixture.place(0, 1, 0)
    assert fixture.find_best() == [1]
    fixture.place(1)
    assert fixture.find_best() is None
    fixture.remove(1)
    assert fixture.find_best() == [0], "they are kept all the same"


def added_node(fixture: Fixture) -> None:
    fixture.cluster.add_node(node("new", cpu="1", zone="z"))


def larger_node(fixture: Fixture) -> None:
    fixture.cluster.update_node(node("n02", cpu="9", zone="z"))


def node_without_zone(fixture: Fixture) -> None:
    fixture.cluster.update_node(node("n01", cpu="8"))


def another_season(fixture: Fixture) -> None:
    fixture.record(SEASON.event)


@pytest.mark.parametrize("change", [added_node, larger_node, node_without_zone, another_season])
def test_a_change_of_more_than_the_forms_for_rows_tell_ends_the_totals(change: Callable[[Fixture], None]) -> None:
    fixture = Fixture(WEIGHTS)
    assert fixture.keep()
    change(fixture)
    assert fixture.find_best() is None


def test_a_change_that_no_plugin_registers_does_not_end_them() -> None:
    fixture = Fixture(WEIGHTS)
    assert fixture.keep()
    fixture.record(ClusterEvent(EventResource.CSI_NODE, Action.ADD))
    assert fixture.find_best() == [1, 3]


class Strict(Room):
    """The same, and the season matters."""

    name = "Strict"
    events_to_register = (PODS, SEASON)


class Watchful(CachedPlugin, PreFilterPlugin):
    """Has PreFilter alone, which depends on pods."""

    name = "Watchful"

    def pre_filter(self, state: CycleState, pod: PodInfo, nodes: Nodes) -> None:
        return None


class SlowRoom(CachedPlugin, FilterPlugin):
    """The same as Room, by arrays only."""

    name = "SlowRoom"

    def filter(self, state: CycleState, pod: PodInfo, nodes: Nodes) -> Verdict:
        return Verdict.rejecting(nodes.pod_count >= 2, FULL)


class SlowCrowd(CachedPlugin, ScorePlugin):
    """The same as Crowd, by arrays only."""

    name = "SlowCrowd"

    def score(self, state: CycleState, pod: PodInfo, nodes: Nodes) -> Scores:
        return 10 * nodes.pod_count


class SeasonalUnasked(Unasked):
    """Skips Score, depending on the season."""

    name = "SeasonalUnasked"
    events_to_register = (PODS, SEASON)


@pytest.mark.parametrize(
    ("kind", "by_pods", "by_season"),
    [
        (Room, False, False),
        (Strict, False, True),
        (Watchful, True, False),
        (SlowRoom, True, False),
        (SlowCrowd, True, False),
        (Unasked, False, False),
        (SeasonalUnasked, False, True),
        (Unfiltered, False, False),
    ],
)
def test_what_ends_the_totals_is_what_a_plugin_registers_and_has_no_form_for_rows_for(
    kind: type[Plugin], by_pods: bool, by_season: bool
) -> None:
    for change, ends in ((lambda fixture: fixture.place(0), by_pods), (another_season, by_season)):
        fixture = Fixture({kind: 1, Size: 1, Zoned: 1})
        assert fixture.keep()
        change(fixture)
        assert fixture.find_best() == (None if ends else [1, 3])


class Unsigned(Room):
    """Has no signature, so its results are not cached."""

    name = "Unsigned"

    def signature(self, pod: PodInfo) -> Any:
        return None


class InTurn(SlowRoom):
    """Runs on what has passed the filters before it."""

    name = "InTurn"
    uncached: ClassVar[bool] = True


class Everywhere(SlowRoom):
    """Depends on the pods of all nodes."""

    name = "Everywhere"
    events_to_register = (on(EventResource.ASSIGNED_POD, Action.ADD, invalidates=Invalidation.ALL),)


class OfFeasible(SlowCrowd):
    """Depends on which nodes are feasible."""

    name = "OfFeasible"
    scores_feasible_set: ClassVar[bool] = True


class Relative(Size):
    """Normalizes scores, so that they depend on which nodes are feasible."""

    name = "Relative"

    def normalize(self, state: CycleState, pod: PodInfo, scores: Scores, nodes: Nodes) -> Scores:
        return scores - int(scores.min())


class RelativeCrowd(SlowCrowd):
    """Normalizes scores, which are 0 until pods are placed."""

    name = "RelativeCrowd"

    def normalize(self, state: CycleState, pod: PodInfo, scores: Scores, nodes: Nodes) -> Scores:
        return scores - int(scores.min())


class OnlyPrepares(CachedPlugin, PreScorePlugin):
    """Has PreScore and no Score."""

    name = "OnlyPrepares"

    def pre_score(self, state: CycleState, pod: PodInfo, nodes: Nodes) -> None:
        return None


class MayFail(CachedPlugin, FilterPlugin):
    """Says that it may have an error, and rejects no node."""

    name = "MayFail"

    def filter(self, state: CycleState, pod: PodInfo, nodes: Nodes) -> Verdict:
        return Verdict(np.zeros(len(nodes), np.int32), lambda _: Status.error("no"), has_errors=True)


@pytest.mark.parametrize(
    "kind", [Unsigned, InTurn, Everywhere, OfFeasible, Relative, RelativeCrowd, OnlyPrepares, MayFail]
)
def test_totals_that_depend_on_more_than_single_rows_are_not_kept(kind: type[Plugin]) -> None:
    assert not Fixture({Room: 1, Size: 1, kind: 1}).keep()


def test_totals_are_not_kept_where_nominations_matter() -> None:
    fixture = Fixture(WEIGHTS)
    fixture.cluster.nominate(fixture.harness.info(pod("nominated", priority=1)), "n00")
    assert not fixture.keep()
    fixture.cluster.drop_nomination("uid-default-nominated")
    assert fixture.keep()


class Waits(PermitPlugin):
    """Has work at Permit."""

    name = "Waits"
    events_to_register = ()

    def permit(self, state: CycleState, pod: PodInfo, node_name: str) -> None:
        return None


def test_a_pod_is_bound_at_once_if_no_plugin_has_work_after_it_has_got_its_node() -> None:
    found = {}
    for kinds in ((Room,), (Room, Waits)):
        fixture = Fixture(dict.fromkeys(kinds, 1))
        assert fixture.keep() and fixture.totals is not None
        found[kinds[-1].name] = fixture.totals.binds_at_once
    assert found == {"Room": True, "Waits": False}


class TooHigh(Crowd):
    """Leaves the range of scores at the second pod."""

    name = "TooHigh"

    def score_row(self, state: CycleState, pod: PodInfo, node: NodeRow) -> int:
        return 60 * node.pod_count


def test_a_plugin_that_breaks_its_contract_on_a_row_raises() -> None:
    fixture = Fixture({TooHigh: 1, Size: 1})
    assert fixture.keep()
    fixture.place(1)
    assert fixture.find_best() == [1]
    fixture.place(0, 1)
    with pytest.raises(PluginError, match="invalid score 120"):
        fixture.find_best()
