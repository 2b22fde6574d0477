"""CP-SAT as a fallback of the default scheduler (Christensen, Giallorenzo and Mauro, arXiv 2511.08373).

Pods of several priorities arrive in random order at a cluster of equal nodes that their requests nearly fill or
overfill. Where the default scheduler leaves any pending, CP-SAT searches for a placement that is better priority by
priority, and may move running pods for it. The paper's instances are not at hand, so these are drawn here; with other
instances its shares are a measure of size, no number to reproduce.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from itertools import product
from pathlib import Path
from random import Random
from typing import NamedTuple

from kubestow.api.core import Node, Pod
from kubestow.api.meta import convert
from kubestow.engine.input.cluster_objects import ClusterObjects
from kubestow.engine.placement import solvers
from kubestow.version import VERSION
from kubestow_lab.metrics.intervals import Estimate, estimate
from kubestow_lab.optimum import OptimumOptions, find_optimum
from kubestow_lab.papers.measured_runs import measure_runs
from kubestow_lab.simulation.arrivals import Arrival, Arrivals
from kubestow_lab.simulation.outcomes import OutcomeState
from kubestow_lab.simulation.simulation import Simulation, SimulationOptions

WINDOWS = {"1 s": 1.0, "10 s": 10.0}
"""The limits of each search in the solver's deterministic seconds, by workload."""
BETTER, OPTIMAL = "better placement", "default proven optimal"
NODES, PODS_PER_NODE, PRIORITIES, USAGES = (4, 8), (4, 8), (1, 2, 4), (0.9, 0.95, 1.0, 1.05)


class Scenario(NamedTuple):
    """Equal nodes, pods of some priorities, and the share of both resources that the pods request."""

    nodes: int
    pods: int
    priorities: int
    usage: float
    seed: int

    def objects(self) -> tuple[ClusterObjects, Arrivals]:
        """The cluster, and the pods in their order of arrival."""
        random = Random(str(self))
        requests = [(random.randrange(100, 1001), random.randrange(100, 1001)) for _ in range(self.pods)]
        cpu, memory = (round(sum(column) / self.usage / self.nodes) for column in zip(*requests, strict=True))
        amounts = {"cpu": f"{cpu}m", "memory": f"{memory}Mi", "pods": "110"}
        nodes = [_node(f"node-{number}", amounts) for number in range(self.nodes)]
        pods = [
            _pod(f"pod-{number}", f"{requested[0]}m", f"{requested[1]}Mi", random.randrange(self.priorities))
            for number, requested in enumerate(requests)
        ]
        return ClusterObjects(nodes=nodes), Arrivals([Arrival(pod, 0.0, None, {}) for pod in pods])


def scenarios(seed: int) -> Iterator[Scenario]:
    """The scenarios of a seed: one of each kind."""
    for nodes, pods, priorities, usage in product(NODES, PODS_PER_NODE, PRIORITIES, USAGES):
        yield Scenario(nodes, nodes * pods, priorities, usage, seed)


def published() -> dict[tuple[str, str], float]:
    """The shares of the abstract in percent, each of which it gives as "over"."""
    return {("1 s", BETTER): 44.0, ("1 s", OPTIMAL): 19.0, ("10 s", BETTER): 73.0, ("10 s", OPTIMAL): 19.0}


def measure(
    data: Path,
    workloads: Sequence[str],
    seeds: Sequence[int],
    folder: Path,
    processes: int | None,
    progress: Callable[[int, int], None],
) -> dict[tuple[str, str], Estimate]:
    """The shares in percent of the scenarios in which the default scheduler leaves pods pending.

    Raises InputError without OR-Tools.
    """
    solvers.require_solvers("cp-sat")
    runs = {f"{VERSION}.{WINDOWS[window]:g}s.{seed}": (window, seed) for window in workloads for seed in seeds}
    found = measure_runs(runs, shares_of, folder, processes, progress)
    shares: dict[tuple[str, int], list[float]] = {runs[name]: result for name, result in found.items()}
    return {
        (window, name): estimate([shares[window, seed][column] for seed in seeds])
        for window in workloads
        for column, name in enumerate((BETTER, OPTIMAL))
    }


def shares_of(window: str, seed: int) -> tuple[float, float]:
    """The shares in percent of better placements and of proven ones, of the scenarios with pending pods."""
    verdicts = [verdict for each in scenarios(seed) if (verdict := verdict_of(each, WINDOWS[window]))]
    better, optimal = (100 * verdicts.count(name) / max(len(verdicts), 1) for name in (BETTER, OPTIMAL))
    return better, optimal


def verdict_of(scenario: Scenario, limit: float) -> str:
    """What CP-SAT finds: better, that the default scheduler's placement is optimal, or "-" for neither.

    "" if the default scheduler leaves no pod pending.
    """
    cluster, arrivals = scenario.objects()
    simulation = Simulation(cluster, arrivals, options=SimulationOptions(seed=scenario.seed))
    result = simulation.run()
    if all(outcome.state is not OutcomeState.PENDING for outcome in result.outcomes):
        return ""
    gap = find_optimum(simulation, result, OptimumOptions(limit=limit))
    priorities = {arrival.pod.key: arrival.pod.spec.priority or 0 for arrival in arrivals.pods}
    more = Counter(priorities[move.pod] for move in gap.newly_placed)
    more.subtract(priorities[move.pod] for move in gap.displaced)
    decisive = [count for _, count in sorted(more.items(), reverse=True) if count]
    if decisive and decisive[0] > 0:
        return BETTER
    return OPTIMAL if gap.proven else "-"


def _node(name: str, amounts: dict[str, str]) -> Node:
    ready = [{"type": "Ready", "status": "True"}]
    status = {"capacity": amounts, "allocatable": amounts, "conditions": ready}
    return convert(Node, {"metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}}, "status": status})


def _pod(name: str, cpu: str, memory: str, priority: int) -> Pod:
    container = {"name": "main", "image": "none", "resources": {"requests": {"cpu": cpu, "memory": memory}}}
    spec = {"containers": [container], "priority": priority, "schedulerName": "default-scheduler"}
    return convert(Pod, {"metadata": {"name": name, "namespace": "default", "uid": name}, "spec": spec})
