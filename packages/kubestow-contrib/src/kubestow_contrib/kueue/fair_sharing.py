"""Fair sharing of what ClusterQueues and cohorts lend: dominant resource shares, and preemption by them.

The *share* of a node of the quota tree is the largest ratio, over all resources, of what it uses beyond its quota to
what its parent could have at most, in thousandths and by its weight. Of siblings, that with the lower share is served
first, and that with the higher share loses Workloads first.

Preemption walks down the tree from the root to the child with the highest share. Between the two children of the lowest
common cohort that lead to the preemptor and to the target, a strategy compares shares: with the preemptor admitted,
and with the target gone (``LessThanOrEqualToFinalShare``) or not (``LessThanInitialShare``).
(Source: Kueue ``pkg/cache/scheduler/fair_sharing.go``, ``pkg/scheduler/preemption/fairsharing``.)
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from kubestow_contrib.kueue.admission_state import ClusterQueueNode
from kubestow_contrib.kueue.objects import NEVER
from kubestow_contrib.kueue.preemption import (
    PreemptionReason,
    PreemptionRequest,
    Target,
    compare_candidates,
    preemption_order,
    without_unneeded,
)
from kubestow_contrib.kueue.quota_tree import CohortNode, FlavorResource, QuotaNode, root_of
from kubestow_contrib.kueue.workload_info import WorkloadInfo


@dataclass(frozen=True, slots=True)
class Share:
    """The dominant resource share of a node: thousandths of ``resource``, not yet divided by the ``weight``.

    ``borrowed`` are the pairs of which it uses more than its quota.
    """

    unweighted: float = 0.0
    resource: str = ""
    weight: float = 1.0
    borrowed: frozenset[FlavorResource] = frozenset()

    @property
    def weighted(self) -> float:
        """The share by weight; infinite for one that borrows with the weight 0."""
        if self.unweighted == 0:
            return 0.0
        return math.inf if self.weight == 0 else self.unweighted / self.weight

    @property
    def key(self) -> tuple[bool, float]:
        """Shares are compared by this: those with the weight 0 are the highest, and among them unweighted."""
        is_infinite = self.weight == 0 and self.unweighted != 0
        return is_infinite, self.unweighted if is_infinite else self.weighted

    @property
    def is_borrowing(self) -> bool:
        """Whether it uses more than its quota of anything."""
        return bool(self.borrowed)


#: Lower than every other.
_LOWEST = Share(-1.0)


def share_of(node: QuotaNode, added: Mapping[FlavorResource, int] | None = None) -> Share:
    """The share of a node, with some usage in addition; 0 for a root."""
    if node.parent is None:
        return Share(weight=node.weight)
    beyond: dict[str, int] = {}
    borrowed = []
    for fr, quota in node.subtree_quota.items():
        amount = (added or {}).get(fr, 0) + node.usage.get(fr, 0) - quota
        if amount > 0:
            beyond[fr.resource] = beyond.get(fr.resource, 0) + amount
            borrowed.append(fr)
    if not beyond:
        return Share(weight=node.weight)
    lendable: dict[str, int] = {}
    for fr in root_of(node).subtree_quota:
        lendable[fr.resource] = lendable.get(fr.resource, 0) + node.parent.potential_available(fr)
    ratios = {
        resource: amount * 1000.0 / lendable[resource]
        for resource, amount in beyond.items()
        if lendable.get(resource, 0) > 0
    }
    highest = max(ratios.values(), default=0.0)
    resource = min((name for name, ratio in ratios.items() if ratio == highest), default="") if highest else ""
    return Share(highest, resource, node.weight, frozenset(borrowed))


# -- preemption --------------------------------------------------------------------------------------------------------

#: Whether a target may be preempted, by the shares of the preemptor (once admitted), of the target, and of the target
#: without it.
Strategy = Callable[[Share, Share, Share], bool]


def _at_most_final(preemptor: Share, before: Share, after: Share) -> bool:
    return preemptor.key <= after.key


def _below_initial(preemptor: Share, before: Share, after: Share) -> bool:
    return preemptor.key < before.key


STRATEGIES: Mapping[str, Strategy] = {
    "LessThanOrEqualToFinalShare": _at_most_final,
    "LessThanInitialShare": _below_initial,
}
"""The strategies by the names in Kueue's configuration (``fairSharing.preemptionStrategies``)."""

