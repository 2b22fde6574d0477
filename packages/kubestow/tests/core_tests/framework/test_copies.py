"""Copies of a pod that are placed one after another: the nodes they get, and for which pods these are found at once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np
import pytest
from numpy.typing import NDArray

from core_tests.framework.cached_plugins import NODES, CachedPlugin, evaluation_of, find_best, harness_of
from kubestow.api.core import Pod
from kubestow.cluster.nodes.views import Nodes
from kubestow.cluster.pods.shapes import PodInfo
from kubestow.framework.cycle_state import CycleState
from kubestow.framework.evaluation.copies import CopyTotals
from kubestow.framework.interface import (
    FilterPlugin,
    PreScorePlugin,
    ReservePlugin,
    ScorePlugin,
    Scores,
    normalized,
)
from kubestow.framework.status import Status, Verdict
from kubestow.testing import PluginHarness, node, pod


class Room(CachedPlugin, FilterPlugin):
    """Rejects nodes with three pods."""

    name = "Room"

    def filter(self, state: CycleState, pod: PodInfo, nodes: Nodes) -> Verdict:
        return Verdict.rejecting(nodes.pod_count >= 3, Status.unschedulable("full"))


class Crowd(CachedPlugin, ScorePlugin):
    """Scores nodes by their pods, those of hypothetical nodes too."""

    name = "Crowd"
    scores_hypothetical_nodes: ClassVar[bool] = True

    def score(self, state: CycleState, pod: PodInfo, nodes: Nodes) -> Scores:
        return 10 * nodes.pod_count


class Spread(Crowd):
    """Prefers nodes with few pods."""

    name = "Spread"

    def score(self, state: CycleState, pod: PodInfo, nodes: Nodes) -> Scores:
        return 30 - 10 * nodes.pod_count


class Size(CachedPlugin, ScorePlugin):
    """Scores nodes by their cores."""

    name = "Size"
    events_to_register = (NODES,)

    def score(self, state: CycleState, pod: PodInfo, nodes: Nodes) -> Scores:
        return nodes.allocatable("cpu") // 1000


class RelativeSize(Size):
    """The same, in relation to the largest feasible node."""

    name = "RelativeSize"

    def normalize(self, state: CycleState, pod: PodInfo, scores: Scores, nodes: Nodes) -> Scores:
        return normalized(scores)


class Unasked(Crowd, PreScorePlugin):
    """Skips Score."""

    name = "Unasked"

    def pre_score(self, state: CycleState, pod: PodInfo, nodes: Nodes) -> Status:
        return Status.skip()


def harness_with(*kinds: type[Any]) -> PluginHarness:
    """Nodes of different sizes, one of them full."""
    weights = {kind: 2 + number for number, kind in enumerate(kinds)}
    shown = [node(f"n{number}", cpu=str(size)) for number, size in enumerate((4, 8, 2, 8, 9))]
    harness = harness_of(shown, weights)
    for number in range(3):
        harness.cluster.put_pod(harness.info(pod(f"there-{number}", node="n4")))
    return harness


def copy_totals(harness: PluginHarness, pending: Pod, most: int = 20) -> CopyTotals | None:
    info = harness.info(pending)
    return CopyTotals.of(evaluation_of(harness, info), info, most, harness.cluster)


def first(rows: NDArray[np.intp]) -> int:
    return int(rows[0])


def last(rows: NDArray[np.intp]) -> int:
    return int(rows[-1])


def placed_one_by_one(harness: PluginHarness, count: int, choose: Callable[[NDArray[np.intp]], int]) -> list[int]:
    """The rows that copies get when each is evaluated anew after the one before it."""
    rows = []
    with harness.cluster.simulate():
        for number in range(count):
            info = harness.info(pod(f"copy-{number}"))
            best = np.array([harness.cluster.nodes.rows[name] for name in find_best(harness, info)], np.intp)
            rows.append(choose(best))
            harness.cluster.assume(info, harness.cluster.nodes.names[rows[-1]])
    return rows


@pytest.mark.parametrize("choose", [first, last])
@pytest.mark.parametrize(
    "kinds",
    [
        (Room,),
        (Room, Crowd),
        (Room, Size, Spread),
        (Room, Size, Crowd, Unasked),
        (Room, RelativeSize),
        (Room, RelativeSize, Spread, Size),
    ],
)
def test_copies_get_the_nodes_that_they_get_one_by_one(
    kinds: tuple[type[Any], ...], choose: Callable[[NDArray[np.intp]], int]
) -> None:
    harness = harness_with(*kinds)
    totals = copy_totals(harness, pod("copy"))
    assert totals is not None
    assert totals.capacity.tolist() == [3, 3, 3, 3, 0]
    everywhere = np.arange(5, dtype=np.intp)
    for count in (1, 4, 12):
        assert totals.place(everywhere, count, choose) == placed_one_by_one(harness, count, choose)
    assert totals.place(everywhere, 13, choose) is None


def test_copies_are_placed_in_a_part_of_the_cluster() -> None:
    totals = copy_totals(harness_with(Room, Size, Spread), pod("copy"))
    assert totals is not None
    part = np.array([0, 2, 4], np.intp)
    assert sorted(totals.place(part, 6, first) or ()) == [0, 0, 0, 2, 2, 2]
    assert totals.place(part, 7, first) is None


def test_as_many_copies_count_as_may_be_asked_for() -> None:
    totals = copy_totals(harness_with(Room, Size), pod("copy"), most=2)
    assert totals is not None
    assert totals.capacity.tolist() == [2, 2, 2, 2, 0]


class OnlyPrepares(CachedPlugin, PreScorePlugin):
    """Has PreScore and no Score."""

    name = "OnlyPrepares"

    def pre_score(self, state: CycleState, pod: PodInfo, nodes: Nodes) -> None:
        return None


class Occupied(CachedPlugin, ScorePlugin):
    """Scores nodes by their pods, but not those of hypothetical nodes."""

    name = "Occupied"

    def score(self, state: CycleState, pod: PodInfo, nodes: Nodes) -> Scores:
        return 10 * nodes.pod_count


class RelativeCrowd(Crowd):
    """Scores nodes by their pods, in relation to the others."""

    name = "RelativeCrowd"

    def normalize(self, state: CycleState, pod: PodInfo, scores: Scores, nodes: Nodes) -> Scores:
        return normalized(scores)


class OfFeasible(Size):
    """Depends on which nodes are feasible."""

    name = "OfFeasible"
    scores_feasible_set: ClassVar[bool] = True


class Reserves(ReservePlugin):
    """Has work at Reserve."""

    name = "Reserves"
    events_to_register = ()

    def reserve(self, state: CycleState, pod: PodInfo, node_name: str) -> None:
        return None

    def unreserve(self, state: CycleState, pod: PodInfo, node_name: str) -> None:
        return None


class Unsigned(Room):
    """Has no signature, so that its results are those of one pod."""

    name = "Unsigned"

    def signature(self, pod: PodInfo) -> Any:
        return None


class Fails(CachedPlugin, FilterPlugin):
    """Fails on every node."""

    name = "Fails"

    def filter(self, state: CycleState, pod: PodInfo, nodes: Nodes) -> Verdict:
        return Verdict.rejecting(np.ones(len(nodes), np.bool_), Status.error("no answer"))


class RejectsAll(CachedPlugin, FilterPlugin):
    """Rejects every node."""

    name = "RejectsAll"

    def filter(self, state: CycleState, pod: PodInfo, nodes: Nodes) -> Verdict:
        return Verdict.rejecting(np.ones(len(nodes), np.bool_), Status.unschedulable("never"))


@pytest.mark.parametrize(
    "kind", [OnlyPrepares, Occupied, RelativeCrowd, OfFeasible, Reserves, Unsigned, Fails, RejectsAll]
)
def test_there_are_none_where_a_copy_may_change_more_than_how_many_fit_on_its_node(kind: type[Any]) -> None:
    assert copy_totals(harness_with(Room, kind), pod("copy")) is None


def test_there_are_none_for_pods_whose_capacity_is_not_counted() -> None:
    harness = harness_with(Room, Size)
    claims = {"resourceClaims": [{"name": "gpu", "resourceClaimName": "gpu"}]}
    volumes = {"volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]}
    for spec in (claims, volumes):
        assert copy_totals(harness, pod("copy", spec=spec)) is None
    assert copy_totals(harness, pod("copy")) is not None


def test_there_are_none_for_a_pod_that_is_nominated_to_a_node() -> None:
    harness = harness_with(Room, Size)
    assert copy_totals(harness, pod("copy", nominated="n1")) is None
