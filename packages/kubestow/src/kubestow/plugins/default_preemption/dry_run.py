"""Dry runs of a preemption: which pods to evict so that a pod fits, for many nodes at once (semantics 9.3).

This is kube-scheduler's DryRunPreemption with SelectVictimsOnNode for each node, except that the nodes proceed
together. First, all pods that may be evicted, such as those of lower priority, are removed from every node in
simulation; nodes where the pod still does not fit are not candidates. Then pods are reprieved one by one: step k adds
the k-th pod of each node back, pods that violate a disruption budget first, and the more important before the less
important. A pod beside which the preemptor does not fit is a victim. The filters run once per step, so the number of
calls depends on the fullest node, not on the number of nodes.

Disruption budgets are counted for each node by itself: its pods, the most important first, use up the budgets that
cover them, and further pods violate a budget that is used up. For the pods of many nodes at once, that is a running
count per node and budget.

A pod group may evict single pods and whole pod groups, anywhere in the cluster (semantics 9.7). A pod group with the
disruption mode ``all`` is one unit and is evicted as a whole; every other pod is a unit of its own. Units are in
the order in which they are reprieved: first those whose eviction would violate a disruption budget; then by higher
priority, pod groups before single pods, larger groups, and earlier start.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from itertools import chain, pairwise
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from kubestow.api.policy import PodDisruptionBudget
from kubestow.api.scheduling import PodGroup
from kubestow.api.selectors import NOTHING, Selector, compile_selector
from kubestow.cluster.cache import Cluster
from kubestow.cluster.changes.catalog import Catalog
from kubestow.cluster.nodes.table import NodeTable
from kubestow.cluster.nodes.views import HypotheticalNodes
from kubestow.cluster.pods.shapes import Shape
from kubestow.cluster.pods.table import PodChanges, PodTable, offsets_of
from kubestow.errors import InvalidSelector
from kubestow.framework.diagnosis import Rejection
from kubestow.framework.gang import Evictable
from kubestow.framework.interface import FilterRunner

Rows = NDArray[np.intp]
Mask = NDArray[np.bool_]
MayEvict = Callable[[PodChanges], Mask]
"""Which of the pods of some rows may be evicted, bool per pod; they are given as if all were removed."""


@dataclass(frozen=True, slots=True)
class DryRun:
    """The results for ``rows`` (intp) of the node table.

    ``victims`` has a run of pods per row, the most important first. A run is empty where the pod fits without
    evictions, where evictions do not help (see ``rejections``), and where no pod may be evicted
    (``no_potential_victims``, bool per row). ``violations`` (int64 per row) counts the victims whose eviction violates
    a disruption budget.
    """

    rows: Rows
    victims: PodChanges
    violations: NDArray[np.int64]
    no_potential_victims: Mask
    rejections: Sequence[Rejection]


def below(priority: int) -> MayEvict:
    """All pods below a priority may be evicted."""
    return lambda pods: pods.table.priority[pods.slots] < priority


def dry_run(
    filters: FilterRunner, table: NodeTable, rows: Rows, *, may_evict: MayEvict, budgets: DisruptionBudgets
) -> DryRun:
    """Select victims on each row for the pod that ``filters`` belong to, among the pods that it may evict."""
    potential_victims = _potential_victims(table.pod_table, rows, may_evict)
    none: Mask = np.equal(potential_victims.lengths, 0)
    some = np.flatnonzero(~none)
    if not len(some):
        return DryRun(rows, potential_victims, np.zeros(len(rows), np.int64), none, ())
    rejections = filters.rejections(HypotheticalNodes(table, rows[some], pod_changes=(potential_victims.select(some),)))
    fits = ~none
    for rejection in rejections:
        fits &= ~rejection.where[rows]
    fitting = potential_victims.among(fits[potential_victims.row_of])
    violating = budgets.violated(fitting)
    removed = _not_reprieved(filters, table, rows, fitting, violating)
    victims = fitting.among(removed)
    victims = PodChanges(victims.table, victims.slots, victims.offsets, victims.sign)  # without what depends on shapes
    return DryRun(rows, victims, fitting.among(removed & violating).lengths.astype(np.int64), none, rejections)


def _potential_victims(pods: PodTable, rows: Rows, may_evict: MayEvict) -> PodChanges:
    """The pods of each row that may be evicted, as removed.

    A row's pods are sorted by importance: higher priority, then earlier start, then their order on the node.
    """
    all_pods = PodChanges(pods, *pods.slots_on(rows.tolist()), -1)
    evictable = all_pods.among(may_evict(all_pods))
    slots = evictable.slots
    order = np.lexsort((pods.start_time[slots], -pods.priority[slots], evictable.row_of))
    return PodChanges(pods, slots[order], evictable.offsets, evictable.sign)


def _not_reprieved(
    filters: FilterRunner, table: NodeTable, rows: Rows, potential_victims: PodChanges, violating: Mask
) -> Mask:
    """Which potential victims the preemptor does not fit beside, bool per pod.

    They are added back to their rows, one per row and step.
    """
    row_of = potential_victims.row_of
    order = np.lexsort((~violating, row_of))
    # The step in which each pod is reprieved: the number of pods of its row before it.
    step_of = np.empty(len(order), np.intp)
    step_of[order] = np.arange(len(order)) - potential_victims.offsets[row_of]
    by_step = np.argsort(step_of, kind="stable")
    steps = offsets_of(np.bincount(step_of, minlength=1))
    removed = np.ones(len(order), np.bool_)
    for start, end in pairwise(steps.tolist()):
        reprieved = by_step[start:end]
        removed[reprieved] = False
        nodes = HypotheticalNodes(table, rows, pod_changes=(potential_victims.without(~removed),))
        tried = row_of[reprieved]
        removed[reprieved] = ~filters.still_pass(nodes if len(tried) == len(rows) else nodes.select(tried))
    return removed


class DisruptionBudgets:
    """The budgets of a cluster."""

    def __init__(self, catalog: Catalog[PodDisruptionBudget]) -> None:
        self._catalog = catalog
        self._compiled_version = -1
        self._compiled = _CompiledBudgets([])

    @property
    def version(self) -> int:
        """Grows with every change of a budget."""
        return self._catalog.version

    def violated(self, pods: PodChanges) -> NDArray[np.bool_]:
        """Which evictions violate a budget, bool per pod. The pods of each row are the most important first."""
        return self._current().violated(pods)

    def covering(self, shape: Shape) -> int:
        """A number for the budgets that cover the pods of a shape, the same for equal sets until a budget changes."""
        return self._current().covering_set(shape)

    def _current(self) -> _CompiledBudgets:
        if self._compiled_version != self._catalog.version:
            self._compiled_version = self._catalog.version
            self._compiled = _CompiledBudgets([_Budget.of(budget) for budget in self._catalog])
        return self._compiled


class _CompiledBudgets:
    """The budgets between two changes of any of them.

    Budgets have numbers, and so has each distinct set of budgets that cover the pods of a shape; set 0 is empty.
    """

    def __init__(self, budgets: Sequence[_Budget]) -> None:
        self._by_namespace: dict[str, list[tuple[int, _Budget]]] = {}
        for number, budget in enumerate(budgets):
            self._by_namespace.setdefault(budget.namespace, []).append((number, budget))
        self._disrupted_pods = [budget.disrupted_pods for budget in budgets]
        self._has_disrupted_pods = np.fromiter(map(bool, self._disrupted_pods), np.bool_, len(budgets))
        self._allowed = np.fromiter((budget.disruptions_allowed for budget in budgets), np.int64, len(budgets))
        self._sets: dict[tuple[int, ...], int] = {(): 0}
        self._set_of_shape: WeakKeyDictionary[Shape, int] = WeakKeyDictionary()

    def violated(self, pods: PodChanges) -> NDArray[np.bool_]:
        violated = np.zeros(len(pods.slots), np.bool_)
        if not self._by_namespace:
            return violated
        positions, budgets = self._evictions(pods)
        if not len(positions):
            return violated
        by_budget = np.argsort(budgets, kind="stable")
        positions, budgets = positions[by_budget], budgets[by_budget]
        rows = pods.row_of[positions]
        # Consecutive evictions of one row that use the same budget are numbered from 0.
        is_first = np.ones(len(rows), np.bool_)
        is_first[1:] = (rows[1:] != rows[:-1]) | (budgets[1:] != budgets[:-1])
        firsts = np.flatnonzero(is_first)
        used_before = np.arange(len(rows)) - firsts[np.cumsum(is_first) - 1]
        violated[positions[used_before >= self._allowed[budgets]]] = True
        return violated

    def _evictions(self, pods: PodChanges) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """Each pair of a pod and a budget that its eviction uses: the pod's position, ascending, and the budget."""
        set_of_pod = pods.values_of(self.covering_set)
        sizes = np.fromiter(map(len, self._sets), np.intp, len(self._sets))
        members = np.fromiter(chain.from_iterable(self._sets), np.intp, int(sizes.sum()))
        lengths = sizes[set_of_pod]
        positions = np.repeat(np.arange(len(lengths)), lengths)
        first_members = offsets_of(sizes)[set_of_pod]
        budgets = members[np.repeat(first_members - offsets_of(lengths)[:-1], lengths) + np.arange(len(positions))]
        counts = np.ones(len(positions), np.bool_)
        for pair in np.flatnonzero(self._has_disrupted_pods[budgets]).tolist():
            name = pods.table.info(int(pods.slots[positions[pair]])).name
            counts[pair] = name not in self._disrupted_pods[budgets[pair]]
        return positions[counts], budgets[counts]

    def covering_set(self, shape: Shape) -> int:
        """The number of the set of budgets that cover the pods of a shape."""
        number = self._set_of_shape.get(shape)
        if number is None:
            budgets = self._by_namespace.get(shape.namespace, ())
            covering = tuple(number for number, budget in budgets if budget.covers(shape))
            number = self._set_of_shape[shape] = self._sets.setdefault(covering, len(self._sets))
        return number


