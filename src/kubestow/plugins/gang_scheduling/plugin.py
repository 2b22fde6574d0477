"""GangScheduling schedules the pods of a group all together or not at all (semantics 8.18).

It reads the pod groups of three APIs: Kubernetes' own (behind its gate GenericWorkload), those of the co-scheduling
plugin and Volcano's. It keeps pods out of the queue until their group exists and enough of its pods are there, and
tells the scheduler which pods it has to decide about in one go (:mod:`kubestow.framework.gang`). Permit is only a
second lock on the same door: the scheduler asks after it has placed enough members. Where the API has a condition for
it, it writes down how scheduling went.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kubestow.api.scheduling import CoschedulingPodGroup, PodGroup, VolcanoPodGroup
from kubestow.cluster.events import Action, EventResource
from kubestow.cluster.pods.pod_groups import PodGroupAPI, PodGroupName, memberships
from kubestow.cluster.pods.shapes import PodInfo
from kubestow.framework.cycle_state import CycleState
from kubestow.framework.event_registration import EventRegistration, Invalidation, on
from kubestow.framework.gang import Gang, GangOutcome, GangPlugin
from kubestow.framework.interface import Handle, Permission, PermitPlugin
from kubestow.framework.status import SUCCESS, Status
from kubestow.plugins.gang_scheduling.pod_group_conditions import PodGroupConditions

__all__ = ["GangScheduling"]

_Group = PodGroup | CoschedulingPodGroup | VolcanoPodGroup

_KINDS: dict[PodGroupAPI, type[_Group]] = {
    PodGroupAPI.KUBERNETES: PodGroup,
    PodGroupAPI.COSCHEDULING: CoschedulingPodGroup,
    PodGroupAPI.VOLCANO: VolcanoPodGroup,
}
_APIS = {kind: api for api, kind in _KINDS.items()}

#: How long members may wait for each other, in seconds, where the group does not say (semantics 8.18).
_TIMEOUT = 300.0


class GangScheduling(GangPlugin, PermitPlugin):
    """All pods of a gang, or none."""

    name = "GangScheduling"

    def __init__(self, args: Any, handle: Handle) -> None:
        super().__init__(args, handle)
        native = handle.feature_enabled("GenericWorkload")
        self._apis = tuple(api for api in PodGroupAPI if native or api is not PodGroupAPI.KUBERNETES)
        self.kinds = tuple(_KINDS[api] for api in self._apis)
        self._conditions = PodGroupConditions(handle)
        self.events_to_register: Sequence[EventRegistration] = (
            on(
                EventResource.UNSCHEDULABLE_POD,
                Action.ADD,
                invalidates=Invalidation.NOTHING,
                hint=self._completes,
                event_filter=self._is_complete,
            ),
            on(
                EventResource.POD_GROUP,
                Action.ADD | Action.UPDATE,
                invalidates=Invalidation.NOTHING,
                hint=self._changes_its_demands,
            ),
        )

    # -- groups --------------------------------------------------------------------------------------------------

    def _name_of(self, pod: PodInfo) -> PodGroupName | None:
        """The group that counts; of several the one whose API comes first."""
        return next((name for name in memberships(pod) if name.api in self._apis), None)

    def _group(self, name: PodGroupName) -> _Group | None:
        catalog = self.handle.cluster.catalog(_KINDS[name.api])
        return catalog.get(name.namespace, name.name)

    def gang_of(self, pod: PodInfo) -> Gang | None:
        """The gang of a pod whose group exists."""
        name = self._name_of(pod)
        group = self._group(name) if name is not None else None
        if name is None or group is None:
            return None
        min_count, timeout = _demands(group)
        return Gang(name, group.metadata.uid, min_count, timeout, self.handle.cluster.pod_groups.members(name))

    def _completes(self, pod: PodInfo, old: Any, new: PodInfo) -> bool:
        """Whether a pod that is ready now makes up the number that its group needs."""
        return self._name_of(pod) == self._name_of(new) and self._is_complete(old, new)

    def _is_complete(self, old: Any, new: PodInfo) -> bool:
        """Whether all are there that a pod's group needs."""
        gang = self.gang_of(new)
        return gang is not None and len(gang.members.ready) >= gang.min_count

    def _changes_its_demands(self, pod: PodInfo, old: _Group | None, new: _Group) -> bool:
        """Whether it is the pod's group that is there now, or that demands something else than before."""
        named = PodGroupName(_APIS[type(new)], new.metadata.namespace, new.metadata.name)
        return self._name_of(pod) == named and (old is None or _demands(old) != _demands(new))

    # -- the door ------------------------------------------------------------------------------------------------

    def pre_enqueue(self, pod: PodInfo) -> Status:
        """A pod waits for its group, and for enough others of it."""
        name = self._name_of(pod)
        if name is None:
            return SUCCESS
        gang = self.gang_of(pod)
        if gang is None:
            return Status.unresolvable(f'waiting for pods\'s pod group "{name.name}" to appear in scheduling queue')
        ready = len(gang.members.ready)
        if ready >= gang.min_count:
            return SUCCESS
        return Status.unresolvable(
            f"waiting for minCount pods from a gang to appear in scheduling queue: "
            f"{ready} of the {gang.min_count} pods that pod group {name} needs are there"
        )

    def permit(self, state: CycleState, pod: PodInfo, node_name: str) -> Permission | Status:
        """Enough members have nodes, or the pod gives its own back: the next cycle of its gang takes it along."""
        name, gang = self._name_of(pod), self.gang_of(pod)
        if name is not None and gang is None:
            return Status.unresolvable(f'pod group "{name.name}" is gone')
        if gang is None or len(gang.members.placed) >= gang.min_count:
            return SUCCESS
        return Status.unschedulable("waiting for minCount pods from a gang to be scheduled")

    # -- the group's condition -----------------------------------------------------------------------------------

    def attempt_ended(self, gang: Gang, outcome: GangOutcome, message: str) -> None:
        """Kubernetes' own groups have a condition for it; once it is true it stays so (semantics 4.10)."""
        self._conditions.attempt_ended(gang, outcome, message)


def _demands(group: _Group) -> tuple[int, float]:
    """How many pods a group needs at least, and how many seconds they may wait for each other."""
    if isinstance(group, PodGroup):
        gang = group.spec.scheduling_policy.gang
        return (gang.min_count if gang is not None else 0), _TIMEOUT
    timeout = group.spec.schedule_timeout_seconds if isinstance(group, CoschedulingPodGroup) else None
    return group.spec.min_member, float(timeout) if timeout else _TIMEOUT
