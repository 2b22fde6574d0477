"""Where a pod is on its way to a node, in words, and which events would requeue it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from kubestow.cluster.changes.events import Action, ClusterEvent
from kubestow.cluster.pods.shapes import PodInfo
from kubestow.observability.recent_attempts import AttemptRecord, RecentAttempts
from kubestow.reports.model import counted
from kubestow.scheduling.interfaces import Clock
from kubestow.scheduling.partitions.scheduler import PartitionedScheduler
from kubestow.scheduling.queued_pod import Place, QueuedPod
from kubestow.scheduling.scheduler import Scheduler

#: So many members of a pod group are named.
_MOST_MEMBERS = 10


class PodStates:
    """The states of the pods of one scheduler. Reading them changes nothing."""

    def __init__(self, scheduler: Scheduler, attempts: RecentAttempts, clock: Clock) -> None:
        self._scheduler, self._attempts, self._clock = scheduler, attempts, clock

    def last_attempt(self, info: PodInfo) -> AttemptRecord | None:
        """The last attempt of a pod that is kept; None for those of a deleted pod with the same name."""
        attempt = self._attempts.last(info.key)
        return attempt if attempt is not None and attempt.uid == info.uid else None

    def summary(self, info: PodInfo) -> str:
        """The state of a pod in a sentence or two."""
        if info.spec.node_name:
            return f"bound to node {info.spec.node_name}"
        if info.spec.scheduler_name not in self._scheduler.profiles:
            profiles = ", ".join(self._scheduler.profiles)
            return f"spec.schedulerName is {info.spec.scheduler_name}, the profiles of this scheduler are: {profiles}"
        placed_pod = self._scheduler.cluster.placed_pod(info.uid)
        if placed_pod is not None:
            waiting_pod = self._scheduler.waiting_pods.get(info.uid)
            if waiting_pod is not None:
                plugins = ", ".join(waiting_pod.pending_plugins)
                awaited = "".join(self._awaited_members(info))
                return f"assumed on node {placed_pod.node_name}, waiting on permit for {plugins}{awaited}"
            return f"assumed on node {placed_pod.node_name}, the binding cycle is running"
        if isinstance(self._scheduler, PartitionedScheduler) and (
            elsewhere := self._scheduler.partitions.whereabouts(info)
        ):
            return elsewhere
        queued = self._scheduler.queue.pods.get(info.uid)
        return "the scheduling cycle is running" if queued is None else self._queue_summary(queued)

    def _awaited_members(self, info: PodInfo) -> Iterator[str]:
        """The members of the pod's groups that have no node, and how many do not exist."""
        groups = self._scheduler.cluster.pod_groups
        policies = {api.name: api for api in groups.apis}
        for name in groups.memberships(info):
            members, api = groups.members(name), policies[name.api]
            without = [member.name for uid, member in members.pods.items() if uid not in members.placed]
            group = self._scheduler.cluster.catalog(api.kind).get(name.namespace, name.name)
            lacking = 0 if group is None else api.gang_policy(group)[0] - len(members.pods)
            shown = ", ".join(without[:_MOST_MEMBERS]) + (", …" if len(without) > _MOST_MEMBERS else "")
            parts = [f"{counted(len(without), 'pod has', 'pods have')} no node ({shown})"] if without else []
            if lacking > 0:
                parts.append(counted(lacking, "pod does", "pods do") + " not exist")
            if parts:
                yield f"; of its pod group {name}, {' and '.join(parts)}"

    def _queue_summary(self, queued: QueuedPod) -> str:
        if queued.place is Place.GATED:
            return f"gated by {queued.gated_by}: {queued.gate_message}"
        if queued.place is Place.ACTIVE:
            return f"in the active queue, waiting for attempt {queued.attempts + 1}"
        failed = f"attempt {queued.attempts} failed"
        attempt = self.last_attempt(queued.info)
        if attempt is not None:
            failed += f": {attempt.message}"
        if queued.place is Place.UNSCHEDULABLE:
            plugins = ", ".join(sorted(queued.rejectors | queued.pending_plugins)) or "any plugin"
            return f"{failed} It is retried after an event that {plugins} registered for."
        left = max(0.0, queued.backoff_expiration - self._clock.monotonic())
        return f"{failed} It is retried when its backoff expires, in {left:.0f} s at the latest."

    def requeue_events(self, scheduler_name: str, plugins: Iterable[str]) -> dict[str, list[str]]:
        """The labels of the events that may requeue pods of a profile that these plugins have rejected, by plugin."""
        registrations = {
            plugin.name: plugin.events_to_register for plugin in self._scheduler.profiles[scheduler_name].plugins
        }
        return {
            name: sorted(
                {
                    label
                    for registration in registrations.get(name, ())
                    if registration.requeues
                    for label in _labels(registration.event)
                }
            )
            for name in sorted(plugins)
        }


def _labels(event: ClusterEvent) -> Iterator[str]:
    if event.is_wildcard:
        yield "*"
        return
    for action in (Action.ALL, Action.UPDATE):
        if event.action & action == action:
            yield ClusterEvent(event.resource, action).label
            event = ClusterEvent(event.resource, event.action & ~action)
    for action in Action:
        if event.action & action and action.bit_count() == 1:
            yield ClusterEvent(event.resource, action).label
