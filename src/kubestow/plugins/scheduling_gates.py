"""SchedulingGates keeps pods out of the queue while they have scheduling gates (semantics 8.1)."""

from __future__ import annotations

from typing import Any

from kubestow.cluster.events import Action, EventResource
from kubestow.cluster.pods.shapes import PodInfo
from kubestow.framework.event_registration import Invalidation, on
from kubestow.framework.interface import PreEnqueuePlugin
from kubestow.framework.status import SUCCESS, Status

__all__ = ["SchedulingGates"]


def _own_gates_are_gone(pod: PodInfo, old: Any, new: PodInfo) -> bool:
    return new.uid == pod.uid and not new.spec.scheduling_gates


class SchedulingGates(PreEnqueuePlugin):
    """A pod with gates waits until all of them are removed."""

    name = "SchedulingGates"
    events_to_register = (
        on(
            EventResource.POD,
            Action.UPDATE_POD_SCHEDULING_GATES_ELIMINATED,
            invalidates=Invalidation.NOTHING,
            hint=_own_gates_are_gone,
        ),
    )

    def pre_enqueue(self, pod: PodInfo) -> Status:
        """Names the gates that are left."""
        gates = [gate.name for gate in pod.spec.scheduling_gates]
        if not gates:
            return SUCCESS
        return Status.unresolvable(f"waiting for scheduling gates: [{' '.join(gates)}]")
