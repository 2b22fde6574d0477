"""Failure handling: what happens to a pod whose attempt ended without a binding (semantics 5.9).

The pod returns to the queue with the plugins that rejected it, keeps, gets or loses its nomination, and its condition
and an event say why. The preemption that PostFilter decided on starts here.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace

from kubestow.api.reports import REASON_SCHEDULER_ERROR, REASON_UNSCHEDULABLE
from kubestow.cluster.pods.shapes import PodInfo
from kubestow.config import FeatureGates
from kubestow.framework.diagnosis import fit_error
from kubestow.framework.status import Code, Status
from kubestow.rules.minors import Behaviour
from kubestow.scheduling.api_calls.pod_reports import PodReports, condition_reason
from kubestow.scheduling.cycle.binding_context import BindingContext
from kubestow.scheduling.decision.result import Failed, Unschedulable
from kubestow.scheduling.environment import Environment, Leadership
from kubestow.scheduling.events.cluster_events import ASSIGNED_POD_DELETE
from kubestow.scheduling.observer import Result
from kubestow.scheduling.preemption.evictions import Evictions
from kubestow.scheduling.queued_pod import QueuedPod
from kubestow.scheduling.scheduler_state import SchedulerState


@dataclass(frozen=True, slots=True)
class SchedulingFailure:
    """Why a pod was not scheduled, and which plugins' events requeue it.

    ``reason`` is that of the PodScheduled condition. ``nomination`` is as in a status patch: the node that the pod is
    nominated to from now on, "" to clear its nomination, None to leave it alone.
    """

    reason: str
    message: str
    rejectors: frozenset[str] = frozenset()
    pending_plugins: frozenset[str] = frozenset()
    nomination: str | None = None

    @classmethod
    def of_decision(cls, decision: Unschedulable | Failed, nomination_after_failure: str | None) -> SchedulingFailure:
        """The decision found no node. ``nomination_after_failure`` is the nomination without a result of PostFilter."""
        reason = condition_reason(decision.status)
        if isinstance(decision, Failed) or not (decision.rejectors or decision.pending_plugins):  # there are no nodes
            return cls(reason, decision.message, nomination=nomination_after_failure)
        nominated = decision.post_filter.nominating_result
        nomination = None if nominated is None else nominated.nominated_node_name
        return cls(reason, decision.message, decision.rejectors, decision.pending_plugins, nomination)

    @classmethod
    def of_status(cls, status: Status, *, nomination: str | None = None) -> SchedulingFailure:
        """The attempt ended with this status: at Reserve, Permit, in the binding cycle, or at its gang's PreEnqueue.

        A rejection reads like that of a filter on the only node (semantics 4.6). Without a plugin that could requeue
        the pod it is retried after a backoff, as after an error (4.7).
        """
        rejectors = frozenset({status.plugin}) if status.code.is_rejection and status.plugin else frozenset()
        is_pending = status.code is Code.PENDING
        return cls(
            condition_reason(status),
            fit_error(1, [(status, 1)]) if rejectors else status.message,
            rejectors=frozenset() if is_pending else rejectors,
            pending_plugins=rejectors if is_pending else frozenset(),
            nomination=nomination,
        )


class FailureHandler:
    """Requeues pods, maintains their nominations, and reports the failure on them."""

    def __init__(
        self,
        state: SchedulerState,
        *,
        evictions: Evictions,
        reports: PodReports,
        leadership: Leadership,
        environment: Environment,
        gates: FeatureGates,
    ) -> None:
        keeps_nominations = gates.enabled("NominatedNodeNameForExpectation") and not gates.minor.has(
            Behaviour.FAILURES_CLEAR_NOMINATION_WITH_EXPECTATION
        )
        #: The nomination that a pod has after a failure other than a decision of PostFilter: "" clears it.
        self.nomination_after_failure: str | None = None if keeps_nominations else ""
        self._preempts_in_background = gates.enabled("SchedulerAsyncPreemption")
        self._cluster, self._pods, self._queue = state.cluster, state.pods, state.queue
        self._evictions, self._reports, self._leadership = evictions, reports, leadership
        self._clock, self._observer = environment.clock, environment.observer

    def no_node_found(self, queued: QueuedPod, decision: Unschedulable | Failed) -> None:
        """No node was found: start the preemption that PostFilter decided on, and requeue the pod.

        Without the gate SchedulerAsyncPreemption the pod stays in flight until the evictions have been answered.
        """
        failure = SchedulingFailure.of_decision(decision, self.nomination_after_failure)
        evicting = None
        if isinstance(decision, Unschedulable):
            # First, so that the pod is gated at PreEnqueue should an event requeue it at once.
            evicting = self._evictions.carry_out(queued.info, decision.post_filter)
        if evicting is None or self._preempts_in_background:
            self.attempt_failed(queued, failure)
        else:
            self._evictions.tasks.start(self._attempt_failed_after(evicting, queued, failure))

    async def _attempt_failed_after(
        self, evicting: asyncio.Task[bool], queued: QueuedPod, failure: SchedulingFailure
    ) -> None:
        """End a preemptor's attempt after its evictions; it is nominated meanwhile, and no longer if one failed."""
        info = queued.info
        before = self._cluster.nomination(info.uid)
        # The pod may have been deleted or bound before this task runs, and during the evictions.
        if failure.nomination and self._is_pending(info.uid):
            self._cluster.nominate(info, failure.nomination)
        if not await evicting:
            failure = replace(failure, nomination=None)
            if before and self._is_pending(info.uid):
                self._cluster.nominate(info, before)
            else:
                self._clear_nomination(info)
        self.attempt_failed(queued, failure)

    def _is_pending(self, uid: str) -> bool:
        current = self._pods.get(uid)
        return current is not None and not current.spec.node_name

    def binding_failed(self, context: BindingContext, status: Status, *, nomination: str | None) -> None:
        """A placed pod was rejected or failed: undo the placement; requeue the pod, and those that may fit on its node.

        ``nomination`` is the node that the pod is nominated to from now on, "" for none, None for no change. After an
        error the other pods come first, after a rejection the pod itself (semantics 4.7).
        """
        context.unreserve_and_forget(self._cluster)
        removed = context.info.on(context.node_name)
        is_rejection = status.code.is_rejection
        if not is_rejection:
            self._queue.move_all_to_active_or_backoff(ASSIGNED_POD_DELETE, removed, None)
        self.attempt_failed(context.queued, SchedulingFailure.of_status(status, nomination=nomination))
        if is_rejection:
            self._queue.move_all_to_active_or_backoff(
                ASSIGNED_POD_DELETE, removed, None, among=lambda other: other.uid != removed.uid
            )

    def attempt_failed(self, queued: QueuedPod, failure: SchedulingFailure) -> None:
        """End a pod's attempt: requeue it, update its nomination, report the failure."""
        result = Result.UNSCHEDULABLE if failure.reason == REASON_UNSCHEDULABLE else Result.ERROR
        now = self._clock.monotonic()
        self._observer.attempt_ended(queued, result, failure.message, now - queued.attempt_began)
        current = self._pods.get(queued.info.uid)
        if current is None or current.spec.node_name:  # deleted or bound meanwhile: there is nothing to requeue
            self._queue.in_flight.done(queued.info.uid)
            return
        if current.spec.scheduler_name != queued.info.spec.scheduler_name:
            # Another pod for the queue: what rejected it in one profile means nothing in another.
            self._queue.in_flight.done(queued.info.uid)
            self._queue.add(current)
            return
        queued.info = current
        self._queue.return_after_failure(
            queued, rejectors=failure.rejectors, pending_plugins=failure.pending_plugins, now=now
        )
        if failure.nomination:
            self._cluster.nominate(current, failure.nomination)
        elif failure.nomination == "":
            self._clear_nomination(current)
        self._reports.record_failure(current, failure.message)
        self._reports.report_unscheduled(current, failure.reason, failure.message, failure.nomination)

    def report_gated(self, pod: PodInfo, message: str) -> None:
        """Report on a gated pod why it is gated, and clear its nomination. A standby scheduler reports nothing."""
        if self._leadership.is_leader:
            self._clear_nomination(pod)
            self._reports.record_failure(pod, message)
            self._reports.report_unscheduled(pod, REASON_UNSCHEDULABLE, message, "")

    def pod_gated(self, pod: PodInfo, status: Status) -> None:
        """Report a PreEnqueue plugin's error on the pod; pods that are merely gated get no report."""
        if status.code is Code.ERROR and self._leadership.is_leader:
            message = f'running PreEnqueue plugin "{status.plugin}": {status.message}'
            self._reports.record_failure(pod, message)
            self._reports.report_unscheduled(pod, REASON_SCHEDULER_ERROR, message, None)

    def _clear_nomination(self, pod: PodInfo) -> None:
        nominated = self._cluster.nomination(pod.uid)
        self._cluster.drop_nomination(pod.uid)
        self._queue.requeue_for_freed_nomination(pod, nominated)
