"""DefaultPreemption makes room for a pod that fits nowhere by evicting pods of lower priority (semantics 9).

It looks, from a random node on, at nodes that refused the pod for a reason that evictions may cure, until it has found
enough candidates; picks the candidate that hurts least; and answers with the node, the victims, and the pods that lose
their promise of that node. Carrying it out is the scheduler's work. What a dry run (:mod:`.dry_run`) found out about a
node is remembered for pods of the same shape until something happens to that node.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from functools import partial

import numpy as np
from numpy.typing import NDArray

from kubestow.api.policy import PodDisruptionBudget
from kubestow.api.scheduling import PodGroup
from kubestow.cluster.events import POD_BITS, Action, ClusterEvent, EventResource
from kubestow.cluster.pods.pod_groups import native_name
from kubestow.cluster.pods.shapes import PodInfo, Shape
from kubestow.config.plugin_args import DefaultPreemptionArgs
from kubestow.framework.cycle_state import CycleState
from kubestow.framework.diagnosis import Diagnosis, fit_error
from kubestow.framework.event_registration import EventRegistration, Invalidation, on
from kubestow.framework.filters import Filters
from kubestow.framework.gang import Evictable, Gang, GangPreemptionPlugin
from kubestow.framework.interface import Handle, PostFilterPlugin, PostFilterResult, PreEnqueuePlugin, Victims
from kubestow.framework.result_cache import Answers, Memory, Staleness
from kubestow.framework.status import SUCCESS, Code, Status
from kubestow.plugins.default_preemption.candidates import Candidates
from kubestow.plugins.default_preemption.disruption_budgets import DisruptionBudgets
from kubestow.plugins.default_preemption.dry_run import dry_run
from kubestow.plugins.default_preemption.extender_candidates import Offers
from kubestow.plugins.default_preemption.pod_group_victims import group_victims, priority_of

__all__ = ["DefaultPreemption"]

_NOT_HELPFUL = Status.unresolvable("Preemption is not helpful for scheduling")
_WAITING = Status.unresolvable("waiting for the preemption for this pod to be finished")
_GROUP_WAITING = Status.unresolvable("waiting for the preemption for this pod group to be finished")
_NEVER_PREEMPTS = "not eligible due to preemptionPolicy=Never."
_STILL_LEAVING = "not eligible due to a terminating pod on the nominated node."

#: Whatever happens to the pods of a node, or to the promises made of it, makes a dry run on it stale.
_SPOILING = Staleness(row_bits=POD_BITS | ClusterEvent(EventResource.NOMINATION, Action.UPDATE).bits)
#: What is remembered of all shapes of pods may take so many bytes …
_BUDGET = 32 * 2**20
#: … of which one shape takes so many per node.
_BYTES_PER_NODE = 72
_FEWEST = 8

#: So many nodes at least are tried at once.
_LEAST_AT_ONCE = 64

Rows = NDArray[np.intp]


def _never(pod: PodInfo, old: PodInfo, new: None) -> bool:
    """The plugins that refused the pod know better when to try again."""
    return False


class DefaultPreemption(PreEnqueuePlugin, PostFilterPlugin, GangPreemptionPlugin):
    """Evicts pods of lower priority, for single pods and, behind a gate, for pod groups as a whole."""

    name = "DefaultPreemption"
    applies_to_identical_pods = True

    def __init__(self, args: DefaultPreemptionArgs, handle: Handle) -> None:
        super().__init__(args, handle)
        self._percentage = args.min_candidate_nodes_percentage
        self._absolute = args.min_candidate_nodes_absolute
        self._asynchronous = handle.feature_enabled("SchedulerAsyncPreemption")
        self._yields_to_groups = handle.feature_enabled("WorkloadAwarePreemption")
        self._yields_to_placements = handle.feature_enabled("TopologyAwareWorkloadScheduling")
        self._budgets = DisruptionBudgets(handle.cluster.catalog(PodDisruptionBudget))
        self._searches: OrderedDict[Shape, _Search] = OrderedDict()
        self.events_to_register: Sequence[EventRegistration] = (
            # A gated pod is only looked at when an event reaches it, so this one must.
            (on(EventResource.ASSIGNED_POD, Action.DELETE, invalidates=Invalidation.NOTHING, hint=_never),)
            if self._asynchronous
            else ()
        )

    def pre_enqueue(self, pod: PodInfo) -> Status:
        """A pod waits until the evictions it caused have been carried out."""
        if not self._asynchronous or not self.handle.is_preempting(pod.uid):
            return SUCCESS
        return _GROUP_WAITING if self._yields_to_groups and pod.spec.scheduling_group is not None else _WAITING

    def post_filter(self, state: CycleState, pod: PodInfo, diagnosis: Diagnosis, filters: Filters) -> PostFilterResult:
        """Nominate a node and name the victims, or say why not."""
        if (why_not := self._ineligible(pod, diagnosis)) is not None:
            return PostFilterResult(_refused(why_not))
        potential = np.flatnonzero(diagnosis.with_code(Code.UNSCHEDULABLE))
        if not len(potential):
            return self._no_candidates(diagnosis, None, potential)
        candidates = self._search(pod, filters).candidates
        # What is said of the node promised to this very pod holds for no other.
        own = self.handle.cluster.nodes.rows.get(self.handle.cluster.nomination(pod.uid) or "")
        candidates.forget([] if own is None else [own])
        found = self._candidate_rows(pod, filters, candidates, potential)
        if len(found):
            row = candidates.best(found)
            victims = Victims(candidates.victims_on(row))
            victims_by_node = Offers(candidates.victims_by_node(found), partial(self._nominate, pod))
            result = self._nominate(pod, self.handle.cluster.nodes.names[row], victims, victims_by_node)
        else:
            result = self._no_candidates(diagnosis, candidates, potential)
        candidates.forget([] if own is None else [own])
        return result

    # -- may it preempt? -----------------------------------------------------------------------------------------

    def _ineligible(self, pod: PodInfo, diagnosis: Diagnosis) -> str | None:
        """Why a pod may not preempt others (semantics 9.1, 9.2), None when it may."""
        if pod.spec.scheduling_group is not None and (why_not := self._left_to_its_group(pod)) is not None:
            return why_not
        if pod.spec.preemption_policy == "Never":
            return _NEVER_PREEMPTS
        nominated = pod.status.nominated_node_name
        if nominated and self._makes_room(pod, nominated, diagnosis):
            return _STILL_LEAVING
        return None

    def _left_to_its_group(self, pod: PodInfo) -> str | None:
        """Why a pod of a group may not preempt by itself (semantics 9.1)."""
        assert pod.spec.scheduling_group is not None
        if self._yields_to_placements:
            name = pod.spec.scheduling_group.pod_group_name or ""
            group = self.handle.cluster.catalog(PodGroup).get(pod.namespace, name)
            if group is None:
                return "pod group for pod not found"
            if group.spec.scheduling_constraints.topology:
                return "not eligible due to placement-based pod group scheduling limitation"
        return "not eligible due to workload aware preemption enabled" if self._yields_to_groups else None

    def _makes_room(self, pod: PodInfo, nominated: str, diagnosis: Diagnosis) -> bool:
        """Whether victims of an earlier preemption are still leaving a node that may suit the pod then."""
        row = self.handle.cluster.nodes.rows.get(nominated)
        if row is None or diagnosis.status(row).code is Code.UNSCHEDULABLE_AND_UNRESOLVABLE:
            return False
        return self._is_being_cleared(nominated, pod.priority)

    def _is_being_cleared(self, node_name: str, priority: int) -> bool:
        """Whether pods below a priority that were preempted are still leaving a node."""
        nodes = self.handle.cluster.nodes
        row = nodes.rows.get(node_name)
        pods = nodes.pods[row].values() if row is not None else ()
        return any(info.priority < priority and _is_being_preempted(info) for info in pods)

    # -- for a group as a whole ----------------------------------------------------------------------------------

    def preempts_as_a_whole(self, gang: Gang) -> bool:
        """Kubernetes' pod groups preempt as a whole behind the gate WorkloadAwarePreemption."""
        return self._yields_to_groups and self._group(gang) is not None

    def _group(self, gang: Gang) -> PodGroup | None:
        name = native_name(gang.name)
        return None if name is None else self.handle.cluster.catalog(PodGroup).get(name.namespace, name.name)

    def evictable_units(self, gang: Gang, pods: Sequence[PodInfo]) -> Evictable | Status:
        """Everybody below the group's priority, wherever (semantics 9.7)."""
        group = self._group(gang)
        if group is None or any(pod.spec.preemption_policy == "Never" for pod in pods):
            return Status.unschedulable(_NEVER_PREEMPTS)
        priority = priority_of(group)
        promised = filter(None, (self.handle.cluster.nomination(pod.uid) for pod in pods))
        if any(self._is_being_cleared(node_name, priority) for node_name in set(promised)):
            return Status(Code.PENDING, (_STILL_LEAVING,))
        found = group_victims(self.handle.cluster, priority, siblings=gang.members.pods.keys(), budgets=self._budgets)
        if not len(found.units.slots):
            return Status.unresolvable("No preemption victims found for incoming preemptor")
        return found

    # -- candidates ----------------------------------------------------------------------------------------------

    def _search(self, pod: PodInfo, filters: Filters) -> _Search:
        """What is known already about preempting for pods of this shape."""
        search = self._searches.pop(pod.shape, None) or _Search()
        search.refresh(self.handle, filters, self._budgets.version)
        self._searches[pod.shape] = search
        most = max(_FEWEST, _BUDGET // (_BYTES_PER_NODE * len(self.handle.cluster.nodes)))
        if len(self._searches) > most:
            self._searches.popitem(last=False)
        return search

    def _candidate_rows(self, pod: PodInfo, filters: Filters, candidates: Candidates, potential: Rows) -> Rows:
        """Candidates among the potential nodes, as many as are wanted (semantics 9.2)."""
        total = len(potential)
        wanted = min(max(total * self._percentage // 100, self._absolute, 1), total)
        walk = np.roll(potential, -self.handle.random.randrange(total))
        end = wanted
        while True:
            self._explore(pod, filters, candidates, walk[:end])
            found = walk[:end][candidates.among(walk[:end])]
            kept = _enough(candidates.violating(found), wanted, exhausted=end >= total)
            if kept is not None:
                return found[kept]
            end += max(wanted - len(found), _LEAST_AT_ONCE)

    def _explore(self, pod: PodInfo, filters: Filters, candidates: Candidates, rows: Rows) -> None:
        """Try those of some rows of which nothing is known."""
        unknown = candidates.unknown(rows)
        if len(unknown):
            table = self.handle.cluster.nodes
            candidates.learn(dry_run(filters, table, unknown, priority=pod.priority, budgets=self._budgets))

    # -- results -------------------------------------------------------------------------------------------------

    def _nominate(
        self, pod: PodInfo, name: str, victims: Victims, extender_candidates: Offers | None = None
    ) -> PostFilterResult:
        promised = self.handle.cluster.nominated_to(name)
        return PostFilterResult(
            SUCCESS,
            nominated_node_name=name,
            victims=victims.pods,
            lower_priority_nominated=tuple(info for info in promised if info.priority < pod.priority),
            extender_candidates=extender_candidates,
            violations=victims.violations,
        )

    def _no_candidates(self, diagnosis: Diagnosis, candidates: Candidates | None, potential: Rows) -> PostFilterResult:
        tally = [] if candidates is None else list(candidates.tally(potential))
        errors = [status.message for status, _ in tally if status.code is Code.ERROR]
        if errors:
            text = errors[0] if len(errors) == 1 else f"[{', '.join(errors)}]"
            return PostFilterResult(Status.error(f"preemption: {text}"))
        total = diagnosis.in_question
        if len(potential) < total:
            tally.append((_NOT_HELPFUL, total - len(potential)))
        return PostFilterResult(_refused(fit_error(total, tally)), nominated_node_name="")


def _enough(violating: NDArray[np.bool_], wanted: int, *, exhausted: bool) -> NDArray[np.bool_] | None:
    """Which of the candidates found so far the search ends with, bool; None when it has to go on.

    It ends with so many as are wanted if one of them violates no budget; those that violate one are kept up to that
    number too.
    """
    so_far = np.arange(1, len(violating) + 1)
    violating_so_far = np.cumsum(violating)
    ends = np.flatnonzero((so_far >= wanted) & (violating_so_far < so_far))
    if not len(ends) and not exhausted:
        return None
    last = ends[0] + 1 if len(ends) else len(violating)
    return (so_far <= last) & (~violating | (violating_so_far <= wanted))


class _Search:
    """What is known about preempting for one shape of pods, and how long it holds."""

    def __init__(self) -> None:
        self._memory = Memory()
        self._depends_on: tuple[tuple[Answers, ...], int] = ((), -1)
        self.candidates: Candidates

    def refresh(self, handle: Handle, filters: Filters, budgets_version: int) -> None:
        """Forget what does not hold any more."""
        staleness = filters.staleness
        depends_on = (filters.active, budgets_version)
        stale = None
        if staleness is not None and depends_on == self._depends_on:
            stale = self._memory.stale_rows(handle.cluster, staleness | _SPOILING)
        if stale is None:
            self.candidates = Candidates(handle.cluster.nodes)
        else:
            self.candidates.forget(stale)
        self._depends_on = depends_on
        self._memory.note(handle.cluster)


def _refused(text: str) -> Status:
    return Status.unschedulable(f"preemption: {text}")


def _is_being_preempted(info: PodInfo) -> bool:
    """Whether a pod is being deleted because a scheduler preempted it."""
    target = next((c for c in info.status.conditions if c.type == "DisruptionTarget"), None)
    return (
        info.terminating and target is not None and target.status == "True" and target.reason == "PreemptionByScheduler"
    )
