"""GangScheduling as in 1.35: gangs are groups of a Workload (scheduling.k8s.io/v1alpha1) and meet at Permit.

A pod names its Workload, one of the Workload's pod groups, and a replica of that group in ``spec.workloadRef``.
PreEnqueue holds it back until its gang has minCount pods. The pods are then decided about one by one; at Permit each of
them waits, with its node, until as many pods of the gang have nodes. After five minutes those that wait are rejected.
Nothing keeps two gangs from waiting for each other meanwhile, which is why later versions decide about a whole gang.
"""

from __future__ import annotations

from collections.abc import Hashable
from datetime import datetime, timedelta
from typing import Any

from kubestow.api.core import WorkloadReference
from kubestow.api.scheduling import Workload, WorkloadPodGroup
from kubestow.cluster.changes.events import Action, EventResource
from kubestow.cluster.pods.pod_groups import WORKLOADS, Members, PodGroupAPI, PodGroupName
from kubestow.cluster.pods.shapes import PodInfo
from kubestow.config import ExtensionPoint
from kubestow.framework.cycle_state import CycleState
from kubestow.framework.event_registration import HintKeys, Invalidation, on
from kubestow.framework.gang import Gang
from kubestow.framework.interface import Handle, Permission
from kubestow.framework.status import SUCCESS, Status
from kubestow.plugins.gang_scheduling.gang_scheduling import GangScheduling

_WORKLOAD_MISSING = 'waiting for pods\'s workload "{}" to appear in scheduling queue'
_GROUP_MISSING = 'pod group "{}" doesn\'t exist for a workload "{}"'
_TOO_FEW_PODS = Status.unresolvable("waiting for minCount pods from a gang to appear in scheduling queue")
_NO_WORKLOAD = 'failed to get workload {0}/{1}: workload.scheduling.k8s.io "{1}" not found'
#: How long the pods of a gang wait for each other at Permit, from the first one on.
_TIMEOUT = timedelta(minutes=5)


class GangSchedulingOfWorkloads(GangScheduling):
    """The plugin before :attr:`Behaviour.POD_GROUPS_ARE_OBJECTS`. Groups of other projects are scheduled as later."""

    inert_at = (ExtensionPoint.RESERVE,)  # pods that are assumed are known without it

    def __init__(self, args: Any, handle: Handle) -> None:
        super().__init__(args, handle)
        self._is_enabled = handle.feature_enabled("GenericWorkload")
        self._workloads = handle.cluster.catalog(Workload)
        #: Until when the pods of a gang wait for each other.
        self._deadlines: dict[PodGroupName, datetime] = {}
        if self._is_enabled:
            self.events_to_register = (
                *self.events_to_register,
                on(
                    EventResource.UNSCHEDULABLE_POD,
                    Action.ADD,
                    invalidates=Invalidation.NOTHING,
                    hint=self._is_schedulable_after_member_added,
                    hint_keys=lambda old, new: (self._gang_name(new),),
                    event_filter=lambda old, new: self._gang_name(new) is not None,
                ),
                on(
                    Workload,
                    Action.ADD,
                    invalidates=Invalidation.NOTHING,
                    hint=self._is_schedulable_after_workload_added,
                    hint_keys=lambda old, new: ((new.metadata.namespace, new.metadata.name),),
                ),
            )

    def _group_apis(self) -> tuple[PodGroupAPI, ...]:
        return tuple(api for api in super()._group_apis() if api is not WORKLOADS)

    def hint_signature(self, pod: PodInfo) -> Hashable:
        """The gang."""
        return self._gang_name(pod) or super().hint_signature(pod)

    def hint_keys(self, pod: PodInfo) -> HintKeys:
        """The gang and its Workload."""
        name, reference = self._gang_name(pod), pod.spec.workload_ref
        if name is None or reference is None:
            return super().hint_keys(pod)
        return (*super().hint_keys(pod), name, (pod.namespace, reference.name))

    def may_gate(self, pod: PodInfo) -> bool:
        """Pods that name a group."""
        return self._gang_name(pod) is not None or super().may_gate(pod)

    def pre_enqueue(self, pod: PodInfo) -> Status:
        """Gates a pod until its Workload exists and its gang has enough pods, gated and placed ones included."""
        name, reference = self._gang_name(pod), pod.spec.workload_ref
        if name is None or reference is None:
            return super().pre_enqueue(pod)
        workload = self._workloads.get(pod.namespace, reference.name)
        if workload is None:
            return Status.unresolvable(_WORKLOAD_MISSING.format(reference.name))
        group = _group_of(workload, reference)
        if group is None:
            return Status.unresolvable(_GROUP_MISSING.format(reference.pod_group, reference.name))
        gang = group.policy.gang
        is_complete = gang is None or len(self._members(name).pods) >= gang.min_count
        return SUCCESS if is_complete else _TOO_FEW_PODS

    def permit(self, state: CycleState, pod: PodInfo, node_name: str) -> Permission | Status:
        """Has a pod wait until enough pods of its gang have nodes; the one that completes them allows the others."""
        name, reference = self._gang_name(pod), pod.spec.workload_ref
        if name is None or reference is None:
            return super().permit(state, pod, node_name)
        workload = self._workloads.get(pod.namespace, reference.name)
        if workload is None:
            return Status.error(_NO_WORKLOAD.format(pod.namespace, reference.name))
        group = _group_of(workload, reference)
        if group is None:
            return Status.error(_GROUP_MISSING.format(reference.pod_group, reference.name))
        gang = group.policy.gang
        if gang is None:
            return SUCCESS
        members = self._members(name)
        if len(members.on_nodes) < gang.min_count:
            self.handle.activate(other for uid, other in members.pods.items() if uid not in members.on_nodes)
            return Permission.wait(self._remaining_seconds(name))
        for waiting in self.handle.waiting_pods():
            if waiting.info.uid in members.pods:
                waiting.allow(self.name)
        return SUCCESS

    def gang_of(self, pod: PodInfo) -> Gang | None:
        """None for pods of Workloads, which are scheduled by themselves."""
        return super().gang_of(pod) if self._gang_name(pod) is None else None

    def _gang_name(self, pod: PodInfo) -> PodGroupName | None:
        name = WORKLOADS.group_of(pod.pod) if self._is_enabled else None
        return PodGroupName(WORKLOADS.name, pod.namespace, name) if name else None

    def _members(self, name: PodGroupName) -> Members:
        return self.handle.cluster.pod_groups.members(name)

    def _remaining_seconds(self, name: PodGroupName) -> float:
        now = self.handle.now()
        deadline = self._deadlines.get(name)
        if deadline is None or deadline < now:
            self._deadlines = {other: end for other, end in self._deadlines.items() if end >= now}
            deadline = self._deadlines[name] = now + _TIMEOUT
        return (deadline - now).total_seconds()

    def _is_schedulable_after_member_added(self, pod: PodInfo, old: Any, new: PodInfo) -> bool:
        """Whether the added pod is one of the pod's own gang."""
        name = self._gang_name(pod)
        return name is not None and name == self._gang_name(new)

    def _is_schedulable_after_workload_added(self, pod: PodInfo, old: Any, new: Workload) -> bool:
        """Whether it is the pod's own Workload."""
        reference = pod.spec.workload_ref
        if reference is None:
            return False
        return (pod.namespace, reference.name) == (new.metadata.namespace, new.metadata.name)


def _group_of(workload: Workload, reference: WorkloadReference) -> WorkloadPodGroup | None:
    return next((group for group in workload.spec.pod_groups if group.name == reference.pod_group), None)
