"""Placing instances of a pod until one does not fit (cluster-capacity's rules).

Instances are placed one after another by the decision pipeline; pending pods of the cluster are placed too, and count.
The first instance that fits no node ends it. There is no preemption: an instance that would have to evict others does
not fit. Copies of a pod share the results of all plugins, so each further instance costs what has changed since the one
before it: one node. Where instances do not influence each other but by filling their nodes, they are placed in rounds
(:mod:`.independent_nodes`), with the same result.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

import msgspec

from kubestow import config, gc_tuning
from kubestow.api.core import Pod
from kubestow.cluster.cache import Cluster as ClusterCache
from kubestow.cluster.pods.shapes import PodInfo
from kubestow.engine.input.cluster_objects import ClusterObjects
from kubestow.engine.pipeline.pod_placer import SCHEDULER_NAME, PlacementResult, Placer
from kubestow.errors import PluginError
from kubestow.framework.profile import Registry
from kubestow.reports.text import short_repr
from kubestow.scheduling.decision.node_selection import FirstByName, RandomTie, TieBreak
from kubestow_lab.capacity.independent_nodes import are_independent, first_by_name, place_in_rounds, random_order
from kubestow_lab.capacity.pod_template import PodTemplate

#: The kinds beside nodes and pods that cluster-capacity copies into its simulation.
COPIED_KINDS = frozenset(
    {"Namespace", "Service", "PersistentVolumeClaim", "ReplicationController", "PodDisruptionBudget"}
    | {"ReplicaSet", "StatefulSet", "StorageClass"}
)


@dataclass(frozen=True, slots=True)
class CapacityOptions:
    """``max_limit`` instances are placed at most, 0 for any number. ``excluded_nodes`` do not exist.

    ``ties`` chooses among nodes of equal score; None stands for a random choice, which ``seed`` determines.
    ``kinds`` are the kinds of objects that are taken from the cluster beside nodes and pods, None for all.
    """

    max_limit: int = 0
    excluded_nodes: frozenset[str] = frozenset()
    seed: int = 0
    ties: TieBreak | None = None
    kinds: frozenset[str] | None = None

    def placer(
        self,
        cluster: ClusterObjects,
        configuration: config.KubeSchedulerConfiguration,
        registry: Registry,
        gates: config.FeatureGates,
    ) -> Placer:
        """A placer of these options. Raises ConfigurationError, PluginError and InputError."""
        return Placer(
            cluster,
            configuration,
            registry,
            gates,
            seed=self.seed,
            ties=self.ties,
            excluded_nodes=self.excluded_nodes,
            kinds=self.kinds,
        )


@dataclass(frozen=True, slots=True)
class StopReason:
    """Why no further instance was placed: ``Unschedulable`` or ``LimitReached``, and a message."""

    type: str
    message: str


@dataclass(slots=True, repr=False)
class Capacity:
    """How many instances of a template fit, and where: ``nodes`` has the node of each placement, in order."""

    template: PodTemplate
    max_limit: int
    reason: StopReason
    nodes: list[str] = field(default_factory=list)

    @property
    def replicas(self) -> int:
        """The number of placements."""
        return len(self.nodes)

    def __repr__(self) -> str:
        """The number of placements, and why there are no more."""
        return short_repr("Capacity", f"{self.replicas:,} of {self.template.name}, {self.reason.message}")

    def per_node(self) -> dict[str, int]:
        """The number of instances on each node, in the order of the first placement there."""
        return Counter(self.nodes)


def estimate(
    cluster: ClusterObjects,
    template: PodTemplate,
    configuration: config.KubeSchedulerConfiguration,
    *,
    registry: Registry,
    gates: config.FeatureGates | None = None,
    options: CapacityOptions | None = None,
) -> Capacity:
    """Place instances of a pod on a cluster until one does not fit.

    Raises ConfigurationError, PluginError, and InputError for a custom resource that cannot be decoded.
    """
    options = options or CapacityOptions()
    with gc_tuning.paused():
        placer = options.placer(cluster, configuration, registry, gates or config.FeatureGates())
        return _Estimate(placer, template, options.max_limit).run()


class _Estimate:
    """The cluster of one report, and the placements so far."""

    def __init__(self, placer: Placer, template: PodTemplate, max_limit: int) -> None:
        self._placer, self._template, self._max_limit = placer, template, max_limit
        self._placed: list[str] = []

    def run(self) -> Capacity:
        limit, placer = self._max_limit, self._placer
        reason = limit_reached(limit)
        if not limit and not placer.pending and isinstance(placer.ties, (RandomTie, FirstByName)):
            self._place_in_rounds()
        for info, is_instance in self._queue():
            placement = placer.place(info)
            if isinstance(placement, PlacementResult):
                self._placed.append(placement.node_name)
            elif is_instance:
                reason = StopReason("Unschedulable", placement.message)
                break
            if limit and len(self._placed) == limit:
                break
        return Capacity(self._template, limit, reason, self._placed)

    def _place_in_rounds(self) -> None:
        """Place instances until none fits, if they fill their nodes independently of each other."""
        placer = self._placer
        copies = instances(placer.cache, self._template)
        try:
            if not are_independent(placer.cache, placer.profile, next(copies)):
                return
            totals = place_in_rounds(placer.cache, placer.profile, copies)
        except PluginError:
            return  # the instance that is decided about next reports it
        if isinstance(placer.ties, RandomTie):
            self._placed += random_order(totals, placer.ties.random)
        else:
            self._placed += first_by_name(totals)

    def _queue(self) -> Iterator[tuple[PodInfo, bool]]:
        """The pods in the order in which the scheduler pops them, and whether each is an instance.

        The next instance is created when one has been bound, so pending pods of lower priority come after the first.
        """
        pending = self._placer.pending
        copies = instances(self._placer.cache, self._template, first=len(self._placed))
        first = next(copies)
        before = [info for info in pending if info.priority >= first.priority]
        yield from ((info, False) for info in before)
        yield first, True
        yield from ((info, False) for info in pending[len(before) :])
        yield from ((info, True) for info in copies)


def limit_reached(limit: int) -> StopReason:
    """The reason when as many instances as allowed have been placed."""
    return StopReason("LimitReached", f"Maximum number of pods simulated: {limit}")


def instances(cache: ClusterCache, template: PodTemplate, first: int = 0) -> Iterator[PodInfo]:
    """Instance after instance from number ``first`` on; they share everything but their names."""
    spec = msgspec.structs.replace(template.pod.spec, scheduler_name=SCHEDULER_NAME, node_name="")
    info = cache.shapes.info(msgspec.structs.replace(template.instance(0), spec=spec))
    prefix, uid_prefix = f"{template.name}-", f"capacity/{info.namespace}/{template.name}-"
    for index in itertools.count(first):
        metadata = msgspec.structs.replace(info.metadata, name=f"{prefix}{index}", uid=f"{uid_prefix}{index}")
        pod = Pod(metadata=metadata, spec=info.spec, status=info.status)
        yield PodInfo(pod, info.shape, info.requests, info.nonzero_requests)
