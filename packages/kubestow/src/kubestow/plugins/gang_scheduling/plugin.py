"""GangScheduling schedules the pods of a group all together or not at all (semantics 8.18).

It reads the pod groups of three APIs: Kubernetes' own (with the gate GenericWorkload), the co-scheduling plugin's and
Volcano's. PreEnqueue holds pods back until their group exists and has enough of them. The scheduler then places the
members of a gang in one cycle (:mod:`kubestow.framework.gang`); Permit checks once more that enough of them have nodes.
The outcome of a cycle is written to the condition PodGroupScheduled of groups that have it.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

from kubestow.cluster.events import Action, EventResource
from kubestow.cluster.pods.pod_groups import PodGroupAPI
from kubestow.cluster.pods.shapes import PodInfo
from kubestow.framework.cycle_state import CycleState
from kubestow.framework.event_registration import EventRegistration, Invalidation, on
from kubestow.framework.gang import Gang, GangOutcome, GangPlugin
from kubestow.framework.interface import Handle, Permission, PermitPlugin
from kubestow.framework.status import SUCCESS, Status
from kubestow.plugins.gang_scheduling.pod_group_conditions import PodGroupConditions
from kubestow.plugins.gang_scheduling.pod_group_lister import AnyPodGroup, PodGroupLister, gang_policy, name_of

__all__ = ["GangScheduling"]

_POD_GROUP_MISSING = 'waiting for pods\'s pod group "{}" to appear in scheduling queue'
_TOO_FEW_PODS = (
    "waiting for minCount pods from a gang to appear in scheduling queue: "
    "{} of the {} pods that pod group {} needs are there"
)
_POD_GROUP_GONE = 'pod group "{}" is gone'
_TOO_FEW_PLACED = Status.unschedulable("waiting for minCount pods from a gang to be scheduled")


class GangScheduling(GangPlugin, PermitPlugin):
    """Declares the gangs of pod groups and holds their pods back until a gang is complete."""

    name = "GangScheduling"

    def __init__(self, args: Any, handle: Handle) -> None:
        super().__init__(args, handle)
        native = handle.feature_enabled("GenericWorkload")
        apis = [api for api in PodGroupAPI if native or api is not PodGroupAPI.KUBERNETES]
        self._pod_groups = PodGroupLister(handle.cluster, apis)
        self._conditions = PodGroupConditions(handle)
        self.kinds = self._pod_groups.kinds
        self.events_to_register: Sequence[EventRegistration] = (
            on(
                EventResource.UNSCHEDULABLE_POD,
                Action.ADD,
                invalidates=Invalidation.NOTHING,
                hint=self._is_schedulable_after_pod_added,
                event_filter=self._completes_a_gang,
            ),
            on(
                EventResource.POD_GROUP,
                Action.ADD | Action.UPDATE,
                invalidates=Invalidation.NOTHING,
                hint=self._is_schedulable_after_pod_group_change,
            ),
        )

    def hint_signature(self, pod: PodInfo) -> Hashable:
        """The group."""
        return self._pod_groups.name_for(pod) or ()

    def may_gate(self, pod: PodInfo) -> bool:
        """Pods that name a group."""
        return self._pod_groups.name_for(pod) is not None

    def pre_enqueue(self, pod: PodInfo) -> Status:
        """Gates a pod until its group exists and enough of the group's pods are ready."""
        name = self._pod_groups.name_for(pod)
        if name is None:
            return SUCCESS
        gang = self.gang_of(pod)
        if gang is None:
            return Status.unresolvable(_POD_GROUP_MISSING.format(name.name))
        ready = len(gang.members.ready)
        if ready >= gang.min_count:
            return SUCCESS
        return Status.unresolvable(_TOO_FEW_PODS.format(ready, gang.min_count, name))

    def permit(self, state: CycleState, pod: PodInfo, node_name: str) -> Permission | Status:
        """Rejects a pod while too few members have nodes. It never waits: the gang's next cycle includes the pod."""
        name, gang = self._pod_groups.name_for(pod), self.gang_of(pod)
        if name is not None and gang is None:
            return Status.unresolvable(_POD_GROUP_GONE.format(name.name))
        if gang is None or len(gang.members.placed) >= gang.min_count:
            return SUCCESS
        return _TOO_FEW_PLACED

    # -- gangs ---------------------------------------------------------------------------------------------------

    def gang_of(self, pod: PodInfo) -> Gang | None:
        """The gang of a pod; None if the pod names no group or its group does not exist."""
        name = self._pod_groups.name_for(pod)
        group = self._pod_groups.get(name) if name is not None else None
        if name is None or group is None:
            return None
        min_count, timeout = gang_policy(group)
        return Gang(name, group.metadata.uid, min_count, timeout, self.handle.cluster.pod_groups.members(name))

    def attempt_ended(self, gang: Gang, outcome: GangOutcome, message: str) -> None:
        """Updates the condition PodGroupScheduled (semantics 4.10)."""
        self._conditions.attempt_ended(gang, outcome, message)

    # -- queueing hints ------------------------------------------------------------------------------------------

    def _is_schedulable_after_pod_added(self, pod: PodInfo, old: Any, new: PodInfo) -> bool:
        """Whether the added pod completes the pod's own gang."""
        return self._pod_groups.name_for(pod) == self._pod_groups.name_for(new) and self._completes_a_gang(old, new)

    def _completes_a_gang(self, old: Any, new: PodInfo) -> bool:
        """Whether the gang of an added pod has enough ready members now."""
        gang = self.gang_of(new)
        return gang is not None and len(gang.members.ready) >= gang.min_count

    def _is_schedulable_after_pod_group_change(self, pod: PodInfo, old: AnyPodGroup | None, new: AnyPodGroup) -> bool:
        """Whether it is the pod's own group, and new or with another policy."""
        if self._pod_groups.name_for(pod) != name_of(new):
            return False
        return old is None or gang_policy(old) != gang_policy(new)
