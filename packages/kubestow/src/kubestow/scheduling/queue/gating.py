"""Gating: PreEnqueue plugins keep pods out of activeQ and backoffQ (semantics 6.4)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

from kubestow.cluster.pods.shapes import PodInfo
from kubestow.framework.interface import PreEnqueuePlugin
from kubestow.framework.profile import Profile
from kubestow.framework.status import Code, Status
from kubestow.rules.minors import DEFAULT_MINOR, Behaviour, Minor
from kubestow.scheduling.queue.places import QueuePlaces
from kubestow.scheduling.queued_pod import Place, QueuedPod

_BACKING_OFF = (Place.BACKOFF, Place.ERROR_BACKOFF)


class GatingListener(Protocol):
    """Is notified of every pod that PreEnqueue rejects, for example to write its condition."""

    def pod_gated(self, pod: PodInfo, status: Status) -> None:
        """A PreEnqueue plugin (``status.plugin``) gated the pod, or failed with an ERROR status.

        The pod's queue entry still shows where the pod was before.
        """


class Gating:
    """Lets pods into activeQ and backoffQ, or gates them. ``now`` is the time of the clock in seconds."""

    def __init__(self, profiles: Mapping[str, Profile], places: QueuePlaces, minor: Minor = DEFAULT_MINOR) -> None:
        self._profiles, self._places = profiles, places
        self._asks_gating_plugin_first = minor.has(Behaviour.PRE_ENQUEUE_ASKS_GATING_PLUGIN_FIRST)
        self._activates_from_backoff = minor.has(Behaviour.ACTIVATION_FROM_BACKOFF_SKIPS_PRE_ENQUEUE)
        self._listeners: list[GatingListener] = []
        #: The pods whose preemption is in progress.
        self._preempting: set[str] = set()

    def add_listener(self, listener: GatingListener) -> None:
        """Have a listener hear of every pod that PreEnqueue rejects from now on."""
        self._listeners.append(listener)

    def may_gate(self, pod: PodInfo) -> bool:
        """Whether a PreEnqueue plugin can gate a new pod."""
        gates = self._profiles[pod.spec.scheduler_name].queueing.gates_of(pod)
        return not all(gate.gates_during_preemption for gate in gates)

    def enqueue(self, queued: QueuedPod, event: str, now: float) -> None:
        """Move a pod to activeQ unless a PreEnqueue plugin gates it; ``event`` is the label of the cause."""
        self._places.add(queued)
        if self._admit(queued, event, now):
            self._places.enter_active(queued, event, now)

    def back_off(self, queued: QueuedPod, event: str, now: float) -> None:
        """Have a queued pod back off unless a PreEnqueue plugin gates it."""
        if self._admit(queued, event, now):
            self._places.enter_backoff(queued, event)

    def activate(self, queued: QueuedPod, event: str, now: float) -> None:
        """Move a queued pod to activeQ whatever its backoff; PreEnqueue has run for one that backs off."""
        if self._activates_from_backoff and queued.place in _BACKING_OFF and not queued.gated_by:
            self._places.enter_active(queued, event, now)
        else:
            self.enqueue(queued, event, now)

    def end_backoff(self, queued: QueuedPod, now: float) -> None:
        """Move a pod whose backoff has ended to activeQ; PreEnqueue runs again only after an error of it."""
        if queued.gated_by:
            self.enqueue(queued, "BackoffComplete", now)
        else:
            self._places.enter_active(queued, "BackoffComplete", now)

    def preemption_started(self, uids: Iterable[str]) -> None:
        """Evictions for these pods have begun: once gated, they are not looked at until :meth:`preemption_ended`."""
        self._preempting.update(uids)

    def preemption_ended(self, uids: Iterable[str]) -> None:
        """The evictions for these pods have ended; the next event that helps them requeues them."""
        unschedulable = self._places.unschedulable
        for uid in uids:
            self._preempting.discard(uid)
            if unschedulable.is_held(uid):
                unschedulable.add(self._places.pods[uid])

    def _admit(self, queued: QueuedPod, event: str, now: float) -> bool:
        """Run the PreEnqueue plugins, and gate a pod that one of them rejects; whether the pod is admitted."""
        info, places = queued.info, self._places
        runtime = self._profiles[info.spec.scheduler_name].queueing
        gates = self._gates_of(queued)
        status = runtime.run_pre_enqueue_plugins(info, gates)
        if status.ok:
            places.unschedulable.remove(info.uid)
            queued.gated_by, queued.gate_message, queued.gates = "", "", None
            return True
        for listener in self._listeners:
            listener.pod_gated(info, status)
        queued.gated_by, queued.gate_message = status.plugin, status.message
        if status.code is Code.ERROR:
            # No event is known to help, so the plugins run again after a backoff.
            places.unschedulable.remove(info.uid)
            queued.consecutive_errors += 1
            queued.timestamp = now
            queued.backoff_expiration = places.backoff_policy.expiration(queued)
            places.enter_error_backoff(queued, event)
        else:
            is_held = any(gate.name == queued.gated_by and gate.gates_during_preemption for gate in gates)
            places.enter_gated(queued, event, is_held=is_held)
        return False

    def _gates_of(self, queued: QueuedPod) -> Sequence[PreEnqueuePlugin]:
        """The PreEnqueue plugins to call for a pod now."""
        info = queued.info
        if queued.gates is None or queued.gates[0] is not info:
            queued.gates = info, self._profiles[info.spec.scheduler_name].queueing.gates_of(info)
        gates = queued.gates[1]
        if info.uid not in self._preempting:
            gates = [gate for gate in gates if not gate.gates_during_preemption]
        if queued.gated_by and self._asks_gating_plugin_first:
            return sorted(gates, key=lambda gate: gate.name != queued.gated_by)
        return gates


class GatingAfterBackoff(Gating):
    """Gating without the gate SchedulerPopFromBackoffQ: PreEnqueue runs when pods enter activeQ, and only then."""

    def back_off(self, queued: QueuedPod, event: str, now: float) -> None:
        self._places.unschedulable.remove(queued.info.uid)
        queued.gated_by = queued.gate_message = ""
        self._places.enter_backoff(queued, event)

    def activate(self, queued: QueuedPod, event: str, now: float) -> None:
        self.enqueue(queued, event, now)

    def end_backoff(self, queued: QueuedPod, now: float) -> None:
        self.enqueue(queued, "BackoffComplete", now)
