"""The cluster events raised by an update of a pod or node (semantics 6.9)."""

from __future__ import annotations

from collections.abc import Iterator

from kubestow.api.core import Node
from kubestow.cluster.changes.events import Action, ClusterEvent, EventResource
from kubestow.cluster.nodes.table import difference
from kubestow.cluster.pods.shapes import PodInfo

ASSIGNED_POD_ADD = ClusterEvent(EventResource.ASSIGNED_POD, Action.ADD)
ASSIGNED_POD_DELETE = ClusterEvent(EventResource.ASSIGNED_POD, Action.DELETE)
UNSCHEDULABLE_POD_ADD = ClusterEvent(EventResource.UNSCHEDULABLE_POD, Action.ADD)
UNSCHEDULABLE_POD_DELETE = ClusterEvent(EventResource.UNSCHEDULABLE_POD, Action.DELETE)
NODE_ADD = ClusterEvent(EventResource.NODE, Action.ADD)
NODE_DELETE = ClusterEvent(EventResource.NODE, Action.DELETE)
EVERY_EVENT = ClusterEvent(EventResource.WILDCARD, Action.ALL)
"""The event that requeues a pod whatever rejected it: it has been unschedulable for too long, or events are missing."""

_ASSIGNED_POD_UPDATE = ClusterEvent(EventResource.ASSIGNED_POD, Action.UPDATE)
_UNSCHEDULABLE_POD_UPDATE = ClusterEvent(EventResource.UNSCHEDULABLE_POD, Action.UPDATE)

#: In kube-scheduler's order.
_NODE_ACTIONS = (
    Action.UPDATE_NODE_ALLOCATABLE,
    Action.UPDATE_NODE_LABEL,
    Action.UPDATE_NODE_TAINT,
    Action.UPDATE_NODE_CONDITION,
    Action.UPDATE_NODE_ANNOTATION,
    Action.UPDATE_NODE_DECLARED_FEATURE,
)


def node_events(old: Node, new: Node) -> Iterator[ClusterEvent]:
    """The events of a node's update; none when no field that scheduling reads has changed."""
    changed = difference(old, new)
    if old.spec.unschedulable and not new.spec.unschedulable:
        yield ClusterEvent(EventResource.NODE, Action.UPDATE_NODE_TAINT)
    for action in _NODE_ACTIONS:
        if not changed & action:
            continue
        if action is Action.UPDATE_NODE_TAINT and old.spec.taints == new.spec.taints:
            continue  # only spec.unschedulable differs, reported above if it was cleared
        yield ClusterEvent(EventResource.NODE, action)


def pod_events(old: PodInfo, new: PodInfo) -> list[ClusterEvent]:
    """The events of a pod's update; the generic one when nothing in particular changed."""
    update = _ASSIGNED_POD_UPDATE if new.spec.node_name else _UNSCHEDULABLE_POD_UPDATE
    return [ClusterEvent(update.resource, action) for action in _pod_actions(old, new)] or [update]


def _pod_actions(old: PodInfo, new: PodInfo) -> Iterator[Action]:
    reshaped = new.shape is not old.shape  # else labels and spec are the same
    if reshaped and old.labels != new.labels:
        yield Action.UPDATE_POD_LABEL
    if new.requests is not old.requests and any(new.requests.get(name, 0) < n for name, n in old.requests.items()):
        yield Action.UPDATE_POD_SCALE_DOWN
    if reshaped and old.spec.scheduling_gates and not new.spec.scheduling_gates:
        yield Action.UPDATE_POD_SCHEDULING_GATES_ELIMINATED
    if reshaped and len(old.spec.tolerations) != len(new.spec.tolerations):
        yield Action.UPDATE_POD_TOLERATION
    if (
        old.status.resource_claim_statuses != new.status.resource_claim_statuses
        or old.status.extended_resource_claim_status != new.status.extended_resource_claim_status
    ):
        yield Action.UPDATE_POD_GENERATED_RESOURCE_CLAIM
