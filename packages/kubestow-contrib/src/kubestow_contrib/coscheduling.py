"""The pod groups of the co-scheduling plugin of scheduler-plugins, and a plugin of that name.

GangScheduling schedules these groups as it schedules those of Kubernetes. Coscheduling is GangScheduling for
configurations that were written for scheduler-plugins: with its args, and its order of the queue. docs/gangs.md
describes both, and what differs from the original.
"""

from __future__ import annotations

import dataclasses
from datetime import datetime, timedelta
from typing import Any, ClassVar

import msgspec

from kubestow.api.core import Pod
from kubestow.api.custom import CustomObject
from kubestow.api.formats.timestamps import timestamp
from kubestow.api.meta import APIObject
from kubestow.cluster.changes.events import Action, ClusterEvent
from kubestow.cluster.nodes.views import Nodes
from kubestow.cluster.pods.pod_groups import PodGroupAPI, PodGroupName
from kubestow.cluster.pods.shapes import PodInfo
from kubestow.config import ExtensionPoint
from kubestow.framework.cycle_state import CycleState
from kubestow.framework.event_registration import Invalidation, on
from kubestow.framework.gang import Gang, GangOutcome
from kubestow.framework.interface import Handle, PreFilterPlugin, Queued, QueueSortPlugin
from kubestow.framework.status import Status
from kubestow.plugins.gang_scheduling.gang_scheduling import GangScheduling

_LABEL = "scheduling.x-k8s.io/pod-group"
_BACKOFF_ENDED = "CoschedulingBackoffEnded"
#: How often groups whose backoff has ended are looked for, in seconds.
_PERIOD = 1.0


class PodGroupSpec(APIObject, frozen=True):
    """``spec``; the timeout is in seconds."""

    min_member: int = 0
    schedule_timeout_seconds: int | None = None


class PodGroup(CustomObject, frozen=True):
    """The PodGroup of the co-scheduling plugin."""

    resource: ClassVar[str] = "podgroups.v1alpha1.scheduling.x-k8s.io"
    is_namespaced: ClassVar[bool] = True
    spec: PodGroupSpec = PodGroupSpec()


def _group_of(pod: Pod) -> str | None:
    return pod.metadata.labels.get(_LABEL)


def _gang_policy(group: PodGroup) -> tuple[int, float | None]:
    return group.spec.min_member, group.spec.schedule_timeout_seconds


COSCHEDULING = PodGroupAPI("scheduling.x-k8s.io", PodGroup, _group_of, _gang_policy)


class CoschedulingArgs(msgspec.Struct, rename="camel", frozen=True):
    """Times in seconds. ``podGroupRejectPercentage`` has no effect: a gang is decided about as a whole."""

    permit_waiting_time_seconds: int = 60
    pod_group_backoff_seconds: int = 0
    pod_group_reject_percentage: int = 10

    def __post_init__(self) -> None:
        if self.permit_waiting_time_seconds < 0:
            raise ValueError(f"permitWaitingTimeSeconds is {self.permit_waiting_time_seconds}, expected at least 0")
        if self.pod_group_backoff_seconds < 0:
            raise ValueError(f"podGroupBackoffSeconds is {self.pod_group_backoff_seconds}, expected at least 0")
        if not 0 <= self.pod_group_reject_percentage <= 100:
            raise ValueError(f"podGroupRejectPercentage is {self.pod_group_reject_percentage}, expected 0 to 100")


