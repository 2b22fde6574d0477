"""The least changes that would make a pod fit, each verified by deciding about the pod again with the change.

Candidates come from the masks of the evaluation: nodes that the same plugins reject are one group, each plugin has
remedies (:mod:`.remedies`), and of a group the nodes that need the fewest edits are tried. The engine then decides
about the changed pod in the changed cluster, and only what it schedules is reported, the smallest change first.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from kubestow.api.core import Pod
from kubestow.api.policy import PodDisruptionBudget
from kubestow.api.selectors import compile_selector
from kubestow.cluster.pods.shapes import PodInfo
from kubestow.engine.explanation.changes import (
    AddNode,
    AlterPod,
    Change,
    CombinedChange,
    RaiseBudget,
    RemovePods,
    pods_text,
)
from kubestow.engine.explanation.evaluated_nodes import EvaluatedNodes
from kubestow.engine.explanation.remedies import Remedy, pod_alterations, remedies
from kubestow.engine.pipeline.offline_scheduler import OfflineScheduler, unbound
from kubestow.errors import InvalidObject, InvalidSelector
from kubestow.framework.evaluation.feasibility import Feasibility
from kubestow.framework.profile import Profile
from kubestow.framework.status import Code
from kubestow.plugins.default_preemption.dry_run import DisruptionBudgets, below, dry_run
from kubestow.scheduling.decision.node_selection import Scope
from kubestow.scheduling.decision.result import Scheduled, Unschedulable

Rows = NDArray[np.intp]

#: At most so many candidates are verified, and so many counterfactuals reported.
_MOST_TRIED, _MOST_REPORTED = 60, 8
#: Of nodes that the same plugins reject, so many are tried with each combination of remedies.
_NODES_PER_COMBINATION = 2
_MOST_COMBINATIONS = 32
#: Dry runs without other pods are made for so many nodes, those with the fewest pods above all.
_MOST_DRY_RUNS = 256
_MOST_PODS_GONE = 10
_MODELS_TRIED = 4
_ZONE = "topology.kubernetes.io/zone"
#: Pods of this priority and above are critical to the system: they are not proposed to go.
_SYSTEM_CRITICAL = 2_000_000_000


@dataclass(frozen=True, slots=True)
class Counterfactual:
    """A change with which the pod fits: the scheduler's choice then, and the number of nodes on which it fits.

    ``feasible`` is 0 if the pod then gets a node by preemption: of the pods ``evicts`` (namespace/name), or with a
    disruption budget raised, without violating one.
    """

    change: Change
    node: str
    feasible: int
    evicts: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """The change and its effect in one line."""
        if self.evicts:
            return f"{self.change.text}: preempts {pods_text(self.evicts)} on {self.node}"
        if not self.feasible:
            return f"{self.change.text}: preemption on {self.node} then violates no budget"
        where = self.node if self.feasible == 1 else f"{self.feasible:,} nodes, the best is {self.node}"
        return f"{self.change.text}: fits on {where}"

    def document(self) -> dict[str, Any]:
        """The counterfactual as plain data."""
        edits = self.change.size[0]
        return {
            "kind": self.change.kind,
            "text": self.change.text,
            **self.change.document(),
            "edits": edits,
            "givenUp": round(self.change.given_up, 4),
            "node": self.node,
            "feasibleNodes": self.feasible,
            **({"evicts": list(self.evicts)} if self.evicts else {}),
        }


class CounterfactualSearch:
    """Searches for changes that make one pod fit: on any node, or on a ``target``.

    ``feasibility`` is that of the pod's last evaluation; no other pod must have been decided about since. A change that
    lets the pod preempt is enough if it ``may_preempt``; a pod that preempts without a change may not.
    """

    def __init__(
        self,
        scheduler: OfflineScheduler,
        profile: Profile,
        pod: PodInfo,
        evaluated: EvaluatedNodes,
        *,
        target: str | None = None,
        may_preempt: bool = False,
    ) -> None:
        self._may_preempt = may_preempt
        self._scheduler, self._profile, self._pod, self._evaluated = scheduler, profile, pod, evaluated
        self._nodes = scheduler.cache.all_nodes()
        self._target = None if target is None else evaluated.positions[target]
        self._scope = Scope(None if target is None else (target,), preempts=False)
        self._ungate = _without_gates(pod)

    def run(self, feasibility: Feasibility) -> tuple[Counterfactual, ...]:
        """The counterfactuals, the smallest first. Raises PluginError."""
        feasible = self._evaluated.feasible
        if self._ungate is not None and (feasible.any() if self._target is None else feasible[self._target]):
            candidates: Iterable[Change] = [self._ungate]
        else:
            gone = self._pods_gone(feasibility)  # first, because the feasibility is that of the last cycle
            candidates = [*self._repairs(), *self._alterations(), *gone, *self._new_nodes()]
            if self._ungate is not None:
                candidates = [CombinedChange((self._ungate, change)) for change in candidates]
        found: list[Counterfactual] = []
        unique = {change.text: change for change in candidates}
        for change in sorted(unique.values(), key=lambda change: change.size)[:_MOST_TRIED]:
            if len(found) == _MOST_REPORTED:
                break
            if not any(_makes_needless(smaller.change, change) for smaller in found):
                counterfactual = self._verify(change)
                found += [] if counterfactual is None else [counterfactual]
        return tuple(found)

    def _verify(self, change: Change) -> Counterfactual | None:
        """Decide again with the change; None if the pod still does not fit."""
        with change.on_cluster(self._scheduler.cache):
            decision = self._decide(change, self._pod.pod)
            if decision is None:
                return self._preempting(change) if self._may_preempt else None
            return Counterfactual(change, decision.node_name, decision.feasibility.count)

    def _preempting(self, change: Change) -> Counterfactual | None:
        """The preemption that a change makes possible; None if there is none, or no pod would be evicted."""
        try:
            info = self._scheduler.cache.shapes.info(change.on_pod(self._pod.pod))
        except InvalidObject:
            return None
        if not self._profile.queueing.run_pre_enqueue_plugins(info).ok:
            return None
        decision = self._scheduler.pipeline.decide_by_plugins(info)
        found = decision.post_filter.nominating_result if isinstance(decision, Unschedulable) else None
        if found is None or not found.nominated_node_name or not found.victims:
            return None
        return Counterfactual(change, found.nominated_node_name, 0, tuple(victim.key for victim in found.victims))

    def _decide(self, change: Change, pod: Pod) -> Scheduled | None:
        """Decide about a pod with the change; None if it does not fit."""
        try:
            info = self._scheduler.cache.shapes.info(change.on_pod(pod))
        except InvalidObject:
            return None
        if not self._profile.queueing.run_pre_enqueue_plugins(info).ok:
            return None
        decision = self._scheduler.pipeline.decide_by_plugins(info, self._scope)
        return decision if isinstance(decision, Scheduled) else None

    def count_helped(self, change: Change, pods: Sequence[PodInfo]) -> int:
        """How many of some pods of the same profile fit beside each other with a change. Raises PluginError."""
        cache = self._scheduler.cache
        with ExitStack() as undo:
            undo.enter_context(change.on_cluster(cache))
            undo.enter_context(cache.simulate())
            return sum(self._place(change, pod, undo) for pod in pods)

    def _place(self, change: Change, pod: PodInfo, undo: ExitStack) -> bool:
        """Place one pod in a simulation; False if it does not fit."""
        cache, runtime = self._scheduler.cache, self._profile.binding
        decision = self._decide(change, unbound(pod.pod))
        if decision is None:
            return False
        info, node_name = decision.pod, decision.node_name
        cache.assume(info, node_name)
        undo.callback(runtime.run_unreserve_plugins, decision.state, info, node_name)
        if runtime.run_reserve_plugins(decision.state, info, node_name).ok:
            return True
        cache.forget(info.uid)
        return False

    # -- what one node lacks -------------------------------------------------------------------------------------------

    def _repairs(self) -> Iterator[Change]:
        """For each group of nodes that the same plugins reject, the fewest edits that satisfy all of these."""
        by_plugin = remedies(self._pod, self._nodes)
        for rejections, rows in self._evaluated.groups():
            if self._target is not None:
                rows = rows[rows == self._target]
            alternatives = [by_plugin.get(verdict.plugin, []) for verdict in rejections]
            for combination in itertools.islice(itertools.product(*alternatives), _MOST_COMBINATIONS):
                yield from self._cheapest(combination, rows)

    def _cheapest(self, combination: Sequence[Remedy], rows: Rows) -> Iterator[Change]:
        """The changes for the nodes that need the fewest edits, and give up the smallest share of requests."""
        edits = sum((remedy.edits[rows] for remedy in combination), start=np.zeros(len(rows)))
        share = sum((remedy.share[rows] for remedy in combination), start=np.zeros(len(rows)))
        names = self._scheduler.cache.nodes.name_rank()[rows]
        order = np.lexsort((names, share, edits))
        order = order[np.isfinite(edits[order])]
        for row in rows[order[:_NODES_PER_COMBINATION]].tolist():
            parts = [change for remedy in combination for change in remedy.changes(row)]
            if parts:
                yield parts[0] if len(parts) == 1 else CombinedChange(tuple(parts))

    def _alterations(self) -> Iterator[Change]:
        """Each constraint of the pod removed or relaxed that a plugin enforces which rejects some node."""
        rejecting = {verdict.plugin for rejections, _ in self._evaluated.groups() for verdict in rejections}
        if self._evaluated.left_out.any():
            rejecting.update(self._evaluated.left_out_status.plugin.split())
        for plugin, alterations in pod_alterations(self._pod.spec).items():
            if plugin in rejecting:
                yield from alterations

    # -- other pods ----------------------------------------------------------------------------------------------------

    def _pods_gone(self, feasibility: Feasibility) -> list[Change]:
        """The fewest pods without which the pod fits on a node, by a dry run as for preemption."""
        rows = self._resolvable()
        if not len(rows):
            return []
        cache = self._scheduler.cache
        order = np.lexsort((cache.nodes.name_rank()[rows], self._nodes.pod_count[rows]))
        rows, budgets = rows[order[:_MOST_DRY_RUNS]], DisruptionBudgets(cache.catalog(PodDisruptionBudget))
        run = dry_run(feasibility.filters, cache.nodes, rows, may_evict=below(_SYSTEM_CRITICAL), budgets=budgets)
        counts = run.victims.lengths
        positions = np.flatnonzero((counts > 0) & (counts <= _MOST_PODS_GONE))
        positions = positions[np.argsort(counts[positions], kind="stable")][:_NODES_PER_COMBINATION]
        gone = ((cache.nodes.names[run.rows[position]], run.victims.at(position)) for position in positions.tolist())
        return [
            RemovePods(name, {info.uid: info.key for info in victims}, _controllers(victims)) for name, victims in gone
        ]

    def _resolvable(self) -> Rows:
        """The nodes whose rejections all could be resolved by taking pods away."""
        rows = [
            rows
            for rejections, rows in self._evaluated.groups()
            if all(verdict.status.code is Code.UNSCHEDULABLE for verdict in rejections)
        ]
        found = np.concatenate(rows) if rows else np.empty(0, np.intp)
        return found if self._target is None else found[found == self._target]

    # -- new nodes -----------------------------------------------------------------------------------------------------

    def _new_nodes(self) -> Iterator[Change]:
        """One more of the smallest nodes on which the pod would fit if they were empty."""
        if self._target is not None:
            return
        rows = self._resolvable()
        rows = rows[np.argsort(self._scheduler.cache.nodes.name_rank()[rows])]
        requested = [name for name, amount in self._pod.shape.requests.items() if amount]
        columns = [self._nodes.allocatable(name)[rows] for name in requested]
        columns.append(self._nodes.label(_ZONE)[rows].astype(np.int64))
        # The first node by name of each size and zone, the smallest size first.
        _, first = np.unique(np.stack(columns), axis=1, return_index=True)
        for row in rows[first[:_MODELS_TRIED]].tolist():
            yield AddNode(self._nodes.name(row))

    # -- disruption budgets --------------------------------------------------------------------------------------------

    def budgets(self, decision: Unschedulable) -> tuple[Counterfactual, ...]:
        """The disruption budgets that would have to allow more for the preemption to violate none."""
        nomination = decision.post_filter.nominating_result
        if nomination is None or not nomination.violations:
            return ()
        changes = list(self._lacking(nomination.victims))
        alone = [found for change in changes if (found := self._preempts_without_violation(change)) is not None]
        if alone or len(changes) < 2:
            return tuple(alone)
        together = self._preempts_without_violation(CombinedChange(tuple(changes)))
        return () if together is None else (together,)

    def _lacking(self, victims: Sequence[PodInfo]) -> Iterator[RaiseBudget]:
        """The budgets that allow fewer disruptions than there are victims that they cover."""
        for budget in self._scheduler.cache.catalog(PodDisruptionBudget):
            try:
                selector = compile_selector(budget.spec.selector)
            except InvalidSelector:
                continue
            namespace, name = budget.metadata.namespace, budget.metadata.name
            covered = sum(1 for info in victims if info.namespace == namespace and selector.matches(info.labels))
            lacking = covered - max(budget.status.disruptions_allowed, 0)
            if lacking > 0:
                yield RaiseBudget(namespace, name, lacking)

    def _preempts_without_violation(self, change: Change) -> Counterfactual | None:
        with change.on_cluster(self._scheduler.cache):
            again = self._scheduler.pipeline.decide_by_plugins(self._pod)
        after = again.post_filter.nominating_result if isinstance(again, Unschedulable) else None
        if after is None or not after.nominated_node_name or after.violations:
            return None
        return Counterfactual(change, after.nominated_node_name, 0)


def _controllers(pods: Iterable[PodInfo]) -> tuple[str, ...]:
    """The controllers of pods, as kind and name."""
    found = (info.pod.metadata.controller for info in pods)
    return tuple(dict.fromkeys(f"{each.kind} {each.name}" for each in found if each is not None))


def _without_gates(pod: PodInfo) -> AlterPod | None:
    gates = pod.spec.scheduling_gates
    if not gates:
        return None
    what = f"remove the scheduling gates {', '.join(gate.name for gate in gates)}"
    return AlterPod(what, lambda spec: msgspec.structs.replace(spec, scheduling_gates=[]))


def _makes_needless(smaller: Change, change: Change) -> bool:
    """Whether a change has the idea of a smaller one and maybe more, without leaving the requests much larger."""
    if smaller.idea == change.idea:
        return True
    return smaller.idea < change.idea and 2 * change.given_up >= smaller.given_up
