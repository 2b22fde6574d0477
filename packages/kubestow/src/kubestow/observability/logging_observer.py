"""The observer that logs scheduling attempts.

Messages are kube-scheduler's where it logs the same. Results are logged at V(2), scheduling cycles at V(3); errors are
also logged at error level where they occur. Below its level a call costs one comparison.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from kubestow.cluster.pods.shapes import PodInfo
from kubestow.observability.logs import V, fields
from kubestow.scheduling.decision.result import Decision, Scheduled
from kubestow.scheduling.observer import Observer, Result
from kubestow.scheduling.queued_pod import QueuedPod

__all__ = ["LoggingObserver"]

_log = logging.getLogger(__name__)


class LoggingObserver(Observer):
    """Logs the results of attempts, bindings and preemptions."""

    def decision_made(self, decision: Decision, seconds: float) -> None:
        if _log.isEnabledFor(V(3)):
            values = fields(
                pod=decision.pod.key,
                node=decision.node_name or "",
                feasibleNodes=decision.candidate_count if isinstance(decision, Scheduled) else 0,
            )
            _log.log(V(3), "Scheduling algorithm finished", extra=values)

    def attempt_ended(self, queued: QueuedPod, result: Result, message: str, seconds: float) -> None:
        if result is not Result.SCHEDULED and _log.isEnabledFor(V(2)):
            text = (
                "Unable to schedule pod; no fit; waiting"
                if result is Result.UNSCHEDULABLE
                else "Error scheduling pod; retrying"
            )
            _log.log(V(2), text, extra=fields(pod=queued.info.key, attempt=queued.attempts, err=message))

    def pod_bound(self, queued: QueuedPod, node_name: str, seconds: float) -> None:
        if _log.isEnabledFor(V(2)):
            values = fields(pod=queued.info.key, node=node_name, attempts=queued.attempts, seconds=round(seconds, 6))
            _log.log(V(2), "Successfully bound pod to node", extra=values)

    def preemption_started(self, preemptors: Sequence[PodInfo], node_name: str, victims: Sequence[PodInfo]) -> None:
        if _log.isEnabledFor(V(2)):
            values = fields(preemptor=preemptors[0].key, node=node_name, victims=len(victims))
            _log.log(V(2), "Preemptor pod selected victims", extra=values)
