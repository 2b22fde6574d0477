"""Rounds of flow on a cluster: each places pods, and optionally evicts or moves running ones for the others.

A round solves one min-cost flow, and has the engine accept or refuse every placement in it. Pods that are refused, and
those that the flow leaves unscheduled, wait for the next round, at a cost that grows with the time they have waited.

Running pods take part with preemption or migration: staying costs what the cost model says, moving the new place and
more, and eviction as much as waiting and more. Priorities are ranks: each makes waiting dearer than the eviction of a
pod of the rank below, and waiting never costs so much that a pod of equal priority would be evicted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from kubestow.cluster.cache import Cluster
from kubestow.cluster.pods.shapes import PodInfo
from kubestow.engine.placement.engine_placement import Assignment, EnginePlacement
from kubestow.framework.profile import Profile
from kubestow_lab.flow.cost_models import CostModel
from kubestow_lab.flow.equivalence import Formulation, formulate
from kubestow_lab.flow.network import safe_slots, solve_flow

Amounts = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class RoundOptions:
    """Whether running pods may be evicted for pods of higher priority, and moved to cheaper nodes."""

    preemption: bool = False
    migration: bool = False


@dataclass(frozen=True, slots=True)
class Running:
    """A running pod that may be evicted or moved, its node, and for how many seconds it has run."""

    pod: PodInfo
    node_name: str
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Migration:
    """A pod that moves from one node to another."""

    pod: PodInfo
    source: str
    target: str


@dataclass(slots=True)
class Round:
    """What a round has done to the cluster, and the pods that wait.

    ``refused`` are the placements of the flow that the engine did not accept; their pods wait too.
    """

    placed: list[Assignment] = field(default_factory=list)
    preempted: list[Running] = field(default_factory=list)
    migrated: list[Migration] = field(default_factory=list)
    refused: list[Assignment] = field(default_factory=list)
    waiting: list[PodInfo] = field(default_factory=list)


class FlowRounds:
    """Places pods on a cluster round by round; the cluster cache has them as assumed pods afterwards."""

    def __init__(
        self,
        cluster: Cluster,
        profiles: Mapping[str, Profile],
        cost_model: CostModel,
        options: RoundOptions | None = None,
    ) -> None:
        self._cluster, self._profiles, self._cost_model = cluster, profiles, cost_model
        self._options = options or RoundOptions()
        self._engine = EnginePlacement(cluster, profiles)

    def run(
        self, pods: Sequence[PodInfo], running: Sequence[Running] = (), waited: Mapping[str, float] | None = None
    ) -> Round:
        """One round for pods that can be modelled and are not placed, with ``waited`` in seconds by uid.

        Raises PluginError, and InputError without OR-Tools.
        """
        movable = self._options.preemption or self._options.migration
        running = [replace(each, pod=each.pod.on("")) for each in running] if movable else []
        formulation = self._formulate(pods, running, waited or {})
        stays = {each.pod.uid: each.node_name for each in running}
        targets = formulation.assignments(self._solve(formulation, running), stays)
        where = {pod.uid: node_name for pod, node_name in targets}
        done = Round()
        if self._options.migration:
            self._migrate(
                [each for each in running if where.get(each.pod.uid, each.node_name) != each.node_name], where, done
            )
        evicted = [each for each in running if each.pod.uid not in where] if self._options.preemption else []
        for each in evicted:
            self._cluster.remove_pod(each.pod.uid)
        done.refused = self._engine.place_all(target for target in targets if target[0].uid not in stays)
        refused = {pod.uid for pod, _ in done.refused}
        accepted = [target for target in targets if target[0].uid not in stays and target[0].uid not in refused]
        refused |= self._restore(evicted, accepted, done)
        done.placed = [(pod, name) for pod, name in targets if pod.uid not in stays and pod.uid not in refused]
        placed = {pod.uid for pod, _ in done.placed}
        done.waiting = [pod for pod in pods if pod.uid not in placed]
        return done

    def simulate(self, pods: Sequence[PodInfo], waited: Mapping[str, float] | None = None) -> list[Assignment]:
        """The placements of a round without running pods, which changes nothing. Raises as :meth:`run`."""
        with self._cluster.simulate():
            placed = self.run(pods, waited=waited).placed
            self._engine.give_back_reservations(placed)
        return placed

    def run_until_settled(self, pods: Sequence[PodInfo]) -> Round:
        """Rounds without running pods until one places nothing; what all of them did."""
        total, waiting = Round(), list(pods)
        while waiting:
            done = self.run(waiting)
            total.placed += done.placed
            waiting, total.refused = done.waiting, done.refused
            if not done.placed:
                break
        total.waiting = waiting
        return total

    def _restore(self, evicted: Sequence[Running], accepted: Sequence[Assignment], done: Round) -> set[str]:
        """Put evicted pods back where their room was not needed for pods of higher priority.

        Pods placed in that room all the same are refused; returns their uids.
        """
        newcomers: dict[str, list[PodInfo]] = {}
        for pod, node_name in accepted:
            newcomers.setdefault(node_name, []).append(pod)
        refused: set[str] = set()
        for each in sorted(evicted, key=lambda each: -each.pod.priority):
            if self._engine.place(each.pod, each.node_name):
                continue
            arrived = newcomers.get(each.node_name, [])
            if any(pod.priority > each.pod.priority for pod in arrived):
                done.preempted.append(each)
                continue
            for pod in arrived:
                self._cluster.remove_pod(pod.uid)
                done.refused.append((pod, each.node_name))
                refused.add(pod.uid)
            newcomers.pop(each.node_name, None)
            self._cluster.assume(each.pod, each.node_name)
        return refused

    def _formulate(
        self, pods: Sequence[PodInfo], running: Sequence[Running], waited: Mapping[str, float]
    ) -> Formulation:
        """The problem of the pending pods, and of the running ones as if none of them were placed."""
        every = [*pods, *(each.pod for each in running)]
        with ExitStack() as stack:
            if running:
                simulation = stack.enter_context(self._cluster.simulate())
                for each in running:
                    simulation.remove_pod(each.pod.uid)
            formulation = formulate(self._cluster, self._profiles, every, self._cost_model, waited=waited)
        return _split(formulation, running)

    def _solve(self, formulation: Formulation, running: Sequence[Running]) -> Amounts:
        """The cheapest flow, with the costs of staying, moving, waiting and eviction in it."""
        problem, model = formulation.problem, self._cost_model
        by_uid = {each.pod.uid: each for each in running}
        columns = {name: column for column, name in enumerate(problem.nodes)}
        ranks = {priority: rank for rank, priority in enumerate(reversed(problem.priorities))}
        first = model.unscheduled(0.0)
        most = first + model.preemption  # waiting costs less, or equals would be evicted
        costs, feasible = problem.costs.copy(), problem.feasible.copy()
        classes, taken = [], np.zeros(len(problem.nodes), np.int64)
        forced = int(costs.max(initial=0)) + model.migration + 1
        for row, members in enumerate(formulation.members):
            each = problem.classes[row]
            waiting = min(each.unscheduled, most - 1) + 2 * ranks[each.priority] * most
            runs = by_uid.get(members[0].uid)
            if runs is not None:
                column = columns[runs.node_name]
                stay = model.continuation(int(costs[row, column]), runs.seconds)
                if self._options.migration:
                    costs[row] += model.migration
                else:
                    feasible[row] = False
                feasible[row, column], costs[row, column] = True, stay
                taken[column] += len(members)
                waiting += model.preemption
                if not self._options.preemption:
                    waiting += 2 * len(ranks) * most + forced
            classes.append(replace(each, unscheduled=waiting))
        problem = replace(problem, classes=classes, costs=costs, feasible=feasible)
        return solve_flow(problem, np.maximum(safe_slots(problem), taken))

    def _migrate(self, moving: Sequence[Running], where: Mapping[str, str], done: Round) -> None:
        """Move pods one after another, again until none can be moved; the others stay."""
        progress = True
        while moving and progress:
            progress, staying = False, []
            for each in moving:
                target = where[each.pod.uid]
                self._cluster.remove_pod(each.pod.uid)
                if self._engine.place(each.pod, target):
                    done.migrated.append(Migration(each.pod, each.node_name, target))
                    progress = True
                else:
                    self._cluster.assume(each.pod, each.node_name)
                    staying.append(each)
            moving = staying


def _split(formulation: Formulation, running: Sequence[Running]) -> Formulation:
    """The same problem with running pods in classes of their own: by node, and by the time they have run."""
    if not running:
        return formulation
    by_uid = {each.pod.uid: each for each in running}
    problem, rows, members = formulation.problem, [], []
    for row, together in enumerate(formulation.members):
        parts: dict[object, list[PodInfo]] = {}
        for pod in together:
            runs = by_uid.get(pod.uid)
            parts.setdefault(runs and (runs.node_name, runs.seconds), []).append(pod)
        for part in parts.values():
            rows.append(row)
            members.append(part)
    classes = [replace(problem.classes[row], count=len(part)) for row, part in zip(rows, members, strict=True)]
    split = replace(problem, classes=classes, feasible=problem.feasible[rows], costs=problem.costs[rows])
    return Formulation(split, members, formulation.interacting)
