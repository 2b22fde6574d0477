"""Explaining a pod of a cluster: decide about it, evaluate all nodes, and search for changes that would help."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass

from kubestow import gc_tuning
from kubestow.api.core import Pod
from kubestow.api.resource import ResourceClaim
from kubestow.api.storage import PersistentVolumeClaim
from kubestow.cluster.nodes.views import Nodes
from kubestow.cluster.pods.shapes import PodInfo
from kubestow.engine.explanation.counterfactuals import Counterfactual, CounterfactualSearch
from kubestow.engine.explanation.evaluated_nodes import evaluate_nodes
from kubestow.engine.explanation.explanation import Explanation, Preemption
from kubestow.engine.explanation.plain_words import larger_than_any_node
from kubestow.engine.input.cluster_objects import ClusterObjects
from kubestow.engine.pipeline.offline_scheduler import (
    OfflineScheduler,
    SchedulerOptions,
    extenders_text,
    find_pod,
    similar,
    unbound,
)
from kubestow.errors import InputError, KubestowError
from kubestow.rules.pods import condition_of
from kubestow.scheduling.decision.result import Decision, Unschedulable

POD_SCHEDULED = "PodScheduled"
"""The condition in which a scheduler writes about a pod."""
_SCHEDULER_ERROR = "SchedulerError"


@dataclass(frozen=True, slots=True)
class PodsExplanation:
    """Pods that wait for the same reason: the explanation of the first, and what would help how many of them.

    ``helpful`` are the counterfactuals of the first pod, each with the number of pods that fit beside each other with
    it: the highest number first, and of equal ones the smallest change.
    """

    first: Explanation
    helpful: tuple[tuple[Counterfactual, int], ...]


def explain(
    cluster: ClusterObjects,
    pod: str,
    options: SchedulerOptions | None = None,
    *,
    target: str | None = None,
    counterfactuals: bool = True,
) -> Explanation:
    """Explain the pod ``namespace/name`` of a cluster; of a bound pod as if it was not there.

    Counterfactuals are searched for if the pod fits nowhere, or with a ``target`` if it does not fit there. Raises
    InputError for an unknown pod, node or profile, ConfigurationError, PluginError, and KubestowError with the message
    of the scheduler where a plugin returns an error.
    """
    with gc_tuning.paused():
        found = find_pod(cluster, pod)
        scheduler = OfflineScheduler(cluster, options or SchedulerOptions(), without=found)
        if target is not None and target not in scheduler.cache.nodes.rows:
            raise InputError(f"node {target}", "no such node" + similar(target, scheduler.cache.nodes.names))
        return explain_with(scheduler, found, target, counterfactuals=counterfactuals)


def explain_pods(cluster: ClusterObjects, pods: Sequence[str], options: SchedulerOptions) -> PodsExplanation:
    """Explain pending pods ``namespace/name`` of one profile, of which there has to be one. Raises as :func:`explain`.

    The counterfactuals are those of the first pod. A change of its requests takes as much off those of the others.
    """
    with gc_tuning.paused():
        first, *others = (find_pod(cluster, pod) for pod in pods)
        scheduler = OfflineScheduler(cluster, options, without=first)
        found = explain_with(scheduler, first)
        return PodsExplanation(found, helpful_counterfactuals(scheduler, found, [first, *others]))


def helpful_counterfactuals(
    scheduler: OfflineScheduler, found: Explanation, pods: Sequence[Pod]
) -> tuple[tuple[Counterfactual, int], ...]:
    """The counterfactuals of the first of some pods, each with the number of pods that fit beside each other with it.

    The highest number comes first, and of equal ones the smallest change. A change of the first pod's requests takes as
    much off those of the others. Raises PluginError.
    """
    infos = [scheduler.cache.shapes.info(pod) for pod in pods]
    search = CounterfactualSearch(scheduler, scheduler.profile(pods[0]), infos[0], found.evaluated)
    helpful = [(each, search.count_helped(each.change, infos)) for each in found.counterfactuals]
    return tuple(sorted(helpful, key=lambda pair: (-pair[1], pair[0].change.size)))


def explain_pending(cluster: ClusterObjects, pods: Iterable[Pod], options: SchedulerOptions) -> list[Explanation]:
    """Explain pending pods of a cluster without counterfactuals; much faster than one by one.

    Left out are pods that are nominated for a node, whose profile does not exist, or for which a plugin fails. Raises
    ConfigurationError, and PluginError when a plugin cannot be constructed.
    """
    with gc_tuning.paused():
        waiting = [pod for pod in pods if not (pod.spec.node_name or pod.status.nominated_node_name)]
        if not waiting:
            return []
        scheduler = OfflineScheduler(cluster, options, without=waiting[0])
        explained = []
        for pod in waiting:
            with suppress(KubestowError):
                explained.append(explain_with(scheduler, pod, counterfactuals=False))
        return explained


def explain_with(
    scheduler: OfflineScheduler, found: Pod, target: str | None = None, *, counterfactuals: bool = True
) -> Explanation:
    """Explain a pod as :func:`explain` does, with a scheduler whose cache does not hold it. Raises the same."""
    profile = scheduler.profile(found)
    info = scheduler.cache.shapes.info(unbound(found))
    scheduler.cache.observe_pod(info)
    gate = profile.queueing.run_pre_enqueue_plugins(info)
    decision = _decide(scheduler, found, info)
    evaluated, feasibility = evaluate_nodes(scheduler.cache, profile, info)
    changes: tuple[Counterfactual, ...] = ()
    fits = evaluated.feasible.any() if target is None else evaluated.feasible[evaluated.positions[target]]
    searched = counterfactuals and not (fits and gate.ok)
    if searched:
        preempts = target is None and isinstance(decision, Unschedulable) and _preemption(decision) is None
        search = CounterfactualSearch(scheduler, profile, info, evaluated, target=target, may_preempt=preempts)
        changes = search.run(feasibility)
        if isinstance(decision, Unschedulable) and target is None:
            changes = (*search.budgets(decision), *changes)
    return Explanation(
        pod=info.key,
        profile=profile.scheduler_name,
        bound_to=found.spec.node_name,
        evaluated=evaluated,
        message=decision.message,
        reported=reported(found, decision.message),
        gate="" if gate.ok else f"{gate.plugin}: {gate.message}",
        preemption=_preemption(decision),
        counterfactuals=tuple(sorted(changes, key=lambda found: found.change.size)),
        target=target,
        searched=searched,
        missing=() if fits else tuple(_missing(scheduler, info)),
        remarks=tuple(_remarks(scheduler, found)),
    )


def _decide(scheduler: OfflineScheduler, found: Pod, info: PodInfo) -> Decision:
    """The scheduler's decision: for a pending pod with its nomination, for a bound pod as if it was new."""
    if found.spec.node_name or not found.status.nominated_node_name:
        return scheduler.pipeline.decide_by_plugins(info)
    pending = scheduler.cache.shapes.info(found)
    scheduler.cache.nominate(pending, found.status.nominated_node_name)
    return scheduler.pipeline.decide_by_plugins(pending)


