"""How the best placement of a gang is searched for: how long, and with which pauses."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from kubestow.cluster.nodes.views import Nodes
from kubestow.framework.gang import Placement, Proposal
from kubestow.scheduling.decision.node_selection import Scope
from kubestow.scheduling.decision.pipeline import run_synchronously
from kubestow.scheduling.gangs import placer
from kubestow.scheduling.gangs.placer import Assignments, search_placements
from kubestow.scheduling.queued_pod import QueuedPod
from kubestow.testing import PluginHarness, node, pod

NOTHING = Assignments((), ())


class Search:
    """A search for a gang of one pod among placements of one node each, which are called as their nodes."""

    def __init__(
        self,
        count: int,
        fits: Callable[[str], bool],
        *,
        at_once: bool = False,
        best: int = 0,
        leaves: Sequence[str] = (),
    ) -> None:
        leaving = list(leaves)
        harness = PluginHarness([node(f"n{number}") for number in range(count)])
        self.tried, self.pauses, self.checks, self.scored = list[str](), 0, 0, list[str]()
        queued = QueuedPod(harness.info(pod("a")), 0.0)
        harness.cluster.nominate(queued.info, "elsewhere")  # so no capacity is counted
        table = harness.cluster.nodes
        placements = [Placement(name, Nodes(table, np.array([row], np.intp))) for row, name in enumerate(table.names)]

        def assign(name: str) -> Assignments:
            self.tried.append(name)
            return Assignments([(queued, name)], ()) if fits(name) else NOTHING

        async def try_in(scope: Scope) -> Assignments:
            assert scope.names is not None
            (name,) = scope.names
            return assign(name)

        async def pause() -> None:
            self.pauses += 1
            for name in leaving:
                harness.cluster.remove_node(name)  # which moves another one to its row
            leaving.clear()

        def check() -> None:
            self.checks += 1

        def choose(gang: Any, proposals: Sequence[Proposal], random: Random) -> int:
            self.scored = [proposal.assignments[0][1] for proposal in proposals]
            return best

        attempt: Any = SimpleNamespace(
            pods=[queued], needed=1, gang=None, profile=SimpleNamespace(gangs=SimpleNamespace(choose_placement=choose))
        )
        members: Any = SimpleNamespace(
            assign=lambda nodes: assign(nodes.names[0]) if at_once else None, check=check, copies=None
        )
        search = search_placements(
            attempt, placements, try_in, at_once=members, cluster=harness.cluster, random=Random(0), pause=pause
        )
        self.found = [name for _, name in run_synchronously(search).nodes]


def test_the_placement_with_the_best_score_is_chosen_of_those_that_fit() -> None:
    search = Search(4, lambda name: name in ("n1", "n3"), best=1)
    assert (search.scored, search.found) == (["n1", "n3"], ["n3"])


def test_the_only_placement_that_fits_needs_no_score() -> None:
    search = Search(3, lambda name: name == "n1")
    assert (search.scored, search.found, search.tried) == ([], ["n1"], ["n0", "n1", "n2"])


def test_without_a_placement_that_fits_the_first_one_says_why() -> None:
    search = Search(3, lambda name: False)
    assert (search.found, len(search.tried)) == ([], 3)


@pytest.mark.parametrize(("first_fitting", "tried"), [(0, 4), (5, 6), (9, 8)])
def test_the_search_ends_after_many_decisions_once_a_placement_fits(
    first_fitting: int, tried: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(placer, "_MAX_DECISIONS", 4)
    search = Search(8, lambda name: int(name[1:]) >= first_fitting)
    assert len(search.tried) == tried


def test_members_that_are_assigned_at_once_are_tried_in_every_placement(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(placer, "_MAX_DECISIONS", 4)
    assert len(Search(8, lambda name: True, at_once=True).tried) == 8


@pytest.mark.parametrize(("at_once", "pauses"), [(False, 7), (True, 2)], ids=["tried", "assigned at once"])
def test_other_tasks_run_after_each_try_and_after_many_assignments(
    at_once: bool, pauses: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What they may have changed is looked at before the next assignment."""
    monkeypatch.setattr(placer, "_DECISIONS_BETWEEN_PAUSES", 3)
    search = Search(7, lambda name: True, at_once=at_once)
    assert search.pauses == search.checks == pauses


@pytest.mark.parametrize("at_once", [False, True], ids=["tried", "assigned at once"])
def test_placements_keep_their_nodes_when_other_nodes_are_deleted_during_a_pause(
    at_once: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(placer, "_DECISIONS_BETWEEN_PAUSES", 2)
    search = Search(6, lambda name: name in ("n4", "n5"), at_once=at_once, best=1, leaves=["n0"])
    assert search.tried == [f"n{number}" for number in range(6)]
    assert (search.scored, search.found) == (["n4", "n5"], ["n5"])
