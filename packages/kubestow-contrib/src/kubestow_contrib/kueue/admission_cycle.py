"""One admission cycle: the heads of all ClusterQueues are nominated, ordered, and admitted or not.

Nomination finds flavors for each head, and what it would have to preempt, as the state is. Then the heads are taken in
order: those first that borrow least, have the highest priority and are oldest, or, with fair sharing, that of the
ClusterQueue whose share is lowest. Each sees what those before it took. A head that preempts reserves what it will use;
no two of them may preempt the same Workload. (Source: Kueue ``pkg/scheduler/scheduler.go``.)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import partial

from kubestow_contrib.kueue.admission_state import AdmissionState, ClusterQueueNode
from kubestow_contrib.kueue.fair_sharing import DEFAULT_STRATEGIES, Share, find_fair_targets, share_of
from kubestow_contrib.kueue.flavor_assignment import (
    Assignment,
    FlavorAssigner,
    Mode,
    Preemption,
    place_all,
    placement_requests,
)
from kubestow_contrib.kueue.objects import ANY
from kubestow_contrib.kueue.pending_workloads import Requeue
from kubestow_contrib.kueue.preemption import PreemptionRequest, Target, find_targets
from kubestow_contrib.kueue.quota_tree import (
    CohortNode,
    FlavorResource,
    Quantities,
    QuotaNode,
    lowest_fitting_height,
    root_of,
)
from kubestow_contrib.kueue.topology import TopologyUsage
from kubestow_contrib.kueue.workload_info import WorkloadInfo, with_quota


@dataclass(frozen=True, slots=True)
class AdmissionSettings:
    """The parts of Kueue's configuration that decide about admission.

    ``fair_sharing`` has the preemption strategies, None without fair sharing. ``usage_fair_sharing`` says whether
    admission fair sharing is enabled, and ``half_life`` and ``sampling_interval`` are its times, in seconds.
    ``resource_weights`` are those of resources in it.
    """

    fair_sharing: tuple[str, ...] | None = None
    usage_fair_sharing: bool = False
    half_life: float = 0.0
    sampling_interval: float = 300.0
    resource_weights: Mapping[str, float] = field(default_factory=dict)


class Outcome(StrEnum):
    """What became of a head in a cycle."""

    ADMITTED = "admitted"
    PREEMPTING = "preempting"
    INADMISSIBLE = "inadmissible"
    SKIPPED = "skipped"


@dataclass(eq=False)
class Entry:
    """A head in a cycle.

    ``reason`` is that of the condition ``QuotaReserved``: why there is no quota. ``requeue`` says why it goes back to
    its queue.
    """

    info: WorkloadInfo
    assignment: Assignment | None = None
    targets: list[Target] = field(default_factory=list)
    outcome: Outcome = Outcome.INADMISSIBLE
    requeue: Requeue = Requeue.GENERIC
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Obstacle:
    """What is wrong with a Workload or its queue, so that it is not considered: as a clause, and as a ``reason``."""

    problem: str
    reason: str
    requeue: Requeue = Requeue.GENERIC


def obstacle(state: AdmissionState, namespaces: Mapping[str, Mapping[str, str]], info: WorkloadInfo) -> Obstacle | None:
    """Why a Workload is not considered; None if only quota decides."""
    queue = state.cluster_queues.get(info.cluster_queue)
    namespace = info.workload.metadata.namespace
    labels = namespaces.get(namespace)
    if {one.state for one in info.workload.status.admission_checks} & {"Retry", "Rejected"}:
        return Obstacle("an admission check failed", "PendingEvaluation")
    if queue is None:
        return Obstacle(f"there is no ClusterQueue {info.cluster_queue}", "Misconfigured")
    if queue.problem:
        return Obstacle(f"ClusterQueue {queue.name}: {queue.problem}", "Suspended")
    if labels is None:
        return Obstacle(f"there is no namespace {namespace}", "Misconfigured")
    if queue.namespaces is None or not queue.namespaces.matches(labels):
        problem = f"ClusterQueue {queue.name} does not select namespace {namespace}"
        return Obstacle(problem, "Misconfigured", Requeue.NAMESPACE_MISMATCH)
    return None


@dataclass(slots=True)
class AdmissionCycle:
    """Cycle number ``number`` at the time ``now`` (seconds since the epoch).

    ``namespaces`` are the labels of namespaces by name.
    """

    state: AdmissionState
    namespaces: Mapping[str, Mapping[str, str]]
    settings: AdmissionSettings
    now: float
    number: int = 1
    _preempted: dict[str, WorkloadInfo] = field(default_factory=dict, init=False)

    def run(self, heads: Iterable[WorkloadInfo]) -> list[Entry]:
        """Decide about the heads, at most one of each ClusterQueue, in the order in which they were decided about.

        The state then has the admitted Workloads, with their flavors, and is otherwise as before: those to preempt keep
        their quota until they are gone.
        """
        nominated: list[Entry] = []
        done: list[Entry] = []
        admitted: list[Entry] = []
        for entry in map(Entry, heads):
            (nominated if self._nominate(entry) else done).append(entry)
        with self.state.trial():
            for entry in self._ordered(nominated):
                self._decide(entry)
                done.append(entry)
                if entry.outcome is Outcome.ADMITTED:
                    admitted.append(entry)
        for entry in admitted:
            self._admit(entry)
        return done

    # -- nomination ----------------------------------------------------------------------------------------------------

    def _nominate(self, entry: Entry) -> bool:
        found = obstacle(self.state, self.namespaces, entry.info)
        if found is None:
            self._assign(entry, self.state.cluster_queues[entry.info.cluster_queue])
            return True
        entry.reason, entry.requeue = found.reason, found.requeue
        return False

    def _assign(self, entry: Entry, queue: ClusterQueueNode) -> None:
        """Find flavors for an entry, and what it would have to preempt."""
        info = entry.info
        if info.scan is not None and info.scan.is_outdated(queue.generation, self.number, info.shape):
            info.scan = None
        oracle = partial(self._how_by_preemption, queue)
        is_fair = self.settings.fair_sharing is not None
        assigner = FlavorAssigner(queue, self.state.flavors, oracle, is_fair=is_fair, cycle=self.number)
        whole = assigner.assign(info)
        found = self._with_targets(info, whole)
        if found is None and info.may_be_reduced:
            found = self._reduced(info, assigner)
        entry.assignment, entry.targets = (whole, []) if found is None else found
        self._place_after_preemption(entry, queue)
        info.scan = entry.assignment.scan

    def _place_after_preemption(self, entry: Entry, queue: ClusterQueueNode) -> None:
        """Find the domains that an entry reserves while others are preempted for it, or while it waits."""
        assignment = entry.assignment
        if assignment is None or assignment.mode is not Mode.PREEMPT or not queue.topologies:
            return
        requests = placement_requests(entry.info, assignment, queue)
        with self.state.without_usage_of(target.info for target in entry.targets):
            placed = place_all(queue, requests, empty=not entry.targets)
        for pod_set in assignment.pod_sets:
            if pod_set.name in placed:
                pod_set.topology = placed[pod_set.name].assignment

    def _with_targets(self, info: WorkloadInfo, assignment: Assignment) -> tuple[Assignment, list[Target]] | None:
        """An assignment and what it preempts; None if it can neither be admitted now nor after preemption."""
        if assignment.mode is Mode.FIT:
            return assignment, []
        if assignment.mode is Mode.PREEMPT:
            queue = self.state.cluster_queues[info.cluster_queue]
            requests = placement_requests(info, assignment, queue) if queue.topologies else {}

            def fits_topology() -> bool:
                return not any(one.failure for one in place_all(queue, requests).values())

            usage, lacking = assignment.total_requests(info), assignment.needing_preemption()
            targets = self._targets(info, usage, lacking, fits_topology)
            if targets:
                return assignment, targets
        return None

    def _reduced(self, info: WorkloadInfo, assigner: FlavorAssigner) -> tuple[Assignment, list[Target]] | None:
        """The largest number of pods, of all pod sets alike between their minimum and their count, that can be had.

        Found by bisection, as if fewer pods always fit where more do.
        """
        pod_sets = info.workload.spec.pod_sets
        spare = [one.count - (one.count if one.min_count is None else one.min_count) for one in pod_sets]
        total = sum(spare)
        best: tuple[int, tuple[Assignment, list[Target]]] | None = None
        low, high = 0, total + 1
        while low < high:
            middle = (low + high) // 2
            counts = [one.count - left * middle // total for one, left in zip(pod_sets, spare, strict=True)]
            found = self._with_targets(info, assigner.assign(info, counts))
            if found is None:
                low = middle + 1
            else:
                best, high = (middle, found), middle
        return best[1] if best is not None and best[0] == low else None

    def _targets(
        self,
        info: WorkloadInfo,
        usage: Quantities,
        lacking: set[FlavorResource],
        fits_topology: Callable[[], bool] = lambda: True,
    ) -> list[Target]:
        request = PreemptionRequest(self.state, info, usage, lacking, self.now, fits_topology)
        by_usage = self.settings.usage_fair_sharing
        if self.settings.fair_sharing is None:
            return find_targets(request, by_usage=by_usage)
        return find_fair_targets(request, self.settings.fair_sharing or DEFAULT_STRATEGIES, by_usage=by_usage)

    def _how_by_preemption(
        self, queue: ClusterQueueNode, info: WorkloadInfo, fr: FlavorResource, wanted: int
    ) -> tuple[Preemption, int]:
        """How an amount of one flavor could be had by preemption, and how far the queue would borrow then."""
        targets = self._targets(info, {fr: wanted}, {fr})
        with self.state.without_usage_of(target.info for target in targets):
            height, _ = lowest_fitting_height(queue, fr, wanted)
        if not targets:
            return Preemption.NO_CANDIDATES, height
        own = any(target.info.cluster_queue == queue.name for target in targets)
        return (Preemption.PREEMPT if own else Preemption.RECLAIM), height

    # -- order ---------------------------------------------------------------------------------------------------------

    def _ordered(self, entries: Sequence[Entry]) -> Iterator[Entry]:
        if self.settings.fair_sharing is None:
            yield from sorted(entries, key=_classical_order)
            return
        left = {entry.info.cluster_queue: entry for entry in entries}
        while left:
            queue = self.state.cluster_queues[min(left)]
            root = root_of(queue)
            winner = left[queue.name]
            if isinstance(root, CohortNode):
                found = _tournament(root, left, self._shares(root, left))
                assert found is not None
                winner = found
            yield left.pop(winner.info.cluster_queue)

    def _shares(self, root: CohortNode, left: Mapping[str, Entry]) -> dict[tuple[QuotaNode, str], Share]:
        """The share, with each entry admitted, of each node on its way to the root, by the node's parent."""
        shares: dict[tuple[QuotaNode, str], Share] = {}
        for queue in root.subtree_queues():
            entry = left.get(queue.name)
            if entry is None:
                continue
            assert isinstance(queue, ClusterQueueNode)
            with queue.with_usage(_usage(entry)):
                node: QuotaNode = queue
                while node.parent is not None:
                    shares[node.parent, entry.info.key] = share_of(node)
                    node = node.parent
        return shares

    # -- decision ------------------------------------------------------------------------------------------------------

    def _decide(self, entry: Entry) -> None:
        queue = self.state.cluster_queues[entry.info.cluster_queue]
        fits = self._updated_fits(entry, queue)
        assignment = entry.assignment
        assert assignment is not None
        mode = assignment.mode
        if mode is Mode.NO_FIT:
            entry.requeue, entry.reason = Requeue.NO_FIT, assignment.quota_reason
        elif mode is Mode.PREEMPT and not entry.targets:
            entry.requeue, entry.reason = Requeue.NO_PREEMPTION_CANDIDATES, "WaitingForQuota"
            if queue.preemption.reclaim_within_cohort != ANY:
                # So that others in the cohort do not take what it waits for.
                queue.add(_reservation(entry, queue))
                self.state.use_topology(_topology_usage(entry, queue))
        elif mode is Mode.DEFERRED_FIT:
            entry.requeue, entry.reason = Requeue.PENDING_PREEMPTION, "WaitingForPreemptedWorkloads"
            entry.outcome, entry.info.scan = Outcome.PREEMPTING, None
            queue.add(_usage(entry))
            self.state.use_topology(_topology_usage(entry, queue))
        elif any(target.info.key in self._preempted for target in entry.targets) or not fits:
            entry.outcome, entry.reason = Outcome.SKIPPED, "WaitingForQuota"
            entry.requeue = Requeue.FAILED_AFTER_NOMINATION
        else:
            self._preempted |= {target.info.key: target.info for target in entry.targets}
            queue.add(_usage(entry))
            self.state.use_topology(_topology_usage(entry, queue))
            if mode is Mode.PREEMPT:
                entry.outcome, entry.info.scan = Outcome.PREEMPTING, None
                entry.requeue, entry.reason = Requeue.PENDING_PREEMPTION, "WaitingForPreemptedWorkloads"
            else:
                entry.outcome = Outcome.ADMITTED

    def _updated_fits(self, entry: Entry, queue: ClusterQueueNode) -> bool:
        """Whether an entry fits beside those before it.

        Where it would preempt what another one preempts already, it is nominated anew as if that were gone; where only
        its domains were taken by another one, for other domains. Its flavors stay the same.
        """
        fits, fits_quota = self._fits(entry, queue)
        overlaps = any(target.info.key in self._preempted for target in entry.targets)
        if not overlaps and (fits or not fits_quota):
            return fits
        assert entry.assignment is not None
        with self.state.without(self._preempted.values() if overlaps else ()):
            entry.info.scan, entry.info.nomination = None, entry.assignment.nomination()
            self._assign(entry, queue)
        entry.info.nomination = None
        if overlaps and entry.assignment.mode is Mode.FIT:
            entry.assignment.set_mode([one.name for one in entry.assignment.pod_sets], Mode.DEFERRED_FIT)
        return self._fits(entry, queue)[0]

    def _fits(self, entry: Entry, queue: ClusterQueueNode) -> tuple[bool, bool]:
        """Whether an entry fits once all targets are gone, and whether its quota does."""
        gone = self._preempted | {target.info.key: target.info for target in entry.targets}
        with self.state.without_usage_of(gone.values()):
            fits_quota = queue.fits(_usage(entry))
            domains = _topology_usage(entry, queue)
            fits = fits_quota and all(queue.topologies[name].fits(used) for name, used in domains.items())
        return fits, fits_quota

    def _admit(self, entry: Entry) -> None:
        info, assignment = entry.info, entry.assignment
        assert assignment is not None
        for requested, assigned in zip(info.pod_sets, assignment.pod_sets, strict=True):
            requested.count, requested.requests = assigned.count, dict(assigned.requests)
            requested.flavors = {name: flavor.name for name, flavor in assigned.flavors.items()}
            requested.topology = assigned.topology
        info.scan = None
        info.workload = with_quota(info, self.now)
        self.state.add(info)


