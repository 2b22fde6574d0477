"""The scheduler's own story in the log: which pod was tried, bound, refused, and who had to go for it.

The lines and their levels are kube-scheduler's (V(2) what became of a pod, V(3) what is tried); errors are written
where they happen. Below their level they cost a comparison.
"""

from __future__ import annotations

import logging

from kubestow.cluster.pods.shapes import PodInfo
from kubestow.observability.logs import V, fields
from kubestow.scheduling.decision.pipeline import Decision
from kubestow.scheduling.observer import Observer, Result
from kubestow.scheduling.queue.queued_pod import QueuedPod

__all__ = ["LoggingObserver"]

_log = logging.getLogger(__name__)


class LoggingObserver(Observer):
    """Tells the log what passes."""

    def attempted(self, decision: Decision, seconds: float) -> None:
        if _log.isEnabledFor(V(3)):
            facts = fields(pod=decision.pod.key, node=decision.node_name or "", feasible_nodes=decision.feasible_count)
            _log.log(V(3), "Decided about pod", extra=facts)

    def ended(self, queued: QueuedPod, result: Result, message: str, seconds: float) -> None:
        if result is not Result.SCHEDULED and _log.isEnabledFor(V(2)):
            told = "Unable to schedule pod; waiting" if result is Result.UNSCHEDULABLE else "Failed to schedule pod"
            _log.log(V(2), told, extra=fields(pod=queued.info.key, attempt=queued.attempts, err=message))

    def bound(self, queued: QueuedPod, node_name: str, seconds: float) -> None:
        if _log.isEnabledFor(V(2)):
            facts = fields(pod=queued.info.key, node=node_name, attempts=queued.attempts, seconds=round(seconds, 6))
            _log.log(V(2), "Successfully bound pod to node", extra=facts)

    def preempted(self, preemptor: PodInfo, node_name: str, victims: int) -> None:
        if _log.isEnabledFor(V(2)):
            _log.log(V(2), "Preempting", extra=fields(preemptor=preemptor.key, node=node_name, victims=victims))
