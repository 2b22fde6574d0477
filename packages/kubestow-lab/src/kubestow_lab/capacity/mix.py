"""How many instances of several templates fit together, if need be as gangs and by preemption.

The templates take turns (``round-robin``), or each is placed until no further instance fits before the next one begins
(``sequence``). A template of which no instance fits any more drops out; the estimate ends with the last. Pending pods
of the cluster are placed first and do not count. With ``preemption``, an instance may evict pods of the cluster, and
instances of other templates, that have a lower priority; those do not come back.

With ``gang_size``, as many instances are placed together or not at all, one after another as the scheduler places the
members of a group. With preemption, an incomplete gang evicts nothing. Topology constraints of groups do not count.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from kubestow import config, gc_tuning
from kubestow.cluster.pods.shapes import PodInfo
from kubestow.engine.input.cluster_objects import ClusterObjects
from kubestow.engine.pipeline.pod_placer import PlacementResult, Placer, PreemptedPod
from kubestow.errors import InputError
from kubestow.framework.profile import Registry
from kubestow.framework.status import SUCCESS, Status
from kubestow.reports.text import short_repr
from kubestow_lab.capacity.estimate import Capacity, CapacityOptions, StopReason, instances, limit_reached
from kubestow_lab.capacity.pod_template import PodTemplate

#: The orders of templates.
ORDERS = ("round-robin", "sequence")


@dataclass(frozen=True, slots=True)
class MixOptions:
    """The rules of several templates; see the module. ``common.max_limit`` is that of all instances together."""

    common: CapacityOptions = field(default_factory=CapacityOptions)
    order: str = "round-robin"
    preemption: bool = False
    gang_size: int = 1

    def __post_init__(self) -> None:
        if self.order not in ORDERS:
            raise InputError("order", f"expected {' or '.join(ORDERS)}, got {self.order!r}")
        if self.gang_size < 1:
            raise InputError("gang size", f"expected 1 or more, got {self.gang_size}")


@dataclass(frozen=True, slots=True, repr=False)
class CapacityMix:
    """The capacity for each template, in the order in which they were given, and what was evicted for it.

    ``evictions`` are of pods of the cluster; an evicted instance is missing from the capacity of its template.
    """

    capacities: tuple[Capacity, ...]
    evictions: tuple[PreemptedPod, ...]
    options: MixOptions
    #: The capacity of the template that dropped out last.
    last: Capacity

    @property
    def replicas(self) -> int:
        """The number of placements."""
        return sum(capacity.replicas for capacity in self.capacities)

    def __repr__(self) -> str:
        """The number of placements of each template."""
        placed = (f"{capacity.replicas:,} of {capacity.template.name}" for capacity in self.capacities)
        return short_repr("CapacityMix", ", ".join(placed))


def estimate_mix(
    cluster: ClusterObjects,
    templates: Sequence[PodTemplate],
    configuration: config.KubeSchedulerConfiguration,
    *,
    registry: Registry,
    gates: config.FeatureGates | None = None,
    options: MixOptions | None = None,
) -> CapacityMix:
    """Place instances of templates on a cluster until none fits any more.

    Raises ConfigurationError, PluginError, and InputError for templates of the same namespace and name, and for one
    with a priority class that is not known.
    """
    options = options or MixOptions()
    keys = [(template.pod.metadata.namespace, template.name) for template in templates]
    for index, key in enumerate(keys):
        if key in keys[:index]:
            raise InputError("templates", f"two templates have the name {'/'.join(key)}, expected different names")
    templates = [template.with_priority(cluster.admission) for template in templates]
    with gc_tuning.paused():
        placer = options.common.placer(cluster, configuration, registry, gates or config.FeatureGates())
        return _Mix(placer, templates, options).run()


class _Mix:
    """The instances of several templates while they are placed."""

    def __init__(self, placer: Placer, templates: Sequence[PodTemplate], options: MixOptions) -> None:
        self._placer, self._templates, self._options = placer, templates, options
        self._instances: list[Iterator[PodInfo]] = [instances(placer.cache, template) for template in templates]
        #: The node of each placed instance by uid, for each template.
        self._placed: list[dict[str, str]] = [{} for _ in templates]
        self._evictions: dict[str, PreemptedPod] = {}

    def run(self) -> CapacityMix:
        placer, limit = self._placer, self._options.common.max_limit
        for info in placer.pending:
            placer.place(info)
        reasons: dict[int, StopReason] = {}
        waiting = deque(range(len(self._templates)))
        while waiting:
            if limit and sum(map(len, self._placed)) + self._options.gang_size > limit:
                reasons |= dict.fromkeys(waiting, limit_reached(limit))
                break
            status = self._place_gang(waiting[0])
            if not status.ok:
                reasons[waiting.popleft()] = StopReason("Unschedulable", status.message)
            elif self._options.order == "round-robin":
                waiting.rotate(-1)
        capacities = tuple(
            Capacity(template, limit, reasons[index], list(self._placed[index].values()))
            for index, template in enumerate(self._templates)
        )
        return CapacityMix(capacities, tuple(self._evictions.values()), self._options, capacities[list(reasons)[-1]])

    def _place_gang(self, index: int) -> Status:
        """Place the instances of a gang, or none of them; the status says why one does not fit."""
        placements: list[PlacementResult] = []
        for _ in range(self._options.gang_size):
            placement = self._placer.place(next(self._instances[index]), preempt=self._options.preemption)
            if isinstance(placement, Status):
                for placed in reversed(placements):
                    self._placer.undo(placed)
                return placement
            placements.append(placement)
        for placement in placements:
            self._count(index, placement)
        return SUCCESS

    def _count(self, index: int, placement: PlacementResult) -> None:
        for eviction in placement.evictions:
            uid = eviction.pod.uid
            counted = next((placed for placed in self._placed if uid in placed), None)
            if counted is None:
                self._evictions[uid] = eviction
            else:
                del counted[uid]
        self._placed[index][placement.pod.uid] = placement.node_name