class Coscheduling(QueueSortPlugin, PreFilterPlugin, GangScheduling):
    """GangScheduling, with the order and the args of the co-scheduling plugin.

    The args concern the groups of that plugin; those of other APIs are scheduled as by GangScheduling.
    """

    name = "Coscheduling"
    Args = CoschedulingArgs
    inert_at = (ExtensionPoint.POST_FILTER, ExtensionPoint.RESERVE)

    def __init__(self, args: CoschedulingArgs, handle: Handle) -> None:
        super().__init__(args, handle)
        self._own_groups = handle.cluster.catalog(PodGroup)
        #: When the last attempt failed, of the groups whose last attempt failed: they come behind others then.
        self._failed: dict[PodGroupName, str] = {}
        #: When the backoff of a group ends that may not be tried before.
        self._backoffs: dict[PodGroupName, datetime] = {}
        self._own_groups.subscribe(self._pod_group_changed)
        if args.pod_group_backoff_seconds:
            self.events_to_register = (
                *self.events_to_register,
                on(_BACKOFF_ENDED, Action.UPDATE, invalidates=Invalidation.NOTHING, hint=self._is_not_backing_off),
            )
            handle.run_periodically(_PERIOD, self._end_backoffs)

    # -- order -------------------------------------------------------------------------------------------------------

    def sort_key(self, queued: Queued) -> tuple[int, str, float, str]:
        """By priority, then by the creation of the group, or of a pod without one; a group that failed, by that time.

        Pods of one group have one key.
        """
        info = queued.info
        group = self._own_group(info)
        if group is None:
            return -info.priority, info.metadata.creation_timestamp or "", queued.timestamp, info.key
        name = _name(group)
        return -info.priority, self._failed.get(name) or group.metadata.creation_timestamp or "", 0.0, str(name)

    # -- gangs -------------------------------------------------------------------------------------------------------

    def gang_of(self, pod: PodInfo) -> Gang | None:
        """The gang of a pod; one of the co-scheduling plugin without a timeout has that of the args."""
        gang, group = super().gang_of(pod), self._own_group(pod)
        if gang is None or group is None or group.metadata.uid != gang.uid or group.spec.schedule_timeout_seconds:
            return gang
        seconds = self.args.permit_waiting_time_seconds
        return dataclasses.replace(gang, timeout=float(seconds)) if seconds else gang

    def pre_enqueue(self, pod: PodInfo) -> Status:
        """Gates the pods of a group that is not complete, or backs off."""
        status = super().pre_enqueue(pod)
        if status.ok and not self._is_not_backing_off(pod):
            return Status.unresolvable(f"podGroup {pod.namespace}/{_group_of(pod.pod)} failed recently")
        return status

    def pre_filter(self, state: CycleState, pod: PodInfo, nodes: Nodes) -> Status | None:
        """The same for configurations that do not enable PreEnqueue, which the original does not have."""
        status = self.pre_enqueue(pod)
        return None if status.ok else status

    def attempt_ended(self, gang: Gang, outcome: GangOutcome, message: str) -> None:
        """Remembers failures, and begins the backoff."""
        super().attempt_ended(gang, outcome, message)
        name = gang.name
        if not isinstance(name, PodGroupName) or self._own_groups.get(name.namespace, name.name) is None:
            return
        if outcome is GangOutcome.SCHEDULED:
            self._failed.pop(name, None)
        elif outcome is GangOutcome.UNSCHEDULABLE:
            now, seconds = self.handle.now(), self.args.pod_group_backoff_seconds
            self._failed[name] = timestamp(now)
            if seconds and len(gang.members.ready) >= gang.min_count:
                self._backoffs[name] = now + timedelta(seconds=seconds)

    def _own_group(self, pod: PodInfo) -> PodGroup | None:
        name = _group_of(pod.pod)
        return self._own_groups.get(pod.namespace, name) if name else None

    def _is_not_backing_off(self, pod: PodInfo, old: Any = None, new: Any = None) -> bool:
        group = self._own_group(pod)
        end = None if group is None else self._backoffs.get(_name(group))
        return end is None or self.handle.now() >= end

    async def _end_backoffs(self) -> None:
        now = self.handle.now()
        ended = [name for name, end in self._backoffs.items() if end <= now]
        for name in ended:
            del self._backoffs[name]
        if ended:
            self.handle.report_change(ClusterEvent(_BACKOFF_ENDED, Action.UPDATE))

    def _pod_group_changed(self, before: PodGroup | None, after: PodGroup | None) -> None:
        if after is None and before is not None:
            self._failed.pop(_name(before), None)
            self._backoffs.pop(_name(before), None)


def _name(group: PodGroup) -> PodGroupName:
    return PodGroupName(COSCHEDULING.name, group.metadata.namespace, group.metadata.name)
