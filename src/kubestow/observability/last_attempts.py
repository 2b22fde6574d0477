"""What became of each pod's last attempt: the memory behind the question "why is my pod pending?".

Kept are sentences and counts, never the arrays they were made of, and only of so many pods: the least recently tried
are forgotten first. A pod that is still pending is tried again and again, so what matters stays.
"""

from __future__ import annotations

from collections import OrderedDict
from datetime import datetime

import msgspec

from kubestow.scheduling.observer import Observer, Result
from kubestow.scheduling.ports import Clock
from kubestow.scheduling.queue.queued_pod import QueuedPod

__all__ = ["AttemptRecord", "LastAttempts"]

_REMEMBERED = 10_000


class AttemptRecord(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """How one attempt ended.

    ``number`` counts from 1, ``seconds`` is how long it took; ``message`` says why it failed, else there is a node.
    """

    uid: str
    number: int
    ended_at: datetime
    seconds: float
    result: Result
    message: str
    node_name: str = ""


class LastAttempts(Observer):
    """The last attempt of each pod, by ``namespace/name``."""

    def __init__(self, clock: Clock, *, most: int = _REMEMBERED) -> None:
        self._clock, self._most = clock, most
        self._attempts: OrderedDict[str, AttemptRecord] = OrderedDict()

    def of(self, key: str) -> AttemptRecord | None:
        """A pod's last attempt, as far as it is remembered."""
        return self._attempts.get(key)

    def ended(self, queued: QueuedPod, result: Result, message: str, seconds: float) -> None:
        key = queued.info.key
        self._attempts[key] = AttemptRecord(
            uid=queued.info.uid,
            number=queued.attempts,
            ended_at=self._clock.now(),
            seconds=seconds,
            result=result,
            message=message,
        )
        self._attempts.move_to_end(key)
        if len(self._attempts) > self._most:
            self._attempts.popitem(last=False)

    def bound(self, queued: QueuedPod, node_name: str, seconds: float) -> None:
        key = queued.info.key
        ended = self._attempts.get(key)
        if ended is not None:
            self._attempts[key] = msgspec.structs.replace(ended, node_name=node_name)
