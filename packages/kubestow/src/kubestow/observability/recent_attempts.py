"""The most recent scheduling attempts of each pod, and their preemptions, for the debug endpoint and the dashboard.

Messages and counts are kept, not the arrays they are derived from, and only for a bounded number of pods: the least
recently attempted are evicted. A pending pod is attempted again and again, so it stays. The node and the victims of a
preemption are always kept. The other candidates of DefaultPreemption, in the order of its criteria, are kept while they
are watched only, because to rank them costs more than the rest of this.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Sequence
from datetime import datetime

import msgspec

from kubestow.cluster.pods.shapes import PodInfo
from kubestow.framework.interface import PostFilterResult
from kubestow.plugins.default_preemption.candidates import PreemptionCandidates
from kubestow.scheduling.decision.result import Decision, Unschedulable
from kubestow.scheduling.interfaces import Clock
from kubestow.scheduling.observer import Disruption, Observer, Result
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


#: Attempts that are kept, and of each the candidates, and of each of these the victims.
_MAX_RECORDS, _MAX_CANDIDATES, _MAX_VICTIMS = 1_000, 10, 10
#: For so many seconds candidates are kept after they were asked for: longer than a stream of the dashboard.
_WATCH_SECONDS = 330.0


class Victim(msgspec.Struct, frozen=True, gc=False):
    """A pod (namespace/name) that is evicted."""

    pod: str
    priority: int


class Candidate(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What a preemption on one node costs by the scheduler's criteria (semantics 9.5).

    ``violations`` is None where budgets are not considered by node. ``earliest_start``, in seconds since 1970, is that
    of the victims of the highest priority. ``count`` is the number of all victims, of which only the first are listed.
    """

    node: str
    violations: int | None
    highest_priority: int
    priority_sum: int
    count: int
    earliest_start: float | None
    victims: tuple[Victim, ...]

    @classmethod
    def of(cls, node: str, victims: Sequence[PodInfo], violations: int | None, most_victims: int) -> Candidate:
        """The candidate with these victims, the most important first; there has to be one."""
        highest = max(victim.priority for victim in victims)
        started = [
            victim.status.start_time for victim in victims if victim.priority == highest and victim.status.start_time
        ]
        return cls(
            node=node,
            violations=violations,
            highest_priority=highest,
            priority_sum=sum(victim.priority for victim in victims),
            count=len(victims),
            earliest_start=min(started).timestamp() if started else None,
            victims=tuple(Victim(victim.key, victim.priority) for victim in victims[:most_victims]),
        )


class PreemptionRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A preemption: the ``chosen`` candidate, and the best of all ``found`` ones, itself among them, in their order.

    Without a list of the others, ``found`` is None. For a gang, the node of the candidate is ``cluster``.
    """

    chosen: Candidate
    best: tuple[Candidate, ...] = ()
    found: int | None = None


class RecentPreemptions(Observer):
    """The last preemptions that were decided on, by the pod's uid and the number of the attempt."""

    def __init__(self, clock: Clock, *, max_records: int = _MAX_RECORDS) -> None:
        self._clock, self._max_records = clock, max_records
        self._watched_until = -1.0
        self._records: OrderedDict[tuple[str, int], PreemptionRecord] = OrderedDict()
        #: The result of PostFilter for the pod (uid) that was decided about last, and the preemption that was started
        #: last, by the uids of its pods: their attempts end before another one is started.
        self._decided: tuple[str, PostFilterResult] | None = None
        self._started: dict[str, PreemptionRecord] = {}

    def watch(self) -> None:
        """Keep the candidates of the preemptions of the next minutes."""
        self._watched_until = self._clock.monotonic() + _WATCH_SECONDS

    def of(self, uid: str, number: int) -> PreemptionRecord | None:
        """The preemption that an attempt of a pod decided on; None if it did not, or is not kept any more."""
        return self._records.get((uid, number))

    def decision_made(self, decision: Decision, seconds: float) -> None:
        nomination = decision.post_filter.nominating_result if isinstance(decision, Unschedulable) else None
        self._decided = None if nomination is None else (decision.pod.uid, nomination)

    def preemption_started(
        self, preemptors: Sequence[PodInfo], node_name: str, victims: Sequence[PodInfo], disruption: Disruption
    ) -> None:
        self._started = {}
        if victims:
            record = self._record(preemptors[0], node_name, victims)
            self._started = dict.fromkeys((preemptor.uid for preemptor in preemptors), record)

    def _record(self, preemptor: PodInfo, node_name: str, victims: Sequence[PodInfo]) -> PreemptionRecord:
        uid, result = self._decided or ("", None)
        if result is None or (uid, result.nominated_node_name) != (preemptor.uid, node_name):  # it is for a gang
            return PreemptionRecord(chosen=Candidate.of(node_name, victims, None, _MAX_VICTIMS))
        chosen = Candidate.of(node_name, victims, result.violations, _MAX_VICTIMS)
        candidates = result.extender_candidates
        if self._clock.monotonic() >= self._watched_until or not isinstance(candidates, PreemptionCandidates):
            return PreemptionRecord(chosen=chosen)
        ranked = candidates.ranked(_MAX_CANDIDATES)
        best = (Candidate.of(node, each.pods, each.violations, _MAX_VICTIMS) for node, each in ranked)
        return PreemptionRecord(chosen=chosen, best=tuple(best), found=len(candidates))

    def attempt_ended(self, queued: QueuedPod, result: Result, message: str, seconds: float) -> None:
        record = self._started.pop(queued.info.uid, None)
        if record is not None:
            self._records[queued.info.uid, queued.attempts] = record
            if len(self._records) > self._max_records:
                self._records.popitem(last=False)
