"""Which pods may be evicted for another: by the actions preempt, within a queue, and reclaim, from other queues.

The plugins conformance, gang and proportion protect pods in whatever tier they are. Beyond that the first tier decides
whose plugins have any victims, and all of its plugins have to agree. By kube-batch's rule that tier decides alone: gang
protects no pod from the plugins of a later tier, nor the pod of a job that needs only one.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from enum import Enum

from kubestow.cluster.pods.shapes import PodInfo
from kubestow.framework.interface import Handle
from kubestow.rules.requests import PODS
from kubestow_contrib.shares import TOLERANCE, Amounts, dominant_share
from kubestow_contrib.volcano.accounts import Accounts, Job, JobKey, QueueAccount, requests_of
from kubestow_contrib.volcano.configuration import VolcanoConfiguration
from kubestow_contrib.volcano.jobs import JobOrder

_PREEMPTABLE = "volcano.sh/preemptable"
_CRITICAL = ("system-cluster-critical", "system-node-critical")
_SYSTEM_NAMESPACE = "kube-system"
_TRUE = ("1", "t", "T", "TRUE", "true", "True")
#: Dominant shares that differ by less are equal.
_SHARE_TOLERANCE = 1e-6


class Eviction(Enum):
    """From where victims are taken."""

    JOBS_OF_QUEUE = "other jobs of the queue"
    OWN_JOB = "the job itself"
    OTHER_QUEUES = "other queues"


class _Taken:
    """How many pods jobs lose, and what queues lose."""

    def __init__(self) -> None:
        self.pods: Counter[JobKey] = Counter()
        self.amounts: dict[str, Counter[str]] = {}

    def take(self, info: PodInfo, of: Job) -> None:
        self.pods[of.key] += 1
        self.amounts.setdefault(of.queue, Counter()).update(requests_of(info))

    def copy(self) -> _Taken:
        copied = _Taken()
        copied.pods.update(self.pods)
        copied.amounts = {queue: amounts.copy() for queue, amounts in self.amounts.items()}
        return copied


class EvictionRules:
    """The rules of a configuration."""

    def __init__(self, configuration: VolcanoConfiguration, accounts: Accounts, order: JobOrder) -> None:
        self._accounts, self._order = accounts, order
        self._decides_by_tier = configuration.evicts_as_kube_batch
        self._preempt_tiers = configuration.in_order("preemptable", ("priority", "gang", "conformance", "drf"))
        reclaim = configuration.in_order("reclaimable", ("gang", "conformance", "proportion", "capacity"))
        self._reclaim_tiers = reclaim
        self._protecting = {
            Eviction.OTHER_QUEUES: {name for tier in reclaim for name in tier},
            **dict.fromkeys(
                (Eviction.JOBS_OF_QUEUE, Eviction.OWN_JOB),
                {name for tier in self._preempt_tiers for name in tier} & {"gang", "conformance"},
            ),
        }
        self._levels = configuration.ancestor_reclaim_level
        self._starving = next((t for t in configuration.in_order("jobStarving", ("priority", "gang")) if t), [])

    def is_starving(self, job: Job, nominated: int) -> bool:
        """Whether a job may evict others: it lacks pods, ``nominated`` ones not counted as lacking."""
        ready = len(job.placed) + nominated
        if self._decides_by_tier:
            return ready < len(job.pods)
        needed = {"priority": len(job.pods), "gang": job.min_member}
        return bool(self._starving) and all(ready < needed[name] for name in self._starving)

    def _by_tiers(
        self,
        kind: Eviction,
        pod: PodInfo,
        job: Job,
        candidates: Sequence[tuple[PodInfo, Job]],
        before: _Taken,
    ) -> Sequence[tuple[PodInfo, Job]]:
        """kube-batch's rule: the victims that all plugins of a tier name; the first tier with any decides alone."""
        for tier in self._reclaim_tiers if kind is Eviction.OTHER_QUEUES else self._preempt_tiers:
            found, taken = list[tuple[PodInfo, Job]](), before.copy()
            fair = set[str]()
            if "drf" in tier:
                fair = {info.uid for info, _ in self._with_higher_share(pod, job, candidates)}
            for info, of in candidates if tier else ():
                if "priority" in tier and of.priority >= job.priority:
                    continue
                if "conformance" in tier and _is_critical(info):
                    continue
                left = len(of.placed) - taken.pods[of.key]
                if "gang" in tier and of.min_member not in (1, *range(left)):
                    continue
                if "drf" in tier and info.uid not in fair:
                    continue
                if "capacity" in tier and not self._exceeds_specified(pod, job, info, of, taken):
                    continue
                if "proportion" in tier and not self._keeps_deserved(of, info, taken):
                    continue
                found.append((info, of))
                taken.take(info, of)
            if found:
                return found
        return ()

    def _keeps_deserved(self, of: Job, info: PodInfo, taken: _Taken) -> bool:
        """Whether a queue would still use all that it deserves without a pod."""
        queue = self._accounts.queues.of(of)
        if queue is None:
            return False
        less = Counter(taken.amounts.get(queue.name, {}))
        less.update(requests_of(info))
        return all(
            queue.allocated.get(name, 0) - less[name] >= amount - TOLERANCE
            for name, amount in queue.deserved.items()
            if name != PODS
        )

    def permitted(
        self,
        kind: Eviction,
        pod: PodInfo,
        job: Job,
        by_node: Iterable[Sequence[PodInfo]],
        *,
        leaving: Collection[str] = (),
        highest_priority: float = math.inf,
    ) -> set[str]:
        """The uids of the pods that may be evicted for a pod of a job: all those of one of the nodes together.

        ``leaving`` are the uids of pods that are being evicted already. Pods of queues above the ``highest_priority``
        are left out.
        """
        before = _Taken()
        for uid in leaving:
            victim = self._accounts.placed(uid)
            if victim is not None:
                before.take(*victim)
        found: set[str] = set()
        for on_node in by_node:
            candidates = [
                (info, of)
                for info in on_node
                if info.uid not in leaving
                and (of := self._accounts.job(info)) is not None
                and info.uid in of.placed
                and self._is_candidate(kind, pod, job, info, of)
                and self._queue_priority(of) <= highest_priority
            ]
            if self._decides_by_tier:
                candidates.sort(key=self._importance, reverse=True)
                found |= {info.uid for info, _ in self._by_tiers(kind, pod, job, candidates, before)}
                continue
            taken = before.copy()
            for info, of in sorted(self._decided(kind, pod, job, candidates), key=self._importance, reverse=True):
                if not self._is_spared(kind, pod, job, info, of, taken):
                    found.add(info.uid)
                    taken.take(info, of)
        return found

    def _queue_priority(self, of: Job) -> int:
        rules = self._accounts.queues.rules.get(of.queue)
        return 0 if rules is None else rules.priority

    def _is_candidate(self, kind: Eviction, pod: PodInfo, job: Job, info: PodInfo, of: Job) -> bool:
        # An annotation goes before a label, and nonsense means no.
        if info.metadata.annotations.get(_PREEMPTABLE, info.labels.get(_PREEMPTABLE, "true")) not in _TRUE:
            return False
        if not self._decides_by_tier and "conformance" in self._protecting[kind] and _is_critical(info):
            return False
        if kind is Eviction.OTHER_QUEUES:
            rules = self._accounts.queues.rules.get(of.queue)
            if "capacity" in self._protecting[kind] and not pod.requests.keys() & info.requests.keys():
                return False
            return of.queue != job.queue and rules is not None and rules.reclaimable and bool(self._protecting[kind])
        if of.queue != job.queue or (of is job) is not (kind is Eviction.OWN_JOB):
            return False
        return bool(pod.requests) or not info.requests

    def _is_spared(self, kind: Eviction, pod: PodInfo, job: Job, info: PodInfo, of: Job, taken: _Taken) -> bool:
        """Whether a job needs the pods that it has left, or its queue deserves what they use."""
        protecting = self._protecting[kind]
        if "gang" in protecting and len(of.placed) - taken.pods[of.key] <= of.min_member:
            return True
        if "capacity" in protecting and not self._exceeds_specified(pod, job, info, of, taken):
            return True
        queue = self._accounts.queues.of(of)
        return "proportion" in protecting and not (
            queue is not None and queue.over_deserved(taken.amounts.get(queue.name, {}))
        )

    def _exceeds_specified(self, pod: PodInfo, job: Job, info: PodInfo, of: Job, taken: _Taken) -> bool:
        """Whether the queue of a job uses more than is specified as deserved of a resource of its pod ``info``.

        It has to keep its guarantee, and its ancestors up to the level of the configuration have to use more than they
        deserve, too, unless the queue of the preemptor's ``job`` has the same ancestor there. A pod that requests
        nothing of which a queue deserves anything may always be evicted; but not from below an ancestor of both queues
        if the preemptor's queue deserves nothing either.
        """
        queues, queue = self._accounts.queues, self._accounts.queues.of(of)
        if queue is None:
            return False
        requests = {name: amount for name, amount in info.requests.items() if amount}
        used = Counter(queue.allocated)
        used.subtract(taken.amounts.get(queue.name, {}))
        guarantee = queues.rules[queue.name].guarantee
        if any(used[name] - requests.get(name, 0) < amount for name, amount in guarantee.items()):
            return False
        theirs, own = (queues.ancestors(each.queue, self._levels) for each in (of, job))
        relevant = [name for name in requests if queue.deserved.get(name, 0)]
        if not relevant and set(theirs) & set(own):
            deserved = queues.specified(job.queue)
            if not any(amount and deserved.get(name, 0) for name, amount in pod.requests.items()):
                return False
        if relevant and not any(used[name] > queue.deserved[name] + TOLERANCE for name in relevant):
            return False
        return all(
            self._exceeds_with_descendants(ancestor, requests, taken)
            for ancestor, other in itertools.zip_longest(theirs, own)
            if ancestor is not None and ancestor != other
        )

    def _exceeds_with_descendants(self, ancestor: str, requests: Amounts, taken: _Taken) -> bool:
        """Whether a queue and those below it use more than it deserves of a resource, or it deserves nothing of any."""
        queues = self._accounts.queues
        deserved, used = queues.specified(ancestor), Counter(queues.used_below(ancestor, "allocated"))
        for queue, amounts in taken.amounts.items():
            if ancestor in queues.lineage(queue):
                used.subtract(amounts)
        relevant = [name for name in requests if deserved.get(name, 0)]
        return not relevant or any(used[name] > deserved[name] + TOLERANCE for name in relevant)

    def _decided(
        self, kind: Eviction, pod: PodInfo, job: Job, candidates: Sequence[tuple[PodInfo, Job]]
    ) -> Sequence[tuple[PodInfo, Job]]:
        """The candidates that the first tier with victims agrees on."""
        if kind is Eviction.OTHER_QUEUES:
            return candidates
        for tier in self._preempt_tiers:
            if not tier:
                continue
            found = candidates
            if "priority" in tier:
                found = [
                    (info, of)
                    for info, of in found
                    if (info.priority < pod.priority if of is job else of.priority < job.priority)
                ]
            if "drf" in tier:
                found = self._with_higher_share(pod, job, found)
            if found:
                return found
        return ()

    def _with_higher_share(
        self, pod: PodInfo, job: Job, candidates: Sequence[tuple[PodInfo, Job]]
    ) -> list[tuple[PodInfo, Job]]:
        """The pods whose jobs have no lower dominant share without them than the pod's job would have with it."""
        total, found = self._accounts.queues.total, []
        share = dominant_share(Counter(job.allocated) + Counter(requests_of(pod)), total)
        left: dict[JobKey, Counter[str]] = {}
        for info, of in candidates:
            rest = left.setdefault(of.key, Counter(of.allocated))
            rest.subtract(requests_of(info))
            if share <= dominant_share(rest, total) + _SHARE_TOLERANCE:
                found.append((info, of))
        return found

    def _importance(self, candidate: tuple[PodInfo, Job]) -> tuple[object, ...]:
        info, job = candidate
        queue: QueueAccount | None = self._accounts.queues.of(job)
        of_queue = () if queue is None else self._order.queue_key(queue)
        return of_queue, self._order.job_key(job), -info.priority, info.metadata.creation_timestamp or "", info.uid


