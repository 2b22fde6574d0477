"""The search for a placement of a gang: as kube-scheduler does it, then among all placements, or a proof against them.

kube-scheduler places the pods of a group one after the other, each on the node that is best for it, so that it can miss
the placements that there are. Where it does, a solution of the :mod:`~kubestow.engine.gangs.gang_model` is verified by
the engine, pod by pod; one that the engine refuses is excluded, and the next is tried. If no solution is left, the gang
cannot be placed, and the certificate says which constraints together exclude it and how many pods could be placed at
most. Terms of topology are tried placement by placement.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b

import numpy as np
from numpy.typing import NDArray

from kubestow.cluster.cache import Cluster
from kubestow.cluster.pods.shapes import PodInfo
from kubestow.engine.gangs.gang_devices import GangDevices
from kubestow.engine.gangs.gang_model import Answer, GangModel, Quota
from kubestow.engine.gangs.gang_problem import (
    DEVICES,
    PORTS,
    SLOTS,
    GangProblem,
    formulate_gang,
    kinds_of,
)
from kubestow.engine.gangs.packing import best_fit
from kubestow.engine.gangs.verification import Verifier
from kubestow.engine.placement.engine_placement import Assignment, EnginePlacement
from kubestow.engine.placement.modelled_pods import why_not_modelled
from kubestow.framework.gang import Gang, Placement
from kubestow.framework.profile import Profile
from kubestow.framework.runtime.gang_runtime import NO_PLACEMENTS
from kubestow.framework.status import Status
from kubestow.reports.model import amount_text, counted

Amounts = NDArray[np.int64]
Mask = NDArray[np.bool_]

#: The constraint of a certificate for what the model does not contain.
OTHER_FILTERS = "other filters of the profile"
_OUT_OF_TIME = "no placement was found in time, and none is excluded"


@dataclass(frozen=True, slots=True)
class SearchOptions:
    """``limit`` is the deterministic time of the search in each placement, ``total_limit`` that in all of them.

    ``most_refused`` is how many solutions of one placement the engine may refuse before the search ends undecided.
    """

    limit: float = 10.0
    total_limit: float = math.inf
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

    @property
    def text(self) -> str:
        """The constraint in words, with the amounts of a resource."""
        name = self.constraint
        if not self.needed:
            return f"it is kept from being placed by: {name}"
        needed, free = amount_text(name, self.needed), amount_text(name, self.free)
        short = self.needed - self.free
        if short > 0:
            missing = amount_text(name, short)
            return f"{name}: {needed} needed, {free} free on nodes that pass the filters, {missing} short"
        return (
            f"{name}: {needed} needed, and {free} free on nodes that pass the filters, but in parts that do not suffice"
        )


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

    @property
    def text(self) -> str:
        """How many pods can be placed at most, in words."""
        return f"at most {counted(self.most, 'pod')} of the {self.needed:,} that are needed can be placed"


@dataclass(frozen=True, slots=True)
class PassedOver:
    """Terms that a gang prefers and does not fit by, in words: certificates against each domain, or why not known."""

    terms: str
    certificates: Sequence[Certificate]
    undecided: str

    @property
    def text(self) -> str:
        """Why it does not fit, in words."""
        why = f"not known: {self.undecided}" if self.undecided else certificates_text(self.certificates)
        return f"not in {self.terms}: {why}"


@dataclass(slots=True)
class GangAnswer:
    """The answer for a gang: the nodes of its pods, certificates against each domain, or neither, which ``undecided``
    explains. Without a domain there are no certificates: the gang has no placement, and nothing is undecided.

    ``found_by`` is ``scheduler`` for a placement that kube-scheduler finds, ``search`` for one that it misses.
    ``preference`` has the preferred terms that it is placed by, in words, and ``passed_over`` better ones.
    """

    gang: Gang
    pods: Sequence[PodInfo]
    needed: int
    assignments: Sequence[Assignment] = ()
    domain: str = ""
    found_by: str = ""
    certificates: list[Certificate] = field(default_factory=list)
    undecided: str = ""
    preference: str = ""
    passed_over: list[PassedOver] = field(default_factory=list)

    @property
    def is_placed(self) -> bool:
        """Whether there is a placement."""
        return bool(self.found_by)

    @property
    def is_impossible(self) -> bool:
        """Whether it is proven that there is none."""
        return not self.found_by and not self.undecided


def certificates_text(certificates: Sequence[Certificate]) -> str:
    """In one line why a gang has no placement: the certificate against the domain that takes most of its pods."""
    if not certificates:
        return "no placement exists: no topology domain exists for it"
    nearest = max(certificates, key=lambda each: each.most)
    where = f" in one topology domain, {nearest.domain} of {len(certificates):,}" if nearest.domain else ""
    excluded = [f"no node passes the filters for {name}" for name, number in nearest.passing.items() if not number]
    reasons = [shortage.text for shortage in nearest.shortages] + excluded
    return f"no placement exists: {'; '.join([nearest.text + where, *reasons])}"


class GangSearch:
    """Searches on one cluster, which is as before after each search."""

    def __init__(self, cluster: Cluster, profile: Profile, options: SearchOptions | None = None) -> None:
        self._cluster, self._profile, self._options = cluster, profile, options or SearchOptions()
        self._engine = EnginePlacement(cluster, {profile.scheduler_name: profile})
        self._verifier = Verifier(cluster, profile)

    def find(self, gang: Gang) -> GangAnswer:
        """A placement of the members of a gang that have no node, or why there is none.

        It is by the best of the gang's preferences that there is one for. Raises PluginError, and InputError without
        OR-Tools unless kube-scheduler finds a placement.
        """
        passed_over: list[PassedOver] = []
        *preferred, required = gang.levels()
        for level in preferred:
            answer = self._find(level)
            if answer.is_placed and (answer.assignments or not answer.pods):  # else there may be room at another level
                answer.preference, answer.passed_over = level.topology_text, passed_over
                return answer
            passed_over.append(PassedOver(level.topology_text, answer.certificates, answer.undecided))
        answer = self._find(required)
        answer.passed_over = passed_over
        return answer

    def _find(self, gang: Gang) -> GangAnswer:
        """The answer for a gang without preferences."""
        members = gang.members
        pods = [pod for uid, pod in members.pods.items() if uid not in members.placed]
        pods.sort(key=lambda pod: (-pod.priority, pod.key))
        answer = GangAnswer(gang, pods, gang.missing_pods)
        schedulers = sorted({pod.spec.scheduler_name for pod in members.pods.values()})
        if len(schedulers) > 1:  # no scheduler attempts them
            answer.undecided = f"its pods name several schedulers: {' and '.join(schedulers)}"
            return answer
        placements = self._profile.gangs.generate_placements(gang, pods, self._cluster)
        if isinstance(placements, Status):
            if placements.without_plugin() != NO_PLACEMENTS:
                answer.undecided = placements.message
            return answer
        for placement in [None] if placements is None else placements:
            domain = "" if placement is None else placement.name
            within = None if placement is None else nodes_within(self._cluster, placement)
            found = self._place_one_by_one(pods, within)
            if self._is_enough(gang, found):
                answer.assignments, answer.domain, answer.found_by = found, domain, "scheduler"
                return answer
        reasons = {reason for pod in pods if (reason := why_not_modelled(self._profile, pod, with_gang=True))}
        if reasons:
            answer.undecided = f"not searched further: a pod {min(reasons)}"
        else:
            self._search_all(answer, placements)
        return answer

    def _is_enough(self, gang: Gang, found: Sequence[Assignment]) -> bool:
        """Whether a placement is enough for a gang and as it asks for, without pods of groups in it that do not fit."""
        nodes = {pod.uid: node_name for pod, node_name in found}
        below = list(gang.children)
        for part in below:
            below += part.children
            if not part.is_satisfied(nodes) and not nodes.keys().isdisjoint(part.members.pods):
                return False
        return gang.is_satisfied(nodes) and self._profile.gangs.respects_terms(gang, nodes, self._cluster)

    # -- as kube-scheduler does it -------------------------------------------------------------------------------------

    def _place_one_by_one(self, pods: Iterable[PodInfo], within: Mask | None) -> list[Assignment]:
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

    def _search_all(self, answer: GangAnswer, placements: Sequence[Placement] | None) -> None:
        """Propose placements until the engine accepts one."""
        search = PlacementSearch.of(self._cluster, self._profile, answer.gang, answer.pods, placements, self._options)
        while (proposal := search.propose()) is not None:
            verified = self._verifier.verify(search.problem, proposal.placed)
            if verified.assignments is not None:
                answer.assignments, answer.domain, answer.found_by = verified.assignments, proposal.domain, "search"
                return
            search.refuse(is_proven=verified.is_proven)
        answer.certificates, answer.undecided = search.certificates, search.undecided


@dataclass(frozen=True, eq=False)
class Proposal:
    """A solution of the model: the pods of each kind by node (int64, kinds by nodes), in one topology domain or "".

    The engine has not verified it.
    """

    domain: str
    placed: Amounts


class PlacementSearch:
    """The search for the placement of a gang on a copy of the cluster, in steps.

    A step proposes a solution, which the engine accepts or refuses; a refused one is not proposed again. When nothing
    is left, there is a certificate against each scope, or the search is ``undecided``. The steps read the problem
    alone, so they can run beside the scheduler. Scopes are the topology domains of the gang, or one without a name.
    """

    def __init__(
        self, problem: GangProblem, quota: Quota, needed: int, scopes: Mapping[str, Mask], options: SearchOptions
    ) -> None:
        self.problem, self._options = problem, options
        self.certificates: list[Certificate] = []
        self.undecided = ""
        self._remaining = options.total_limit
        searches = [_ScopeSearch(problem, quota, needed, domain, within, options) for domain, within in scopes.items()]
        searches.sort(key=lambda search: (-search.most, search.room))
        self._scopes = searches
        self._proposed: Amounts = np.zeros((0, 0), np.int64)

    @classmethod
    def of(
        cls,
        cluster: Cluster,
        profile: Profile,
        gang: Gang,
        pods: Iterable[PodInfo],
        placements: Sequence[Placement] | None,
        options: SearchOptions,
    ) -> PlacementSearch:
        """A search for members of a gang without a node, in its placements or anywhere. Raises PluginError."""
        problem = formulate_gang(cluster, profile, gang, pods)
        quota = quota_of(gang, problem)
        scopes = {"": np.ones(len(problem.node_names), np.bool_)}
        if placements is not None:
            scopes = {placement.name: nodes_within(cluster, placement) for placement in placements}
        return cls(problem, quota, gang.missing_pods, scopes, options)

    def digest(self) -> bytes:
        """Equal for searches for the same pods in the same cluster."""
        digest = blake2b(self.problem.digest(), digest_size=16)
        for scope in self._scopes:
            digest.update(scope.domain.encode() + scope.within.tobytes())
        return digest.digest()

    def propose(self) -> Proposal | None:
        """The next solution, those of scopes for most pods with least room to spare first; None if there is no other.

        Raises InputError without OR-Tools, unless counting and packing suffice.
        """
        while self._scopes:
            scope = self._scopes[0]
            placed = scope.propose(self._remaining)
            self._remaining -= scope.take_time()
            if placed is not None:
                self._proposed = placed
                return Proposal(scope.domain, placed)
            del self._scopes[0]
            if scope.undecided:
                self.undecided = self.undecided or scope.undecided
            else:
                self.certificates.append(scope.certificate())
                self._remaining -= scope.take_time()
        return None

    def refuse(self, *, is_proven: bool) -> None:
        """The engine accepts the pods of the last proposal in no order; ``is_proven`` if all orders were tried."""
        self._scopes[0].refuse(self._proposed, is_proven=is_proven)


class PreferenceSearch:
    """The searches for a gang by each of its preferences, one after the other, and at last as it requires.

    The certificates are those of the last search.
    """

    def __init__(self, searches: Sequence[PlacementSearch]) -> None:
        self._searches = list(searches)

    @classmethod
    def of(
        cls, cluster: Cluster, profile: Profile, gang: Gang, pods: Sequence[PodInfo], options: SearchOptions
    ) -> PreferenceSearch | Status:
        """A search for members of a gang without a node; why there can be no placement. Raises PluginError."""
        searches: list[PlacementSearch] = []
        *preferred, required = gang.levels()
        for level in preferred:
            placements = profile.gangs.generate_placements(level, pods, cluster)
            if not isinstance(placements, Status):
                searches.append(PlacementSearch.of(cluster, profile, level, pods, placements, options))
        placements = profile.gangs.generate_placements(required, pods, cluster)
        if isinstance(placements, Status):
            return placements
        return cls([*searches, PlacementSearch.of(cluster, profile, required, pods, placements, options)])

    @property
    def problem(self) -> GangProblem:
        """The problem of the last proposal."""
        return self._searches[0].problem

    @property
    def certificates(self) -> list[Certificate]:
        """The certificates against each scope, when no solution is left."""
        return self._searches[0].certificates

    @property
    def undecided(self) -> str:
        """Why it is not known whether there is a placement; empty if it is."""
        return self._searches[0].undecided

    def digest(self) -> bytes:
        """Equal for searches for the same pods in the same cluster."""
        return blake2b(b"".join(search.digest() for search in self._searches), digest_size=16).digest()

    def propose(self) -> Proposal | None:
        """The next solution, by the best preference that has another one; None if there is none."""
        while True:
            proposal = self._searches[0].propose()
            if proposal is not None or len(self._searches) == 1:
                return proposal
            del self._searches[0]

    def refuse(self, *, is_proven: bool) -> None:
        """The engine accepts the pods of the last proposal in no order; ``is_proven`` if all orders were tried."""
        self._searches[0].refuse(is_proven=is_proven)


class _ScopeSearch:
    """The search on some nodes, such as those of a topology domain. ``most`` pods can be there at most.

    There is ``room`` for so many if there were more of each kind.
    """

    def __init__(
        self, problem: GangProblem, quota: Quota, needed: int, domain: str, within: Mask, options: SearchOptions
    ) -> None:
        self._problem, self._quota, self._needed, self._options = problem, quota, needed, options
        self.domain, self.within = domain, within
        self.undecided = ""
        self._refused: list[Amounts] = []
        self._model: GangModel | None = None
        #: The deterministic time that is left, and what was spent since it was asked for.
        self._remaining, self._spent = options.limit, 0.0
        self.most = sum(self._room(number, ()) for number in range(len(problem.kinds)))
        self.room = sum(int(problem.capacity(number)[within].sum()) for number in range(len(problem.kinds)))

    def propose(self, limit: float) -> Amounts | None:
        """Another solution within a time limit; None if there is none, or if the search ends ``undecided``."""
        if not self._may_be_placed(()):
            return None
        if not self._refused and self._quota.needs_all_parts:
            packed = best_fit(self._problem, self.within)
            if packed is not None and self._quota.is_met(packed.sum(axis=1).tolist()):
                return packed
        if len(self._refused) >= self._options.most_refused:
            count = len(self._refused)
            self.undecided = f"the first {count:,} placements that were tried are refused by filters of the profile"
            return None
        remaining = min(self._remaining, limit)
        if remaining <= 0:
            self.undecided = _OUT_OF_TIME
            return None
        if self._model is None:
            self._model = self._new_model()
        solution = self._model.solve(remaining)
        self._remaining -= solution.seconds
        self._spent += solution.seconds
        if solution.answer is Answer.OUT_OF_TIME:
            self.undecided = _OUT_OF_TIME
        return solution.placed

    def take_time(self) -> float:
        """The deterministic time that was spent since the last call."""
        spent, self._spent = self._spent, 0.0
        return spent

    def refuse(self, placed: Amounts, *, is_proven: bool) -> None:
        """Exclude a solution, which the engine refuses."""
        if not is_proven:
            self.undecided = "the filters of the profile refuse a placement in the orders that were tried"
        self._refused.append(placed)
        if len(self._refused) == 1:  # nodes that are alike for the model may not be so for other filters
            self._model = None
        else:
            assert self._model is not None
            self._model.forbid(placed)

    def _new_model(self) -> GangModel:
        """The model, without the solution that was refused."""
        model = GangModel(
            self._problem, self.within, self._quota, merges_nodes=not self._refused, seed=self._options.seed
        )
        for placed in self._refused:
            model.forbid(placed)
        return model

    def certificate(self) -> Certificate:
        """Why there is no placement, after :meth:`find` has shown it: the constraints of which none can be left out."""
        problem = self._problem
        passing = {kind.name: int((kind.passes & self.within).sum()) for kind in problem.kinds}
        families = problem.families(self.within)
        if self._refused:
            return Certificate(self.domain, self._needed, self.most, (Shortage(OTHER_FILTERS),), passing)
        needed = list(families)
        for family in reversed(families):  # resources are the plainest reasons, and stay if they suffice
            without = [each for each in families if each not in needed or each == family]
            if self._is_excluded(without):
                needed.remove(family)
        if problem.are_pods_independent and len(problem.kinds) == 1:
            most = self.most
        else:
            model = GangModel(problem, self.within, Quota(), seed=self._options.seed)
            solution = model.solve(self._options.limit / 5)
            self._spent += solution.seconds
            most = min(self.most, solution.bound)
        return Certificate(self.domain, self._needed, most, tuple(map(self._shortage, needed)), passing)

    def _is_excluded(self, without: Collection[str]) -> bool:
        """Whether it is proven that there is no placement even without some families of constraints."""
        if not self._may_be_placed(without):
            return True
        model = GangModel(self._problem, self.within, self._quota, without=without, seed=self._options.seed)
        solution = model.solve(self._options.limit / 5)
        self._spent += solution.seconds
        return solution.answer is Answer.IMPOSSIBLE

    def _may_be_placed(self, without: Collection[str]) -> bool:
        """Whether each kind by itself has enough room for the quota."""
        room = [self._room(number, without) for number in range(len(self._problem.kinds))]

        return self._quota.is_met(room)

    def _room(self, number: int, without: Collection[str]) -> int:
        """How many pods of a kind fit on the nodes without any others of the gang, without some families."""
        kind = self._problem.kinds[number]
        capacity = self._problem.capacity(number, without)
        return min(len(kind.pods), int(capacity[self.within].sum()))

    def _shortage(self, family: str) -> Shortage:
        problem = self._problem
        if family == DEVICES and problem.devices is not None:
            return self._shortage_of_devices(problem.devices)
        if family not in problem.free:
            return Shortage(family)
        requests = sorted(kind.requests.get(family, 0) for kind in problem.kinds for _ in kind.pods)
        passing = np.logical_or.reduce([kind.passes & self.within for kind in problem.kinds if family in kind.requests])
        needed = sum(requests[: self._needed])
        return Shortage(family, needed, int(problem.free[family][passing].sum()), self._room_for(family))

    def _shortage_of_devices(self, devices: GangDevices) -> Shortage:
        kinds = self._problem.kinds
        counts = sorted(devices.per_pod.get(number, 0) for number, kind in enumerate(kinds) for _ in kind.pods)
        passing = np.logical_or.reduce([kinds[number].passes & self.within for number in devices.per_pod])
        needed = sum(counts[: self._needed]) + devices.shared_count
        return Shortage(devices.text, needed, devices.free(passing), self._room_for(DEVICES))

    def _room_for(self, family: str) -> int:
        """For how many pods there is room by a family of constraints alone."""
        others = [each for each in (*self._problem.free, SLOTS, PORTS, DEVICES) if each != family]
        return sum(self._room(number, others) for number in range(len(self._problem.kinds)))


def nodes_within(cluster: Cluster, placement: Placement) -> Mask:
    """The nodes of a placement, bool per node of the cluster."""
    mask = np.zeros(len(cluster.nodes), np.bool_)
    mask[placement.nodes.row_numbers] = True
    return mask


def quota_of(gang: Gang, problem: GangProblem) -> Quota:
    """What has to be placed of a problem for a gang."""
    leaves = list(gang.leaves())

    def of(part: Gang) -> Quota:
        if part.children:
            return Quota(parts=tuple(map(of, part.children)), count=part.min_groups)
        placed = part.members.placed
        missing = max(0, part.min_count - len(placed))
        in_all = Quota(kinds_of(part, leaves, problem.kinds), missing)
        of_roles = [
            Quota(kinds_of(part, leaves, problem.kinds, role.name), max(0, role.min_count - len(placed & role.uids)))
            for role in part.roles
        ]
        return Quota(parts=(in_all, *of_roles), count=1 + len(of_roles)) if of_roles else in_all

    return of(gang)
