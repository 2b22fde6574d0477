"""The condition PodGroupScheduled of Kubernetes' pod groups: how scheduling a group went (semantics 4.10).

It is True or False with a reason and a message; once it is true it stays so. One write of a group is under way at a
time, and of several outcomes that come meanwhile the newest is written.
"""

from __future__ import annotations

from typing import Any

import msgspec

from kubestow.api.scheduling import Condition, PodGroup
from kubestow.api.timestamps import timestamp
from kubestow.cluster.pods.pod_groups import PodGroupName, native_name
from kubestow.errors import APIError
from kubestow.framework.gang import Gang, GangOutcome
from kubestow.framework.interface import Handle

__all__ = ["PodGroupConditions"]

_CONDITION = "PodGroupScheduled"
_CONFLICT = 409
#: How long the news of a write may take to come back, in seconds.
_NEWS = 10.0
_REASONS = {
    GangOutcome.SCHEDULED: "Scheduled",
    GangOutcome.UNSCHEDULABLE: "Unschedulable",
    GangOutcome.WAITING_ON_PREEMPTION: "Unschedulable",
    GangOutcome.ERROR: "SchedulerError",
}


class PodGroupConditions:
    """Writes them through a plugin's handle."""

    def __init__(self, handle: Handle) -> None:
        self._handle = handle
        self._groups = handle.cluster.catalog(PodGroup)
        #: What is to be written of groups: the newest outcome, and why.
        self._verdicts: dict[PodGroupName, tuple[GangOutcome, str]] = {}

    def attempt_ended(self, gang: Gang, outcome: GangOutcome, message: str) -> None:
        """An attempt to schedule a gang has ended. Groups of other APIs have no such condition."""
        name = native_name(gang.name)
        if name is None:
            return
        is_being_written = name in self._verdicts
        self._verdicts[name] = outcome, message
        if not is_being_written:
            self._handle.spawn(self._write_down(name))

    def _group(self, name: PodGroupName) -> PodGroup | None:
        return self._groups.get(name.namespace, name.name)

    async def _write_down(self, name: PodGroupName) -> None:
        """Write the newest verdict on a group, one write at a time, until there is no newer one."""
        verdict = None
        try:
            while (newest := self._verdicts[name]) != verdict:
                if await self._write(name, *newest):
                    verdict = newest
        finally:
            del self._verdicts[name]

    async def _write(self, name: PodGroupName, outcome: GangOutcome, message: str) -> bool:
        """One try; False when the group was not what it was believed to be."""
        group = self._group(name)
        changes = self._changes(group, outcome, message) if group is not None else None
        if group is None or changes is None:
            return True
        try:
            await self._handle.patch(group, changes, subresource="status")
            written = True
        except APIError as error:
            if error.code != _CONFLICT:
                raise
            written = False
        await self._handle.wait_for(lambda: True if self._group(name) is not group else None, _NEWS)
        return written

    def _changes(self, group: PodGroup, outcome: GangOutcome, message: str) -> dict[str, Any] | None:
        """What to change about a group, None for nothing."""
        current = next((c for c in group.status.conditions if c.type == _CONDITION), None)
        status = "True" if outcome is GangOutcome.SCHEDULED else "False"
        if current is not None and current.status == "True" and status == "False":
            return None
        is_new = current is None or current.status != status
        now = timestamp(self._handle.now())
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


def _in_full(condition: Condition) -> dict[str, Any]:
    """A condition with the fields that it must have even if they are empty."""
    required = {"message": "", "reason": "", "lastTransitionTime": condition.last_transition_time}
    return required | dict(msgspec.to_builtins(condition))
