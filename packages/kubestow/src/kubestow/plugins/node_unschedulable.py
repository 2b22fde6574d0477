"""NodeUnschedulable keeps pods off cordoned nodes (semantics 8.3)."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

from kubestow.api.core import Node, Taint
from kubestow.cluster.changes.events import Action, EventResource
from kubestow.cluster.nodes.views import Nodes
from kubestow.cluster.pods.shapes import PodInfo
from kubestow.framework.cycle_state import CycleState
from kubestow.framework.event_registration import (
    HintKeys,
    Invalidation,
    events_of_nodes_without_hints,
    every_pod_if,
    for_every_pod,
    on,
    only_itself,
)
from kubestow.framework.interface import FilterPlugin, Handle
from kubestow.framework.status import Status, Verdict
from kubestow.rules.matching import NO_SCHEDULE, tolerates

_TAINT = Taint(key="node.kubernetes.io/unschedulable", effect=NO_SCHEDULE)
_UNSCHEDULABLE = Status.unresolvable("node(s) were unschedulable")


class NodeUnschedulable(FilterPlugin):
    """Rejects nodes with ``spec.unschedulable``, unless the pod tolerates the corresponding taint."""

    name = "NodeUnschedulable"
    reads_requests = reads_volumes = False
    label_keys = ()

    def __init__(self, args: Any, handle: Handle) -> None:
        super().__init__(args, handle)
        self.events_to_register = (
            on(
                EventResource.NODE,
                Action.ADD | Action.UPDATE_NODE_TAINT,
                hint=for_every_pod(_becomes_schedulable),
                hint_keys=every_pod_if(_becomes_schedulable),
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

    def applies_to(self, pod: PodInfo) -> bool:
        """Pods that do not tolerate ``node.kubernetes.io/unschedulable:NoSchedule``."""
        return not _tolerates_unschedulable(pod)

    def signature(self, pod: PodInfo) -> Hashable:
        """The result is the same for all pods that the plugin applies to."""
        return ()

    def hint_signature(self, pod: PodInfo) -> Hashable:
        """Empty: the hint looks at the node only."""
        return ()

    def hint_keys(self, pod: PodInfo) -> HintKeys:
        """None."""
        return ()

    def filter(self, state: CycleState, pod: PodInfo, nodes: Nodes) -> Verdict | None:
        cordoned = nodes.unschedulable
        return Verdict.rejecting(cordoned, _UNSCHEDULABLE) if cordoned.any() else None


# -- queueing hints --------------------------------------------------------------------------------------------------


def _becomes_schedulable(old: Node | None, new: Node) -> bool:
    return not new.spec.unschedulable and (old is None or old.spec.unschedulable)


def _is_schedulable_after_pod_toleration_change(pod: PodInfo, old: PodInfo | None, new: PodInfo) -> bool:
    return new.uid == pod.uid and _tolerates_unschedulable(new)


def _tolerates_unschedulable(pod: PodInfo) -> bool:
    return any(tolerates(toleration, _TAINT) for toleration in pod.spec.tolerations)
