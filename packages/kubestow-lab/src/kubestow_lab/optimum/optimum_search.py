"""The search for the best placement that the engine accepts, and a bound for any.

First without the constraints between nodes, which gives a bound for every placement. The engine then places the pods
where the solution has them, and decides itself about those that it refuses there. Where it refused any, a second search
keeps the pods with such constraints on the nodes that the scheduler gave them. The best of these placements, of the
rounds of min-cost flow, and of what the scheduler did is the result; so it is never worse than the last.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kubestow.engine.pipeline.offline_scheduler import OfflineScheduler
from kubestow_lab.flow import solvers
from kubestow_lab.flow.cost_models import COST_MODELS, CostModel
from kubestow_lab.flow.engine_placement import EnginePlacement
from kubestow_lab.flow.equivalence import Formulation, formulate
from kubestow_lab.flow.packing import Packing, PackingOptions, pack
from kubestow_lab.flow.rounds import FlowRounds
from kubestow_lab.optimum.end_state import EndState
from kubestow_lab.simulation.gap import Figures, Gap, Move
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
        greedy, flow = dict(state.node_names), self._flow()
        candidates = {"greedy": greedy, "flow": flow}
        packing, is_bound = self._pack(relaxed, candidates.values())
        candidates["optimum"], refused = self._accepted(relaxed, packing.solution)
        if refused:
            candidates["pinned"] = self._with_interacting_pinned(relaxed.interacting)
        rank = {name: relaxed.problem.rank(relaxed.solution(placement)) for name, placement in candidates.items()}
        best = max(candidates, key=lambda name: (rank[name], name == "optimum"))
        proven = is_bound and packing.proven and rank[best][:-1] == self._counts(relaxed, packing)
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
            moves=tuple(self._moves(greedy, candidates[best])),
        )

    @staticmethod
    def _counts(formulation: Formulation, packing: Packing) -> tuple[int, ...]:
        problem = formulation.problem
        return tuple(problem.placed(packing.solution, priority) for priority in problem.priorities)

    # -- candidates ------------------------------------------------------------------------------------------------

    def _flow(self) -> Placement:
        """What rounds of min-cost flow place."""
        scheduler = self._state.scheduler()
        rounds = FlowRounds(scheduler.cache, scheduler.profiles, self._cost_model)
        return {pod.uid: name for pod, name in rounds.run_until_settled(self._state.infos(scheduler)).placed}

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
            total = int(nodes.allocatable(resource).sum())
            utilisation[resource] = int(nodes.requested(resource).sum()) / total if total else 0.0
        return Figures(
            name=name,
            placed=len(placement),
            pending=len(self._state.pods) - len(placement),
            cost=formulation.problem.cost(formulation.solution(placement)),
            nodes_used=int((nodes.pod_count > 0).sum()),
            utilisation=utilisation,
        )

    def _moves(self, before: Mapping[str, str], after: Mapping[str, str]) -> Iterable[Move]:
        """The pods that are on another node, or on none, in the order of arrival."""
        for uid, pod in self._state.pods.items():
            source, target = before.get(uid, ""), after.get(uid, "")
            if source != target:
                yield Move(f"{pod.metadata.namespace}/{pod.metadata.name}", source, target)
