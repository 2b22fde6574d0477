"""Placements: the parts of the cluster from which a gang is given one as a whole (semantics 4.10, 8.19).

When the pods of a gang have to be close to each other, a PlacementGenerate plugin lists the parts of the cluster that
qualify, such as the nodes of each rack. The scheduler simulates the gang in each of them. PlacementScore plugins score
the placements in which it fits from 0 to 100; weights and ties work as with the scores of nodes.

These plugins only read the cluster.
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
    """A part of the cluster; ``name`` identifies it in messages."""

    name: str
    nodes: Nodes


@dataclass(frozen=True, slots=True)
class Proposal:
    """How pods of a gang would fit into a placement: each with the name of its node. None of them is placed yet."""

    placement: Placement
    assignments: Sequence[tuple[PodInfo, str]]


class PlacementGeneratePlugin(Plugin):
    """Lists the placements of a gang; a profile has at most one such plugin."""

    @abstractmethod
    def placements(self, gang: Gang, pods: Sequence[PodInfo], nodes: Nodes) -> Sequence[Placement] | Status | None:
        """The placements among ``nodes``, which are all nodes; None when the gang may use all of them.

        ``pods`` are the members without a node; others may be placed already (``gang.members.placed``). A status other
        than a success rejects the gang.
        """


class PlacementScorePlugin(Plugin):
    """Scores the placements in which a gang fits."""

    @abstractmethod
    def score_placement(self, gang: Gang, proposal: Proposal) -> int:
        """The raw score of one placement, as a whole number."""

    def normalize_placements(self, gang: Gang, scores: Scores) -> Scores:
        """Normalize raw scores (int64, one per placement) to 0 .. MAX_SCORE, where they are by default."""
        return scores
