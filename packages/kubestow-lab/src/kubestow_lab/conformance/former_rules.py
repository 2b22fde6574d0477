"""What Kubernetes 1.34, on which the recorded cluster-capacity was built, does otherwise than 1.36.

NodeResourcesBalancedAllocation scored how balanced a node is with the pod; now it scores by how much the pod improves
that. The message of TaintToleration named the taint. Only the replay of recorded reports uses this module.
"""

from __future__ import annotations

import re
from collections import Counter

import numpy as np
from numpy.typing import NDArray

from kubestow.cluster.nodes.views import Nodes
from kubestow.cluster.pods.shapes import PodInfo
from kubestow.framework.cycle_state import CycleState
from kubestow.framework.interface import ScorePlugin
from kubestow.framework.profile import Registry
from kubestow.plugins.node_resources.balanced_allocation import NodeResourcesBalancedAllocation

__all__ = ["FormerBalancedAllocation", "with_former_plugins", "without_taints"]

_MESSAGE = re.compile(r"(0/\d+ nodes are available: )(.*?)\.( no new claims.*)?")
_TAINT = re.compile(r"untolerated taint \{[^}]*\}")
_MAX_SCORE = 100


class FormerBalancedAllocation(ScorePlugin):
    """The score of a node by the standard deviation of its used fractions of CPU and memory, with the pod."""

    name = NodeResourcesBalancedAllocation.name
    events_to_register = NodeResourcesBalancedAllocation.events_to_register

    def score(self, state: CycleState, pod: PodInfo, nodes: Nodes) -> NDArray[np.int64]:
        """(1 − half the distance of the two fractions) × 100."""
        fractions = []
        for resource in ("cpu", "memory"):
            used = nodes.requested(resource) + pod.shape.requests.get(resource, 0)
            fractions.append(np.minimum(used / np.maximum(nodes.allocatable(resource), 1), 1.0))
        scores: NDArray[np.int64] = ((1.0 - np.abs(fractions[0] - fractions[1]) / 2) * _MAX_SCORE).astype(np.int64)
        return scores


def with_former_plugins(registry: Registry) -> Registry:
    """The plugins of 1.34 where they differ."""
    return {**registry, FormerBalancedAllocation.name: FormerBalancedAllocation}


def without_taints(message: str) -> str:
    """A message of 1.34 as 1.36 would write it: taints are counted together."""
    found = _MESSAGE.fullmatch(message)
    if found is None:
        return message
    counts = Counter[str]()
    for part in re.split(r", (?=\d+ )", found[2]):
        count, _, reason = part.partition(" ")
        counts[_TAINT.sub("untolerated taint(s)", reason)] += int(count)
    reasons = ", ".join(sorted(f"{count} {reason}" for reason, count in counts.items()))
    return f"{found[1]}{reasons}.{found[3] or ''}"
