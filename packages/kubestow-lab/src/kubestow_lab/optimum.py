"""The gap between a simulation and the optimum: what a global placement of the same pods would have achieved.

The last moment of the simulation (:class:`EndState`) is a placement problem. The pods that are pending or running then
take part. Those that the cluster had before keep their nodes, and so do placed pods of DaemonSets, which can be nowhere
else, and those that a problem cannot describe: with volumes, claims, devices, or in a gang.

The best placement is first searched for without the constraints between nodes, which gives a bound for every placement.
The engine then places the pods where the solution has them, and decides itself about those that it refuses there. Where
it refused any, a second search keeps the pods with such constraints on the nodes that the scheduler gave them. The best
of these placements, of the rounds of min-cost flow, and of what the scheduler did is the result; so it is never worse
than the last. It is a :class:`kubestow_lab.simulation.gap.Gap`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from kubestow.api.core import Pod
from kubestow.api.formats.int64 import exact_sum
from kubestow.cluster.pods.shapes import PodInfo
from kubestow.engine.input.cluster_objects import ClusterObjects
from kubestow.engine.pipeline.offline_scheduler import OfflineScheduler, SchedulerOptions, unbound
from kubestow.engine.placement import solvers
from kubestow.engine.placement.engine_placement import EnginePlacement
from kubestow.engine.placement.modelled_pods import why_not_modelled
from kubestow_lab.flow.cost_models import COST_MODELS, CostModel
from kubestow_lab.flow.equivalence import Formulation, formulate
from kubestow_lab.flow.packing import Packing, PackingOptions, pack
from kubestow_lab.flow.rounds import FlowRounds
from kubestow_lab.simulation.gap import Figures, Gap, Move
from kubestow_lab.simulation.outcomes import OutcomeState
from kubestow_lab.simulation.simulation import Simulation
from kubestow_lab.simulation.simulation_result import SimulationResult

Placement = dict[str, str]
"""The node of each placed pod, by uid."""


@dataclass(frozen=True, slots=True)
class OptimumOptions:
    """The cost model by name, and the limit of each search in the solver's deterministic seconds."""

    cost_model: str = "cpu-mem"
    limit: float = 5.0
    seed: int = 0


@dataclass
class EndState:
    """The pods that take part by uid, without their nodes, and ``node_names`` of those that run.

    ``unmodelled`` pending pods stay pending; ``ineligible`` ones are gated, being deleted, or without a profile. Both
    say why, by namespace/name.
    """

    pods: dict[str, Pod] = field(default_factory=dict)
    node_names: dict[str, str] = field(default_factory=dict)
    unmodelled: dict[str, str] = field(default_factory=dict)
    ineligible: dict[str, str] = field(default_factory=dict)
    _fixed: list[Pod] = field(default_factory=list)
    _nodes: ClusterObjects = field(default_factory=ClusterObjects)
    _options: SchedulerOptions = field(default_factory=SchedulerOptions)

    @classmethod
    def of(cls, simulation: Simulation, result: SimulationResult) -> EndState:
        """The last moment of a simulation. Raises PluginError."""
        cluster = simulation.cluster_after(result)
        state = cls(
            _nodes=cluster.altered(pods=()),
            _options=SchedulerOptions(simulation.configuration, simulation.plugins, simulation.gates),
        )
        live = (OutcomeState.RUNNING, OutcomeState.PENDING)
        simulated = {outcome.key for outcome in result.outcomes if outcome.state in live}
        scheduler = state.scheduler()
        for pod in cluster.pods:
            if f"{pod.metadata.namespace}/{pod.metadata.name}" in simulated:
                state._add(scheduler, pod)
            elif pod.spec.node_name:
                state._fixed.append(pod)
        return state

    def _add(self, scheduler: OfflineScheduler, pod: Pod) -> None:
        info = scheduler.cache.shapes.info(unbound(pod))
        node_name = pod.spec.node_name
        profile = scheduler.profiles.get(pod.spec.scheduler_name)
        if profile is None:
            self.ineligible[info.key] = f"no profile has the scheduler name {pod.spec.scheduler_name}"
        elif node_name and (controller := pod.metadata.controller) is not None and controller.kind == "DaemonSet":
            self._fixed.append(pod)
        elif not node_name and info.terminating:
            self.ineligible[info.key] = "is being deleted"
        elif reason := why_not_modelled(profile, info):
            if node_name:
                self._fixed.append(pod)
            else:
                self.unmodelled[info.key] = reason
        elif not node_name and not (status := profile.queueing.run_pre_enqueue_plugins(info)).ok:
            self.ineligible[info.key] = f"gated by {status.plugin}"
        else:
            self.pods[info.uid] = info.pod
            if node_name:
                self.node_names[info.uid] = node_name

    def scheduler(self, pinned: Mapping[str, str] | None = None) -> OfflineScheduler:
        """A new scheduler whose cluster has the pods that keep their nodes, and those pinned to nodes (by uid)."""
        scheduler = OfflineScheduler(self._nodes.altered(pods=self._fixed), self._options)
        for uid, node_name in (pinned or {}).items():
            scheduler.cache.assume(scheduler.cache.shapes.info(self.pods[uid]), node_name)
        return scheduler

    def infos(self, scheduler: OfflineScheduler, uids: Iterable[str] | None = None) -> list[PodInfo]:
        """The pods, or some of them, as a scheduler sees them, in the order of arrival."""
        return [scheduler.cache.shapes.info(self.pods[uid]) for uid in (self.pods if uids is None else uids)]