def _usage(entry: Entry) -> Quantities:
    """What an entry adds to the usage."""
    if entry.info.has_quota or entry.assignment is None:
        return {}
    return entry.assignment.usage


def _topology_usage(entry: Entry, queue: ClusterQueueNode) -> TopologyUsage:
    """What an entry adds to the usage of domains."""
    if entry.info.has_quota or entry.assignment is None:
        return {}
    return entry.assignment.topology_usage(entry.info, queue.topologies)


def _reservation(entry: Entry, queue: ClusterQueueNode) -> Quantities:
    """What a head that waits for quota keeps from others: up to what its ClusterQueue may use."""
    assert entry.assignment is not None
    reserved = {}
    for fr, wanted in _usage(entry).items():
        quota, used = queue.quota(fr), queue.usage.get(fr, 0)
        if not entry.assignment.borrowing:
            reserved[fr] = max(0, min(wanted, quota.nominal - used))
        elif quota.borrowing_limit is None:
            reserved[fr] = wanted
        else:
            reserved[fr] = min(wanted, quota.nominal + quota.borrowing_limit - used)
    return reserved


def _classical_order(entry: Entry) -> tuple[bool, int, int, float]:
    assert entry.assignment is not None
    return not entry.info.has_quota, entry.assignment.borrowing, -entry.info.priority, entry.info.queued_at


def _tournament(
    cohort: CohortNode, left: Mapping[str, Entry], shares: Mapping[tuple[QuotaNode, str], Share]
) -> Entry | None:
    """The entry that is next of all below a cohort: the best of the best of each child."""
    found = [_tournament(child, left, shares) for child in cohort.cohorts]
    found += [left.get(queue.name) for queue in cohort.queues]

    def order(entry: Entry) -> tuple[bool, tuple[bool, float], int, float]:
        share = shares[cohort, entry.info.key]
        borrows = any(_usage(entry).get(fr, 0) > 0 for fr in share.borrowed)
        return borrows, share.key, -entry.info.priority, entry.info.queued_at

    return min((entry for entry in found if entry is not None), key=order, default=None)