@dataclass(frozen=True, slots=True)
class _Budget:
    namespace: str
    selector: Selector
    disruptions_allowed: int
    #: Names of pods whose eviction has been counted already.
    disrupted_pods: frozenset[str]

    @classmethod
    def of(cls, budget: PodDisruptionBudget) -> _Budget:
        try:
            selector = compile_selector(budget.spec.selector)
        except InvalidSelector:
            selector = NOTHING
        status = budget.status
        return cls(budget.metadata.namespace, selector, status.disruptions_allowed, frozenset(status.disrupted_pods))

    def covers(self, shape: Shape) -> bool:
        """Whether the budget covers the pods of a shape of its namespace.

        QUIRK: neither an empty selector nor a pod without labels matches, unlike the API defines it.
        """
        return bool(shape.labels) and not self.selector.is_empty and self.selector.matches(shape.labels)


def pod_group_priority(group: PodGroup) -> int:
    """``spec.priority``, 0 where it is missing."""
    return group.spec.priority or 0


def evictable_units(
    cluster: Cluster, priority: int, *, excluded: Collection[str], budgets: DisruptionBudgets, of_groups: bool = False
) -> Evictable:
    """The units below a priority, without some pods by uid: those of the preempting group itself.

    With ``of_groups`` every pod of a group has the priority of its group (Behaviour.POD_GROUPS_ARE_VICTIMS), otherwise
    only those of a group that is evicted as a whole.
    """
    table = cluster.nodes.pod_table
    slots, offsets = table.slots_on(range(len(cluster.nodes)))
    rows = np.repeat(np.arange(len(cluster.nodes)), np.diff(offsets))
    groups = cluster.placed_groups
    in_group, number = groups.is_in_group(slots), groups.unit_of(slots)
    counts_groups = in_group if of_groups else number >= 0
    priorities = np.where(counts_groups, groups.priority_of(slots), table.priority[slots])
    # The position of the first pod of each pod's unit, which stands for the unit wherever a unit has a property.
    unit, in_unit = np.arange(len(slots)), np.flatnonzero(number >= 0)
    _, first, of_unit = np.unique(number[in_unit], return_index=True, return_inverse=True)
    unit[in_unit] = in_unit[first[of_unit]]
    of_preemptor = [slot for uid in excluded if (slot := table.slot(uid)) is not None]
    kept = ~np.isin(slots, of_preemptor) & (priorities < priority)
    slots, rows, priorities, in_group = slots[kept], rows[kept], priorities[kept], in_group[kept]
    _, firsts, units = np.unique(unit[kept], return_index=True, return_inverse=True)
    unit = firsts[units]
    size = np.bincount(unit, minlength=len(slots))
    start_time = np.full(len(slots), np.iinfo(np.int64).max)
    np.minimum.at(start_time, unit, table.start_time[slots])
    order = np.lexsort((unit, start_time[unit], -size[unit], ~in_group, -priorities))
    violating = budgets.violated(PodChanges(table, slots[order], np.array([0, len(order)], np.intp), -1))
    violations = np.bincount(unit[order[violating]], minlength=len(slots))
    order = order[np.argsort(violations[unit[order]] == 0, kind="stable")]
    starts = np.flatnonzero(np.diff(unit[order], prepend=-1))
    run_offsets = offsets_of(np.diff(starts, append=len(order)))
    runs = PodChanges(table, slots[order], run_offsets, -1)
    return Evictable(runs, rows[order], violations[unit[order[starts]]])