DEFAULT_STRATEGIES = tuple(STRATEGIES)


class _Candidates:
    """The candidates of each ClusterQueue in order, and the walk to the queue that loses one next."""

    def __init__(self, request: PreemptionRequest, candidates: Iterable[WorkloadInfo]) -> None:
        self._request = request
        self._preemptor = request.queue
        self._path = set(request.queue.ancestors())
        self._left: dict[str, list[WorkloadInfo]] = {}
        for info in candidates:
            self._left.setdefault(info.cluster_queue, []).append(info)
        for infos in self._left.values():
            infos.reverse()
        self._done: set[QuotaNode] = set()

    def pop(self, queue: ClusterQueueNode) -> WorkloadInfo:
        """The next candidate of a queue."""
        return self._left[queue.name].pop()

    def has_any(self, queue: QuotaNode) -> bool:
        """Whether a queue has candidates left."""
        return bool(self._left.get(queue.name))

    def drop(self, queue: ClusterQueueNode) -> None:
        """Do not come back to a queue."""
        self._done.add(queue)

    def queues(self) -> Iterator[ClusterQueueNode]:
        """The queue with the highest share that has a candidate, again and again; the state changes in between."""
        root = root_of(self._preemptor)
        if root is self._preemptor:
            while root not in self._done and self.has_any(root):
                yield self._preemptor
            return
        assert isinstance(root, CohortNode)
        while root not in self._done:
            queue = self._next_below(root)
            if queue is not None:
                yield queue

    def _next_below(self, cohort: CohortNode) -> ClusterQueueNode | None:
        queue, queue_share = None, _LOWEST
        for one in cohort.queues:
            if one in self._done:
                continue
            share = share_of(one)
            if (not share.is_borrowing and one is not self._preemptor) or not self.has_any(one):
                self._done.add(one)
            elif share.key > queue_share.key or (
                queue is not None and self._goes_before(one, queue, share, queue_share)
            ):
                queue, queue_share = one, share
        below, below_share = None, _LOWEST
        for child in cohort.cohorts:
            if child in self._done:
                continue
            share = share_of(child)
            if not share.is_borrowing and child not in self._path:
                self._done.add(child)
            elif share.key >= below_share.key:
                below, below_share = child, share
        if below is not None and below_share.key >= queue_share.key:
            return self._next_below(below)
        if queue is None:
            self._done.add(cohort)
        assert queue is None or isinstance(queue, ClusterQueueNode)
        return queue

    def _goes_before(self, one: QuotaNode, best: QuotaNode, share: Share, best_share: Share) -> bool:
        """Of queues with equal shares, that whose candidate is preempted first."""
        if share.key != best_share.key:
            return False
        first, second = self._left[one.name][-1], self._left[best.name][-1]
        return compare_candidates(first, second, self._preemptor.name, self._request.now, by_usage=False) < 0

    def shares(self, queue: ClusterQueueNode) -> tuple[Share, Share]:
        """The shares of the two children of the lowest common cohort, on the preemptor's side and on the target's."""
        common = next(node for node in queue.ancestors() if node in self._path)
        return share_of(_child_towards(common, self._preemptor)), share_of(_child_towards(common, queue))

    def share_without(self, queue: ClusterQueueNode, info: WorkloadInfo) -> Share:
        """The target's share with a candidate gone."""
        with queue.without_usage(info.usage()):
            return self.shares(queue)[1]


