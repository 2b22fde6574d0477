"""Why a Workload waits: what it lacks, in which cohort, what is before it, and what has to end for it.

What is said to help was tried: the queues are settled without the Workloads that would have ended, and the Workload has
to be admitted then.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from kubestow.reports.model import amount_text, counted
from kubestow_contrib.kueue.admission import Admission
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
from kubestow_contrib.kueue.quota_tree import CohortNode, FlavorResource, QuotaNode, root_of
from kubestow_contrib.kueue.workload_info import WorkloadInfo

#: So many Workloads are tried as those that would have to end.
_MOST_TRIED = 64


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
class _Setting:
    """The queues as they are, made anew without some Workloads, and when Workloads end, as far as that is known."""

    settled_without: Callable[[frozenset[str]], Admission]
    ends: Mapping[str, float]


def why_waiting(
    admission: Admission,
    info: WorkloadInfo,
    settled_without: Callable[[frozenset[str]], Admission],
    ends: Mapping[str, float],
) -> Iterator[str]:
    """Lines about a Workload that waits in a settled :class:`Admission`.

    ``settled_without`` makes the settled queues without the Workloads of some keys; ``ends`` says when Workloads end.
    """
    queue = admission.state.cluster_queues[info.cluster_queue]
    if queue.problem:
        yield f"not admitted: ClusterQueue {queue.name}: {queue.problem}"
        return
    labels = admission.namespaces.get(info.workload.metadata.namespace, {})
    if queue.namespaces is None or not queue.namespaces.matches(labels):
        yield f"not admitted: ClusterQueue {queue.name} does not select namespace {info.workload.metadata.namespace}"
        return
    waiting = admission.pending[queue.name].waiting()
    keys = [one.key for one in waiting]
    position = keys.index(info.key) + 1 if info.key in keys else 1
    assignment = assignment_now(admission, info)
    setting = _Setting(settled_without, ends)
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
    yield from _what_would_help(admission, info, setting)


def _what_would_help(admission: Admission, info: WorkloadInfo, setting: _Setting) -> Iterator[str]:
    root = root_of(admission.state.cluster_queues[info.cluster_queue])
    queues = list(root.subtree_queues()) if isinstance(root, CohortNode) else [root]
    running = [one for queue in queues if isinstance(queue, ClusterQueueNode) for one in queue.workloads.values()]
    running.sort(key=lambda one: (setting.ends.get(one.key, float("inf")), one.key))
    if not running:
        yield "nothing runs whose end would free quota for it"
        return
    for one in running[:_MOST_TRIED]:
        if _is_admitted_without(setting, info, (one,)):
            yield f"it would be admitted when {_job_name(one)} ends{_time_text(setting.ends.get(one.key))}"
            return
    few = _fewest_first(setting, info, running)
    if few is None:
        others = counted(len(running), "job")
        yield f"it would not be admitted even if the {others} ended that run in its cohort: others are before it"
        return
    names = ", ".join(_job_name(one) for one in few[:-1]) + f" and {_job_name(few[-1])}"
    last = max((setting.ends.get(one.key, float("inf")) for one in few), default=float("inf"))
    yield f"it would be admitted when {names} end{_time_text(None if last == float('inf') else last)}"


def _fewest_first(
    setting: _Setting, info: WorkloadInfo, running: Sequence[WorkloadInfo]
) -> tuple[WorkloadInfo, ...] | None:
    """The first Workloads in their order, without those that need not end; None if all together do not suffice."""
    low, high = 1, len(running)
    if not _is_admitted_without(setting, info, running):
        return None
    while low < high:
        middle = (low + high) // 2
        if _is_admitted_without(setting, info, running[:middle]):
            high = middle
        else:
            low = middle + 1
    kept = list(running[:high])
    for one in list(kept) if high <= _MOST_TRIED else ():
        rest = [other for other in kept if other is not one]
        if rest and _is_admitted_without(setting, info, rest):
            kept = rest
    return tuple(kept)


def _is_admitted_without(setting: _Setting, info: WorkloadInfo, ended: Iterable[WorkloadInfo]) -> bool:
    settled = setting.settled_without(frozenset(one.key for one in ended))
    return info.key in settled.state.cluster_queues[info.cluster_queue].workloads


def _job_name(info: WorkloadInfo) -> str:
    owner = owner_of(info.workload)
    return f"{owner.kind.lower()} {owner.name}"


def _time_text(moment: float | None) -> str:
    return "" if moment is None else f" (about {datetime.fromtimestamp(moment, UTC):%Y-%m-%d %H:%M} UTC)"
