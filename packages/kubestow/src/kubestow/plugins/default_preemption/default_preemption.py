"""DefaultPreemption evicts pods of lower priority for a pod that fits no node (semantics 9).

PostFilter walks the nodes that rejected the pod for a reason that evictions may resolve, starting at a random one,
until it has found enough candidates. It picks the candidate with the lowest costs and returns the node, the victims,
and the pods of lower priority that lose their nomination to that node. The scheduler evicts the victims. Dry runs
(:mod:`.dry_run`) are cached for pods of the same shape until the node changes (:mod:`.candidates`).
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from functools import partial

import numpy as np
from numpy.typing import NDArray

from kubestow.api.policy import PodDisruptionBudget
from kubestow.api.scheduling import PodGroup
from kubestow.cluster.changes.events import Action, EventResource
from kubestow.cluster.nodes.table import NodeTable
from kubestow.cluster.pods.placed_groups import PlacedGroups
from kubestow.cluster.pods.pod_groups import native_name
from kubestow.cluster.pods.shapes import PodInfo
from kubestow.cluster.pods.table import PodChanges
from kubestow.config.plugin_args import DefaultPreemptionArgs
from kubestow.framework.cycle_state import CycleState
from kubestow.framework.diagnosis import Diagnosis, fit_error
from kubestow.framework.event_registration import EventRegistration, Invalidation, on
from kubestow.framework.gang import Evictable, Gang, GangPreemptionPlugin, PodGroupPostFilterPlugin
from kubestow.framework.interface import (
    FilterRunner,
    Handle,
    PostFilterPlugin,
    PostFilterResult,
    PreEnqueuePlugin,
    Victims,
)
from kubestow.framework.status import SUCCESS, Code, Status, aggregate
from kubestow.plugins.default_preemption.candidates import CandidateCache, Candidates, PreemptionCandidates
from kubestow.plugins.default_preemption.dry_run import (
    DisruptionBudgets,
    DryRun,
    dry_run,
    evictable_units,
    pod_group_priority,
)
from kubestow.plugins.default_preemption.group_victims import dry_run_with_groups
from kubestow.rules.minors import Behaviour
from kubestow.rules.pods import is_preempted

_PREEMPTING = Status.unresolvable("waiting for the preemption for this pod to be finished")
_POD_GROUP_PREEMPTING = Status.unresolvable("waiting for the preemption for this pod group to be finished")

_NEVER_PREEMPTS = "not eligible due to preemptionPolicy=Never."
_VICTIM_TERMINATING = "not eligible due to a terminating pod on the nominated node."
_POD_GROUP_NOT_FOUND = "pod group for pod not found"
_POD_GROUP_HAS_PLACEMENTS = "not eligible due to placement-based pod group scheduling limitation"
_POD_GROUP_PREEMPTS = "not eligible due to workload aware preemption enabled"

_NOT_HELPFUL = Status.unresolvable("Preemption is not helpful for scheduling")
_NO_POD_GROUP_VICTIMS = Status.unresolvable("No preemption victims found for incoming preemptor")

#: Dry runs cover at least this many nodes at a time.
_MIN_BATCH = 64

Rows = NDArray[np.intp]


class PreemptionWithoutPreEnqueue(PostFilterPlugin, GangPreemptionPlugin):
    """Preempts for single pods and, with the gate WorkloadAwarePreemption, for pod groups as a whole.

    This is the plugin before :attr:`Behaviour.PREEMPTION_EXTENDS_PRE_ENQUEUE`.
    """

    name = "DefaultPreemption"
    label_keys = ()
    applies_to_identical_pods = True

    def __init__(self, args: DefaultPreemptionArgs, handle: Handle) -> None:
        super().__init__(args, handle)
        self._min_candidates_percentage = args.min_candidate_nodes_percentage
        self._min_candidates_absolute = args.min_candidate_nodes_absolute
        self._reports_success = handle.emulates(Behaviour.PREEMPTION_REPORTS_WHAT_IT_FOUND)
        self._async_preemption = handle.feature_enabled("SchedulerAsyncPreemption")
        self._workload_aware_preemption = handle.feature_enabled("WorkloadAwarePreemption")
        self._topology_aware_scheduling = handle.feature_enabled("TopologyAwareWorkloadScheduling")
        self._budgets = DisruptionBudgets(handle.cluster.catalog(PodDisruptionBudget))
        self._cache = CandidateCache(handle)
        self.events_to_register: Sequence[EventRegistration] = (
            # The queue runs PreEnqueue for a gated pod again only after an event that the plugin registers.
            (on(EventResource.ASSIGNED_POD, Action.DELETE, invalidates=Invalidation.NOTHING, hint=_skip),)
            if self._async_preemption and handle.emulates(Behaviour.PREEMPTORS_WAIT_FOR_DELETIONS)
            else ()
        )

    def hint_signature(self, pod: PodInfo) -> Hashable:
        """Empty: the hint never requeues."""
        return ()

    def post_filter(
        self, state: CycleState, pod: PodInfo, diagnosis: Diagnosis, filters: FilterRunner
    ) -> PostFilterResult:
        """Nominates the pod to a node and names the victims, or returns the reasons of all nodes."""
        if (reason := self._ineligibility(pod, diagnosis)) is not None:
            return PostFilterResult(_unschedulable(reason))
        potential = np.flatnonzero(diagnosis.with_code(Code.UNSCHEDULABLE))
        if not len(potential):
            return self._no_candidates(diagnosis, [], len(potential))
        candidates = self._candidates(pod, filters)
        # The pod's own nomination does not count for it, so results for its nominated node hold for this pod only.
        nominated = self.handle.cluster.nodes.rows.get(self.handle.cluster.nomination(pod.uid) or "")
        own_rows = [] if nominated is None else [nominated]
        candidates.invalidate(own_rows)
        found = self._find_candidates(pod, filters, candidates, potential)
        if len(found):
            row = candidates.best(found)
            for_extenders = candidates.found(found, partial(self._nominate, pod))
            node_name = self.handle.cluster.nodes.names[row]
            result = self._nominate(pod, node_name, candidates.victims_on(row), for_extenders)
        else:
            result = self._no_candidates(diagnosis, list(candidates.tally(potential)), len(potential))
        candidates.invalidate(own_rows)
        return result

    # -- eligibility ---------------------------------------------------------------------------------------------

    def _ineligibility(self, pod: PodInfo, diagnosis: Diagnosis) -> str | None:
        """Why a pod is not eligible to preempt others (semantics 9.1); None when it is."""
        if pod.spec.scheduling_group is not None and (reason := self._pod_group_ineligibility(pod)) is not None:
            return reason
        if pod.spec.preemption_policy == "Never":
            return _NEVER_PREEMPTS
        nominated = self.handle.cluster.nodes.rows.get(pod.status.nominated_node_name or "")
        if nominated is None or diagnosis.status(nominated).code is Code.UNSCHEDULABLE_AND_UNRESOLVABLE:
            return None
        return _VICTIM_TERMINATING if self._has_terminating_victims(nominated, pod.priority) else None

    def _pod_group_ineligibility(self, pod: PodInfo) -> str | None:
        """Why a pod of a pod group is not eligible to preempt by itself (semantics 9.1); None when it is."""
        assert pod.spec.scheduling_group is not None
        if self._topology_aware_scheduling:
            name = pod.spec.scheduling_group.pod_group_name or ""
            group = self.handle.cluster.catalog(PodGroup).get(pod.namespace, name)
            if group is None:
                return _POD_GROUP_NOT_FOUND
            if group.spec.scheduling_constraints.topology:
                return _POD_GROUP_HAS_PLACEMENTS
        return _POD_GROUP_PREEMPTS if self._workload_aware_preemption else None

    def _has_terminating_victims(self, row: int, priority: int) -> bool:
        """Whether a preempted pod below a priority is still terminating on a node."""
        pods = self.handle.cluster.nodes.pods[row].values()
        return any(info.priority < priority and info.terminating and is_preempted(info.status) for info in pods)

    # -- candidates ----------------------------------------------------------------------------------------------

    def _candidates(self, pod: PodInfo, filters: FilterRunner) -> Candidates:
        """The candidates that are known from former dry runs for pods of this shape, or without any.

        A subclass that may evict other pods than those of lower priority has to override it, too.
        """
        candidates = self._cache.get(pod, filters, self._budgets.version)
        nodes = self.handle.cluster.nodes
        if not nodes.pod_table.has_pod_below(pod.priority):
            candidates.exclude(np.arange(len(nodes)))
        return candidates

    def _find_candidates(self, pod: PodInfo, filters: FilterRunner, candidates: Candidates, potential: Rows) -> Rows:
        """Enough candidates among the potential nodes, walked from a random one (semantics 9.2)."""
        total = len(potential)
        num_candidates = max(total * self._min_candidates_percentage // 100, self._min_candidates_absolute, 1)
        num_candidates = min(num_candidates, total)
        walk = np.roll(potential, -self.handle.random.randrange(total))
        # Nodes with a cached result cost nothing, so the search goes on to the next node without one.
        unknown = candidates.unknown(walk)
        while True:
            end = int(unknown[0]) if len(unknown) else total
            found = walk[:end][candidates.among(walk[:end])]
            kept = _kept_candidates(candidates.violating(found), num_candidates, exhausted=end >= total)
            if kept is not None:
                return found[kept]
            batch = max(num_candidates - len(found), _MIN_BATCH)
            rows, unknown = walk[unknown[:batch]], unknown[batch:]
            table = self.handle.cluster.nodes
            candidates.add(self._dry_run(pod, filters, table, rows))

    def _dry_run(self, pod: PodInfo, filters: FilterRunner, table: NodeTable, rows: Rows) -> DryRun:
        return dry_run(filters, table, rows, may_evict=partial(self.may_evict, pod), budgets=self._budgets)

    def may_evict(self, pod: PodInfo, others: PodChanges) -> NDArray[np.bool_]:
        """Which of the pods of some nodes may be evicted for a pod, bool: those of lower priority."""
        return others.table.priority[others.slots] < pod.priority

    # -- results -------------------------------------------------------------------------------------------------

    def _nominate(
        self, pod: PodInfo, node_name: str, victims: Victims, for_extenders: PreemptionCandidates | None = None
    ) -> PostFilterResult:
        nominated = self.handle.cluster.nominated_pods(node_name)
        found = f"found a potential placement for pod on node {node_name}, preempting {len(victims.pods)} victims"
        return PostFilterResult(
            Status(Code.SUCCESS, (f"preemption: {found}",)) if self._reports_success else SUCCESS,
            nominated_node_name=node_name,
            victims=victims.pods,
            lower_priority_nominated=tuple(info for info in nominated if info.priority < pod.priority),
            extender_candidates=for_extenders,
            violations=victims.violations,
        )

    def _no_candidates(self, diagnosis: Diagnosis, tally: list[tuple[Status, int]], potential: int) -> PostFilterResult:
        """An error if a dry run failed; otherwise the reasons of all nodes, and the nomination is cleared."""
        errors = [status.message for status, _ in tally if status.code is Code.ERROR]
        if errors:
            return PostFilterResult(Status.error(f"preemption: {aggregate(errors)}"))
        total = diagnosis.candidate_count
        if potential < total:
            tally.append((_NOT_HELPFUL, total - potential))
        return PostFilterResult(_unschedulable(fit_error(total, tally)), nominated_node_name="")

    # -- preemption of a pod group as a whole --------------------------------------------------------------------

    def preempts_as_a_whole(self, gang: Gang) -> bool:
        """Kubernetes' own pod groups do, with the gate WorkloadAwarePreemption."""
        return self._workload_aware_preemption and self._pod_group(gang) is not None

    def _pod_group(self, gang: Gang) -> PodGroup | None:
        name = native_name(gang.name)
        return None if name is None else self.handle.cluster.catalog(PodGroup).get(name.namespace, name.name)

    def evictable_units(self, gang: Gang, pods: Sequence[PodInfo]) -> Evictable | Status:
        """All pods and pod groups below the group's priority, on any node (semantics 9.7)."""
        group = self._pod_group(gang)
        if group is None or any(pod.spec.preemption_policy == "Never" for pod in pods):
            return Status.unschedulable(_NEVER_PREEMPTS)
        priority, cluster = pod_group_priority(group), self.handle.cluster
        nominated = {cluster.nodes.rows.get(cluster.nomination(pod.uid) or "") for pod in pods}
        if any(row is not None and self._has_terminating_victims(row, priority) for row in nominated):
            return Status(Code.PENDING, (_VICTIM_TERMINATING,))
        found = evictable_units(cluster, priority, excluded=gang.members.pods.keys(), budgets=self._budgets)
        return found if len(found.units.slots) else _NO_POD_GROUP_VICTIMS