def reported(pod: Pod, computed: str = "") -> str:
    """What a pending pod itself says about its scheduling where that is not what is ``computed``; empty for nothing.

    That is the scheduler's last message, in the PodScheduled condition, or that there is none.
    """
    if pod.spec.node_name or pod.metadata.creation_timestamp is None:  # bound, or a manifest
        return ""
    condition = condition_of(pod.status, POD_SCHEDULED)
    if condition is None:
        scheduler = pod.spec.scheduler_name
        return f"no attempt is reported yet: {scheduler} does not run, has not come to the pod, or waits to bind it"
    if condition.message == computed or not condition.message:
        return ""
    failed = " after an error" if condition.reason == _SCHEDULER_ERROR else ""
    return f"the scheduler's last message{failed}: {condition.message}"


def _missing(scheduler: OfflineScheduler, info: PodInfo) -> Iterator[str]:
    """What the pod needs and the cluster does not have: claims, and nodes with so much of a resource."""
    cache = scheduler.cache
    for volume in info.spec.volumes:
        source = volume.persistent_volume_claim
        if source is not None and cache.catalog(PersistentVolumeClaim).get(info.namespace, source.claim_name) is None:
            yield f"the PersistentVolumeClaim {info.namespace}/{source.claim_name} would have to exist"
    for claim in info.spec.resource_claims:
        name = claim.resource_claim_name
        if name is not None and cache.catalog(ResourceClaim).get(info.namespace, name) is None:
            yield f"the ResourceClaim {info.namespace}/{name} would have to exist"
    nodes = cache.all_nodes()
    if len(nodes):
        yield from larger_than_any_node(info.shape.requests, largest_allocatable(nodes))


def largest_allocatable(nodes: Nodes) -> Callable[[str], int]:
    """The largest allocatable amount of a resource by its name (millicores, bytes or counts) among some nodes."""
    return lambda resource: int(nodes.allocatable(resource).max(initial=0))


def _preemption(decision: Decision) -> Preemption | None:
    nomination = decision.post_filter.nominating_result if isinstance(decision, Unschedulable) else None
    if nomination is None or not nomination.nominated_node_name:
        return None
    victims = tuple(victim.key for victim in nomination.victims)
    return Preemption(nomination.nominated_node_name, victims, nomination.violations)


def _remarks(scheduler: OfflineScheduler, pod: Pod) -> Sequence[str]:
    remarks = list(scheduler.absent)
    if scheduler.extenders:
        remarks.append(extenders_text(scheduler.extenders))
    if scheduler.profile(pod).samples_nodes:
        remarks.append("the profile scores a sample of the feasible nodes only; here all of them are scored")
    if pod.status.nominated_node_name and not pod.spec.node_name:
        remarks.append(f"the pod is nominated for {pod.status.nominated_node_name}, which the scheduler tries first")
    if pod.spec.scheduling_group is not None:
        remarks.append("the pod belongs to a pod group, whose pods are scheduled together; here it is explained alone")
    if pod.metadata.deletion_timestamp is not None:
        remarks.append("the pod is being deleted, so the scheduler does not attempt it")
    return remarks
