"""TaintToleration keeps pods off nodes with taints that they do not tolerate (semantics 8.5).

NoSchedule and NoExecute taints filter; PreferNoSchedule taints lower a node's score.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kubestow.api.core import Node, Taint
from kubestow.cluster.changes.events import Action, EventResource
from kubestow.cluster.nodes.views import Nodes
from kubestow.cluster.pods.shapes import PodInfo
from kubestow.framework.cycle_state import CycleState
from kubestow.framework.event_registration import (
    HintKeys,
    Invalidation,
    events_of_nodes_without_hints,
    on,
    only_itself,
)
from kubestow.framework.interface import FilterPlugin, Handle, PreScorePlugin, ScorePlugin, normalized
from kubestow.framework.status import Status, Verdict
from kubestow.rules.matching import NO_EXECUTE, NO_SCHEDULE, PREFER_NO_SCHEDULE, untolerated

_UNTOLERATED_TAINTS = Status.unresolvable("node(s) had untolerated taint(s)")
_FILTERED_EFFECTS = (NO_SCHEDULE, NO_EXECUTE)


class TaintToleration(FilterPlugin, PreScorePlugin, ScorePlugin):
    """Filters by NoSchedule and NoExecute taints, scores by PreferNoSchedule taints."""

    name = "TaintToleration"
    reads_requests = reads_volumes = False
    label_keys = ()
    missing_pre_score_error = 'failed to read "PreScoreTaintToleration" from cycleState: not found'

    def __init__(self, args: Any, handle: Handle) -> None:
        super().__init__(args, handle)
        self._comparisons = handle.feature_enabled("TaintTolerationComparisonOperators")
        self.events_to_register = (
            on(
                EventResource.NODE,
                Action.ADD | Action.UPDATE_NODE_TAINT,
                hint=self._is_schedulable_after_node_change,
                hint_keys=_keys_of_node_change,
            ),
            *events_of_nodes_without_hints(handle),
            on(
                EventResource.POD,
                Action.UPDATE_POD_TOLERATION,
                invalidates=Invalidation.NOTHING,
                hint=_is_schedulable_after_pod_toleration_change,
                hint_keys=only_itself,
            ),
        )

    def signature(self, pod: PodInfo) -> Hashable:
        return tuple(pod.spec.tolerations)

    hint_signature = signature

    def hint_keys(self, pod: PodInfo) -> HintKeys:
        """Effect, key and value of the taints that the pod tolerates; None stands for any."""
        return [
            (each.effect or None, each.key or None, each.value if each.operator in ("", "Equal") else None)
            for each in pod.spec.tolerations
        ]

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
        return not self._untolerated(pod, taints)

    def _untolerated(self, pod: PodInfo, taints: Sequence[Taint]) -> list[Taint]:
        """The NoSchedule and NoExecute taints that the pod does not tolerate, in order."""
        return untolerated(taints, pod.spec.tolerations, effects=_FILTERED_EFFECTS, comparisons=self._comparisons)

    # -- queueing hints ----------------------------------------------------------------------------------------------

    def _is_schedulable_after_node_change(self, pod: PodInfo, old: Node | None, new: Node) -> bool:
        return self._tolerated(pod, new.spec.taints) and (old is None or not self._tolerated(pod, old.spec.taints))


class TaintTolerationNamingTaints(TaintToleration):
    """The plugin before :attr:`Behaviour.TAINT_REASON_NAMES_NO_TAINT`: the reason names the first untolerated taint."""

    def __init__(self, args: Any, handle: Handle) -> None:
        super().__init__(args, handle)
        #: The status of each taint that has been named, by its number, which is its verdict key.
        self._statuses: dict[int, Status] = {}
        self._numbers: dict[tuple[str, str], int] = {}

    def filter(self, state: CycleState, pod: PodInfo, nodes: Nodes) -> Verdict | None:
        keys: NDArray[np.int32] = nodes.by_taints(lambda taints: self._key(self._untolerated(pod, taints)), np.int32)
        return Verdict.of(keys, self._statuses) if keys.any() else None

    def _key(self, untolerated_taints: Sequence[Taint]) -> int:
        if not untolerated_taints:
            return 0
        key, value = untolerated_taints[0].key, untolerated_taints[0].value
        number = self._numbers.setdefault((key, value), len(self._numbers) + 1)
        if number not in self._statuses:
            self._statuses[number] = Status.unresolvable(f"node(s) had untolerated taint {{{key}: {value}}}")
        return number


def _keys_of_node_change(old: Node | None, new: Node) -> HintKeys | None:
    """The keys by which pods may tolerate one of the node's taints, which is enough because they must tolerate all."""
    if old is not None and old.spec.taints == new.spec.taints:
        return ()
    taints = [taint for taint in new.spec.taints if taint.effect in _FILTERED_EFFECTS]
    if not taints:
        return None
    # By default all pods tolerate some NoExecute taints for a while.
    taint = min(taints, key=lambda each: each.effect != NO_SCHEDULE)
    return product((taint.effect, None), (taint.key or None, None), (taint.value, None))


def _is_schedulable_after_pod_toleration_change(pod: PodInfo, old: PodInfo | None, new: PodInfo) -> bool:
    return new.uid == pod.uid
