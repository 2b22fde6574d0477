"""The most recent scheduling attempts of each pod, for the debug endpoint and the dashboard.

Messages and counts are kept, not the arrays they are derived from, and only for a bounded number of pods: the least
recently attempted are evicted. A pending pod is attempted again and again, so it stays.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from datetime import datetime

import msgspec

from kubestow.scheduling.interfaces import Clock
from kubestow.scheduling.observer import Observer, Result
from kubestow.scheduling.queued_pod import QueuedPod

_MAX_PODS = 10_000
#: So many attempts of one pod are kept.
_MAX_PER_POD = 8


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


class RecentAttempts(Observer):
    """The last attempts of each pod by ``namespace/name``, those of pods with an earlier uid left out."""

    def __init__(self, clock: Clock, *, max_pods: int = _MAX_PODS) -> None:
        self._clock, self._max_pods = clock, max_pods
        #: The attempts of each pod, the oldest first; the pods in the order of their last attempts.
        self._records: OrderedDict[str, tuple[AttemptRecord, ...]] = OrderedDict()

    def last(self, key: str) -> AttemptRecord | None:
        """The last attempt of a pod; None if there was none or it was evicted."""
        records = self._records.get(key)
        return None if records is None else records[-1]

    def of(self, key: str) -> tuple[AttemptRecord, ...]:
        """The last attempts of a pod, the oldest first."""
        return self._records.get(key, ())

    def newest_pods(self) -> Iterator[tuple[str, tuple[AttemptRecord, ...]]]:
        """The keys of all pods and their attempts, the pod that was attempted last first."""
        return iter(reversed(self._records.items()))

    def attempt_ended(self, queued: QueuedPod, result: Result, message: str, seconds: float) -> None:
        key = queued.info.key
        record = AttemptRecord(
            uid=queued.info.uid,
            number=queued.attempts,
            ended_at=self._clock.now(),
            seconds=seconds,
            result=result,
            message=message,
        )
        former = self._records.get(key)
        if former is None or former[-1].uid != record.uid:
            self._records[key] = (record,)
        else:
            self._records[key] = (*former[1 - _MAX_PER_POD :], record)
        self._records.move_to_end(key)
        if len(self._records) > self._max_pods:
            self._records.popitem(last=False)

    def pod_bound(self, queued: QueuedPod, node_name: str, seconds: float) -> None:
        key = queued.info.key
        records = self._records.get(key)
        if records is not None:
            self._records[key] = (*records[:-1], msgspec.structs.replace(records[-1], node_name=node_name))
