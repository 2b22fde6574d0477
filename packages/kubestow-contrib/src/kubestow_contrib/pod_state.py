"""PodState prefers nodes where pods are ending to nodes that pods are nominated for."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kubestow.cluster.changes.events import Action, EventResource
from kubestow.cluster.nodes.views import Nodes
from kubestow.cluster.pods.shapes import PodInfo
from kubestow.framework.cycle_state import CycleState
from kubestow.framework.event_registration import on
from kubestow.framework.interface import Handle, ScorePlugin
from kubestow_contrib.range_normalization import normalized_range


class PodState(ScorePlugin):
    """Scores the number of terminating pods less the number of nominated pods."""

    name = "PodState"
    label_keys = ()
    events_to_register = (
        on(EventResource.ASSIGNED_POD, Action.ALL | Action.UPDATE_POD_SCALE_UP, requeues=False),
        on(EventResource.NOMINATION, Action.ALL, requeues=False),
        on(EventResource.NODE, Action.ADD, requeues=False),
    )

    def __init__(self, args: Any, handle: Handle) -> None:
        super().__init__(args, handle)
        self._pods = handle.cluster.counter((self.name, "all"), lambda shape: 1, terminating=True)
        self._staying = handle.cluster.counter((self.name, "staying"), lambda shape: 1)

    def signature(self, pod: PodInfo) -> Hashable:
        """The same for all pods."""
        return ()

    def score(self, state: CycleState, pod: PodInfo, nodes: Nodes) -> NDArray[np.int64]:
        """The difference; it may be negative."""
        rows = nodes.rows
        terminating = self._pods.by_row[rows] - self._staying.by_row[rows]
        nominated: NDArray[np.int64] = self.handle.cluster.nodes.nominated_count.readonly[rows]
        return terminating - nominated

    def normalize(self, state: CycleState, pod: PodInfo, scores: NDArray[np.int64], nodes: Nodes) -> NDArray[np.int64]:
        """0 for the lowest score, 100 for the highest."""
        return normalized_range(scores)
