"""The results of placement plugins, valid and invalid."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from kubestow.cluster.nodes.views import Nodes
from kubestow.cluster.pods.pod_groups import PodGroupName
from kubestow.cluster.pods.shapes import PodInfo
from kubestow.errors import PluginError
from kubestow.framework.gang import (
    Gang,
    Placement,
    PlacementGeneratePlugin,
    PlacementScorePlugin,
    Proposal,
    Segments,
)
from kubestow.framework.status import SUCCESS, Status
from kubestow.testing import PluginHarness, node


class Halves(PlacementGeneratePlugin, PlacementScorePlugin):
    """Returns what a test sets."""

    name = "Halves"
    returned: Any = None
    scores: Any = {}
    normalizes: Any = staticmethod(lambda scores: scores)

    def placements(self, gang: Gang, pods: Sequence[PodInfo], nodes: Nodes) -> Any:
        return self.returned

    def score_placement(self, gang: Gang, proposal: Proposal) -> Any:
        return self.scores[proposal.placement.name]

    def normalize_placements(self, gang: Gang, scores: NDArray[np.int64]) -> Any:
        return self.normalizes(scores)


WORLD = PluginHarness(
    [node("a"), node("b")],
    plugins=[Halves],
    profile={"plugins": {"multiPoint": {"enabled": [{"name": "Halves", "weight": 2}]}}},
)
RUNTIME = WORLD.profiles["default-scheduler"].gangs
GANG = Gang("g", "uid", 1, 1.0, WORLD.cluster.pod_groups.members(PodGroupName(*"abc")))


def placed_pod(name: str, *rows: int) -> Placement:
    return Placement(name, WORLD.cluster.all_nodes().select(np.array(rows, np.intp)))


def generated(monkeypatch: pytest.MonkeyPatch, returned: Any) -> Sequence[Placement] | Status | None:
    monkeypatch.setattr(Halves, "returned", returned)
    return RUNTIME.generate_placements(GANG, [], WORLD.cluster)


def best(monkeypatch: pytest.MonkeyPatch, *, normalizes: Any = None, **scores: Any) -> int:
    monkeypatch.setattr(Halves, "scores", scores)
    if normalizes is not None:
        monkeypatch.setattr(Halves, "normalizes", staticmethod(normalizes))
    return RUNTIME.choose_placement(GANG, [Proposal(placed_pod(name, 0), []) for name in scores], WORLD.random)


@pytest.mark.parametrize("anywhere", [None, SUCCESS])
def test_without_placements_the_gang_may_use_all_nodes(monkeypatch: pytest.MonkeyPatch, anywhere: Any) -> None:
    assert generated(monkeypatch, anywhere) is None


def test_placements_without_nodes_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    found = generated(monkeypatch, [placed_pod("empty"), placed_pod("a", 0)])
    assert isinstance(found, list) and [each.name for each in found] == ["a"]
    assert generated(monkeypatch, [placed_pod("empty")]) == Status.unschedulable("no feasible placements found").by(
        "Halves"
    )


def test_a_rejection_names_the_plugin(monkeypatch: pytest.MonkeyPatch) -> None:
    assert generated(monkeypatch, Status.unschedulable("not today")) == Status.unschedulable("not today").by("Halves")


@pytest.mark.parametrize("nonsense", [5, ["rack"]])
def test_a_result_of_the_wrong_type_raises(monkeypatch: pytest.MonkeyPatch, nonsense: Any) -> None:
    with pytest.raises(PluginError, match="Halves"):
        generated(monkeypatch, nonsense)


def test_the_highest_score_is_best(monkeypatch: pytest.MonkeyPatch) -> None:
    assert best(monkeypatch, a=10, b=np.int64(20), c=5) == 1


@pytest.mark.parametrize("score", [101, -1, "many", 0.5])
def test_scores_must_be_whole_numbers_in_range(monkeypatch: pytest.MonkeyPatch, score: Any) -> None:
    with pytest.raises(PluginError, match="PlacementScore"):
        best(monkeypatch, a=score)


def test_raw_scores_may_be_out_of_range(monkeypatch: pytest.MonkeyPatch) -> None:
    assert best(monkeypatch, normalizes=lambda scores: scores - scores.min(), a=-70, b=-50) == 1


@pytest.mark.parametrize("wrong", [lambda scores: scores[:1], lambda scores: scores * 1.0, lambda scores: None])
def test_normalized_scores_must_have_the_shape_of_raw_scores(monkeypatch: pytest.MonkeyPatch, wrong: Any) -> None:
    with pytest.raises(PluginError, match=r"expected an array of int64 and shape \(2,\)"):
        best(monkeypatch, normalizes=wrong, a=1, b=2)


@pytest.mark.parametrize(
    ("domains", "are_whole"),
    [([], True), (["a", "a"], True), (["a", "b", "b", "a"], True), (["a", "b"], False), ([None, None], False)],
)
def test_segments_are_whole_if_each_domain_has_a_multiple_of_their_size(
    domains: list[str | None], are_whole: bool
) -> None:
    assert Segments("rack", 2).are_whole(domains) is are_whole
