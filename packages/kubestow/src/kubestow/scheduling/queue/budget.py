"""The budgets of attempts: of one that has held up all other pods for long, and of those that are made early.

A scheduling cycle is synchronous, so a slow plugin cannot be interrupted; but it can be kept from being called again
soon. After an attempt of more than :data:`ATTEMPT_BUDGET`, for nine times as long as it took (for ten minutes at most),

- its pod is not tried again, whatever event helps it, so that its attempts take a tenth of the loop's time at most;
- the other pods of its namespace are in debt: they are popped when no pod of another namespace is ready.

The debt makes many expensive pods of one tenant as harmless as one, and delays nothing while no other pod waits. It
precedes the order of the QueueSort plugin, priorities included, and it ends by itself, so no pod is held back for ever.
The scheduling loop notices such an attempt, and :meth:`SchedulingQueue.charge` puts its pods aside.

An attempt that does not end at all costs the process its Lease. The next leader holds all pods of the namespace back
for ten minutes, whether others wait or not: each attempt may cost another leader.

While no pod is ready, pods are tried before their backoff has ended. Where hundreds of pods wait for one place that an
event frees, all but one of these tries fail, after each event anew: they have a budget too (:class:`EarlyTries`).
"""

from __future__ import annotations

from collections.abc import Iterable

from kubestow.scheduling.queued_pod import QueuedPod

#: An attempt may take this many seconds without consequences: far more than any attempt of an ordinary pod, also in a
#: cluster of tens of thousands of nodes, and less than what the users of other pods would notice.
ATTEMPT_BUDGET = 1.0
#: The share of the loop's time that expensive attempts of one pod, or of one namespace while others wait, may take, and
#: that of early tries while they fail.
_MAX_SHARE = 0.1

#: No pause is longer, in seconds: an attempt of more than a minute was suspended rather than expensive.
MAX_PAUSE = 600.0

#: No pause after an early try is longer, in seconds: a try may have waited for an extender, which costs no CPU.
_MAX_EARLY_PAUSE = 0.1


def delay_after(seconds: float) -> float:
    """The pause in seconds after an attempt that took so many, so that it takes no more than its share of the time."""
    return min(seconds * (1.0 / _MAX_SHARE - 1.0), MAX_PAUSE)


class NamespaceDebts:
    """The namespaces whose pods wait behind those of others, or are held back; times are seconds of the clock."""

    def __init__(self) -> None:
        self._ends: dict[str, float] = {}
        self._holds: dict[str, float] = {}

    def __bool__(self) -> bool:
        """Whether there are debts or namespaces that are held back, some of which may have ended."""
        return bool(self._ends) or bool(self._holds)

    def incur(self, namespaces: Iterable[str], until: float, now: float) -> None:
        """Put namespaces in debt."""
        self._ends = {namespace: end for namespace, end in self._ends.items() if end > now}
        for namespace in namespaces:
            self._ends[namespace] = max(until, self._ends.get(namespace, until))

    def hold_back(self, namespace: str, until: float) -> None:
        """Hold all pods of a namespace back."""
        self._holds[namespace] = max(until, self._holds.get(namespace, until))

    def hold_end(self, namespace: str, now: float) -> float | None:
        """Until when the pods of a namespace are held back; None if they are not."""
        end = self._holds.get(namespace)
        if end is not None and end <= now:
            del self._holds[namespace]
            return None
        return end

    def end_of(self, namespace: str, now: float) -> float | None:
        """When the debt of a namespace ends; None if it has none."""
        end = self._ends.get(namespace)
        if end is not None and end <= now:
            del self._ends[namespace]
            return None
        return end


class EarlyTries:
    """When a pod may be tried before its backoff has ended; times are seconds of the clock.

    A try that has failed is followed by a pause, so that such tries take no more than their share of the time.
    """

    def __init__(self) -> None:
        #: When the next one may be made.
        self.next_time = 0.0
        self._latest: QueuedPod | None = None

    def begin(self, queued: QueuedPod | None) -> None:
        """An attempt begins with a pod that is tried early, or with another one, None."""
        self._latest = queued

    def fail(self, queued: QueuedPod, now: float) -> None:
        """The attempt of a pod has failed; only that of the pod that is tried early counts."""
        if queued is self._latest:
            self.next_time = now + min(delay_after(now - queued.attempt_began), _MAX_EARLY_PAUSE)
