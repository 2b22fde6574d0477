"""A defragmentation plan: which pods to evict, in which order, so that a gang fits.

Pods that a controller replaces may move. A constraint model of the gang and of these pods finds a placement of all with
the fewest moves. The plan is then carried out in the engine: the nodes that the gang is to get are cordoned, and the
node of each pod until its replacement has one; pods are evicted one after the other as disruption budgets allow; each
replacement goes where the scheduler puts it, and at the end the gang is placed. A plan that does not end well is not a
plan.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kubestow.api.core import Pod
from kubestow.cluster.pods.pod_groups import Members
from kubestow.cluster.pods.shapes import PodInfo
from kubestow.engine.cluster_api.replacements import replacing_controller
from kubestow.engine.gangs.gang_model import Answer, GangModel, Quota
from kubestow.engine.gangs.gang_problem import OTHERS, formulate_gang
from kubestow.engine.gangs.gang_search import GangAnswer, GangSearch, SearchOptions, quota_of
from kubestow.engine.input.cluster_objects import ClusterObjects
from kubestow.engine.pipeline.offline_scheduler import OfflineScheduler, SchedulerOptions, unbound
from kubestow.engine.placement.engine_placement import EnginePlacement
from kubestow.engine.placement.modelled_pods import why_not_modelled
from kubestow.errors import InputError
from kubestow.framework.gang import Gang
from kubestow.framework.profile import Profile
from kubestow.reports.model import Block, Paragraph, Table, counted
from kubestow.reports.text import Displayed
from kubestow.rules.disruption import EvictionBudgets
from kubestow_lab.simulation.arrivals import Arrivals

Amounts = NDArray[np.int64]

#: So many solutions are carried out in the engine before the search ends.
_MOST_ATTEMPTS = 20


@dataclass(frozen=True, slots=True)
class PlannedMove:
    """The eviction of a pod, and the node that its replacement gets."""

    pod: str
    source: str
    target: str


@dataclass(frozen=True, slots=True, repr=False)
class DefragmentationPlan(Displayed):
    """How a gang gets its nodes: cordon some, evict pods in this order, and uncordon them for the gang.

    The node that a pod leaves is cordoned too, until the pod that replaces it has a node.

    ``fewest`` is a number of moves that no plan can do without; ``problem`` says why there is no plan, and is empty if
    there is one.
    """

    name: str
    pods: int
    cordoned: tuple[str, ...] = ()
    moves: tuple[PlannedMove, ...] = ()
    assignments: tuple[tuple[str, str], ...] = ()
    fewest: int = 0
    problem: str = ""

    @property
    def exists(self) -> bool:
        """Whether there is a plan; one without moves if the gang fits already."""
        return not self.problem

    def document(self) -> dict[str, Any]:
        """The plan as data for JSON and YAML."""
        return {
            "kind": "DefragmentationPlan",
            "gang": self.name,
            "pods": self.pods,
            "exists": self.exists,
            "problem": self.problem,
            "fewestMoves": self.fewest,
            "cordon": list(self.cordoned),
            "moves": [{"pod": move.pod, "from": move.source, "to": move.target} for move in self.moves],
            "assignments": [{"pod": pod, "node": node_name} for pod, node_name in self.assignments],
        }

    def blocks(self) -> Iterator[Block]:
        """The steps in their order."""
        if self.problem:
            yield Paragraph(f"{self.name}: no plan: {self.problem}")
            return
        nodes = len({node_name for _, node_name in self.assignments})
        if not self.moves:
            yield Paragraph(
                f"{self.name}: {counted(self.pods, 'pod fits', 'pods fit')} as it is, on {counted(nodes, 'node')}"
            )
            return
        after = f"after {counted(len(self.moves), 'move')}"
        yield Paragraph(
            f"{self.name}: {counted(self.pods, 'pod fits', 'pods fit')} on {counted(nodes, 'node')} {after}"
        )
        if self.fewest == len(self.moves):
            yield Paragraph("no plan has fewer moves", note=True)
        yield Paragraph(
            f"cordon {', '.join(self.cordoned)}; then evict one after the other, each from a cordoned node:"
        )
        table = Table("pod", "from", "to")
        for move in self.moves:
            table.add(move.pod, move.source, move.target)
        yield table
        yield Paragraph("then uncordon the nodes, and create the gang")


def plan_defragmentation(
    cluster: ClusterObjects,
    arrivals: Arrivals,
    options: SchedulerOptions | None = None,
    *,
    max_moves: int = 20,
    search: SearchOptions | None = None,
) -> DefragmentationPlan:
    """A plan with at most so many moves for the pods of a workload, which are one gang.

    The minimum of their pod group has to fit, or all of them if they are in none. Raises InputError without OR-Tools,
    without pods and for pods of several gangs; ConfigurationError and PluginError.
    """
    pods = [arrival.pod for arrival in arrivals.pods]
    if not pods:
        raise InputError("the workload", "has no pods that can be used, expected those of a gang")
    with_gang = cluster.altered(
        pods=[*cluster.pods, *pods],
        objects=[*cluster.objects, *arrivals.objects],
        custom_resources=[*cluster.custom_resources, *arrivals.custom_resources],
    )
    return _Planner(with_gang, pods, options or SchedulerOptions(), max_moves, search or SearchOptions()).plan()


class _Planner:
    def __init__(
        self, cluster: ClusterObjects, pods: Sequence[Pod], options: SchedulerOptions, most: int, search: SearchOptions
    ) -> None:
        self._cluster, self._options, self._most, self._search = cluster, options, most, search
        self._uids = {pod.metadata.uid for pod in pods}
        self._scheduler = OfflineScheduler(cluster, options)
        self._profile, self._gang = self._find_gang(pods)
        self._name = str(self._gang.name)
        self._budgets = EvictionBudgets(cluster.objects)

    def _find_gang(self, pods: Sequence[Pod]) -> tuple[Profile, Gang]:
        """The gang of all pods with its profile; Raises InputError if they have several."""
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
        as_it_is = GangSearch(self._scheduler.cache, self._profile, self._search).find(self._gang)
        if as_it_is.is_placed:
            return self._plan_of(as_it_is, (), (), 0)
        if as_it_is.undecided.startswith("not searched"):
            return DefragmentationPlan(self._name, len(self._uids), problem=as_it_is.undecided)
        movable = self._movable()
        if not movable:
            problem = "no pod can be moved: each has no controller, no disruption left, volumes or claims"
            return DefragmentationPlan(self._name, len(self._uids), problem=problem)
        return self._with_moves(movable)

    def _movable(self) -> dict[str, PodInfo]:
        """The pods that may be evicted and can be modelled, without their nodes, by uid."""
        found: dict[str, PodInfo] = {}
        for pod in self._cluster.pods:
            profile = self._scheduler.profiles.get(pod.spec.scheduler_name)
            if pod.metadata.uid in self._uids or not pod.spec.node_name or profile is not self._profile:
                continue
            info = self._scheduler.cache.shapes.info(unbound(pod))
            if info.terminating or replacing_controller(pod) is None:
                continue
            if not why_not_modelled(profile, info) and self._budgets.evictable([pod]):
                found[info.uid] = info
        return found

    def _with_moves(self, movable: dict[str, PodInfo]) -> DefragmentationPlan:
        """The plan with the fewest moves that the engine accepts."""
        emptied = OfflineScheduler(
            self._cluster.altered(pods=[pod for pod in self._cluster.pods if pod.metadata.uid not in movable]),
            self._options,
        )
        [profile] = [each for each in emptied.profiles.values() if each.scheduler_name == self._profile.scheduler_name]
        members = self._gang.members
        waiting = [info for uid, info in members.pods.items() if uid not in members.placed]
        problem = formulate_gang(emptied.cache, profile, self._gang, waiting, list(movable.values()))
        moving = frozenset(number for number, kind in enumerate(problem.kinds) if kind.group == OTHERS)
        quota = quota_of(self._gang, problem)
        both = Quota(parts=(quota, Quota(moving, len(movable))), count=2)
        existing = np.zeros((len(problem.kinds), len(problem.node_names)), np.int64)
        rows = {name: row for row, name in enumerate(problem.node_names)}
        nodes = {pod.metadata.uid: pod.spec.node_name for pod in self._cluster.pods}
        for number in moving:
            for info in problem.kinds[number].pods:
                existing[number, rows[nodes[info.uid]]] += 1
        everywhere = np.ones(len(problem.node_names), np.bool_)
        model = GangModel(problem, everywhere, both, merges_nodes=False, seed=self._search.seed)
        model.keep_in_place(existing, self._most)
        reason, fewest = "", 0
        for _ in range(_MOST_ATTEMPTS):
            solution = model.solve(self._search.limit)
            fewest = max(fewest, solution.bound)
            if solution.placed is None:
                reason = reason or (
                    f"none with at most {counted(self._most, 'move')}"
                    if solution.answer is Answer.IMPOSSIBLE
                    else "none was found in time"
                )
                break
            leaving: list[tuple[PodInfo, str]] = []
            for number in sorted(moving):
                gone = Counter(
                    {
                        problem.node_names[column]: int(count)
                        for column, count in enumerate(existing[number] - solution.placed[number])
                        if count > 0
                    }
                )
                for info in problem.kinds[number].pods:
                    if gone[nodes[info.uid]] > 0:
                        gone[nodes[info.uid]] -= 1
                        leaving.append((info, nodes[info.uid]))
            taken = {
                problem.node_names[column]
                for number in range(len(problem.kinds))
                if number not in moving
                for column in np.flatnonzero(solution.placed[number]).tolist()
            }
            found = self._carried_out(leaving, sorted(taken), fewest)
            if found is not None:
                return found
            reason = "the scheduler puts the replacements where they keep the gang from fitting"
            model.forbid(solution.placed)
        return DefragmentationPlan(self._name, len(self._uids), fewest=fewest, problem=reason)

    def _carried_out(
        self, leaving: Sequence[tuple[PodInfo, str]], cordoned: Sequence[str], fewest: int
    ) -> DefragmentationPlan | None:
        """The plan in which pods leave their nodes and the gang follows; None if the scheduler decides otherwise."""
        cache = self._scheduler.cache
        open_nodes = np.ones(len(cache.nodes), np.bool_)
        open_nodes[[cache.nodes.rows[name] for name in cordoned]] = False
        engine = EnginePlacement(cache, self._scheduler.profiles)
        moves: list[PlannedMove] = []
        with cache.simulate() as simulation:
            waiting = list(leaving)
            while waiting:
                for position, (info, source) in enumerate(waiting):
                    simulation.remove_pod(info.uid)
                    others = open_nodes.copy()
                    others[cache.nodes.rows[source]] = False
                    target = engine.place_anywhere(info, others)
                    if target:
                        moves.append(PlannedMove(info.key, source, target))
                        del waiting[position]
                        break
                    simulation.add_pod(info, source)
                else:
                    return None
            found = GangSearch(cache, self._profile, self._search).find(self._gang)
            return self._plan_of(found, cordoned, moves, fewest) if found.is_placed else None

    def _plan_of(
        self, found: GangAnswer, cordoned: Sequence[str], moves: Sequence[PlannedMove], fewest: int
    ) -> DefragmentationPlan:
        return DefragmentationPlan(
            self._name,
            len(self._uids),
            tuple(cordoned),
            tuple(moves),
            tuple((info.key, node_name) for info, node_name in found.assignments),
            fewest,
        )
