"""The scheduling queue without queueing hints, as with the gate SchedulerQueueingHints off (the default of v1.31).

Every event that a plugin registered requeues the pods that it rejected, with three exceptions. A node is checked first:
it must admit the pod as a kubelet would. A pod that is added or updated on a node helps only pods that a topology may
join to it. And an update of a pending pod requeues it whatever it changes, unless it is one of the status. Events are
not replayed for pods in flight: after any event since the last pop a rejected pod backs off rather than waits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

from msgspec.structs import replace as with_fields

from kubestow.api.core import Node
from kubestow.api.storage import WAIT_FOR_FIRST_CONSUMER, StorageClass
from kubestow.cluster.cache import Cluster
from kubestow.cluster.changes.events import Action, ClusterEvent, EventResource
from kubestow.cluster.nodes.views import NodeRow
from kubestow.cluster.pods.shapes import PodInfo
from kubestow.framework.event_registration import EventRegistration
from kubestow.framework.interface import Plugin
from kubestow.rules.matching import selects_node, untolerated
from kubestow.scheduling.queue.places import InFlightEvent
from kubestow.scheduling.queue.queueing_hints import QueueingHints
from kubestow.scheduling.queue.scheduling_queue import SchedulingQueue
from kubestow.scheduling.queued_pod import Place, QueuedPod, QueueingStrategy

Among = Callable[[PodInfo], bool]

#: What changes about a pending pod itself, for which its own update stands.
_OWN_UPDATES = (
    Action.UPDATE_POD_TOLERATION
    | Action.UPDATE_POD_SCHEDULING_GATES_ELIMINATED
    | Action.UPDATE_POD_GENERATED_RESOURCE_CLAIM
)
#: The update of a pod on a node that frees room there, whatever the topology.
_SCALE_DOWN = (Action.UPDATE_POD_SCALE_DOWN,)
_TOPOLOGY_SPREAD = "PodTopologySpread"


class EventsWithoutHints(QueueingHints):
    """The registrations of all plugins, each of which requeues without being asked again."""

    def _requeueing_registrations(self, plugin: Plugin) -> list[EventRegistration]:
        registrations = (
            replace(
                each,
                event=replace(each.event, action=_without_own_updates(each.event)),
                hint=None,
                hint_keys=None,
                event_filter=None,
            )
            for each in super()._requeueing_registrations(plugin)
        )
        return [each for each in registrations if each.event.action]


def _without_own_updates(event: ClusterEvent) -> Action:
    if event.resource is not EventResource.POD or event.action & Action.UPDATE == Action.UPDATE:
        return event.action
    return event.action & ~_OWN_UPDATES


class SchedulingQueueWithoutHints(SchedulingQueue):
    """All pending pods of the profiles; the nodes of ``cluster`` are asked whether they admit a pod."""

    def __init__(self, cluster: Cluster, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._cluster = cluster
        #: Whether an event that some plugin registered has come since the last pod was popped.
        self._has_moved = False

    def _put_in_flight(self, queued: QueuedPod | None, now: float, *, within_attempt: bool = False) -> QueuedPod | None:
        if queued is not None:
            self._has_moved = False
        return super()._put_in_flight(queued, now, within_attempt=within_attempt)

    def _requeue_updated(self, queued: QueuedPod, old: PodInfo, events: Iterable[ClusterEvent]) -> None:
        if not _is_updated(old, queued.info):
            return
        now = self._clock.monotonic()
        if queued.place is Place.GATED:
            self.gating.enqueue(queued, "BackoffComplete", now)
        else:
            self.places.unschedulable.remove(queued.info.uid)
            self.moves.requeue_with_strategy(queued, QueueingStrategy.AFTER_BACKOFF, "BackoffComplete", now)

    def _replay(self, queued: QueuedPod, events: Iterable[InFlightEvent]) -> QueueingStrategy:
        is_rejected = bool(queued.rejectors or queued.pending_plugins)
        if is_rejected and not self._has_moved and not any(kept.only for kept in events):
            return QueueingStrategy.SKIP
        return QueueingStrategy.AFTER_BACKOFF

    def move_all_to_active_or_backoff(
        self, event: ClusterEvent, old: Any = None, new: Any = None, *, among: Among | None = None
    ) -> None:
        if not event.is_wildcard and not self._hints.matching(event):
            return
        if isinstance(new, StorageClass) and old is None and new.volume_binding_mode != WAIT_FOR_FIRST_CONSUMER:
            return
        self._has_moved = True
        if isinstance(new, Node):
            among = _both(among, self._admitted_by(new))
        elif new is not None and event.resource is EventResource.ASSIGNED_POD and event.action not in _SCALE_DOWN:
            among = _both(among, self._joined_by_topology_to(new))
        super().move_all_to_active_or_backoff(event, old, new, among=among)

    def _admitted_by(self, node: Node) -> Among:
        """Whether a node admits a pod: its resources, labels, host ports and NoSchedule taints."""
        nodes = self._cluster.nodes
        number = nodes.rows.get(node.metadata.name)
        if number is None:
            return lambda pod: False
        row = NodeRow(nodes, number)

        def is_admitted(pod: PodInfo) -> bool:
            return (
                row.pod_count < row.allowed_pods
                and all(
                    row.requested(name) + amount <= row.allocatable(name)
                    for name, amount in pod.requests.items()
                    if amount
                )
                and selects_node(pod.spec, node.metadata.name, node.metadata.labels)
                and not any(row.as_nodes().port_taken(port)[0] for port in pod.shape.host_ports)
                and not untolerated(node.spec.taints, pod.spec.tolerations, effects=("NoSchedule",))
            )

        return is_admitted

    def _joined_by_topology_to(self, assigned: PodInfo) -> Among:
        """Whether PodTopologySpread rejected a pod of the namespace of an assigned pod, or an affinity term of it
        selects the assigned pod.
        """
        namespace, labels = assigned.namespace, assigned.labels
        namespace_labels = self._cluster.namespaces.get(namespace, {})

        def is_joined(pod: PodInfo) -> bool:
            queued = self.pods.get(pod.uid)
            if queued is not None and pod.namespace == namespace and _TOPOLOGY_SPREAD in queued.rejectors:
                return True
            required = pod.shape.affinity_terms.required
            return any(term.matches(namespace, labels, namespace_labels) for term in required)

        return is_joined


def _both(one: Among | None, other: Among) -> Among:
    return other if one is None else lambda pod: one(pod) and other(pod)


def _is_updated(old: PodInfo, new: PodInfo) -> bool:
    """Whether anything but the status, the bookkeeping of the API server and the finalizers of a pod has changed."""
    return (
        new.spec != old.spec
        or new.status.resource_claim_statuses != old.status.resource_claim_statuses
        or with_fields(new.metadata, resource_version="", generation=0, finalizers=[])
        != with_fields(old.metadata, resource_version="", generation=0, finalizers=[])
    )
