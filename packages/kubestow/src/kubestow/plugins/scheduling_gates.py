"""SchedulingGates keeps pods out of the active queue while they have scheduling gates (semantics 8.1)."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

from kubestow.cluster.changes.events import Action, EventResource
from kubestow.cluster.pods.shapes import PodInfo
from kubestow.framework.event_registration import Invalidation, on
from kubestow.framework.interface import Handle, PreEnqueuePlugin
from kubestow.framework.status import SUCCESS, Status


class SchedulingGates(PreEnqueuePlugin):
    """Gates a pod until ``spec.schedulingGates`` is empty."""

    name = "SchedulingGates"

    def __init__(self, args: Any, handle: Handle) -> None:
        super().__init__(args, handle)
        self.events_to_register = (
            on(
                EventResource.POD,
                Action.UPDATE_POD_SCHEDULING_GATES_ELIMINATED,
                invalidates=Invalidation.NOTHING,
                hint=_is_schedulable_after_gates_eliminated,
            ),
        )

    def hint_signature(self, pod: PodInfo) -> Hashable:
        """Empty: the hint only says whether the pod itself lost its gates."""
        return ()

    def may_gate(self, pod: PodInfo) -> bool:
        """Pods with gates."""
        return bool(pod.spec.scheduling_gates)

    def pre_enqueue(self, pod: PodInfo) -> Status:
        """The message lists the remaining gates."""
        gates = [gate.name for gate in pod.spec.scheduling_gates]
        if not gates:
            return SUCCESS
        return Status.unresolvable(f"waiting for scheduling gates: [{' '.join(gates)}]")


# -- queueing hints --------------------------------------------------------------------------------------------------


def _is_schedulable_after_gates_eliminated(pod: PodInfo, old: PodInfo | None, new: PodInfo) -> bool:
    return new.uid == pod.uid and not new.spec.scheduling_gates
