"""Preemption without fair sharing: which Workloads have to go so that another one fits.

Candidates are Workloads that use what the preemptor lacks and that the policies of its ClusterQueue permit:

- those of its own ClusterQueue (``withinClusterQueue``);
- those of other queues of the cohort that borrow (``reclaimWithinCohort``). If the request fits the quota of a subtree
  that has the preemptor and not the candidate, the preemptor only claims what is its own. Otherwise it borrows itself,
  which ``borrowWithinCohort`` has to permit if a candidate of another queue is to go.

Candidates go in an order until the preemptor fits; then those come back, the last ones first, without which it fits
too. (Source: Kueue ``pkg/scheduler/preemption``.)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cmp_to_key
from typing import Any

from kubestow_contrib.kueue.admission_state import AdmissionState, ClusterQueueNode
from kubestow_contrib.kueue.objects import ANY, LOWER_OR_NEWER, LOWER_PRIORITY, NEVER
from kubestow_contrib.kueue.quota_tree import CohortNode, FlavorResource, Quantities
from kubestow_contrib.kueue.workload_info import WorkloadInfo


class PreemptionReason(StrEnum):
    """Why a Workload is preempted, as its condition ``Preempted`` says."""

    IN_CLUSTER_QUEUE = "InClusterQueue"
    RECLAMATION = "InCohortReclamation"
    FAIR_SHARING = "InCohortFairSharing"
    RECLAIM_WHILE_BORROWING = "InCohortReclaimWhileBorrowing"


@dataclass(frozen=True, slots=True)
class Target:
    """A Workload to preempt, and why."""

    info: WorkloadInfo
    reason: PreemptionReason


@dataclass(frozen=True, slots=True)
class PreemptionRequest:
    """A preemptor in a ClusterQueue, its whole ``usage``, and the pairs of it that are not available.

    ``fits_topology`` says whether the preemptor can be placed on nodes as the state is; it always can without
    topology-aware scheduling. ``now`` is in seconds.
    """

    state: AdmissionState
    info: WorkloadInfo
    usage: Quantities
    lacking: set[FlavorResource]
    now: float = 0.0
    fits_topology: Callable[[], bool] = lambda: True

    @property
    def queue(self) -> ClusterQueueNode:
        """The preemptor's ClusterQueue."""
        return self.state.cluster_queues[self.info.cluster_queue]

    def fits(self, *, may_borrow: bool) -> bool:
        """Whether the preemptor fits as the state is."""
        queue = self.queue
        if not may_borrow and any(queue.exceeds_quota_with(fr, wanted) for fr, wanted in self.usage.items()):
            return False
        return queue.fits(self.usage) and self.fits_topology()

    def permits(self, candidate: WorkloadInfo, policy: str) -> bool:
        """Whether a policy permits to preempt a candidate, and that would help."""
        return satisfies_policy(self.info, candidate, policy) and candidate.uses_any(self.lacking)


def satisfies_policy(preemptor: WorkloadInfo, candidate: WorkloadInfo, policy: str) -> bool:
    """Whether a policy permits a Workload to preempt another, by priority and age."""
    lower = candidate.priority < preemptor.priority
    match policy:
        case _ if policy == LOWER_PRIORITY:
            return lower
        case _ if policy == LOWER_OR_NEWER:
            newer = preemptor.priority == candidate.priority and preemptor.queued_at < candidate.queued_at
            return lower or newer
        case _:
            return policy == ANY


def compare_candidates(one: WorkloadInfo, other: WorkloadInfo, queue: str, now: float, *, by_usage: bool) -> int:
    """The order in which Workloads are preempted, as a comparison.

    First those that are being evicted already, then those of other queues than the preemptor's; ``by_usage``, those of
    LocalQueues with more decayed usage; then lower priority, quota for a shorter time, and the uid.
    """
    first, second = _place_in_order(one, queue, now), _place_in_order(other, queue, now)
    usages = one.local_queue_usage, other.local_queue_usage
    same_queue = one.cluster_queue == other.cluster_queue and one.local_queue[1] != other.local_queue[1]
    if by_usage and same_queue and usages[0] is not None and usages[1] is not None and usages[0] != usages[1]:
        by_eviction = (first[0] > second[0]) - (first[0] < second[0])
        return by_eviction or (-1 if usages[0] > usages[1] else 1)
    return (first > second) - (first < second)


def _place_in_order(info: WorkloadInfo, queue: str, now: float) -> tuple[bool, bool, int, float, str, str]:
    own = info.cluster_queue == queue
    return not info.is_evicted, own, info.priority, -info.quota_reserved_at(now), info.uid, info.key


def preemption_order(queue: str, now: float, *, by_usage: bool = False) -> Callable[[WorkloadInfo], Any]:
    """The key by which Workloads are sorted that are preempted for one of a ClusterQueue."""
    if not by_usage:
        return lambda one: _place_in_order(one, queue, now)

    def compare(one: WorkloadInfo, other: WorkloadInfo) -> int:
        return compare_candidates(one, other, queue, now, by_usage=by_usage)

    return cmp_to_key(compare)


@dataclass(frozen=True, slots=True)
class _Candidate:
    """A candidate of another queue; ``within`` is the lowest cohort that both are in."""

    info: WorkloadInfo
    within: CohortNode | None
    reason: PreemptionReason
    #: Whether it may go only if the preemptor's queue does not borrow afterwards.
    without_borrowing: bool = False


