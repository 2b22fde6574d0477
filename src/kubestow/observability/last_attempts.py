"""The last scheduling attempt of each pod, for the debug endpoint.

Messages and counts are kept, not the arrays they are derived from, and only for a bounded number of pods: the least
recently attempted are evicted. A pending pod is attempted again and again, so it stays.
"""

from __future__ import annotations

from collections import OrderedDict
from datetime import datetime

import msgspec

from kubestow.scheduling.interfaces import Clock
from kubestow.scheduling.observer import Observer, Result
from kubestow.scheduling.queued_pod import QueuedPod

__all__ = ["AttemptRecord", "LastAttempts"]

_MAX_PODS = 10_000


class AttemptRecord(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """How one attempt ended.

    ``number`` counts from 1, ``seconds`` is the duration. A failed attempt has a ``message``, a successful one the
    ``node_name`` once the pod is bound.
    """

    uid: str
    number: int
    ended_at: datetime
    seconds: float
    result: Result
    message: str
    node_name: str = ""


class LastAttempts(Observer):
    """The last attempt of each pod by ``namespace/name``."""

    def __init__(self, clock: Clock, *, max_pods: int = _MAX_PODS) -> None:
        self._clock, self._max_pods = clock, max_pods
        self._records: OrderedDict[str, AttemptRecord] = OrderedDict()

    def of(self, key: str) -> AttemptRecord | None:
        """The last attempt of a pod; None if there was none or it was evicted."""
        return self._records.get(key)

    def attempt_ended(self, queued: QueuedPod, result: Result, message: str, seconds: float) -> None:
        key = queued.info.key
        self._records[key] = AttemptRecord(
            uid=queued.info.uid,
            number=queued.attempts,
            ended_at=self._clock.now(),
            seconds=seconds,
            result=result,
            message=message,
        )
        self._records.move_to_end(key)
        if len(self._records) > self._max_pods:
            self._records.popitem(last=False)

    def pod_bound(self, queued: QueuedPod, node_name: str, seconds: float) -> None:
        key = queued.info.key
        record = self._records.get(key)
        if record is not None:
            self._records[key] = msgspec.structs.replace(record, node_name=node_name)
