"""A cluster that pods are placed in one after another, by the decision pipeline alone: no queue and no virtual time."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

import msgspec

from kubestow import config
from kubestow.api.core import Pod
from kubestow.api.storage import PersistentVolume, PersistentVolumeClaim
from kubestow.cluster.cache import Cluster as ClusterCache
from kubestow.cluster.pods.shapes import PodInfo
from kubestow.engine.cluster_api.object_writes import VersionedStore
from kubestow.engine.cluster_api.volume_controller import bind_reserved_volumes
from kubestow.engine.input.cluster_objects import ClusterObjects
from kubestow.engine.pipeline.offline_scheduler import is_attempted, put_objects
from kubestow.engine.pipeline.static_handle import DEFAULT_TIME, StaticHandle
from kubestow.framework.cycle_state import CycleState
from kubestow.framework.profile import Profile, Registry, build_profile
from kubestow.framework.status import Status
from kubestow.scheduling.decision.node_selection import RandomTie, TieBreak
from kubestow.scheduling.decision.pipeline import DecisionPipeline
from kubestow.scheduling.decision.result import Scheduled, Unschedulable

#: The first profile decides about all pods; cluster-capacity calls it default-scheduler.
SCHEDULER_NAME = "default-scheduler"


@dataclass(frozen=True, slots=True)
class PreemptedPod:
    """A pod that was evicted from its node for a pod of higher priority."""

    pod: PodInfo
    node_name: str
    preemptor: PodInfo


@dataclass(frozen=True, slots=True)
class PlacementResult:
    """A pod on the node that was chosen for it, and what had to be evicted before."""

    pod: PodInfo
    node_name: str
    state: CycleState
    evictions: tuple[PreemptedPod, ...] = ()


class Placer:
    """A copy of a cluster, and the first profile of a configuration, which decides about all pods.

    ``excluded_nodes`` do not exist. ``kinds`` are the kinds of objects that are copied beside nodes and pods, None for
    all. Pending are the pods of the default scheduler and of the configuration's profiles that a scheduler attempts.
    Raises ConfigurationError, PluginError, and InputError for a custom resource that cannot be decoded.
    """

    def __init__(
        self,
        cluster: ClusterObjects,
        configuration: config.KubeSchedulerConfiguration,
        registry: Registry,
        gates: config.FeatureGates,
        *,
        seed: int = 0,
        ties: TieBreak | None = None,
        excluded_nodes: frozenset[str] = frozenset(),
        kinds: frozenset[str] | None = None,
    ) -> None:
        self.cache = ClusterCache(gates=gates)
        configured = msgspec.structs.replace(configuration.profiles[0], scheduler_name=SCHEDULER_NAME)
        self.profile: Profile = build_profile(
            configured,
            registry,
            StaticHandle(self.cache, gates, cluster.time(DEFAULT_TIME)),
            percentage_of_nodes_to_score=configuration.percentage_of_nodes_to_score,
        )
        self.ties = ties or RandomTie(Random(seed))
        self._pipeline = DecisionPipeline(self.cache, {SCHEDULER_NAME: self.profile}, self.ties)
        put_objects(self.cache, cluster, (self.profile,), excluded_nodes=excluded_nodes, kinds=kinds)
        names = {SCHEDULER_NAME, *(profile.scheduler_name for profile in configuration.profiles)}
        #: The pending pods of the cluster, in the order of the queue.
        self.pending: list[PodInfo] = []
        for pod in cluster.pods:
            if pod.spec.node_name:
                self.cache.put_pod(self.cache.shapes.info(pod))
            elif pod.spec.scheduler_name in names and is_attempted(pod):
                self.pending.append(self.info(pod))
        self.pending.sort(key=lambda info: -info.priority)

    def info(self, pod: Pod) -> PodInfo:
        """A pod, whatever its scheduler is, as one that the first profile decides about."""
        if pod.spec.scheduler_name != SCHEDULER_NAME:
            spec = msgspec.structs.replace(pod.spec, scheduler_name=SCHEDULER_NAME)
            pod = msgspec.structs.replace(pod, spec=spec)
        return self.cache.shapes.info(pod)

    def place(self, info: PodInfo, *, preempt: bool = False) -> PlacementResult | Status:
        """Place a pod on the node that the profile chooses, with its volumes; the status says why it fits on none.

        With ``preempt``, pods that the profile's PostFilter plugins choose are evicted first.
        """
        decision = self._pipeline.decide_by_plugins(info)
        evictions: tuple[PreemptedPod, ...] = ()
        if preempt and isinstance(decision, Unschedulable) and decision.post_filter.has_nominated:
            nomination = decision.post_filter.nominating_result
            assert nomination is not None
            node_name = nomination.nominated_node_name or ""
            evictions = tuple(PreemptedPod(victim, node_name, info) for victim in nomination.victims)
            for eviction in evictions:
                self.cache.remove_pod(eviction.pod.uid)
            decision = self._pipeline.decide_by_plugins(info)
        if not isinstance(decision, Scheduled):
            self._restore(evictions)
            return Status.unschedulable(decision.message)
        return self.place_on(decision.node_name, info, decision.state, evictions)

    def place_on(
        self, node_name: str, info: PodInfo, state: CycleState, evictions: tuple[PreemptedPod, ...] = ()
    ) -> PlacementResult | Status:
        """Place a pod on a node that passed the filters of its cycle, with its volumes, unless Reserve rejects it."""
        self.cache.assume(info, node_name)
        placement = PlacementResult(info, node_name, state, evictions)
        status = self.profile.binding.run_reserve_plugins(state, info, node_name)
        if not status.ok:
            self.undo(placement)
            return status
        if info.spec.volumes:
            bind_assumed_volumes(self.cache)
        return placement

    def undo(self, placement: PlacementResult) -> None:
        """Take a pod off its node and put back what was evicted for it. Volumes that were bound stay bound."""
        info = placement.pod
        self.profile.binding.run_unreserve_plugins(placement.state, info, placement.node_name)
        self.cache.forget(info.uid)
        self._restore(placement.evictions)

    def _restore(self, evictions: tuple[PreemptedPod, ...]) -> None:
        for eviction in evictions:
            self.cache.put_pod(eviction.pod.on(eviction.node_name))


def bind_assumed_volumes(cache: ClusterCache) -> None:
    """Confirm the volumes and claims that Reserve assumed, as the volume controller would."""
    volumes, claims = cache.catalog(PersistentVolume), cache.catalog(PersistentVolumeClaim)
    for volume in volumes.assumed():
        volumes.restore("", volume.metadata.name)
        volumes.put(volume)
    for claim in claims.assumed():
        claims.restore(claim.metadata.namespace, claim.metadata.name)
        claims.put(claim)
    bind_reserved_volumes(VersionedStore(volumes), VersionedStore(claims))
