"""TaintToleration keeps pods off nodes with taints that they do not tolerate (semantics 8.5).

NoSchedule and NoExecute taints filter; PreferNoSchedule taints lower a node's score.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kubestow.api.core import Node, Taint
from kubestow.cluster.changes.events import Action, EventResource
from kubestow.cluster.nodes.views import Nodes
from kubestow.cluster.pods.shapes import PodInfo
from kubestow.framework.cycle_state import CycleState
from kubestow.framework.event_registration import Invalidation, events_of_nodes_without_hints, on
from kubestow.framework.interface import FilterPlugin, Handle, PreScorePlugin, ScorePlugin, normalized
from kubestow.framework.status import Status, Verdict
from kubestow.rules.matching import NO_EXECUTE, NO_SCHEDULE, PREFER_NO_SCHEDULE, untolerated

_UNTOLERATED_TAINTS = Status.unresolvable("node(s) had untolerated taint(s)")
_FILTERED_EFFECTS = (NO_SCHEDULE, NO_EXECUTE)


class TaintToleration(FilterPlugin, PreScorePlugin, ScorePlugin):
    """Filters by NoSchedule and NoExecute taints, scores by PreferNoSchedule taints."""

    name = "TaintToleration"
    reads_requests = False
    label_keys = ()
    missing_pre_score_error = 'failed to read "PreScoreTaintToleration" from cycleState: not found'

    def __init__(self, args: Any, handle: Handle) -> None:
        super().__init__(args, handle)
        self._comparisons = handle.feature_enabled("TaintTolerationComparisonOperators")
        self.events_to_register = (
            on(EventResource.NODE, Action.ADD | Action.UPDATE_NODE_TAINT, hint=self._is_schedulable_after_node_change),
            *events_of_nodes_without_hints(handle),
            on(
                EventResource.POD,
                Action.UPDATE_POD_TOLERATION,
                invalidates=Invalidation.NOTHING,
                hint=_is_schedulable_after_pod_toleration_change,
            ),
        )

    def signature(self, pod: PodInfo) -> Hashable:
        return tuple(pod.spec.tolerations)

    hint_signature = signature

    def filter(self, state: CycleState, pod: PodInfo, nodes: Nodes) -> Verdict | None:
        """Evaluated once per distinct list of taints."""
        rejected = nodes.by_taints(lambda taints: not self._tolerated(pod, taints), np.bool_)
        return Verdict.rejecting(rejected, _UNTOLERATED_TAINTS) if rejected.any() else None

    def pre_score(self, state: CycleState, pod: PodInfo, nodes: Nodes) -> None:
        """Nothing to prepare. Never skips: without PreferNoSchedule taints all nodes score 100."""

    def score(self, state: CycleState, pod: PodInfo, nodes: Nodes) -> NDArray[np.int64]:
        """The number of untolerated PreferNoSchedule taints of each node."""
        tolerations = [t for t in pod.spec.tolerations if t.effect in ("", PREFER_NO_SCHEDULE)]

        def count(taints: Sequence[Taint]) -> int:
            return len(untolerated(taints, tolerations, effects=(PREFER_NO_SCHEDULE,), comparisons=self._comparisons))

        return nodes.by_taints(count)

    def normalize(self, state: CycleState, pod: PodInfo, scores: NDArray[np.int64], nodes: Nodes) -> NDArray[np.int64]:
        """The node with the most untolerated taints gets 0."""
        return normalized(scores, reverse=True)

    def _tolerated(self, pod: PodInfo, taints: Sequence[Taint]) -> bool:
        """Whether the pod tolerates all NoSchedule and NoExecute taints."""
        return not untolerated(taints, pod.spec.tolerations, effects=_FILTERED_EFFECTS, comparisons=self._comparisons)

    # -- queueing hints ----------------------------------------------------------------------------------------------

    def _is_schedulable_after_node_change(self, pod: PodInfo, old: Node | None, new: Node) -> bool:
        return self._tolerated(pod, new.spec.taints) and (old is None or not self._tolerated(pod, old.spec.taints))


def _is_schedulable_after_pod_toleration_change(pod: PodInfo, old: PodInfo | None, new: PodInfo) -> bool:
    return new.uid == pod.uid
