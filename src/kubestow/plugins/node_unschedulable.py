"""NodeUnschedulable keeps pods off nodes that are cordoned (semantics 8.3)."""

from __future__ import annotations

from collections.abc import Hashable

from kubestow.api.core import Node, Taint
from kubestow.cluster.events import Action, EventResource
from kubestow.cluster.nodes.taints import NO_SCHEDULE, tolerates
from kubestow.cluster.nodes.views import Nodes
from kubestow.cluster.pods.shapes import PodInfo
from kubestow.framework.cycle_state import CycleState
from kubestow.framework.event_registration import Invalidation, on
from kubestow.framework.interface import FilterPlugin
from kubestow.framework.status import Status, Verdict

__all__ = ["NodeUnschedulable"]

_TAINT = Taint(key="node.kubernetes.io/unschedulable", effect=NO_SCHEDULE)
_REFUSAL = Status.unresolvable("node(s) were unschedulable")


def _tolerates_cordon(pod: PodInfo) -> bool:
    return any(tolerates(toleration, _TAINT) for toleration in pod.spec.tolerations)


def _became_schedulable(pod: PodInfo, old: Node | None, new: Node) -> bool:
    return not new.spec.unschedulable and (old is None or old.spec.unschedulable)


def _now_tolerates(pod: PodInfo, old: PodInfo | None, new: PodInfo) -> bool:
    return new.uid == pod.uid and _tolerates_cordon(new)


class NodeUnschedulable(FilterPlugin):
    """Rejects nodes with ``spec.unschedulable``, unless the pod tolerates the taint that stands for it."""

    name = "NodeUnschedulable"
    events_to_register = (
        on(EventResource.NODE, Action.ADD | Action.UPDATE_NODE_TAINT, hint=_became_schedulable),
        on(EventResource.POD, Action.UPDATE_POD_TOLERATION, invalidates=Invalidation.NOTHING, hint=_now_tolerates),
    )

    def applies_to(self, pod: PodInfo) -> bool:
        """Pods that tolerate the taint may go anywhere."""
        return not _tolerates_cordon(pod)

    def signature(self, pod: PodInfo) -> Hashable:
        """All pods it concerns are alike."""
        return ()

    def filter(self, state: CycleState, pod: PodInfo, nodes: Nodes) -> Verdict | None:
        """One column."""
        cordoned = nodes.unschedulable
        return Verdict.rejecting(cordoned, _REFUSAL) if cordoned.any() else None
