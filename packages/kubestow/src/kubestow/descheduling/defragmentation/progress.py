"""How far a plan has come on a cluster, and whether what remains of it still holds.

The cluster alone says so: a move is done when its pod is gone, so a plan can be resumed at any time. What remains holds
if the nodes that are being freed exist and have no pods that the plan does not know, and if the engine still finds
nodes for all replacements elsewhere, step by step.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby

from kubestow.api.core import Pod
from kubestow.descheduling.defragmentation.plan import DefragmentationPlan, PlannedMove, stays_with_node
from kubestow.descheduling.defragmentation.rehearsal import Rehearsal
from kubestow.engine.input.cluster_objects import ClusterObjects
from kubestow.engine.pipeline.offline_scheduler import OfflineScheduler, SchedulerOptions


@dataclass(frozen=True, slots=True)
class PlanProgress:
    """The moves that are done and those that remain; where the replacements of these would go, by move.

    ``waiting`` are pods without a node of controllers whose pods have moved. ``problem`` says why what remains does not
    hold, and is empty if it does.
    """

    done: tuple[PlannedMove, ...]
    remaining: tuple[PlannedMove, ...]
    waiting: tuple[Pod, ...] = ()
    predictions: Mapping[PlannedMove, str] = field(default_factory=dict)
    problem: str = ""

    def steps(self) -> Iterator[tuple[PlannedMove, ...]]:
        """The remaining moves of one step after the other."""
        for _, moves in groupby(self.remaining, key=lambda move: move.step):
            yield tuple(moves)


def progress_of(
    plan: DefragmentationPlan, cluster: ClusterObjects, options: SchedulerOptions, *, cordons: bool
) -> PlanProgress:
    """The progress of a plan on a cluster as it is.

    If the execution ``cordons``, replacements go to no node that is being freed or left. Otherwise the
    scheduler has to put them elsewhere of its own accord, because the nodes are cordoned already or less attractive.
    Raises ConfigurationError and PluginError.
    """
    pods = [pod for pod in cluster.pods if pod.metadata.deletion_timestamp is None]
    by_uid = {pod.metadata.uid: pod for pod in pods}
    by_key = {pod.key: pod for pod in pods}
    done: list[PlannedMove] = []
    remaining: dict[PlannedMove, Pod] = {}
    for move in plan.moves:
        pod = by_uid.get(move.uid) if move.uid else by_key.get(move.pod)
        if pod is None:
            done.append(move)
        else:
            remaining[move] = pod
    waiting = tuple(pod for pod in pods if not pod.spec.node_name and any(replaces(pod, move) for move in done))
    progress = PlanProgress(tuple(done), tuple(remaining), waiting)
    problem = _obstacle(plan, cluster, pods, remaining)
    predictions: dict[PlannedMove, str] = {}
    if not problem and remaining:
        predictions, problem = _rehearsed(plan, cluster, progress, remaining, options, cordons=cordons)
    return PlanProgress(progress.done, progress.remaining, waiting, predictions, problem)


def replaces(pod: Pod, move: PlannedMove) -> bool:
    """Whether a pod is of the controller whose pod moves."""
    controller = pod.metadata.controller
    if controller is None or pod.metadata.namespace != move.namespace:
        return False
    return f"{controller.kind}/{controller.name}" == move.controller


def _obstacle(
    plan: DefragmentationPlan, cluster: ClusterObjects, pods: Sequence[Pod], remaining: Mapping[PlannedMove, Pod]
) -> str:
    """What is on the nodes and in the plan that excludes each other; "" if nothing is."""
    names = {node.metadata.name for node in cluster.nodes}
    for name in (*plan.cordoned, *(move.source for move in remaining)):
        if name not in names:
            return f"node {name} does not exist any more"
    for move, pod in remaining.items():
        if pod.spec.node_name != move.source:
            return f"{move.pod} is on {pod.spec.node_name or 'no node'}, expected {move.source}"
    expected = {pod.metadata.uid for pod in remaining.values()}
    known = {key for key, _ in (*plan.staying, *plan.assignments)}
    freed = set(plan.cordoned)
    for pod in pods:
        is_known = pod.metadata.uid in expected or pod.key in known or stays_with_node(pod)
        if pod.spec.node_name in freed and not is_known:
            return f"{pod.key} is on {pod.spec.node_name}, which is to be free"
    return ""


def _rehearsed(
    plan: DefragmentationPlan,
    cluster: ClusterObjects,
    progress: PlanProgress,
    pods: Mapping[PlannedMove, Pod],
    options: SchedulerOptions,
    *,
    cordons: bool,
) -> tuple[dict[PlannedMove, str], str]:
    """Where the replacements go, and why the moves are not possible, if they are not."""
    scheduler = OfflineScheduler(cluster, options)
    closed = plan.cordoned if cordons else ()
    found: dict[PlannedMove, str] = {}
    with Rehearsal(scheduler.cache, scheduler.profiles, closed, closes_sources=cordons) as rehearsal:
        for step in progress.steps():
            rehearsal.begin_step(move.source for move in step)
            for move in step:
                if pods[move].spec.scheduler_name not in scheduler.profiles:
                    return found, f"no profile of the configuration has the scheduler of {move.pod}"
                target = rehearsal.move(pods[move])
                if not target:
                    return found, f"no node would take the replacement of {move.pod}"
                if target == move.source or target in plan.cordoned:
                    which = "which is to be free" if target in plan.cordoned else "which it is to leave"
                    nodes = " ".join(dict.fromkeys((*plan.cordoned, move.source)))
                    return found, (
                        f"the scheduler would put the replacement of {move.pod} on {target}, {which}; "
                        f"use --cordon, or kubectl cordon {nodes}"
                    )
                found[move] = target
    return found, ""
