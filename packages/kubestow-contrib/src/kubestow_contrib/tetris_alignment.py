"""TetrisAlignment prefers the node whose free resources are most like what the pod requests.

Grandl et al., "Multi-Resource Packing for Cluster Schedulers" (Tetris, SIGCOMM 2014): the alignment of a
task and a machine is the dot product of the task's demands and the machine's free resources, all as shares of the
machine's capacity. A pod that needs much of a resource goes where much of it is free, and where the other resources are
not needed as much. The other half of Tetris, the order of jobs by their remaining work, is about the queue.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any, ClassVar

import msgspec
import numpy as np

from kubestow.cluster.changes.events import Action, EventResource
from kubestow.cluster.nodes.views import NodeRow, Nodes
from kubestow.cluster.pods.shapes import PodInfo
from kubestow.framework.cycle_state import CycleState
from kubestow.framework.event_registration import on
from kubestow.framework.interface import ScorePlugin, Scores
from kubestow_contrib.range_normalization import normalized_range

#: Raw scores are millionths of a dot product, which is at most the number of resources.
_SCALE = 1e6


class TetrisAlignmentArgs(msgspec.Struct, frozen=True):
    """The resources that count; without any, all that the pod requests."""

    resources: tuple[str, ...] = ()


class TetrisAlignment(ScorePlugin):
    """Scores the dot product of requested and free shares."""

    name = "TetrisAlignment"
    Args: ClassVar[type[Any]] = TetrisAlignmentArgs
    label_keys = ()
    events_to_register = (
        on(EventResource.ASSIGNED_POD, Action.ADD | Action.DELETE | Action.UPDATE_POD_SCALE_DOWN, requeues=False),
        on(EventResource.ASSIGNED_POD, Action.UPDATE_POD_SCALE_UP, requeues=False),
        on(EventResource.NODE, Action.ADD | Action.UPDATE_NODE_ALLOCATABLE, requeues=False),
    )

    def signature(self, pod: PodInfo) -> Hashable:
        """The requests that count."""
        return self._requests(pod)

    def score(self, state: CycleState, pod: PodInfo, nodes: Nodes) -> Scores:
        """The alignment in millionths."""
        total = np.zeros(len(nodes))
        for name, amount in self._requests(pod):
            capacity = nodes.allocatable(name)
            share = np.divide(1.0, capacity, out=np.zeros(len(nodes)), where=capacity > 0)
            free = np.maximum(capacity - nodes.requested(name), 0)
            # What exceeds the node is of no use to compare.
            total += np.minimum(amount * share, 1.0) * (free * share)
        scores: Scores = np.rint(total * _SCALE).astype(np.int64)
        return scores

    def score_row(self, state: CycleState, pod: PodInfo, node: NodeRow) -> int:
        """The same for a single node."""
        return int(self.score(state, pod, node.as_nodes())[0])

    def normalize(self, state: CycleState, pod: PodInfo, scores: Scores, nodes: Nodes) -> Scores:
        """100 for the best aligned node, 0 for the worst."""
        return normalized_range(scores)

    def _requests(self, pod: PodInfo) -> tuple[tuple[str, int], ...]:
        counted = self.args.resources
        requests = sorted(pod.shape.requests.items())
        return tuple((name, amount) for name, amount in requests if not counted or name in counted)
