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

import numpy as np
from numpy.typing import NDArray

from kubestow.cluster.nodes.views import Nodes
from kubestow.cluster.pods.shapes import PodInfo
from kubestow.framework.gang import Gang
from kubestow.framework.interface import Plugin
from kubestow.framework.status import Status

__all__ = [
    "Placement",
    "PlacementGeneratePlugin",
    "PlacementScorePlugin",
    "Proposal",
]

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
