"""A Workload as admission sees it: what its pod sets request, its priority and age, and what it has.

Requests of a Workload with quota are what its admission says; those of a pending one are what its pods request.
(Source: Kueue ``pkg/workload/workload.go``.)
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property, lru_cache

import msgspec

from kubestow_contrib.kueue.objects import (
    ADMITTED,
    EVICTED,
    QUOTA_RESERVED,
    Admission,
    AssignedDomain,
    Condition,
    PodSet,
    PodSetAssignment,
    TopologyAssignmentStatus,
    Workload,
    amount,
)
from kubestow_contrib.kueue.quota_tree import Amounts, FlavorResource, Quantities
from kubestow_contrib.kueue.topology import (
    DomainAssignment,
    DomainUsage,
    TopologyAssignment,
    TopologyUsage,
    whole_pod_requests,
)


@dataclass(slots=True)
class PodSetRequests:
    """What ``count`` pods of a pod set request in total, and the flavor of each resource that has one.

    ``topology`` has their domains; pods that were assigned to some are not scaled.
    """

    name: str
    count: int
    requests: Amounts
    flavors: Mapping[str, str] = field(default_factory=dict)
    topology: TopologyAssignment | None = None

    def scaled_to(self, count: int) -> PodSetRequests:
        """The same for another number of pods."""
        if count == self.count or not self.count or self.topology is not None:
            return PodSetRequests(self.name, self.count, dict(self.requests), self.flavors, self.topology)
        requests = {name: total // self.count * count for name, total in self.requests.items()}
        return PodSetRequests(self.name, count, requests, self.flavors)


@dataclass(frozen=True, slots=True)
class FlavorScan:
    """How far the flavors were tried for a Workload, in one ``cycle`` and for one ``generation`` of its ClusterQueue.

    ``tried`` has, for each pod set, the index of the last flavor that was tried for each resource; -1 if that was the
    last one of all, so that the next attempt begins anew. ``shape`` is the Workload's when they were tried.
    """

    tried: tuple[Mapping[str, int], ...]
    generation: int
    cycle: int
    shape: object

    @property
    def is_unfinished(self) -> bool:
        """Whether flavors are left to try."""
        return any(index != -1 for tried in self.tried for index in tried.values())

    def next_index(self, pod_set: int, resource: str) -> int:
        """The index of the flavor to try next."""
        return self.tried[pod_set].get(resource, -1) + 1 if pod_set < len(self.tried) else 0

    def is_outdated(self, generation: int, cycle: int, shape: object) -> bool:
        """Whether flavors have to be tried from the first one: another shape, or another state two cycles later."""
        if self.shape != shape:
            return True
        return cycle - self.cycle > 1 and generation > self.generation


@dataclass(eq=False)
class WorkloadInfo:
    """A Workload in the ClusterQueue ``cluster_queue``, which is that of its admission or of its LocalQueue.

    ``nomination`` has the flavors of each pod set and resource that a second attempt in one cycle may use; None for
    any. ``local_queue_usage`` is the decayed usage of its LocalQueue by weight where admission fair sharing reads it.
    """

    workload: Workload
    cluster_queue: str = ""
    pod_sets: list[PodSetRequests] = field(default_factory=list)
    scan: FlavorScan | None = None
    nomination: Mapping[str, Mapping[str, str]] | None = None
    local_queue_usage: float | None = None

    @classmethod
    def of(cls, workload: Workload, cluster_queue: str = "") -> WorkloadInfo:
        """The Workload with its requests. Raises InvalidQuantity."""
        admission = workload.status.admission
        if admission is None:
            return cls(workload, cluster_queue, pending_requests(workload))
        return cls(workload, admission.cluster_queue, admitted_requests(workload))

    @property
    def key(self) -> str:
        """Namespace and name."""
        return f"{self.workload.metadata.namespace}/{self.workload.metadata.name}"

    @property
    def uid(self) -> str:
        """The uid of the Workload."""
        return self.workload.metadata.uid

    @property
    def local_queue(self) -> tuple[str, str]:
        """Namespace and name of the LocalQueue."""
        return self.workload.metadata.namespace, self.workload.spec.queue_name

    @property
    def priority(self) -> int:
        """The priority, 0 if none is set."""
        return self.workload.spec.priority or 0

    @property
    def queued_at(self) -> float:
        """The time by which Workloads of one priority are ordered: creation, or eviction by a check or a timeout."""
        evicted = self.workload.condition(EVICTED)
        if evicted is not None and evicted.reason in ("PodsReadyTimeout", "AdmissionCheck"):
            return seconds_of(evicted.last_transition_time)
        return seconds_of(self.workload.metadata.creation_timestamp)

    @property
    def has_quota(self) -> bool:
        """Whether quota is reserved for it."""
        return self.workload.is_in(QUOTA_RESERVED)

    @property
    def is_evicted(self) -> bool:
        """Whether it is being evicted."""
        return self.workload.is_in(EVICTED)

    def quota_reserved_at(self, now: float) -> float:
        """When quota was reserved for it, in seconds; now if none is."""
        reserved = self.workload.condition(QUOTA_RESERVED)
        return now if reserved is None else seconds_of(reserved.last_transition_time)

    def usage(self) -> Quantities:
        """What it uses of its ClusterQueue: all requests that have a flavor."""
        used: Quantities = {}
        for pod_set in self.pod_sets:
            for resource, total in pod_set.requests.items():
                if flavor := pod_set.flavors.get(resource):
                    fr = FlavorResource(flavor, resource)
                    used[fr] = used.get(fr, 0) + total
        return used

    def topology_usage(self) -> TopologyUsage:
        """What it uses of domains of nodes. Raises InvalidQuantity."""
        used: TopologyUsage = {}
        specs = {one.name: one for one in self.workload.spec.pod_sets}
        for pod_set in self.pod_sets:
            if pod_set.topology is None or pod_set.name not in specs:
                continue
            of_one = pod_requests(specs[pod_set.name])
            for flavor in dict.fromkeys(pod_set.flavors.values()):
                domains = used.setdefault(flavor, [])
                domains += [DomainUsage(one.values, of_one, one.count) for one in pod_set.topology.domains]
        return used

    def uses_any(self, frs: set[FlavorResource]) -> bool:
        """Whether it has a flavor of some pairs of flavor and resource."""
        return any((flavor, resource) in frs for one in self.pod_sets for resource, flavor in one.flavors.items())

    @property
    def may_be_reduced(self) -> bool:
        """Whether fewer pods than its pod sets have may be admitted."""
        return any(one.min_count is not None and one.min_count < one.count for one in self.workload.spec.pod_sets)

    @cached_property
    def shape(self) -> object:
        """What is equal for Workloads without quota about which admission decides alike."""
        sets = tuple(
            (
                spec.name,
                msgspec.json.encode(spec.template.spec),
                one.count,
                tuple(sorted(one.requests.items())),
                spec.min_count,
                msgspec.json.encode(spec.topology_request),
            )
            for spec, one in zip(self.workload.spec.pod_sets, self.pod_sets, strict=False)
        )
        return self.priority, sets


def pending_requests(workload: Workload) -> list[PodSetRequests]:
    """What the pods of a Workload request that has no quota. Raises InvalidQuantity."""
    counts = _counts_after_reclaim(workload)
    found = []
    for pod_set in workload.spec.pod_sets:
        count = counts[pod_set.name]
        of_one = pod_requests(pod_set)
        found.append(PodSetRequests(pod_set.name, count, {name: max(0, of_one[name]) * count for name in of_one}))
    return found


def pod_requests(pod_set: PodSet) -> Amounts:
    """What one pod requests. Raises InvalidQuantity."""
    return whole_pod_requests(pod_set.template.spec)


def admitted_requests(workload: Workload) -> list[PodSetRequests]:
    """What was admitted of a Workload, less what its reclaimable pods had. Raises InvalidQuantity."""
    admission = workload.status.admission
    assert admission is not None
    after_reclaim = _counts_after_reclaim(workload)
    total = {one.name: one.count for one in workload.spec.pod_sets}
    found = []
    for assigned in admission.pod_set_assignments:
        count = total.get(assigned.name, 0) if assigned.count is None else assigned.count
        requests = {name: amount(name, used) for name, used in assigned.resource_usage.items()}
        left = after_reclaim.get(assigned.name, count)
        if left < count:
            requests = {name: total // count * left for name, total in requests.items()}
            count = left
        found.append(PodSetRequests(assigned.name, count, requests, assigned.flavors, _topology_of(assigned)))
    return found


def _topology_of(assigned: PodSetAssignment) -> TopologyAssignment | None:
    status = assigned.topology_assignment
    if status is None:
        return None
    domains = (DomainAssignment(tuple(one.values), one.count) for one in status.all_domains())
    return TopologyAssignment(tuple(status.levels), tuple(domains))


def _counts_after_reclaim(workload: Workload) -> dict[str, int]:
    reclaimable = {one.name: one.count for one in workload.status.reclaimable_pods}
    return {one.name: max(0, one.count - reclaimable.get(one.name, 0)) for one in workload.spec.pod_sets}


@lru_cache(maxsize=65536)
def seconds_of(text: str | None) -> float:
    """A time in seconds since the epoch; before all others if it is not given or invalid."""
    if not text:
        return -math.inf
    try:
        return datetime.fromisoformat(text).timestamp()
    except ValueError:
        return -math.inf


def with_quota(info: WorkloadInfo, now: float) -> Workload:
    """The Workload with the admission that its pod sets say, since a time."""
    assigned = [
        PodSetAssignment(
            name=one.name,
            flavors=dict(one.flavors),
            resource_usage={
                name: f"{total}m" if name == "cpu" else str(total)
                for name, total in one.requests.items()
                if name in one.flavors
            },
            count=one.count,
            topology_assignment=None
            if one.topology is None
            else TopologyAssignmentStatus(
                levels=list(one.topology.levels),
                domains=[
                    AssignedDomain(values=list(domain.values), count=domain.count) for domain in one.topology.domains
                ],
            ),
        )
        for one in info.pod_sets
    ]
    status = info.workload.status
    since = datetime.fromtimestamp(now, UTC).isoformat()
    others = [one for one in status.conditions if one.type not in (QUOTA_RESERVED, ADMITTED, EVICTED)]
    gained = [Condition(type=kind, status="True", last_transition_time=since) for kind in (QUOTA_RESERVED, ADMITTED)]
    admission = Admission(cluster_queue=info.cluster_queue, pod_set_assignments=assigned)
    status = msgspec.structs.replace(status, conditions=[*others, *gained], admission=admission)
    return msgspec.structs.replace(info.workload, status=status)
