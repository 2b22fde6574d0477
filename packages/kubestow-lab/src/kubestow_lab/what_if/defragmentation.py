"""Plans of defragmentation: which pods to evict, in which order, so that a gang fits, or that whole domains are free.

Pods that a controller replaces may move. A constraint model of the gang and of these pods finds a placement of all with
the fewest moves; a gang that has to be in one topology domain, or in segments per domain, is placed so, and where
domains of a label, such as racks, are to be freed, no pod that may move is left in as many of them.

The plan is then carried out in the engine: the nodes that are to be free are cordoned, and the nodes of the pods of a
step until their replacements have nodes; pods are evicted as disruption budgets allow, which is to say that the pods of
a budget move in as many steps as it takes; each replacement goes where the scheduler puts it, and at the end the gang
is placed. A plan that does not end well is not a plan.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from random import Random

import msgspec
import numpy as np
from numpy.typing import NDArray

from kubestow.api.core import Pod
from kubestow.api.resource import ResourceClaim, ResourceClaimStatus
from kubestow.cluster.nodes.columns import MISSING
from kubestow.cluster.pods.pod_groups import Members
from kubestow.cluster.pods.shapes import PodInfo
from kubestow.descheduling.defragmentation.plan import DefragmentationPlan, FreedDomains, PlannedMove, stays_with_node
from kubestow.descheduling.defragmentation.rehearsal import Rehearsal
from kubestow.engine.cluster_api.replacements import replacing_controller
from kubestow.engine.gangs.gang_model import Answer, GangModel, Quota
from kubestow.engine.gangs.gang_problem import OTHERS, Confinement, GangProblem, formulate_gang
from kubestow.engine.gangs.gang_search import GangSearch, SearchOptions, nodes_within, quota_of
from kubestow.engine.gangs.verification import Verifier
from kubestow.engine.input.cluster_objects import ClusterObjects
from kubestow.engine.input.kinds import assumed_uid
from kubestow.engine.pipeline.offline_scheduler import OfflineScheduler, SchedulerOptions, unbound
from kubestow.engine.placement.engine_placement import Assignment
from kubestow.engine.placement.modelled_pods import why_not_modelled
from kubestow.errors import InputError
from kubestow.framework.gang import Gang
from kubestow.framework.profile import Profile
from kubestow.framework.status import Status
from kubestow.plugins.dynamic_resources.filtering import ClaimLookup, ClaimNotUsable, claim_names
from kubestow.reports.model import counted
from kubestow.rules.disruption import EvictionBudgets
from kubestow_lab.simulation.arrivals import Arrivals

Amounts = NDArray[np.int64]

#: So many solutions are carried out in the engine before the search ends.
_MOST_ATTEMPTS = 20
#: In so many orders the moves of a solution are carried out at most.
_MOST_ORDERS = 8
#: So many domains that cannot be emptied are named, each with a pod that stays.
_MOST_NAMED = 3
#: The verbs with which it is said of a pod why it stays, and of several.
_VERBS_OF_SEVERAL = {"has": "have", "is": "are", "requests": "request", "shares": "share"}
_KEPT_FROM_FITTING = "the scheduler puts the replacements where they keep the gang from fitting"
_KEPT_FROM_BEING_FREE = "the scheduler finds no other nodes for the replacements, or not in an order that is possible"


@dataclass(frozen=True, slots=True)
class DomainsToFree:
    """So many domains of a topology key that are to be free; of nodes of these names only, unless it is None."""

    count: int
    topology_key: str = "kubernetes.io/hostname"
    nodes: frozenset[str] | None = None


def plan_defragmentation(
    cluster: ClusterObjects,
    arrivals: Arrivals | None,
    options: SchedulerOptions | None = None,
    *,
    free: DomainsToFree | None = None,
    max_moves: int = 20,
    search: SearchOptions | None = None,
) -> DefragmentationPlan:
    """A plan with at most so many moves for the pods of a workload, which are one gang, or for domains to ``free``.

    The minimum of their pod group has to fit, or all of them if they are in none; with both, in the freed domains.
    Pods of DaemonSets and static pods stay on freed nodes. Raises InputError without OR-Tools, without pods, for pods
    of several gangs, and for a topology key that no node has as a label; ConfigurationError and PluginError.
    """
    pods = [] if arrivals is None else [arrival.pod for arrival in arrivals.pods]
    if arrivals is None and free is None:
        raise InputError("the plan", "is for nothing, expected a workload or domains to free")
    if arrivals is not None:
        if not pods:
            raise InputError("the workload", "has no pods that can be used, expected those of a gang")
        cluster = cluster.altered(
            pods=[*cluster.pods, *pods],
            objects=[*cluster.objects, *arrivals.objects],
            custom_resources=[*cluster.custom_resources, *arrivals.custom_resources],
        )
    options, search = options or SchedulerOptions(), search or SearchOptions()
    plan = _Planner(cluster, pods, options, free, max_moves, search).plan()
    return replace(plan, moves=tuple(map(_with_known_uid, plan.moves)))


def _with_known_uid(move: PlannedMove) -> PlannedMove:
    """The move without the uid of its pod if the file of the cluster has none."""
    namespace, _, name = move.pod.partition("/")
    return replace(move, uid="") if move.uid == assumed_uid("Pod", namespace, name) else move


class _Planner:
    """One search. ``_stays`` says of the pods that must not move, by uid, why."""

    def __init__(
        self,
        cluster: ClusterObjects,
        pods: Sequence[Pod],
        options: SchedulerOptions,
        free: DomainsToFree | None,
        most: int,
        search: SearchOptions,
    ) -> None:
        self._cluster, self._options, self._free, self._most, self._search = cluster, options, free, most, search
        self._uids = {pod.metadata.uid for pod in pods}
        self._pods = {pod.metadata.uid: pod for pod in cluster.pods}
        self._scheduler = OfflineScheduler(cluster, options)
        self._profile, self._gang = self._find_gang(pods)
        freed = None if free is None else FreedDomains(free.topology_key, free.count)
        self._none = DefragmentationPlan(str(self._gang.name) if pods else "", len(pods), freed=freed)
        self._budgets = EvictionBudgets(cluster.objects)
        self._stays: dict[str, str] = {}
        self._claims = ClaimLookup(self._scheduler.cache.resource_claims)
        #: The pods (uids) that refer to each claim, by its namespace and name.
        self._users_of_claims: dict[str, set[str]] = {}
        for info in (self._scheduler.cache.shapes.info(pod) for pod in cluster.pods if pod.spec.resource_claims):
            for name in claim_names(info):
                self._users_of_claims.setdefault(f"{info.namespace}/{name}", set()).add(info.uid)

    def _find_gang(self, pods: Sequence[Pod]) -> tuple[Profile, Gang]:
        """The gang of all pods with its profile; Raises InputError if they have several."""
        if not pods:
            profile = next(iter(self._scheduler.profiles.values()))
            return profile, Gang("", "", 0, 0.0, Members({}.keys()))
        profile = self._scheduler.profile(pods[0])
        infos = [self._scheduler.cache.shapes.info(pod) for pod in pods]
        gangs = {None if gang is None else gang.name: gang for gang in map(profile.gangs.gang_of, infos)}
        if len(gangs) > 1 or {pod.spec.scheduler_name for pod in pods} != {profile.scheduler_name}:
            raise InputError("the workload", "its pods are in several groups or profiles, expected those of one gang")
        [gang] = gangs.values()
        if gang is None:
            members = Members({}.keys())
            for info in infos:
                members.put(info)
            gang = Gang("the workload", "", len(pods), 0.0, members)
        return profile, gang

    def plan(self) -> DefragmentationPlan:
        if self._free is None:
            as_it_is = GangSearch(self._scheduler.cache, self._profile, self._search).find(self._gang)
            if as_it_is.is_placed:
                return self._plan_of(as_it_is.assignments)
            if as_it_is.undecided.startswith("not searched"):
                return replace(self._none, problem=as_it_is.undecided)
        elif reason := self._why_not_modelled():
            return replace(self._none, problem=reason)
        movable, protected = self._movable()
        found = self._with_moves(movable, self._budgets)
        if found.exists or not protected:
            return found
        regardless = self._with_moves(movable | protected, None)
        reasons = {
            f"{self._pods[move.uid].key} has to move, but {self._budgets.reason(self._pods[move.uid])}"
            for move in regardless.moves
            if move.uid in protected
        }
        return replace(found, problem="; ".join(sorted(reasons))) if reasons else found

    def _why_not_modelled(self) -> str:
        """Why the gang is not part of a model; "" if it can be."""
        members = self._gang.members.pods.values()
        reasons = {reason for info in members if (reason := why_not_modelled(self._profile, info, with_gang=True))}
        return f"not searched further: a pod {min(reasons)}" if reasons else ""

    def _movable(self) -> tuple[dict[str, PodInfo], dict[str, PodInfo]]:
        """The pods that may be evicted and can be modelled, without their nodes, by uid; and those that only a budget
        protects."""
        movable: dict[str, PodInfo] = {}
        protected: dict[str, PodInfo] = {}
        for uid, pod in self._pods.items():
            if uid in self._uids or not pod.spec.node_name:
                continue
            info = self._scheduler.cache.shapes.info(unbound(pod))
            profile = self._scheduler.profiles.get(pod.spec.scheduler_name)
            if profile is not self._profile:
                self._stays[uid] = f"is of the scheduler {pod.spec.scheduler_name}"
            elif info.terminating:
                self._stays[uid] = "is being deleted"
            elif replacing_controller(pod) is None:
                self._stays[uid] = "has no controller that would replace it elsewhere"
            elif reason := why_not_modelled(profile, info, with_claims=True) or self._why_claims_stay(info):
                self._stays[uid] = reason
            elif self._budgets.evictable([pod]):
                movable[uid] = info
            else:
                protected[uid] = info
                self._stays[uid] = f"is protected: {self._budgets.reason(pod)}"
        return movable, protected

    def _why_claims_stay(self, info: PodInfo) -> str:
        """Why the devices of a pod's claims cannot be released, and allocated anew elsewhere; "" if they can.

        They can if the claims were created for the pod, or no other pod uses them.
        """
        try:
            claims = self._claims.claims_of(info)
        except ClaimNotUsable as error:
            return f"has a claim that is not usable: {error}"
        for claim in claims:
            users = {consumer.uid for consumer in claim.status.reserved_for} | self._users_of_claims[claim.key]
            if len(users) > 1:
                return f"shares resource claim {claim.key} with other pods"
        return ""

    def _emptied(self, movable: Mapping[str, PodInfo]) -> OfflineScheduler:
        """The cluster without the pods that may move, and with the devices of their claims free."""
        freed = {claim.key for info in movable.values() for claim in self._claims.claims_of(info)}
        cluster = self._cluster.altered(
            pods=[pod for uid, pod in self._pods.items() if uid not in movable],
            objects=[
                msgspec.structs.replace(each, status=ResourceClaimStatus())
                if isinstance(each, ResourceClaim) and each.key in freed
                else each
                for each in self._cluster.objects
            ],
        )
        return OfflineScheduler(cluster, self._options)

    # -- a solution of the model, carried out in the engine ------------------------------------------------------------

    def _with_moves(self, movable: Mapping[str, PodInfo], budgets: EvictionBudgets | None) -> DefragmentationPlan:
        """The plan with the fewest moves that the engine accepts."""
        if not movable and self._free is None:
            return replace(self._none, problem=self._why_none_moves())
        emptied = self._emptied(movable)
        [profile] = [each for each in emptied.profiles.values() if each.scheduler_name == self._profile.scheduler_name]
        members = self._gang.members
        waiting = [info for uid, info in members.pods.items() if uid not in members.placed]
        problem = formulate_gang(emptied.cache, profile, self._gang, waiting, list(movable.values()))
        moving = frozenset(number for number, kind in enumerate(problem.kinds) if kind.group == OTHERS)
        own = frozenset(range(len(problem.kinds))) - moving
        placements = profile.gangs.generate_placements(self._gang, waiting, emptied.cache) if own else None
        if isinstance(placements, Status):
            return replace(self._none, problem=placements.message)
        if placements is not None:
            choices = np.array([nodes_within(emptied.cache, placement) for placement in placements], np.bool_)
            choices = choices.reshape(-1, len(problem.node_names))
            problem = replace(problem, confinements=[*problem.confinements, Confinement(own, choices)])
        domains: Mapping[str, NDArray[np.intp]] = {}
        if self._free is not None:
            domains, reason = self._domains_to_empty(emptied, self._free, movable)
            if reason:
                return replace(self._none, problem=reason)
        if self._free is not None and not problem.kinds:  # no pod may move, and none has to
            freed = list(domains)[: self._free.count]
            nodes = {problem.node_names[row] for name in freed for row in domains[name].tolist()}
            return self._plan_of((), cordoned=nodes, freed=freed)
        existing = self._existing(problem, moving)
        quota = Quota(parts=(quota_of(self._gang, problem), Quota(moving, len(movable))), count=2)
        everywhere = np.ones(len(problem.node_names), np.bool_)
        model = GangModel(problem, everywhere, quota, merges_nodes=False, seed=self._search.seed)
        model.keep_in_place(existing, self._most)
        if self._free is not None:
            model.empty_domains(list(domains.values()), self._free.count, moving, own)
        reason, fewest = "", 0
        for attempt in range(_MOST_ATTEMPTS):
            solution = model.solve(self._search.limit)
            if not attempt:  # with solutions excluded, which other nodes may make possible, the bound is none of plans
                fewest = solution.bound
            if solution.placed is None:
                reason = reason or (
                    f"none with at most {counted(self._most, 'move')}"
                    if solution.answer is Answer.IMPOSSIBLE
                    else "none was found in time"
                )
                break
            leaving = self._leaving(problem, moving, existing, solution.placed)
            found = self._carried_out(_Solution(problem, own, solution.placed, domains), leaving, budgets, fewest)
            if found is not None:
                return found
            reason = _KEPT_FROM_FITTING if self._gang.members.pods else _KEPT_FROM_BEING_FREE
            model.forbid(solution.placed)
        return replace(self._none, fewest=fewest, problem=reason)

    def _why_none_moves(self) -> str:
        counts = Counter(self._stays.values())
        reasons = ", ".join(
            f"{counted(number, 'pod')} {reason if number == 1 else _of_several(reason)}"
            for reason, number in sorted(counts.items())
        )
        return f"no pod can be moved: {reasons or 'none is on a node'}"

    def _domains_to_empty(
        self, emptied: OfflineScheduler, free: DomainsToFree, movable: Collection[str]
    ) -> tuple[dict[str, NDArray[np.intp]], str]:
        """The domains that can be emptied, those that are empty already included, with their rows (intp); or why there
        are not enough.

        Raises InputError if no node has the label.
        """
        nodes = emptied.cache.all_nodes()
        values, of_node = nodes.label_values(free.topology_key), nodes.label(free.topology_key)
        numbers = [number for number in np.unique(of_node).tolist() if number != MISSING]
        by_name = {str(values[number]): np.flatnonzero(of_node == number) for number in numbers}
        if not by_name:
            raise InputError(free.topology_key, "no node of the cluster has this label")
        selected = {
            name: rows
            for name, rows in sorted(by_name.items())
            if free.nodes is None or free.nodes.issuperset(nodes.names[row] for row in rows.tolist())
        }
        domain_of = {nodes.names[row]: name for name, rows in selected.items() for row in rows.tolist()}
        obstacles: dict[str, str] = {}
        for node in self._cluster.nodes:
            if node.spec.unschedulable and (name := domain_of.get(node.metadata.name)) is not None:
                obstacles.setdefault(name, f"node {node.metadata.name} is cordoned")
        for pod in self._remaining(movable):
            if (name := domain_of.get(pod.spec.node_name)) is not None:
                obstacles.setdefault(name, f"{pod.key} {self._stays[pod.metadata.uid]}")
        found = {name: rows for name, rows in selected.items() if name not in obstacles}
        if len(found) >= free.count:
            return found, ""
        reasons = [f"{name}: {reason}" for name, reason in sorted(obstacles.items())]
        more = [f"{len(reasons) - _MOST_NAMED:,} more"] if len(reasons) > _MOST_NAMED else []
        named = "; ".join(["", *reasons[:_MOST_NAMED], *more])
        return found, f"{len(found):,} of {counted(len(selected), 'domain')} can be emptied{named}"

    def _remaining(self, moved: Collection[str]) -> Iterator[Pod]:
        """The pods that stay on their nodes when some (uids) move, those of DaemonSets and static ones aside."""
        for uid, pod in self._pods.items():
            is_placed = pod.spec.node_name and pod.metadata.deletion_timestamp is None
            if is_placed and not stays_with_node(pod) and uid not in moved and uid not in self._uids:
                yield pod

    def _existing(self, problem: GangProblem, moving: Collection[int]) -> Amounts:
        """How many pods of the kinds that may move each node has, int64 (kinds, nodes)."""
        existing = np.zeros((len(problem.kinds), len(problem.node_names)), np.int64)
        rows = {name: row for row, name in enumerate(problem.node_names)}
        for number in moving:
            for info in problem.kinds[number].pods:
                existing[number, rows[self._pods[info.uid].spec.node_name]] += 1
        return existing

    def _leaving(
        self, problem: GangProblem, moving: Collection[int], existing: Amounts, placed: Amounts
    ) -> list[tuple[Sequence[PodInfo], int]]:
        """The pods of one kind and node of which some, and how many, are not there any more in a solution."""
        found: list[tuple[Sequence[PodInfo], int]] = []
        for number in sorted(moving):
            there: dict[str, list[PodInfo]] = {}
            for info in problem.kinds[number].pods:
                there.setdefault(self._pods[info.uid].spec.node_name, []).append(info)
            gone = dict(zip(problem.node_names, (existing[number] - placed[number]).tolist(), strict=True))
            found += [(pods, gone[source]) for source, pods in there.items() if gone[source] > 0]
        return found

    def _carried_out(
        self,
        solution: _Solution,
        leaving: Sequence[tuple[Sequence[PodInfo], int]],
        budgets: EvictionBudgets | None,
        fewest: int,
    ) -> DefragmentationPlan | None:
        """The plan in which pods leave their nodes and the gang follows; None if the scheduler decides otherwise."""
        sources = {self._pods[pods[0].uid].spec.node_name for pods, _ in leaving}
        freed = [] if self._free is None else solution.emptied(sources, self._free.count)
        cordoned = {solution.problem.node_names[row] for name in freed for row in solution.domains[name].tolist()}
        cordoned |= set() if freed else solution.nodes_of_gang()
        for order in self._orders(solution, leaving):
            found = self._rehearsed(solution, order, cordoned, budgets)
            if found is not None:
                return self._plan_of(*found, cordoned, freed, fewest)
        return None

    def _orders(self, solution: _Solution, leaving: Sequence[tuple[Sequence[PodInfo], int]]) -> Iterator[list[PodInfo]]:
        """Which pods may leave, and in which order: those that request most first, and others at random.

        Pods of one kind on a node differ in the devices that they leave behind.
        """
        shares, random = solution.shares(), Random(self._search.seed)
        order = [info for pods, count in leaving for info in pods[:count]]
        order.sort(key=lambda info: -shares[info.uid])
        has_others = len(order) > 1 or any(count < len(pods) for pods, count in leaving)
        for _ in range(_MOST_ORDERS if has_others else 1):
            yield order
            order = [info for pods, count in leaving for info in random.sample(pods, count)]
            random.shuffle(order)

    def _rehearsed(
        self,
        solution: _Solution,
        leaving: Sequence[PodInfo],
        cordoned: Collection[str],
        budgets: EvictionBudgets | None,
    ) -> tuple[Sequence[Assignment], Sequence[PlannedMove]] | None:
        """The nodes of the gang once pods have moved in an order, and the moves; None if that is not possible."""
        cache = self._scheduler.cache
        with Rehearsal(cache, self._scheduler.profiles, cordoned) as rehearsal:
            moves = self._arranged(rehearsal, leaving, budgets)
            if moves is None:
                return None
            if self._free is None:
                answer = GangSearch(cache, self._profile, self._search).find(self._gang)
                return (answer.assignments, moves) if answer.is_placed else None
            assignments = Verifier(cache, self._profile).verify(solution.problem, solution.of_gang()).assignments
            return None if assignments is None else (assignments, moves)

    def _arranged(
        self, rehearsal: Rehearsal, leaving: Sequence[PodInfo], budgets: EvictionBudgets | None
    ) -> list[PlannedMove] | None:
        """The moves in their steps, each with as many as budgets and free amounts allow; None if some are not possible.

        A pod needs a node while those that leave in the same step are still there, so that they need not have ended.
        """
        moves: list[PlannedMove] = []
        waiting, step = list(leaving), 0
        while waiting:
            step += 1
            rehearsal.begin_step()
            together: list[Pod] = []
            for info in list(waiting):
                pod = self._pods[info.uid]
                if budgets is not None and len(budgets.evictable([*together, pod])) <= len(together):
                    continue
                if target := rehearsal.move(pod):
                    together.append(pod)
                    waiting.remove(info)
                    controller = replacing_controller(pod)
                    name = "" if controller is None else f"{controller.kind}/{controller.name}"
                    moves.append(PlannedMove(info.key, pod.spec.node_name, target, step, info.uid, name))
            if not together:
                return None
        return moves

    def _plan_of(
        self,
        assignments: Sequence[Assignment],
        moves: Sequence[PlannedMove] = (),
        cordoned: Collection[str] = (),
        freed: Sequence[str] = (),
        fewest: int = 0,
    ) -> DefragmentationPlan:
        moved = {move.uid for move in moves}
        staying = (pod for pod in self._remaining(moved) if pod.spec.node_name in cordoned)
        return replace(
            self._none,
            cordoned=tuple(sorted(cordoned)),
            moves=tuple(moves),
            assignments=tuple((info.key, node_name) for info, node_name in assignments),
            staying=tuple((pod.key, pod.spec.node_name) for pod in staying),
            freed=None if self._none.freed is None else replace(self._none.freed, domains=tuple(sorted(freed))),
            fewest=fewest,
        )


@dataclass(frozen=True, eq=False)
class _Solution:
    """A solution of the model: the pods of each kind by node, int64 (kinds, nodes).

    ``own`` are the kinds of the gang, ``domains`` the rows (intp) of the domains that can be emptied, by name.
    """

    problem: GangProblem
    own: frozenset[int]
    placed: Amounts
    domains: Mapping[str, NDArray[np.intp]]

    def shares(self) -> dict[str, float]:
        """The largest share of what is free of a resource that each pod requests, by uid."""
        free = {name: max(1, int(amounts.sum())) for name, amounts in self.problem.free.items()}
        return {
            info.uid: max((amount / free[name] for name, amount in kind.requests.items()), default=0.0)
            for kind in self.problem.kinds
            for info in kind.pods
        }

    def of_gang(self) -> Amounts:
        """The pods of the gang alone."""
        is_own = np.isin(np.arange(len(self.placed)), list(self.own))
        return np.where(is_own[:, None], self.placed, 0)

    def nodes_of_gang(self) -> set[str]:
        """The nodes that pods of the gang get."""
        return {self.problem.node_names[row] for row in np.flatnonzero(self.of_gang().any(axis=0)).tolist()}

    def emptied(self, sources: Collection[str], count: int) -> list[str]:
        """So many of the domains that have no pod any more that may move: those of the gang first, then those with
        ``sources``, the nodes that pods leave."""
        others, gang = self.placed - self.of_gang(), self.nodes_of_gang()
        empty = {
            name: {self.problem.node_names[row] for row in rows.tolist()}
            for name, rows in self.domains.items()
            if not others[:, rows].any()
        }
        order = sorted(empty, key=lambda name: (gang.isdisjoint(empty[name]), empty[name].isdisjoint(sources), name))
        return order[:count]


def _of_several(reason: str) -> str:
    """Why several pods stay, in the words that say it of one."""
    verb, space, rest = reason.partition(" ")
    return _VERBS_OF_SEVERAL[verb] + space + rest
