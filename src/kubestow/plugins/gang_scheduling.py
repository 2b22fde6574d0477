"""GangScheduling schedules the pods of a group all together or not at all (reference 8.18).

It reads the pod groups of three APIs: Kubernetes' own (behind its gate GenericWorkload), those of the co-scheduling
plugin and Volcano's. It keeps pods out of the queue until their group exists and enough of its pods are there, and
tells the scheduler which pods it has to decide about in one go (:mod:`kubestow.framework.gangs`). Permit is only a
second lock on the same door: the scheduler asks after it has placed enough members. Where the API has a condition for
it, it writes down how scheduling went.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from kubestow.api.scheduling import Condition, CoschedulingPodGroup, PodGroup, VolcanoPodGroup
from kubestow.api.timestamps import timestamp
from kubestow.cluster.events import Action, EventResource
from kubestow.cluster.pod_groups import PodGroupAPI, PodGroupName, memberships
from kubestow.cluster.pods import PodInfo
from kubestow.errors import APIError
from kubestow.framework.cycle_state import CycleState
from kubestow.framework.gangs import Gang, GangPlugin, Outcome
from kubestow.framework.interest import Interest, Spoils, on
from kubestow.framework.plugin import Handle, Permission, PermitPlugin
from kubestow.framework.status import SUCCESS, Status

__all__ = ["GangScheduling"]

_Group = PodGroup | CoschedulingPodGroup | VolcanoPodGroup

_KINDS: dict[PodGroupAPI, type[_Group]] = {
    PodGroupAPI.KUBERNETES: PodGroup,
    PodGroupAPI.COSCHEDULING: CoschedulingPodGroup,
    PodGroupAPI.VOLCANO: VolcanoPodGroup,
}
_APIS = {kind: api for api, kind in _KINDS.items()}

#: How long members may wait for each other, in seconds, where the group does not say (reference 8.18).
_TIMEOUT = 300.0
_CONDITION = "PodGroupScheduled"
_CONFLICT = 409
#: How long the news of a write may take to come back, in seconds.
_NEWS = 10.0
_REASONS = {
    Outcome.SCHEDULED: "Scheduled",
    Outcome.UNSCHEDULABLE: "Unschedulable",
    Outcome.WAITING_ON_PREEMPTION: "Unschedulable",
    Outcome.ERROR: "SchedulerError",
}


class GangScheduling(GangPlugin, PermitPlugin):
    """All pods of a gang, or none."""

    name = "GangScheduling"

    def __init__(self, args: Any, handle: Handle) -> None:
        super().__init__(args, handle)
        native = handle.feature_enabled("GenericWorkload")
        self._apis = tuple(api for api in PodGroupAPI if native or api is not PodGroupAPI.KUBERNETES)
        self.kinds = tuple(_KINDS[api] for api in self._apis)
        #: What is to be written of groups: the newest outcome, and why.
        self._verdicts: dict[PodGroupName, tuple[Outcome, str]] = {}
        self.interests: Sequence[Interest] = (
            on(EventResource.UNSCHEDULABLE_POD, Action.ADD, spoils=Spoils.NOTHING, hint=self._completes),
            on(
                EventResource.POD_GROUP,
                Action.ADD | Action.UPDATE,
                spoils=Spoils.NOTHING,
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
        quorum, timeout = _demands(group)
        return Gang(name, group.metadata.uid, quorum, timeout, self.handle.cluster.pod_groups.members(name))

    def _completes(self, pod: PodInfo, old: Any, new: PodInfo) -> bool:
        """Whether a pod that is ready now makes up the number that its group needs."""
        if self._name_of(pod) != self._name_of(new):
            return False
        gang = self.gang_of(pod)
        return gang is not None and len(gang.members.ready) >= gang.quorum

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
        if ready >= gang.quorum:
            return SUCCESS
        return Status.unresolvable(
            f"waiting for minCount pods from a gang to appear in scheduling queue: "
            f"{ready} of the {gang.quorum} pods that pod group {name} needs are there"
        )

    def permit(self, state: CycleState, pod: PodInfo, node_name: str) -> Permission | Status:
        """Enough members have nodes, or the pod has to wait for the others."""
        name, gang = self._name_of(pod), self.gang_of(pod)
        if name is not None and gang is None:
            return Status.unresolvable(f'pod group "{name.name}" is gone')
        if gang is None or len(gang.members.placed) >= gang.quorum:
            return SUCCESS
        return Permission.wait(gang.timeout)

    # -- the group's condition -----------------------------------------------------------------------------------

    def concluded(self, gang: Gang, outcome: Outcome, message: str) -> None:
        """Kubernetes' own groups have a condition for it; once it is true it stays so (reference 4.10)."""
        name = gang.name
        if not isinstance(name, PodGroupName) or name.api is not PodGroupAPI.KUBERNETES:
            return
        is_being_written = name in self._verdicts
        self._verdicts[name] = outcome, message
        if not is_being_written:
            self.handle.spawn(self._write_down(name))

    async def _write_down(self, name: PodGroupName) -> None:
        """Write the newest verdict on a group, one write at a time, until there is no newer one."""
        verdict = None
        try:
            while (newest := self._verdicts[name]) != verdict:
                if await self._write(name, *newest):
                    verdict = newest
        finally:
            del self._verdicts[name]

    async def _write(self, name: PodGroupName, outcome: Outcome, message: str) -> bool:
        """One try; False when the group was not what it was believed to be."""
        group = self._group(name)
        changes = self._changes(group, outcome, message) if isinstance(group, PodGroup) else None
        if group is None or changes is None:
            return True
        try:
            await self.handle.patch(group, changes, subresource="status")
            written = True
        except APIError as error:
            if error.code != _CONFLICT:
                raise
            written = False
        await self.handle.wait_for(lambda: None if self._group(name) is group else True, _NEWS)
        return written

    def _changes(self, group: PodGroup, outcome: Outcome, message: str) -> dict[str, Any] | None:
        """What to change about a group, None for nothing."""
        current = next((c for c in group.status.conditions if c.type == _CONDITION), None)
        status = "True" if outcome is Outcome.SCHEDULED else "False"
        if current is not None and current.status == "True" and status == "False":
            return None
        is_new = current is None or current.status != status
        now = timestamp(self.handle.now())
        wanted = Condition(
            type=_CONDITION,
            status=status,
            reason=_REASONS[outcome],
            message=message,
            observed_generation=group.metadata.generation,
            last_transition_time=now if current is None or is_new else current.last_transition_time,
        )
        if wanted == current:
            return None
        others = [condition for condition in group.status.conditions if condition.type != _CONDITION]
        return {"status": {"conditions": [_in_full(condition) for condition in (*others, wanted)]}}


def _demands(group: _Group) -> tuple[int, float]:
    """How many pods a group needs at least, and how many seconds they may wait for each other."""
    if isinstance(group, PodGroup):
        gang = group.spec.scheduling_policy.gang
        return (gang.min_count if gang is not None else 0), _TIMEOUT
    timeout = group.spec.schedule_timeout_seconds if isinstance(group, CoschedulingPodGroup) else None
    return group.spec.min_member, float(timeout) if timeout else _TIMEOUT


def _in_full(condition: Condition) -> dict[str, Any]:
    """A condition with the fields that it must have even if they are empty."""
    required = {"message": "", "reason": "", "lastTransitionTime": condition.last_transition_time}
    return required | dict(msgspec.to_builtins(condition))
