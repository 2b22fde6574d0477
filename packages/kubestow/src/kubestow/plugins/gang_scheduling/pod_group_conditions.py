"""The condition PodGroupScheduled of Kubernetes' pod groups: the outcome of scheduling a group (semantics 4.10).

It is True or False with a reason and a message, and never changes from True to False. At most one write per group is in
flight; of the outcomes that arrive meanwhile, only the latest is written.
"""

from __future__ import annotations

from typing import Any

import msgspec

from kubestow.api.formats.timestamps import timestamp
from kubestow.api.reports import REASON_SCHEDULER_ERROR, REASON_UNSCHEDULABLE, ConditionType
from kubestow.api.scheduling import Condition, PodGroup
from kubestow.cluster.pods.pod_groups import PodGroupName, native_name
from kubestow.errors import APIError
from kubestow.framework.gang import Gang, GangOutcome
from kubestow.framework.interface import Handle

__all__ = ["PodGroupConditions"]

_SCHEDULED = "Scheduled"
_POD_GROUP_SCHEDULED = ConditionType(
    "PodGroupScheduled",
    "PodGroup",
    {
        _SCHEDULED: "True: so many pods of the group are placed that it may run.",
        REASON_UNSCHEDULABLE: "False: too few pods of the group fit, or they wait for preemption.",
        REASON_SCHEDULER_ERROR: "False: the attempt failed; it is repeated after a backoff.",
    },
)
_REASONS = {
    GangOutcome.SCHEDULED: _SCHEDULED,
    GangOutcome.UNSCHEDULABLE: REASON_UNSCHEDULABLE,
    GangOutcome.WAITING_ON_PREEMPTION: REASON_UNSCHEDULABLE,
    GangOutcome.ERROR: REASON_SCHEDULER_ERROR,
}
_CONFLICT = 409
#: How long to wait for the watch to deliver a written group, in seconds.
_WATCH_TIMEOUT = 10.0


class PodGroupConditions:
    """Patches the conditions of pod groups in the background."""

    def __init__(self, handle: Handle) -> None:
        self._handle = handle
        self._pod_groups = handle.cluster.catalog(PodGroup)
        #: The latest outcome and its message of each group with a write in flight.
        self._latest: dict[PodGroupName, tuple[GangOutcome, str]] = {}

    def attempt_ended(self, gang: Gang, outcome: GangOutcome, message: str) -> None:
        """Write the outcome of an attempt to schedule a gang; groups of other APIs do not have the condition."""
        name = native_name(gang.name)
        if name is None:
            return
        in_flight = name in self._latest
        self._latest[name] = outcome, message
        if not in_flight:
            self._handle.spawn(self._write_latest(name))

    async def _write_latest(self, name: PodGroupName) -> None:
        """Write the latest outcome of a group until no newer one has arrived."""
        written = None
        try:
            while (latest := self._latest[name]) != written:
                if await self._write(name, *latest):
                    written = latest
        finally:
            del self._latest[name]

    async def _write(self, name: PodGroupName, outcome: GangOutcome, message: str) -> bool:
        """Patch the condition once; False after a conflict."""
        group = self._pod_groups.get(name.namespace, name.name)
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
        await self._handle.wait_for(
            lambda: True if self._pod_groups.get(name.namespace, name.name) is not group else None, _WATCH_TIMEOUT
        )
        return written

    def _changes(self, group: PodGroup, outcome: GangOutcome, message: str) -> dict[str, Any] | None:
        """The merge patch that sets the condition; None if there is nothing to change."""
        current = next((c for c in group.status.conditions if c.type == _POD_GROUP_SCHEDULED.type), None)
        status = "True" if outcome is GangOutcome.SCHEDULED else "False"
        if current is not None and current.status == "True" and status == "False":
            return None
        transition_time: str | None = timestamp(self._handle.now())
        if current is not None and current.status == status:
            transition_time = current.last_transition_time
        condition = Condition(
            type=_POD_GROUP_SCHEDULED.type,
            status=status,
            reason=_REASONS[outcome],
            message=message,
            observed_generation=group.metadata.generation,
            last_transition_time=transition_time,
        )
        if condition == current:
            return None
        others = [other for other in group.status.conditions if other.type != _POD_GROUP_SCHEDULED.type]
        return {"status": {"conditions": [_with_required_fields(each) for each in (*others, condition)]}}


def _with_required_fields(condition: Condition) -> dict[str, Any]:
    """The JSON of a condition, with the fields that the API requires even if they are empty."""
    required = {"message": "", "reason": "", "lastTransitionTime": condition.last_transition_time}
    return required | dict(msgspec.to_builtins(condition))