def _is_critical(info: PodInfo) -> bool:
    return info.namespace == _SYSTEM_NAMESPACE or info.spec.priority_class_name in _CRITICAL


class Sessions:
    """The sessions of kube-batch: it evicts once a second, for the pods that it has seen when the second began.

    So tiers that let two jobs evict each other do so once in a session, however fast evicted pods are created anew.
    Before the first session, as in an offline explanation, all pods may preempt.
    """

    _PERIOD = 1.0

    def __init__(self, handle: Handle) -> None:
        self._handle, self._number = handle, 0
        #: The session in which each pod without a node was observed.
        self._observed_in: dict[str, int] = {}
        #: The pods that wait for the next session.
        self._waiting: dict[str, PodInfo] = {}
        handle.cluster.listen_to_pods(self)
        handle.run_periodically(self._PERIOD, self._begin)

    def pod_observed(self, info: PodInfo) -> None:
        """A pod is new, or has changed."""
        if info.spec.node_name:
            self.pod_ended(info.uid)
        else:
            self._observed_in.setdefault(info.uid, self._number)

    def pod_ended(self, uid: str) -> None:
        """A pod has a node, has finished or was deleted."""
        self._observed_in.pop(uid, None)
        self._waiting.pop(uid, None)

    def includes(self, pod: PodInfo) -> bool:
        """Whether a pod may preempt in this session; otherwise it is tried again in the next one."""
        if not self._number or self._observed_in.get(pod.uid, -1) < self._number:
            return True
        self._waiting[pod.uid] = pod
        return False

    async def _begin(self) -> None:
        self._number += 1
        waiting, self._waiting = self._waiting, {}
        self._handle.activate(waiting.values())
