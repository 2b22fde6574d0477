"""Verification: whether the engine accepts the pods of a solution on their nodes, and in which order.

A solution of the model has the pods of each kind by node. The engine places them one after the other, each by all
filters of the profile and the Reserve plugins. The order matters where pods count for each other: a pod may need one of
another kind, or be refused after it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kubestow.cluster.cache import Cluster
from kubestow.cluster.resource_claims import ResourceClaimTracker
from kubestow.engine.gangs.gang_problem import GangProblem
from kubestow.engine.placement.engine_placement import Assignment, EnginePlacement
from kubestow.framework.profile import Profile

Amounts = NDArray[np.int64]

#: The search for an order of the pods of a solution is not made for more pods.
_MOST_ORDERED_PODS = 200


@dataclass(frozen=True, slots=True)
class Verified:
    """The assignments of a solution in an order in which the engine accepts them; None if there is none.

    That there is none ``is_proven`` unless there are too many orders to try.
    """

    assignments: Sequence[Assignment] | None
    is_proven: bool = True


class Verifier:
    """Has the engine place the pods of solutions on a cluster, which is as before after each.

    The search for an order ends after ``most_states`` sets of placed pods.
    """

    def __init__(self, cluster: Cluster, profile: Profile, most_states: int = 5_000) -> None:
        self._cluster, self._most_states = cluster, most_states
        self._engine = EnginePlacement(cluster, {profile.scheduler_name: profile})

    def verify(self, problem: GangProblem, placed: Amounts) -> Verified:
        """Have the engine place the pods of a solution (int64, kinds by nodes), in whatever order it accepts them.

        All nodes of the solution exist. Raises PluginError.
        """
        assignments = assignments_of(problem, placed)
        with self._cluster.simulate():
            refused = self._engine.place_all(assignments)
            order = {placed_pod.info.uid: number for number, placed_pod in enumerate(self._cluster.assumed())}
            self._engine.give_back_reservations(each for each in assignments if each not in refused)
        if not refused:
            return Verified(sorted(assignments, key=lambda each: order[each[0].uid]))
        with self._cluster.simulate():
            search = _OrderSearch(self._cluster, self._engine, problem, placed, self._most_states)
            found = search.find()
            self._engine.give_back_reservations(found or ())
        return Verified(found, is_proven=found is not None or not search.has_given_up)


def assignments_of(problem: GangProblem, placed: Amounts) -> list[Assignment]:
    """The pods of a solution (int64, kinds by nodes) with their nodes."""
    return [each for number in range(len(problem.kinds)) for each in _assigned(problem, number, placed[number])]


class _OrderSearch:
    """The search for an order in which the engine accepts all pods of a solution.

    What has been placed, and with which devices, decides what is possible further on: each such state is entered once.
    """

    def __init__(
        self, cluster: Cluster, engine: EnginePlacement, problem: GangProblem, placed: Amounts, most_states: int
    ) -> None:
        self._cluster, self._engine, self._most_states = cluster, engine, most_states
        #: The pods of each kind on each node of the solution.
        self._parts: list[list[Assignment]] = []
        for number in range(len(problem.kinds)):
            parts: dict[str, list[Assignment]] = {}
            for assignment in _assigned(problem, number, placed[number]):
                parts.setdefault(assignment[1], []).append(assignment)
            self._parts += parts.values()
        self._seen: set[Hashable] = set()
        self.has_given_up = False

    def find(self) -> list[Assignment] | None:
        """The assignments in an order; the pods of them are placed then."""
        if sum(map(len, self._parts)) > _MOST_ORDERED_PODS:
            self.has_given_up = True
            return None
        return self._explore((0,) * len(self._parts), [])

    def _explore(self, counts: tuple[int, ...], order: list[Assignment]) -> list[Assignment] | None:
        """Go on from a state: so many pods of each part are placed, in this order."""
        state = counts, self._devices()
        if state in self._seen:
            return None
        if len(self._seen) >= self._most_states:
            self.has_given_up = True
            return None
        self._seen.add(state)
        is_complete = True
        for number, (part, count) in enumerate(zip(self._parts, counts, strict=True)):
            if count == len(part):
                continue
            is_complete = False
            if not self._engine.place(*part[count]):
                continue
            found = self._explore((*counts[:number], count + 1, *counts[number + 1 :]), [*order, part[count]])
            if found is not None:
                return found
            self._engine.give_back_reservations((part[count],))
            self._cluster.forget(part[count][0].uid)
        return order if is_complete else None

    def _devices(self) -> Hashable:
        """The devices that are allocated to the pods placed so far; which ones depends on the order of the pods."""
        return devices_in_use(self._cluster.resource_claims)


def devices_in_use(tracker: ResourceClaimTracker) -> Hashable:
    """Equal if the same devices are pending for pods, and the same for claims that several pods may use."""
    allocated: Counter[Hashable] = Counter()
    for claim in tracker.pending_allocations():
        assert claim.status.allocation is not None
        owner, allocation = claim.metadata.controller, claim.status.allocation
        what = [
            (r.driver, r.pool, r.device, tuple(sorted(r.consumed_capacity.items()))) for r in allocation.devices.results
        ]
        allocated["" if owner is not None and owner.kind == "Pod" else claim.metadata.uid, tuple(what)] += 1
    return frozenset(allocated.items())


def _assigned(problem: GangProblem, number: int, placed: Amounts) -> Iterator[Assignment]:
    """The pods of a kind with the nodes of a solution (int64 per node)."""
    columns = np.flatnonzero(placed)
    names = (problem.node_names[column] for column in columns.tolist() for _ in range(int(placed[column])))
    return zip(problem.kinds[number].pods, names, strict=False)
