"""Pods that get no node now: given back to the queue with what may change that, and told why (semantics 5.9)."""

from __future__ import annotations

from dataclasses import dataclass

from kubestow.cluster.cache import Cluster
from kubestow.cluster.pods.shapes import PodInfo
from kubestow.framework.diagnosis import fit_error
from kubestow.framework.status import Code, Status
from kubestow.scheduling.decision.pipeline import Decision
from kubestow.scheduling.events.handlers import EventHandlers
from kubestow.scheduling.leadership import Leadership
from kubestow.scheduling.observer import Observer, Result
from kubestow.scheduling.ports import Clock
from kubestow.scheduling.queue.queued_pod import QueuedPod
from kubestow.scheduling.queue.scheduling_queue import SchedulingQueue
from kubestow.scheduling.writes.pod_reports import Reports, reason_of

__all__ = ["Unscheduled", "UnscheduledPods"]


@dataclass(frozen=True, slots=True)
class Unscheduled:
    """Why a pod gets no node now, and what may change that. ``nomination`` None leaves the pod's nomination alone."""

    reason: str
    message: str
    rejectors: frozenset[str] = frozenset()
    pending: frozenset[str] = frozenset()
    nomination: str | None = None

    @classmethod
    def by_decision(cls, decision: Decision) -> Unscheduled:
        """The decision about the pod found no node."""
        nomination = None
        if decision.status.code is Code.ERROR:
            nomination = ""
        elif decision.nomination is not None:
            nomination = decision.nomination.nominated_node_name
        return cls(
            reason_of(decision.status), decision.message, decision.rejectors, decision.pending, nomination=nomination
        )

    @classmethod
    def by_status(cls, status: Status, *, nomination: str | None = None) -> Unscheduled:
        """A placement failed at Reserve, Permit or in the binding cycle.

        A refusal reads like a filter's on the one node there was (semantics 4.6). One that no plugin could take back is
        tried again after a backoff, as an error is (4.7).
        """
        refused_by = frozenset({status.plugin}) if status.code.is_rejection and status.plugin else frozenset()
        is_pending = status.code is Code.PENDING
        return cls(
            reason_of(status),
            fit_error(1, [(status, 1)]) if refused_by else status.message,
            rejectors=frozenset() if is_pending else refused_by,
            pending=refused_by if is_pending else frozenset(),
            nomination=nomination,
        )


class UnscheduledPods:
    """Where pods go that get no node."""

    def __init__(
        self,
        cluster: Cluster,
        queue: SchedulingQueue,
        handlers: EventHandlers,
        *,
        leadership: Leadership,
        reports: Reports,
        clock: Clock,
        observer: Observer,
    ) -> None:
        self._cluster, self._queue, self._handlers, self._reports = cluster, queue, handlers, reports
        self._leadership, self._clock, self._observer = leadership, clock, observer

    def give_back(self, queued: QueuedPod, why: Unscheduled) -> None:
        """End a pod's attempt: put it where it waits for what could help, and tell it why."""
        result = Result.UNSCHEDULABLE if why.reason == "Unschedulable" else Result.ERROR
        self._observer.ended(queued, result, why.message, self._clock.monotonic() - queued.attempt_began)
        current = self._handlers.known(queued.info.uid)
        if current is None or current.spec.node_name:
            self._queue.done(queued.info.uid)
            return
        queued.info = current
        self._queue.put_back(queued, rejectors=why.rejectors, pending=why.pending)
        if why.nomination:
            self._cluster.nominate(current, why.nomination)
        elif why.nomination == "":
            self._break_promise(current)
        self._reports.failed(current, why.message)
        self._reports.pending(current, why.reason, why.message, why.nomination)

    def tell(self, info: PodInfo, message: str) -> None:
        """Tell a pod why it has to stay where it is, promised nothing; a standby keeps it to itself."""
        if self._leadership.is_leader:
            self._break_promise(info)
            self._reports.failed(info, message)
            self._reports.pending(info, "Unschedulable", message, "")

    def _break_promise(self, info: PodInfo) -> None:
        """Keep no node's room for a pod any longer."""
        promised = self._cluster.nomination(info.uid)
        self._cluster.drop_nomination(info.uid)
        self._handlers.release_nomination(info, promised)
