"""The preemptions that a watch shows: which pods were evicted, and for which pod.

A victim gets the condition DisruptionTarget before it is deleted, a preemptor its nomination: neither names the other.
If two pods preempt on a node at about the same time, the victims of each are known from the Preempted events, whose
note has the UID of the preemptor. Events are written by the scheduler without waiting, and may be lost or not allowed
to be read; then the victims on a node may be those of each pod that is nominated to it.
"""

from __future__ import annotations

import itertools
import re
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import replace

from kubestow.api.meta import APIObject, ObjectMeta
from kubestow.rules.pods import is_preempted
from kubestow.scheduling.events.resources import PODS
from kubestow.scheduling.interfaces import Resource
from kubestow.shadow.comparison import ObservedDecision
from kubestow.shadow.history import Change

#: Sets of victims that are tried for a nomination.
_MOST_VICTIM_SETS = 8
#: The note of a Preempted event, of kube-scheduler for pods.
_NOTE = re.compile(r"Preempted by pod (?P<uid>\S+) on node (?P<node>\S+)")


class _Regarding(APIObject, frozen=True):
    namespace: str = ""
    name: str = ""
    uid: str = ""


class PreemptedEvent(APIObject, frozen=True):
    """An event of ``events.k8s.io/v1`` about a pod that was evicted for another one."""

    metadata: ObjectMeta = ObjectMeta()
    regarding: _Regarding = _Regarding()
    reason: str = ""
    note: str = ""


PREEMPTED_EVENTS = Resource(
    "/apis/events.k8s.io/v1", "events", "Event", PreemptedEvent, field_selector="reason=Preempted", optional=True
)


class Preemptions:
    """The recent evictions for other pods, the nominations of these, and at most so many events (``most``)."""

    def __init__(self, most: int) -> None:
        self._evictions: deque[Change] = deque(maxlen=most)
        self._nominations: deque[Change] = deque(maxlen=most)
        #: The UIDs of the preemptors of each victim that events have named: a pod that preempts before the scheduler
        #: has seen a victim of another pod terminate evicts it too.
        self._preemptors: dict[str, set[str]] = {}
        self._most = most

    def add_eviction(self, change: Change) -> None:
        """Note a change if it shows that a pod was chosen as a victim."""
        if change.resource != PODS or change.old is None or change.new is None:
            return
        if is_preempted(change.new.status) and not is_preempted(change.old.status):
            self._evictions.append(change)

    def add_nomination(self, change: Change) -> None:
        """Note a change that shows a nomination."""
        self._nominations.append(change)

    def add_event(self, event: PreemptedEvent) -> None:
        """Note a pod for which the victim of an event was evicted."""
        if (found := _NOTE.match(event.note)) is None:
            return
        self._preemptors.setdefault(event.regarding.uid, set()).add(found["uid"])
        if len(self._preemptors) > self._most:
            del self._preemptors[next(iter(self._preemptors))]

    def with_victims(
        self, change: Change, observed: ObservedDecision, changes: Sequence[Change], since: float
    ) -> ObservedDecision:
        """A nomination with the pods that were evicted from the node for it since a time.

        ``changes`` are those around the nomination, which ``change`` shows. A pod preempts again only after all of its
        victims have been evicted, so those of its next nomination come after them. Where one ends and the other begins
        is not known: evictions between two nominations may belong to either.
        """
        own, priority, node = change.old.metadata.uid, change.old.spec.priority or 0, observed.nominated
        evicted: dict[str, str] = {}
        doubtful: set[str] = set()
        before, after = self._own_nominations(change, since)
        for eviction in self._evictions:
            pod = eviction.new
            if eviction.time < since or pod.spec.node_name != node or (pod.spec.priority or 0) >= priority:
                continue
            if not self._may_be_victim(pod.metadata.uid, own) or (after and eviction.number > after.number):
                continue
            evicted[pod.metadata.uid] = f"{eviction.key[0]}/{eviction.key[1]}"
            if before if eviction.number < change.number else after:
                doubtful.add(pod.metadata.uid)
        gone = frozenset(
            each.old.metadata.uid
            for each in changes
            if each.resource == PODS and each.is_deletion and each.old.spec.node_name == node
            if self._may_be_victim(each.old.metadata.uid, own)
        )
        if any(uid not in self._preemptors for uid in evicted) and any(
            each.time >= since and each.key != change.key and each.new.status.nominated_node_name == node
            for each in self._nominations
        ):
            doubtful |= evicted.keys()
        return replace(observed, victims=evicted, gone=gone, doubtful=frozenset(doubtful))

    def effects(self, observed: ObservedDecision, changes: Sequence[Change]) -> Iterator[frozenset[int]]:
        """The numbers of the changes of victims from their evictions on: of all, or without some of the doubtful."""
        first = {e.object_id: e for e in self._evictions if e.new.metadata.uid in observed.victims}
        doubtful = [key for key, eviction in first.items() if eviction.new.metadata.uid in observed.doubtful]
        sets = itertools.chain.from_iterable(
            itertools.combinations(doubtful, count) for count in range(len(doubtful) + 1)
        )
        for others in itertools.islice(sets, _MOST_VICTIM_SETS):
            victims = first.keys() - set(others)
            yield frozenset(
                c.number for c in changes if c.object_id in victims and c.number >= first[c.object_id].number
            )

    def _may_be_victim(self, uid: str, preemptor: str) -> bool:
        """Whether an event names a pod as a victim of another one, or none names it."""
        return preemptor in self._preemptors.get(uid, (preemptor,))

    def _own_nominations(self, change: Change, since: float) -> tuple[Change | None, Change | None]:
        """The nominations of the same pod before a nomination, since a time, and after it."""
        uid = change.old.metadata.uid
        own = [each for each in self._nominations if each.old.metadata.uid == uid and each.time >= since]
        before = [each for each in own if each.number < change.number]
        after = [each for each in own if each.number > change.number]
        return before[-1] if before else None, after[0] if after else None