def _child_towards(cohort: CohortNode, queue: QuotaNode) -> QuotaNode:
    node = queue
    while node.parent is not cohort:
        assert node.parent is not None
        node = node.parent
    return node


def find_fair_targets(
    request: PreemptionRequest, strategies: Sequence[str] = DEFAULT_STRATEGIES, *, by_usage: bool = False
) -> list[Target]:
    """The Workloads to preempt for another one by shares; none if that is not possible.

    The state is as before afterwards.
    """
    order = preemption_order(request.queue.name, request.now, by_usage=by_usage)
    candidates = sorted(_candidates(request), key=order)
    if not candidates:
        return []
    targets: list[Target] = []
    names = strategies or DEFAULT_STRATEGIES
    request.queue.add(request.usage)
    fits, retried = _run_first(request, candidates, STRATEGIES[names[0]], targets)
    if not fits and len(names) > 1:
        fits = _run_second(request, retried, targets)
    request.queue.remove(request.usage)
    if fits:
        targets = without_unneeded(request, targets, may_borrow=True)
    for target in targets:
        request.state.add(target.info)
    return targets if fits else []


def _candidates(request: PreemptionRequest) -> Iterator[WorkloadInfo]:
    queue, policy = request.queue, request.queue.preemption
    if policy.within_cluster_queue != NEVER:
        yield from (info for info in queue.workloads.values() if request.permits(info, policy.within_cluster_queue))
    root = root_of(queue)
    if policy.reclaim_within_cohort == NEVER or not isinstance(root, CohortNode):
        return
    for other in root.subtree_queues():
        assert isinstance(other, ClusterQueueNode)
        if other is not queue and not other.is_within_quota(request.lacking):
            for info in other.workloads.values():
                if request.permits(info, policy.reclaim_within_cohort):
                    yield info


def _fits(request: PreemptionRequest) -> bool:
    """Whether the preemptor, whose usage is counted, fits."""
    with request.queue.without_usage(request.usage):
        return request.fits(may_borrow=True)


def _preempt(request: PreemptionRequest, info: WorkloadInfo, reason: PreemptionReason, targets: list[Target]) -> bool:
    """Remove a candidate; whether the preemptor fits then."""
    request.state.remove(info)
    targets.append(Target(info, reason))
    return _fits(request)


def _run_first(
    request: PreemptionRequest, candidates: Sequence[WorkloadInfo], strategy: Strategy, targets: list[Target]
) -> tuple[bool, list[WorkloadInfo]]:
    """Preempt by the first strategy; whether the preemptor fits, and the candidates that the strategy spared."""
    left, retried = _Candidates(request, candidates), list[WorkloadInfo]()
    within_nominal = request.queue.is_within_quota(request.lacking)
    for queue in left.queues():
        if queue is request.queue or within_nominal:
            own = queue is request.queue
            reason = PreemptionReason.IN_CLUSTER_QUEUE if own else PreemptionReason.RECLAMATION
            if _preempt(request, left.pop(queue), reason, targets):
                return True, []
            continue
        preemptor, before = left.shares(queue)
        hopeless = math.isinf(preemptor.weighted) and not math.isinf(before.weighted)
        while left.has_any(queue):
            info = left.pop(queue)
            if hopeless or not strategy(preemptor, before, left.share_without(queue, info)):
                retried.append(info)
                continue
            if _preempt(request, info, PreemptionReason.FAIR_SHARING, targets):
                return True, []
            break
    return False, retried


def _run_second(request: PreemptionRequest, candidates: Sequence[WorkloadInfo], targets: list[Target]) -> bool:
    """Preempt one of each queue by ``LessThanInitialShare``; whether the preemptor fits then."""
    left = _Candidates(request, candidates)
    for queue in left.queues():
        preemptor, before = left.shares(queue)
        info = left.pop(queue)
        if _below_initial(preemptor, before, before) and _preempt(
            request, info, PreemptionReason.FAIR_SHARING, targets
        ):
            return True
        left.drop(queue)
    return False
