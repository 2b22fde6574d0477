"""Why a Workload waits: what it lacks, in which cohort, what is before it, and what has to end for it.

What is said to help was tried: the queues are settled without the Workloads that would have ended, and the Workload has
to be admitted then.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import islice

from kubestow.reports.model import amount_text, counted
from kubestow_contrib.kueue.admission import Admission
from kubestow_contrib.kueue.admission_cycle import obstacle
from kubestow_contrib.kueue.admission_state import ClusterQueueNode
from kubestow_contrib.kueue.flavor_assignment import (
    Assignment,
    FlavorAssigner,
    Mismatch,
    Mode,
    Preemption,
    Reason,
    Shortage,
    Uncovered,
    Unplaceable,
)
from kubestow_contrib.kueue.jobs import owner_of
from kubestow_contrib.kueue.objects import Workload
from kubestow_contrib.kueue.quota_tree import CohortNode, FlavorResource, QuotaNode, root_of
from kubestow_contrib.kueue.workload_info import WorkloadInfo

_MOST_NAMED = 8
#: So many times the queues are settled again at most, for Workloads whose end may suffice.
_MOST_SETTLED = 32


def assignment_now(admission: Admission, info: WorkloadInfo) -> Assignment:
    """The flavors of a waiting Workload as the state is, without preemption; the Workload stays as it is."""
    queue = admission.state.cluster_queues[info.cluster_queue]

    def no_preemption(info: WorkloadInfo, fr: FlavorResource, wanted: int) -> tuple[Preemption, int]:
        return Preemption.NO_CANDIDATES, 0

    fresh = WorkloadInfo(info.workload, info.cluster_queue, info.pod_sets)
    return FlavorAssigner(queue, admission.state.flavors, no_preemption).assign(fresh)


def limiting_node(node: QuotaNode, fr: FlavorResource) -> tuple[QuotaNode, bool]:
    """The cohort or ClusterQueue whose quota is used up, or whose borrowing limit (True) is, for a ClusterQueue."""
    if node.parent is None:
        return node, False
    limit = node.quota(fr).borrowing_limit
    if limit is not None:
        local, used = node.local_quota(fr), node.usage.get(fr, 0)
        left = node.subtree_quota.get(fr, 0) - local - max(0, used - local) + limit
        if left < node.parent.available(fr):
            return node, True
    return limiting_node(node.parent, fr)


def _named(node: QuotaNode) -> str:
    return f"cohort {node.name}" if isinstance(node, CohortNode) else f"ClusterQueue {node.name}"


def reason_text(reason: Reason, queue: ClusterQueueNode) -> str:
    """Why a Workload of a ClusterQueue cannot have a flavor."""
    match reason:
        case Mismatch():
            return f"flavor {reason.flavor} {reason.problem}"
        case Unplaceable():
            return f"flavor {reason.flavor}: {reason.problem}"
        case Uncovered():
            return f"ClusterQueue {queue.name} has no quota for {reason.resource}"
        case Shortage():
            what = f"{reason.resource} in flavor {reason.flavor}"
            if reason.wanted > reason.most:
                most, wanted = (amount_text(reason.resource, one) for one in (reason.most, reason.wanted))
                return f"ClusterQueue {queue.name} never has more than {most} of {what}, and {wanted} are needed"
            missing = amount_text(reason.resource, reason.missing)
            node, is_limit = limiting_node(queue, FlavorResource(reason.flavor, reason.resource))
            if is_limit:
                return f"{_named(node)} may borrow {missing} too little of {what}"
            return f"{_named(node)} is out of {what} by {missing}"


def reasons_text(reasons: Iterable[Reason], queue: ClusterQueueNode) -> str:
    """All reasons in one line."""
    return "; ".join(reason_text(reason, queue) for reason in reasons)


@dataclass(frozen=True, slots=True)
class Trial:
    """A waiting Workload in settled queues, which can be made anew and settled again with other Workloads.

    ``workloads`` are all of them by key, ``settled`` makes the queues with some. ``ends`` says when Workloads end, in
    seconds since the epoch, as far as that is known.
    """

    admission: Admission
    info: WorkloadInfo
    workloads: Mapping[str, Workload]
    settled: Callable[[Iterable[Workload]], Admission]
    ends: Mapping[str, float]

    @property
    def queue(self) -> ClusterQueueNode:
        """The ClusterQueue that it waits for."""
        return self.admission.state.cluster_queues[self.info.cluster_queue]

    def has_quota_without(self, ended: Iterable[WorkloadInfo]) -> bool:
        """Whether there is quota for it without some others, as long as no other Workload takes that."""
        with self.admission.state.without(ended):
            return assignment_now(self.admission, self.info).mode is Mode.FIT

    def is_admitted_without(self, ended: Sequence[WorkloadInfo]) -> bool:
        """Whether it is admitted once some others have ended."""
        if not self.has_quota_without(ended):
            return False
        keys = {one.key for one in ended}
        settled = self.settled(workload for key, workload in self.workloads.items() if key not in keys)
        return self.info.key in settled.state.cluster_queues[self.info.cluster_queue].workloads

    def admitted_as(self, changed: Workload) -> WorkloadInfo | None:
        """The Workload as it is admitted now if it is changed; None if it is not, or only if others lose their quota.

        ``changed`` has the same namespace and name.
        """
        settled = self.settled({**self.workloads, self.info.key: changed}.values())
        queues = settled.state.cluster_queues
        for name, queue in self.admission.state.cluster_queues.items():
            if not queue.workloads.keys() <= queues[name].workloads.keys():
                return None
        return queues[self.info.cluster_queue].workloads.get(self.info.key)

    def end_of(self, info: WorkloadInfo) -> float:
        """When a Workload ends; infinite if that is not known."""
        return self.ends.get(info.key, math.inf)


def why_waiting(trial: Trial) -> Iterator[str]:
    """Lines about a Workload that waits in settled queues."""
    admission, info, queue = trial.admission, trial.info, trial.queue
    if found := obstacle(admission.state, admission.namespaces, info):
        yield f"not admitted: {found.problem}"
        return
    position, waiting = position_of(admission, info)
    assignment = assignment_now(admission, info)
    if assignment.mode is Mode.FIT:
        before = _job_name(waiting[0]) if waiting and position > 1 else ""
        yield f"not admitted: there is quota, but {before or 'another'} is before it" + (
            f" in the StrictFIFO queue {queue.name}" if queue.is_strict else ""
        )
    else:
        yield f"not admitted: {reasons_text(assignment.reasons, queue)}"
    strategy = "StrictFIFO" if queue.is_strict else "BestEffortFIFO"
    yield f"position {position} of {len(waiting)} in ClusterQueue {queue.name} ({strategy}), priority {info.priority}"
    if assignment.mode is Mode.NO_FIT and assignment.quota_reason in ("ExceedsMaxQuota", "NoMatchingFlavor"):
        yield "it is not admitted whatever ends"
        return
    yield from _what_would_help(trial)


def position_of(admission: Admission, info: WorkloadInfo) -> tuple[int, list[WorkloadInfo]]:
    """The position of a Workload in its ClusterQueue, from 1, and the Workloads that wait there in their order."""
    waiting = list(admission.pending[info.cluster_queue].waiting())
    keys = [one.key for one in waiting]
    return keys.index(info.key) + 1 if info.key in keys else 1, waiting


def _what_would_help(trial: Trial) -> Iterator[str]:
    root = root_of(trial.admission.state.cluster_queues[trial.info.cluster_queue])
    queues = list(root.subtree_queues()) if isinstance(root, CohortNode) else [root]
    running = [one for queue in queues if isinstance(queue, ClusterQueueNode) for one in queue.workloads.values()]
    running.sort(key=lambda one: (trial.end_of(one), one.key))
    if not running:
        yield "nothing runs whose end would free quota for it"
        return
    sufficing = (one for one in running if trial.has_quota_without((one,)))
    for one in islice(sufficing, _MOST_SETTLED):
        if trial.is_admitted_without((one,)):
            yield f"it would be admitted when {_job_name(one)} ends{_time_text(trial.end_of(one))}"
            return
    several = _first_to_end(trial, running)
    if several is None:
        others = counted(len(running), "job")
        yield f"it would not be admitted even if the {others} ended that run in its cohort: others are before it"
        return
    named = [_job_name(one) for one in several[:_MOST_NAMED]]
    named[-1:] = [named[-1]] if len(several) <= _MOST_NAMED else [f"{len(several) - _MOST_NAMED + 1} others"]
    names = f"{', '.join(named[:-1])} and {named[-1]}"
    yield f"it would be admitted when {names} end{_time_text(max(map(trial.end_of, several)))}"


def _first_to_end(trial: Trial, running: Sequence[WorkloadInfo]) -> list[WorkloadInfo] | None:
    """The first Workloads in their order that have to end, without those that need not; None if all do not suffice."""
    everything = len(running)
    low = next((number for number in range(1, everything + 1) if trial.has_quota_without(running[:number])), None)
    if low is None:
        return None
    high = low
    while not trial.is_admitted_without(running[:high]):
        if high == everything:
            return None
        low, high = high + 1, min(2 * high, everything)  # those before it in the queues take more
    while low < high:
        middle = (low + high) // 2
        if trial.is_admitted_without(running[:middle]):
            high = middle
        else:
            low = middle + 1
    kept = list(running[:high])
    for one in running[:high] if high <= _MOST_SETTLED else ():
        rest = [other for other in kept if other is not one]
        if len(rest) > 1 and trial.is_admitted_without(rest):
            kept = rest
    return kept


def _job_name(info: WorkloadInfo) -> str:
    owner = owner_of(info.workload)
    return f"{owner.kind.lower()} {owner.name}"


def _time_text(moment: float) -> str:
    return "" if math.isinf(moment) else f" (about {datetime.fromtimestamp(moment, UTC):%Y-%m-%d %H:%M} UTC)"
