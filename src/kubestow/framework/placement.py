"""Placements: parts of the cluster, of which a gang gets one as a whole (semantics 4.10, 8.19).

Where the pods of a gang have to be close to each other, a plugin of PlacementGenerate says which parts of the cluster
would do: the nodes of each rack, say. The scheduler tries the gang in each of them. Among those that it fits in,
plugins of PlacementScore say which is the best, from 0 to 100; weights and ties are as with the scores of nodes.

A generator looks at the cluster and answers; it neither places anybody nor remembers anything.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from operator import index
from random import Random

import numpy as np
from numpy.typing import NDArray

from kubestow.cluster.nodes.views import Nodes
from kubestow.cluster.pods.shapes import PodInfo
from kubestow.errors import PluginError
from kubestow.framework.gang import Gang
from kubestow.framework.interface import Plugin
from kubestow.framework.runtime import SCORES, Asking, checked_array, in_range
from kubestow.framework.status import Status

__all__ = [
    "Placement",
    "PlacementGeneratePlugin",
    "PlacementPlugins",
    "PlacementScorePlugin",
    "Proposal",
]

_NOWHERE = Status.unschedulable("no feasible placements found")

Scores = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Placement:
    """A part of the cluster; the ``name`` is for people."""

    name: str
    nodes: Nodes


@dataclass(frozen=True, slots=True)
class Proposal:
    """How pods of a gang would fit into a placement: each with the name of its node. None of them is there yet."""

    placement: Placement
    assignments: Sequence[tuple[PodInfo, str]]


class PlacementGeneratePlugin(Plugin):
    """Says which parts of the cluster a gang may be put in; a profile has at most one such plugin."""

    @abstractmethod
    def placements(self, gang: Gang, pods: Sequence[PodInfo], nodes: Nodes) -> Sequence[Placement] | Status | None:
        """The parts of the ``nodes``, which are all there are; None when the gang may go anywhere.

        ``pods`` are the members that look for a node now; others may have theirs (``gang.members.placed``). A status
        that is no success refuses the gang.
        """


class PlacementScorePlugin(Plugin):
    """Ranks the placements that a gang fits in."""

    @abstractmethod
    def score_placement(self, gang: Gang, proposal: Proposal) -> int:
        """A raw score of one of them, a whole number."""

    def normalize_placements(self, gang: Gang, scores: Scores) -> Scores:
        """Raw scores (int64, one per placement) to 0 .. MAX_SCORE; by default they are that already."""
        return scores


@dataclass(frozen=True, slots=True)
class PlacementPlugins:
    """What a profile has of them: one generator or none, and scores with their weights."""

    generator: PlacementGeneratePlugin | None
    scores: Sequence[tuple[PlacementScorePlugin, int]]
    asking: Asking

    def generate(self, gang: Gang, pods: Sequence[PodInfo], nodes: Nodes) -> Sequence[Placement] | Status | None:
        """The placements to try, at least one; a status when there are none, None when the gang may go anywhere.

        Raises PluginError.
        """
        plugin = self.generator
        if plugin is None:
            return None
        found = self.asking(plugin, "PlacementGenerate", _listed, plugin, gang, pods, nodes)
        if found is None:
            return None
        if isinstance(found, Status):
            return None if found.ok else found.by(plugin.name)
        placements = [placement for placement in found if len(_checked(plugin, placement).nodes)]
        return placements or _NOWHERE.by(plugin.name)

    def best(self, gang: Gang, proposals: Sequence[Proposal], random: Random) -> int:
        """The position of the best of some proposals, a random one if several are. Raises PluginError."""
        totals = np.zeros(len(proposals), np.int64)
        for plugin, weight in self.scores:
            totals += self._scored(plugin, gang, proposals) * weight
        best = np.flatnonzero(totals == totals.max())
        return int(best[0]) if len(best) == 1 else int(best[random.randrange(len(best))])

    def _scored(self, plugin: PlacementScorePlugin, gang: Gang, proposals: Sequence[Proposal]) -> Scores:
        raw = np.zeros(len(proposals), np.int64)
        for position, proposal in enumerate(proposals):
            raw[position] = self.asking(plugin, "PlacementScore", _whole, plugin, gang, proposal)
        raw.flags.writeable = False
        point = "NormalizePlacementScore"
        scores = self.asking(plugin, point, plugin.normalize_placements, gang, raw)
        return in_range(plugin, point, checked_array(plugin, point, scores, SCORES, len(proposals)))


def _listed(
    plugin: PlacementGeneratePlugin, gang: Gang, pods: Sequence[PodInfo], nodes: Nodes
) -> list[Placement] | Status | None:
    answer = plugin.placements(gang, pods, nodes)
    return answer if answer is None or isinstance(answer, Status) else list(answer)


def _whole(plugin: PlacementScorePlugin, gang: Gang, proposal: Proposal) -> int:
    return index(plugin.score_placement(gang, proposal))


def _checked(plugin: PlacementGeneratePlugin, placement: object) -> Placement:
    if not isinstance(placement, Placement):
        problem = f"answered with {type(placement).__name__}, expected Placements, a Status or None"
        raise PluginError(plugin.name, "PlacementGenerate", problem)
    if not isinstance(placement.nodes, Nodes):
        problem = f"answered with a Placement of {type(placement.nodes).__name__}, expected Nodes"
        raise PluginError(plugin.name, "PlacementGenerate", problem)
    return placement