def find_targets(request: PreemptionRequest, *, by_usage: bool = False) -> list[Target]:
    """The Workloads to preempt for another one; none if that is not possible. The state is as before afterwards."""
    queue = request.queue
    own = list(_own_candidates(request))
    reclaimed, others = _cohort_candidates(request)
    candidates = _ordered(request, own, reclaimed, others, by_usage=by_usage)
    may_borrow = queue.preemption.may_borrow
    under_nominal = all(queue.quota(fr).nominal > queue.usage.get(fr, 0) for fr in request.lacking)
    if not (reclaimed or others) or not (may_borrow or under_nominal):
        attempts = [True]
    elif not may_borrow and not reclaimed:
        attempts = [False, True]
    else:
        attempts = [True, False]
    for borrowing in attempts:
        if targets := _attempt(request, candidates, borrowing=borrowing):
            return targets
    return []


def _own_candidates(request: PreemptionRequest) -> Iterator[_Candidate]:
    policy = request.queue.preemption.within_cluster_queue
    if policy != NEVER:
        for info in request.queue.workloads.values():
            if request.permits(info, policy):
                yield _Candidate(info, None, PreemptionReason.IN_CLUSTER_QUEUE)


def _cohort_candidates(request: PreemptionRequest) -> tuple[list[_Candidate], list[_Candidate]]:
    """The candidates of the cohort: those from which the preemptor reclaims its own, and the others."""
    reclaimed: list[_Candidate] = []
    others: list[_Candidate] = []
    queue = request.queue
    if queue.preemption.reclaim_within_cohort == NEVER:
        return reclaimed, others
    has_advantage, rest = _fits_quota(queue, request.usage)
    below: CohortNode | None = None
    for cohort in queue.ancestors():
        found = reclaimed if has_advantage else others
        found += _candidates_below(request, cohort, cohort, below, has_advantage=has_advantage)
        fits, rest = _fits_quota(cohort, rest)
        has_advantage |= fits
        below = cohort
    return reclaimed, others


def _fits_quota(node: ClusterQueueNode | CohortNode, wanted: Mapping[FlavorResource, int]) -> tuple[bool, Quantities]:
    """Whether amounts fit the quota of a subtree beside its usage, and what of them its local quota does not cover."""
    fits = not any(node.exceeds_quota_with(fr, amount) for fr, amount in wanted.items())
    return fits, {fr: max(0, amount - node.local_available(fr)) for fr, amount in wanted.items()}


def _candidates_below(
    request: PreemptionRequest, node: CohortNode, within: CohortNode, skipped: CohortNode | None, *, has_advantage: bool
) -> Iterator[_Candidate]:
    """The candidates of queues that borrow, in subtrees that borrow."""
    for cohort in node.cohorts:
        if cohort is not skipped and not cohort.is_within_quota(request.lacking):
            yield from _candidates_below(request, cohort, within, skipped, has_advantage=has_advantage)
    policy = request.queue.preemption
    for queue in node.queues:
        assert isinstance(queue, ClusterQueueNode)
        if queue is request.queue or queue.is_within_quota(request.lacking):
            continue
        for info in queue.workloads.values():
            if not request.permits(info, policy.reclaim_within_cohort):
                continue
            if has_advantage:
                yield _Candidate(info, within, PreemptionReason.RECLAMATION)
                continue
            threshold = policy.borrow_within_cohort.max_priority_threshold if policy.borrow_within_cohort else None
            is_above = info.priority >= request.info.priority or (threshold is not None and info.priority > threshold)
            if is_above or not policy.may_borrow:
                yield _Candidate(info, within, PreemptionReason.RECLAMATION, without_borrowing=True)
            else:
                yield _Candidate(info, within, PreemptionReason.RECLAIM_WHILE_BORROWING)


def _ordered(
    request: PreemptionRequest,
    own: list[_Candidate],
    reclaimed: list[_Candidate],
    others: list[_Candidate],
    *,
    by_usage: bool,
) -> list[_Candidate]:
    """All candidates: those that are being evicted first, then what is reclaimed, other queues, and the own one."""
    key = preemption_order(request.queue.name, request.now, by_usage=by_usage)
    ordered = [one for group in (reclaimed, others, own) for one in sorted(group, key=lambda one: key(one.info))]
    return sorted(ordered, key=lambda one: not one.info.is_evicted)


def _attempt(request: PreemptionRequest, candidates: Iterable[_Candidate], *, borrowing: bool) -> list[Target]:
    targets: list[Target] = []
    found = False
    for candidate in candidates:
        if not _still_counts(request, candidate, borrowing=borrowing):
            continue
        request.state.remove(candidate.info)
        targets.append(Target(candidate.info, candidate.reason))
        if request.fits(may_borrow=borrowing):
            targets = without_unneeded(request, targets, may_borrow=borrowing)
            found = True
            break
    for target in targets:
        request.state.add(target.info)
    return targets if found else []


def _still_counts(request: PreemptionRequest, candidate: _Candidate, *, borrowing: bool) -> bool:
    """Whether a candidate may go after those before it: its queue and the cohorts above it borrow still."""
    queue = request.state.cluster_queues[candidate.info.cluster_queue]
    if queue is request.queue:
        return True
    if (borrowing and candidate.without_borrowing) or queue.is_within_quota(request.lacking):
        return False
    for cohort in queue.ancestors():
        if cohort is candidate.within:
            break
        if cohort.is_within_quota(request.lacking):
            return False
    return True


def without_unneeded(request: PreemptionRequest, targets: list[Target], *, may_borrow: bool) -> list[Target]:
    """The targets without those that need not go: each but the last, from the last but one, comes back if it can.

    The state has all targets removed before, and the returned ones afterwards.
    """
    targets = list(targets)
    for index in range(len(targets) - 2, -1, -1):
        request.state.add(targets[index].info)
        if request.fits(may_borrow=may_borrow):
            targets[index] = targets[-1]
            targets.pop()
        else:
            request.state.remove(targets[index].info)
    return targets