# -- queueing hints --------------------------------------------------------------------------------------------------


class DefaultPreemption(PreEnqueuePlugin, PreemptionWithoutPreEnqueue):
    """Preempts, and gates a pod while its victims are evicted."""

    gates_during_preemption = True

    def pre_enqueue(self, pod: PodInfo) -> Status:
        """Gates a pod until the evictions that it caused have finished."""
        if not self._async_preemption or not self.handle.is_preempting(pod.uid):
            return SUCCESS
        in_group = self._workload_aware_preemption and pod.spec.scheduling_group is not None
        return _POD_GROUP_PREEMPTING if in_group else _PREEMPTING


class PreemptionForPodGroups(PodGroupPostFilterPlugin, DefaultPreemption):
    """The plugin since :attr:`Behaviour.POD_GROUP_POST_FILTER`: for pod groups it is enabled at PodGroupPostFilter."""

    def __init__(self, args: DefaultPreemptionArgs, handle: Handle) -> None:
        super().__init__(args, handle)
        self._groups_are_victims = handle.emulates(Behaviour.POD_GROUPS_ARE_VICTIMS)

    def preempts_as_a_whole(self, gang: Gang) -> bool:
        """Kubernetes' own groups do, composite ones included."""
        return gang.terms is not None or super().preempts_as_a_whole(gang)

    #: The placed pods of groups during one PostFilter; None if there are none.
    _placed_groups: PlacedGroups | None = None

    def post_filter(
        self, state: CycleState, pod: PodInfo, diagnosis: Diagnosis, filters: FilterRunner
    ) -> PostFilterResult:
        """Nominates the pod to a node and names the victims, whole groups among them, or returns the reasons."""
        cluster = self.handle.cluster
        if self._groups_are_victims and len(cluster.pod_groups) and len(cluster.placed_groups):
            self._placed_groups = cluster.placed_groups
        try:
            return super().post_filter(state, pod, diagnosis, filters)
        finally:
            self._placed_groups = None

    def _candidates(self, pod: PodInfo, filters: FilterRunner) -> Candidates:
        """Known candidates, unless groups are placed: what is known of a node would depend on other nodes."""
        return (
            super()._candidates(pod, filters) if self._placed_groups is None else Candidates(self.handle.cluster.nodes)
        )

    def _dry_run(self, pod: PodInfo, filters: FilterRunner, table: NodeTable, rows: Rows) -> DryRun:
        groups = self._placed_groups
        if groups is None:
            return super()._dry_run(pod, filters, table, rows)
        may_evict = partial(self.may_evict, pod)
        return dry_run_with_groups(filters, table, rows, may_evict=may_evict, budgets=self._budgets, groups=groups)

    def may_evict(self, pod: PodInfo, others: PodChanges) -> NDArray[np.bool_]:
        """Which of the pods of some nodes may be evicted for a pod, bool: those of lower priority, by their group's."""
        if self._placed_groups is None:
            return super().may_evict(pod, others)
        return self._placed_groups.priority_of(others.slots) < pod.priority

    def evictable_units(self, gang: Gang, pods: Sequence[PodInfo]) -> Evictable | Status:
        """All pods and pod groups below the group's priority, on any node; pods of groups have their group's."""
        if gang.terms is None:
            return super().evictable_units(gang, pods)
        policy = gang.terms.preemption_policy or pods[0].spec.preemption_policy
        if policy == "Never":
            return Status.unschedulable(_NEVER_PREEMPTS)
        priority, cluster = gang.terms.priority, self.handle.cluster
        nominated = {cluster.nodes.rows.get(cluster.nomination(pod.uid) or "") for pod in pods}
        if any(row is not None and self._has_terminating_victims(row, priority) for row in nominated):
            return Status(Code.PENDING, (_VICTIM_TERMINATING,))
        members = gang.members.pods.keys()
        of_groups = self._groups_are_victims
        found = evictable_units(cluster, priority, excluded=members, budgets=self._budgets, of_groups=of_groups)
        return found if len(found.units.slots) else _NO_POD_GROUP_VICTIMS


def _skip(pod: PodInfo, old: PodInfo, new: None) -> bool:
    """Never requeues; the hints of the plugins that rejected the pod decide (semantics 9.6)."""
    return False


# -- eligibility and candidate search --------------------------------------------------------------------------------


def _kept_candidates(violating: NDArray[np.bool_], num_candidates: int, *, exhausted: bool) -> NDArray[np.bool_] | None:
    """Which of the candidates found so far the search returns (bool per candidate); None while it must go on.

    It ends when ``num_candidates`` are found and one of them violates no disruption budget, or when no node is left. At
    most ``num_candidates`` of those that violate one are kept.
    """
    found = np.arange(1, len(violating) + 1)
    violating_found = np.cumsum(violating)
    ends = np.flatnonzero((found >= num_candidates) & (violating_found < found))
    if not len(ends) and not exhausted:
        return None
    last = ends[0] + 1 if len(ends) else len(violating)
    return (found <= last) & (~violating | (violating_found <= num_candidates))


def _unschedulable(reason: str) -> Status:
    return Status.unschedulable(f"preemption: {reason}")