def find_optimum(simulation: Simulation, result: SimulationResult, options: OptimumOptions | None = None) -> Gap:
    """Compare what a simulation placed with the best placement of the same pods.

    Raises InputError without OR-Tools, and PluginError.
    """
    solvers.require_solvers("optimum")
    return _Search(EndState.of(simulation, result), options or OptimumOptions()).run()


class _Search:
    """The search for one end of a simulation."""

    def __init__(self, state: EndState, options: OptimumOptions) -> None:
        self._state = state
        self._cost_model: CostModel = COST_MODELS[options.cost_model]()
        self._packing = PackingOptions(limit=options.limit, seed=options.seed)

    def run(self) -> Gap:
        state = self._state
        scheduler = state.scheduler()
        relaxed = formulate(scheduler.cache, scheduler.profiles, state.infos(scheduler), self._cost_model, relaxed=True)
        rounds = FlowRounds(scheduler.cache, scheduler.profiles, self._cost_model)
        placed = rounds.run_until_settled(state.infos(scheduler)).placed
        greedy, flow = dict(state.node_names), {pod.uid: name for pod, name in placed}
        candidates = {"greedy": greedy, "flow": flow}
        packing, is_bound = self._pack(relaxed, candidates.values())
        candidates["optimum"], refused = self._accepted(relaxed, packing.solution)
        if refused:
            candidates["pinned"] = self._with_interacting_pinned(relaxed.interacting)
        rank = {name: relaxed.problem.rank(relaxed.solution(placement)) for name, placement in candidates.items()}
        best = max(candidates, key=lambda name: (rank[name], name == "optimum"))
        proven = is_bound and packing.proven and rank[best][:-1] == relaxed.problem.rank(packing.solution)[:-1]
        return Gap(
            greedy=self._figures("greedy", greedy, relaxed),
            flow=self._figures("flow", flow, relaxed),
            optimum=self._figures("optimum", candidates[best], relaxed),
            found_by=best,
            cost_model=self._cost_model.name,
            pods=len(state.pods),
            bound=max(packing.bounds.values(), default=0) if is_bound else len(state.pods),
            proven=proven,
            cost_proven=proven and packing.cost_proven and rank[best][-1] == -relaxed.problem.cost(packing.solution),
            unmodelled=dict(state.unmodelled),
            ineligible=dict(state.ineligible),
            refused=refused,
            moves=tuple(
                Move(
                    f"{pod.metadata.namespace}/{pod.metadata.name}", greedy.get(uid, ""), candidates[best].get(uid, "")
                )
                for uid, pod in state.pods.items()
                if greedy.get(uid) != candidates[best].get(uid)
            ),
        )

    # -- candidates ------------------------------------------------------------------------------------------------

    def _pack(self, formulation: Formulation, starts: Iterable[Placement]) -> tuple[Packing, bool]:
        """The packing that starts from the best of some placements, and whether its bounds hold for every placement.

        They do not where a placement that exists is not allowed: then a filter accepts more pods on fuller nodes.
        """
        problem = formulation.problem
        solutions = [formulation.solution(placement) for placement in starts]
        allowed = [solution for solution in solutions if problem.allows(solution)]
        start = max(allowed, key=problem.rank, default=np.zeros(problem.feasible.shape, np.int64))
        return pack(problem, start, self._packing), len(allowed) == len(solutions)

    def _accepted(self, formulation: Formulation, solution: NDArray[np.int64]) -> tuple[Placement, tuple[Move, ...]]:
        """What the engine makes of a solution, and what it refuses; about those pods it decides itself."""
        scheduler = self._state.scheduler()
        engine = EnginePlacement(scheduler.cache, scheduler.profiles)
        by_uid = {pod.uid: pod for pod in self._state.infos(scheduler)}
        assignments = formulation.assignments(solution, self._state.node_names)
        refused = engine.place_all((by_uid[pod.uid], name) for pod, name in assignments)
        moves = (Move(pod.key, self._state.node_names.get(pod.uid, ""), name) for pod, name in refused)
        return self._completed(scheduler, engine), tuple(moves)

    def _with_interacting_pinned(self, interacting: frozenset[str]) -> Placement:
        """The packing of the pods without constraints between nodes; the others stay where they are, if anywhere."""
        state = self._state
        pinned = {uid: name for uid, name in state.node_names.items() if uid in interacting}
        scheduler = state.scheduler(pinned)
        engine = EnginePlacement(scheduler.cache, scheduler.profiles)
        pods = state.infos(scheduler, [uid for uid in state.pods if uid not in interacting])
        formulation = formulate(scheduler.cache, scheduler.profiles, pods, self._cost_model)
        packing, _ = self._pack(formulation, [state.node_names])
        engine.place_all(formulation.assignments(packing.solution, state.node_names))
        return self._completed(scheduler, engine)

    def _completed(self, scheduler: OfflineScheduler, engine: EnginePlacement) -> Placement:
        """The placement in a scheduler's cluster, after the engine has placed what still fits somewhere."""
        pods = self._state.infos(scheduler)
        for pod in sorted(pods, key=lambda pod: -pod.priority):
            if scheduler.cache.placed_pod(pod.uid) is None:
                engine.place_anywhere(pod)
        placed = ((pod.uid, scheduler.cache.placed_pod(pod.uid)) for pod in pods)
        return {uid: found.node_name for uid, found in placed if found is not None}

    # -- figures -----------------------------------------------------------------------------------------------------

    def _figures(self, name: str, placement: Placement, formulation: Formulation) -> Figures:
        cache = self._state.scheduler(placement).cache
        nodes = cache.all_nodes()
        utilisation = {}
        for resource in sorted(cache.nodes.allocatable):
            total = exact_sum(nodes.allocatable(resource))
            utilisation[resource] = exact_sum(nodes.requested(resource)) / total if total else 0.0
        return Figures(
            name=name,
            placed=len(placement),
            pending=len(self._state.pods) - len(placement),
            cost=formulation.problem.cost(formulation.solution(placement)),
            nodes_used=int((nodes.pod_count > 0).sum()),
            utilisation=utilisation,
        )
