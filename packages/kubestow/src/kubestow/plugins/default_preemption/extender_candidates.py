"""Preemption candidates as extenders process them (semantics 9.4).

An extender may drop candidates and replace their victims. It works on node names and pods, not on rows of the node
table, because the table may change while the extender's response is pending. One of the remaining candidates is picked
by the same costs as among all (:mod:`.candidate_ranking`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from kubestow.cluster.pods.table import PodChanges
from kubestow.framework.interface import PostFilterResult, Victims
from kubestow.framework.status import Status
from kubestow.plugins.default_preemption.candidate_ranking import CandidateRanking
from kubestow.plugins.default_preemption.candidates import FoundCandidates

__all__ = ["PreemptionCandidates", "pick_one_node"]

_NO_CANDIDATE = Status.unschedulable("preemption: no candidate node for preemption")


@dataclass(frozen=True, slots=True)
class PreemptionCandidates:
    """Implements :class:`kubestow.framework.interface.ExtenderCandidates`.

    ``nominate`` makes the result for a node and its victims.
    """

    found: FoundCandidates
    nominate: Callable[[str, Victims], PostFilterResult]

    def victims_by_node(self) -> Mapping[str, Victims]:
        """The candidates before any extender is called."""
        return self.found.victims_by_node()

    def select(self, victims_by_node: Mapping[str, Victims]) -> PostFilterResult:
        """The result for the best of the remaining candidates."""
        if not victims_by_node:
            return PostFilterResult(_NO_CANDIDATE)
        name = pick_one_node(victims_by_node)
        return self.nominate(name, victims_by_node[name])


def pick_one_node(victims_by_node: Mapping[str, Victims]) -> str:
    """The node with the lowest costs, the first by name among equals (semantics 9.5)."""
    names = sorted(victims_by_node)
    victims = [victims_by_node[name] for name in names]
    violations = np.array([each.violations for each in victims], np.int64)
    costs = CandidateRanking.of(PodChanges.of([each.pods for each in victims], -1), violations)
    return names[int(costs.lowest(np.arange(len(names)))[0])]
