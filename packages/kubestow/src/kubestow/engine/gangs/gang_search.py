"""The search for a placement of a gang: as kube-scheduler does it, then among all placements, or a proof against them.

kube-scheduler places the pods of a group one after the other, each on the node that is best for it, so that it can miss
the placements that there are. Where it does, a solution of the :mod:`~kubestow.engine.gangs.gang_model` is verified by
the engine, pod by pod; one that the engine refuses is excluded, and the next is tried. If no solution is left, the gang
cannot be placed, and the certificate says which constraints together exclude it and how many pods could be placed at
most. Terms of topology are tried placement by placement.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from kubestow.cluster.cache import Cluster
from kubestow.cluster.pods.shapes import PodInfo
from kubestow.engine.gangs.gang_model import Answer, GangModel, Quota
from kubestow.engine.gangs.gang_problem import (
    AFFINITY,
    ANTI_AFFINITY,
    PORTS,
    SLOTS,
    SPREADING,
    GangProblem,
    formulate_gang,
)
from kubestow.engine.placement.engine_placement import Assignment, EnginePlacement
from kubestow.engine.placement.modelled_pods import why_not_modelled
from kubestow.framework.gang import Gang, Placement
from kubestow.framework.profile import Profile
from kubestow.framework.status import Status

Amounts = NDArray[np.int64]
Mask = NDArray[np.bool_]

#: The constraint of a certificate for what the model does not contain.
OTHER_FILTERS = "other filters of the profile"
#: The search for an order of the pods of a solution ends after so many states, and is not made for more pods.
_MOST_STATES, _MOST_ORDERED_PODS = 5_000, 200


@dataclass(frozen=True, slots=True)
class SearchOptions:
    """``limit`` is the deterministic time of the search in each placement; ``most_refused`` how many solutions of one
    placement the engine may refuse before the search ends undecided.
    """

    limit: float = 10.0
    most_refused: int = 200
    seed: int = 0


@dataclass(frozen=True, slots=True)
class Shortage:
    """A constraint that keeps a gang from being placed, alone or together with the others of its certificate.

    For a resource, ``needed`` by as many pods as are needed and ``free`` on the nodes that pass the filters of at least
    one of them, in millicores, bytes or counts, and for how many pods there is ``room``; 0 for other constraints.
    """

    constraint: str
    needed: int = 0
    free: int = 0
    room: int = 0


@dataclass(frozen=True, slots=True)
class Certificate:
    """The proof that a gang has no placement, in one topology domain or in the whole cluster ("").

    At most ``most`` of the ``needed`` pods can be placed. ``passing`` has the number of nodes that pass the filters of
    each kind of pods, by the name of the kind; with a kind that none passes for, that is the reason, and there are no
    shortages.
    """

    domain: str
    needed: int
    most: int
    shortages: tuple[Shortage, ...]
    passing: dict[str, int]


@dataclass(slots=True)
class GangAnswer:
    """The answer for a gang: the nodes of its pods, certificates against each domain, or neither, which ``undecided``
    explains.

    ``found_by`` is ``scheduler`` for a placement that kube-scheduler finds, ``search`` for one that it misses.
    """

    gang: Gang
    pods: Sequence[PodInfo]
    needed: int
    assignments: Sequence[Assignment] = ()
    domain: str = ""
    found_by: str = ""
    certificates: list[Certificate] = field(default_factory=list)
    undecided: str = ""

    @property
    def is_placed(self) -> bool:
        """Whether there is a placement."""
        return bool(self.found_by)

    @property
    def is_impossible(self) -> bool:
        """Whether it is proven that there is none."""
        return not self.found_by and not self.undecided


class GangSearch:
    """Searches on one cluster, which is as before after each search."""

    def __init__(self, cluster: Cluster, profile: Profile, options: SearchOptions | None = None) -> None:
        self._cluster, self._profile, self._options = cluster, profile, options or SearchOptions()
        self._engine = EnginePlacement(cluster, {profile.scheduler_name: profile})

    def find(self, gang: Gang) -> GangAnswer:
        """A placement of the members of a gang that have no node, or why there is none.

        Raises PluginError, and InputError without OR-Tools unless kube-scheduler finds a placement.
        """
        members = gang.members
        pods = [pod for uid, pod in members.pods.items() if uid not in members.placed]
        pods.sort(key=lambda pod: (-pod.priority, pod.key))
        answer = GangAnswer(gang, pods, gang.missing_pods)
        placements = self._profile.gangs.generate_placements(gang, pods, self._cluster.all_nodes())
        if isinstance(placements, Status):
            answer.undecided = placements.message
            return answer
        scopes = [("", np.ones(len(self._cluster.nodes), np.bool_))]
        if placements is not None:
            scopes = [(placement.name, self._mask(placement)) for placement in placements]
        for domain, within in scopes:
            found = self._place_one_by_one(pods, within)
            if gang.is_satisfied({pod.uid for pod, _ in found}):
                answer.assignments, answer.domain, answer.found_by = found, domain, "scheduler"
                return answer
        reasons = {reason for pod in pods if (reason := why_not_modelled(self._profile, pod, with_gang=True))}
        if reasons:
            answer.undecided = f"not searched further: a pod {min(reasons)}"
        else:
            self._search_all(answer, scopes)
        return answer

    def _mask(self, placement: Placement) -> Mask:
        mask = np.zeros(len(self._cluster.nodes), np.bool_)
        mask[placement.nodes.row_numbers] = True
        return mask

    # -- as kube-scheduler does it -------------------------------------------------------------------------------------

    def _place_one_by_one(self, pods: Iterable[PodInfo], within: Mask) -> list[Assignment]:
        """Where the pods go one after the other, each on the best node for it."""
        placed: list[Assignment] = []
        with self._cluster.simulate():
            failed: set[object] = set()
            for pod in pods:
                group = self._profile.evaluations.group(pod)
                node_name = "" if group in failed else self._engine.place_anywhere(pod, within)
                if node_name:
                    placed.append((pod, node_name))
                    failed.clear()
                else:
                    failed.add(group)
            self._engine.give_back_reservations(placed)
        return placed

    # -- among all placements ------------------------------------------------------------------------------------------

    def _search_all(self, answer: GangAnswer, scopes: Sequence[tuple[str, Mask]]) -> None:
        """Search each scope, those with most room first, until there is a placement."""
        leaves = list(answer.gang.leaves())
        numbers = {uid: number for number, leaf in enumerate(leaves) for uid in leaf.members.pods}
        groups: list[list[PodInfo]] = [[] for _ in leaves]
        for pod in answer.pods:
            groups[numbers[pod.uid]].append(pod)
        problem = formulate_gang(self._cluster, self._profile, groups)
        quota = quota_of(answer.gang, problem, {id(leaf): number for number, leaf in enumerate(leaves)})
        searches = [
            _ScopeSearch(problem, quota, answer.needed, domain, within, self._options) for domain, within in scopes
        ]
        searches.sort(key=lambda search: -search.most)
        for search in searches:
            assignments = search.find(self._verify)
            if assignments is not None:
                answer.assignments, answer.domain, answer.found_by = assignments, search.domain, "search"
                answer.certificates = []
                return
            if search.undecided:
                answer.undecided = answer.undecided or search.undecided
            else:
                answer.certificates.append(search.certificate())

    def _verify(self, problem: GangProblem, placed: Amounts) -> Verified:
        """Have the engine place the pods of a solution (int64, kinds by nodes), in whatever order it accepts them.

        The order matters where pods count for each other: a pod may need one of another kind, or be refused after it.
        """
        assignments = [
            assignment
            for number in range(len(problem.kinds))
            for assignment in _assigned(problem, number, placed[number])
        ]
        with self._cluster.simulate():
            refused = self._engine.place_all(assignments)
            order = {placed_pod.info.uid: number for number, placed_pod in enumerate(self._cluster.assumed())}
            self._engine.give_back_reservations(each for each in assignments if each not in refused)
        if not refused:
            return Verified(sorted(assignments, key=lambda each: order[each[0].uid]))
        with self._cluster.simulate():
            search = _OrderSearch(self._cluster, self._engine, problem, placed)
            found = search.find()
            self._engine.give_back_reservations(found or ())
        return Verified(found, is_proven=found is not None or not search.has_given_up)


@dataclass(frozen=True, slots=True)
class Verified:
    """The assignments of a solution in an order in which the engine accepts them; None if there is none.

    That there is none ``is_proven`` unless there are too many orders to try.
    """

    assignments: Sequence[Assignment] | None
    is_proven: bool = True


class _OrderSearch:
    """The search for an order in which the engine accepts all pods of a solution.

    What has been placed decides what is possible further on, not in which order, so each such state is entered once.
    """

    def __init__(self, cluster: Cluster, engine: EnginePlacement, problem: GangProblem, placed: Amounts) -> None:
        self._cluster, self._engine = cluster, engine
        #: The pods of each kind on each node of the solution.
        self._parts: list[list[Assignment]] = []
        for number in range(len(problem.kinds)):
            parts: dict[str, list[Assignment]] = {}
            for assignment in _assigned(problem, number, placed[number]):
                parts.setdefault(assignment[1], []).append(assignment)
            self._parts += parts.values()
        self._seen: set[tuple[int, ...]] = set()
        self.has_given_up = False

    def find(self) -> list[Assignment] | None:
        """The assignments in an order; the pods of them are placed then."""
        if sum(map(len, self._parts)) > _MOST_ORDERED_PODS:
            self.has_given_up = True
            return None
        return self._explore((0,) * len(self._parts), [])

    def _explore(self, counts: tuple[int, ...], order: list[Assignment]) -> list[Assignment] | None:
        """Go on from a state: so many pods of each part are placed, in this order."""
        if counts in self._seen:
            return None
        if len(self._seen) >= _MOST_STATES:
            self.has_given_up = True
            return None
        self._seen.add(counts)
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


class _ScopeSearch:
    """The search on some nodes, such as those of a topology domain. ``most`` pods can be there at most."""

    def __init__(
        self, problem: GangProblem, quota: Quota, needed: int, domain: str, within: Mask, options: SearchOptions
    ) -> None:
        self._problem, self._quota, self._needed, self._within, self._options = problem, quota, needed, within, options
        self.domain = domain
        self.undecided = ""
        self._refused = 0
        self.most = sum(self._room(number, ()) for number in range(len(problem.kinds)))

    def find(self, verify: Callable[[GangProblem, Amounts], Verified]) -> Sequence[Assignment] | None:
        """A placement that the engine accepts; None if there is none, or if the search ends ``undecided``."""
        if not self._may_be_placed(()):
            return None
        model = GangModel(self._problem, self._within, self._quota, seed=self._options.seed)
        remaining = self._options.limit
        while self._refused < self._options.most_refused:
            solution = model.solve(remaining)
            if solution.answer is Answer.OUT_OF_TIME:
                self.undecided = "no placement was found in time, and none is excluded"
            if solution.placed is None:
                return None
            verified = verify(self._problem, solution.placed)
            if verified.assignments is not None:
                return verified.assignments
            self._refused += 1
            if self._refused == 1:  # nodes that are alike for the model may not be so for other filters
                model = GangModel(self._problem, self._within, self._quota, merges_nodes=False, seed=self._options.seed)
            if not verified.is_proven:
                self.undecided = "the filters of the profile refuse a placement in the orders that were tried"
            model.forbid(solution.placed)
            remaining = max(remaining - solution.seconds, 0.01)
        self.undecided = f"the first {self._refused:,} placements that were tried are refused by filters of the profile"
        return None

    def certificate(self) -> Certificate:
        """Why there is no placement, after :meth:`find` has shown it: the constraints of which none can be left out."""
        problem = self._problem
        passing = {kind.name: int((kind.passes & self._within).sum()) for kind in problem.kinds}
        families = [*problem.free, SLOTS, PORTS, ANTI_AFFINITY, AFFINITY, SPREADING]
        if self._refused:
            return Certificate(self.domain, self._needed, self.most, (Shortage(OTHER_FILTERS),), passing)
        needed = list(families)
        for family in reversed(families):  # resources are the plainest reasons, and stay if they suffice
            without = [each for each in families if each not in needed or each == family]
            if self._is_excluded(without):
                needed.remove(family)
        if not problem.exclusions and not problem.attractions and not problem.spreads and len(problem.kinds) == 1:
            most = self.most
        else:
            model = GangModel(problem, self._within, Quota(), seed=self._options.seed)
            most = min(self.most, model.solve(self._options.limit / 5).bound)
        return Certificate(self.domain, self._needed, most, tuple(map(self._shortage, needed)), passing)

    def _is_excluded(self, without: Collection[str]) -> bool:
        """Whether it is proven that there is no placement even without some families of constraints."""
        if not self._may_be_placed(without):
            return True
        model = GangModel(self._problem, self._within, self._quota, without=without, seed=self._options.seed)
        return model.solve(self._options.limit / 5).answer is Answer.IMPOSSIBLE

    def _may_be_placed(self, without: Collection[str]) -> bool:
        """Whether each kind by itself has enough room for the quota."""
        room = [self._room(number, without) for number in range(len(self._problem.kinds))]

        def is_met(quota: Quota) -> bool:
            if quota.parts:
                return sum(map(is_met, quota.parts)) >= quota.count
            return sum(room[kind] for kind in quota.kinds) >= quota.pods

        return is_met(self._quota)

    def _room(self, number: int, without: Collection[str]) -> int:
        """How many pods of a kind fit on the nodes without any others of the gang, without some families."""
        kind = self._problem.kinds[number]
        capacity = self._problem.capacity(number, without)
        return min(len(kind.pods), int(capacity[self._within].sum()))

    def _shortage(self, family: str) -> Shortage:
        problem = self._problem
        if family not in problem.free:
            return Shortage(family)
        requests = sorted(kind.requests.get(family, 0) for kind in problem.kinds for _ in kind.pods)
        passing = np.logical_or.reduce(
            [kind.passes & self._within for kind in problem.kinds if family in kind.requests]
        )
        others = [each for each in (*problem.free, SLOTS, PORTS) if each != family]
        room = sum(self._room(number, others) for number in range(len(problem.kinds)))
        return Shortage(family, sum(requests[: self._needed]), int(problem.free[family][passing].sum()), room)


def quota_of(gang: Gang, problem: GangProblem, numbers: Mapping[int, int]) -> Quota:
    """What has to be placed of a problem for a gang; ``numbers`` are those of the leaves by their identity."""
    if gang.children:
        return Quota(parts=tuple(quota_of(child, problem, numbers) for child in gang.children), count=gang.min_groups)
    number = numbers[id(gang)]
    kinds = frozenset(each for each, kind in enumerate(problem.kinds) if kind.group == number)
    return Quota(kinds, gang.missing_pods)


def _assigned(problem: GangProblem, number: int, placed: Amounts) -> Iterator[Assignment]:
    """The pods of a kind with the nodes of a solution (int64 per node)."""
    columns = np.flatnonzero(placed)
    names = (problem.nodes.name(column) for column in columns.tolist() for _ in range(int(placed[column])))
    return zip(problem.kinds[number].pods, names, strict=False)
