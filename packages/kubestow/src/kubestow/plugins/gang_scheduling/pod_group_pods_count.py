"""PodGroupPodsCount prefers the placement that takes most pods of a group (semantics 8.19)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from kubestow.framework.gang import Gang
from kubestow.framework.interface import normalized
from kubestow.framework.placement import PlacementScorePlugin, Proposal

__all__ = ["PodGroupPodsCount"]


class PodGroupPodsCount(PlacementScorePlugin):
    """Counts the group's pods that would have nodes, including those that have them already."""

    name = "PodGroupPodsCount"
    events_to_register = ()

    def score_placement(self, gang: Gang, proposal: Proposal) -> int:
        return len(gang.members.placed) + len(proposal.assignments)

    def normalize_placements(self, gang: Gang, scores: NDArray[np.int64]) -> NDArray[np.int64]:
        """The placement with most pods gets 100."""
        return normalized(scores)
