"""Flavor assignment: the flavor for each resource of each pod set of a Workload, and whether it fits now.

The flavors of a resource group are tried in order. One is usable if the pods tolerate its taints and its labels match
their node selector and affinity. For each resource the quota then says how the flavor could be had: it fits (perhaps
by borrowing), after preemption, or not at all. Which flavors are tried after one that needs borrowing or preemption is
what ``flavorFungibility`` says. An attempt ends at the first flavor that is good enough, and the next attempt goes on
behind it. (Source: Kueue ``pkg/scheduler/flavorassigner``.)
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum

import msgspec

from kubestow.api.core import NodeSelectorTerm, PodSpec
from kubestow.errors import InvalidSelector
from kubestow.rules.matching import NO_EXECUTE, NO_SCHEDULE, label_requirement, required_terms, untolerated
from kubestow_contrib.kueue.admission_state import ClusterQueueNode
from kubestow_contrib.kueue.objects import (
    NEVER,
    PREEMPTION_OVER_BORROWING,
    TRY_NEXT_FLAVOR,
    FlavorFungibility,
    PodSet,
    ResourceFlavor,
)
from kubestow_contrib.kueue.quota_tree import Amounts, FlavorResource, Quantities, lowest_fitting_height
from kubestow_contrib.kueue.topology import (
    DomainUsage,
    Placement,
    PlacementRequest,
    TopologyAssignment,
    TopologyUsage,
    Values,
)
from kubestow_contrib.kueue.workload_info import FlavorScan, PodSetRequests, WorkloadInfo, pod_requests

PODS = "pods"


class Mode(IntEnum):
    """Whether an assignment can be admitted, the best last.

    ``PREEMPT``: within the quotas, but not available. ``DEFERRED_FIT``: once preemptions in progress are complete.
    """

    NO_FIT = 0
    PREEMPT = 1
    DEFERRED_FIT = 2
    FIT = 3


class Preemption(IntEnum):
    """How an amount of one flavor can be had, the best last.

    ``NO_CANDIDATES``: within the quotas, but no Workloads can be preempted for it. ``PREEMPT``: by preempting Workloads
    of the ClusterQueue, too. ``RECLAIM``: by preempting only those of others.
    """

    NO_FIT = 0
    NO_CANDIDATES = 1
    PREEMPT = 2
    RECLAIM = 3
    FIT = 4

    @property
    def mode(self) -> Mode:
        """What it means for the assignment."""
        return {Preemption.NO_FIT: Mode.NO_FIT, Preemption.FIT: Mode.FIT}.get(self, Mode.PREEMPT)


#: Says how an amount could be had by preemption, and how far the ClusterQueue borrows after it (a height).
PreemptionOracle = Callable[[WorkloadInfo, FlavorResource, int], tuple[Preemption, int]]


@dataclass(frozen=True, slots=True)
class Shortage:
    """Why a flavor cannot be had now for a resource.

    ``missing`` is how much more would have to be available, ``most`` what the ClusterQueue could ever get.
    ``is_preemptible`` says whether preemption is considered for it.
    """

    flavor: str
    resource: str
    wanted: int
    missing: int
    most: int
    is_preemptible: bool = False

    @property
    def quota_reason(self) -> str:
        """The reason in the condition ``QuotaReserved``; "" if preemption is considered."""
        if self.wanted > self.most:
            return "ExceedsMaxQuota"
        return "" if self.is_preemptible else "WaitingForQuota"


@dataclass(frozen=True, slots=True)
class Mismatch:
    """Why a flavor is not for the pods of a pod set at all: ``problem`` completes "flavor NAME …"."""

    flavor: str
    problem: str

    @property
    def quota_reason(self) -> str:
        """The reason in the condition ``QuotaReserved``."""
        return "NoMatchingFlavor"


@dataclass(frozen=True, slots=True)
class Uncovered:
    """A resource that no resource group of the ClusterQueue covers."""

    resource: str

    @property
    def quota_reason(self) -> str:
        """The reason in the condition ``QuotaReserved``."""
        return "NoMatchingFlavor"


@dataclass(frozen=True, slots=True)
class Unplaceable:
    """Why the pods of a flavor cannot be placed in its topology: ``problem`` is a clause."""

    flavor: str
    problem: str

    @property
    def quota_reason(self) -> str:
        """The reason in the condition ``QuotaReserved``."""
        return "TopologyPlacementFailed"


#: The reasons of the condition ``QuotaReserved``, the least severe first.
_BY_SEVERITY = ("", "TopologyPlacementFailed", "WaitingForQuota", "ExceedsMaxQuota", "NoMatchingFlavor")

Reason = Shortage | Mismatch | Uncovered | Unplaceable


@dataclass(frozen=True, slots=True)
class FlavorAttempt:
    """A flavor that was tried for a resource group: how it could be had, how far by borrowing, and what is missing.

    ``group`` is the index of the resource group.
    """

    group: int
    flavor: str
    preemption: Preemption
    borrowing: int
    reasons: tuple[Reason, ...] = ()


@dataclass(slots=True)
class FlavorAssignment:
    """The flavor of one resource. ``tried`` is the index of the last flavor that was tried, -1 for the last of all."""

    name: str
    mode: Mode
    borrowing: int = 0
    tried: int = 0


@dataclass(slots=True)
class PodSetAssignment:
    """The flavors of a pod set by resource; none, and reasons, if it does not fit.

    ``topology`` has the domains of its pods. ``is_ambiguous`` if its flavors do not have one topology.
    """

    name: str
    count: int
    requests: Amounts
    flavors: dict[str, FlavorAssignment] = field(default_factory=dict)
    reasons: tuple[Reason, ...] = ()
    attempts: tuple[FlavorAttempt, ...] = ()
    topology: TopologyAssignment | None = None
    is_ambiguous: bool = False

    @property
    def mode(self) -> Mode:
        """The worst mode of its flavors."""
        if self.is_ambiguous:
            return Mode.NO_FIT
        if not self.reasons:
            return Mode.FIT
        return min((one.mode for one in self.flavors.values()), default=Mode.NO_FIT)


@dataclass(slots=True)
class Assignment:
    """The flavors of all pod sets of a Workload, up to the first one that cannot have any.

    ``borrowing`` is how far the ClusterQueue borrows: the height of a cohort, 0 if it does not. ``usage`` is what the
    Workload would use, ``scan`` how far flavors were tried.
    """

    pod_sets: list[PodSetAssignment]
    usage: Quantities
    scan: FlavorScan
    borrowing: int = 0
    forced_mode: Mode | None = None

    @property
    def mode(self) -> Mode:
        """The worst mode of all pod sets."""
        if not self.pod_sets:
            return Mode.NO_FIT
        return min(one.mode for one in self.pod_sets) if self.forced_mode is None else self.forced_mode

    def set_mode(self, names: Iterable[str], mode: Mode) -> None:
        """Set the mode of all flavors of some pod sets, and thereby that of the assignment."""
        for pod_set in self.pod_sets:
            if pod_set.name in names:
                self.forced_mode = mode
                for flavor in pod_set.flavors.values():
                    flavor.mode = mode

    def topology_usage(self, info: WorkloadInfo, flavors: Collection[str]) -> TopologyUsage:
        """What it uses of the domains of ``flavors``, those with a topology. Raises InvalidQuantity."""
        used: TopologyUsage = {}
        specs = {one.name: one for one in info.workload.spec.pod_sets}
        for pod_set in self.pod_sets:
            if pod_set.topology is None:
                continue
            of_one = pod_requests(specs[pod_set.name])
            for name in {flavor.name for flavor in pod_set.flavors.values()} & set(flavors):
                domains = used.setdefault(name, [])
                domains += [DomainUsage(one.values, of_one, one.count) for one in pod_set.topology.domains]
        return used

    @property
    def reasons(self) -> tuple[Reason, ...]:
        """Why it does not fit now."""
        return tuple(dict.fromkeys(reason for one in self.pod_sets for reason in one.reasons))

    @property
    def quota_reason(self) -> str:
        """Why nothing fits, as the condition ``QuotaReserved`` says it: the most severe of what all groups lack.

        Of the flavors of one group, the least severe counts, and of the resources of a flavor the most severe.
        """
        found = [""]
        for pod_set in self.pod_sets:
            if pod_set.mode is not Mode.NO_FIT:
                continue
            of_groups: dict[int, list[str]] = {}
            for attempt in pod_set.attempts:
                if attempt.preemption is Preemption.NO_FIT:
                    why = _most_severe(reason.quota_reason for reason in attempt.reasons)
                    of_groups.setdefault(attempt.group, []).append(why)
            found += [min(reasons, key=_BY_SEVERITY.index) for reasons in of_groups.values()]
            found += [] if pod_set.attempts else ["NoMatchingFlavor"]
        return _most_severe(found)

    def needing_preemption(self) -> set[FlavorResource]:
        """What is not available without preemption."""
        return {
            FlavorResource(flavor.name, resource)
            for pod_set in self.pod_sets
            for resource, flavor in pod_set.flavors.items()
            if flavor.mode is Mode.PREEMPT
        }

    def total_requests(self, info: WorkloadInfo) -> Quantities:
        """What the Workload uses with this assignment."""
        usage: Quantities = {}
        for requested, assigned in zip(info.pod_sets, self.pod_sets, strict=False):
            for resource, total in requested.scaled_to(assigned.count).requests.items():
                flavor = assigned.flavors.get(resource)
                if total and flavor is not None:
                    fr = FlavorResource(flavor.name, resource)
                    usage[fr] = usage.get(fr, 0) + total
        return usage

    def nomination(self) -> dict[str, dict[str, str]]:
        """The flavors by pod set and resource."""
        return {one.name: {name: flavor.name for name, flavor in one.flavors.items()} for one in self.pod_sets}


@dataclass(slots=True)
class FlavorAssigner:
    """Assigns flavors to the Workloads of a ClusterQueue.

    ``is_fair`` says whether fair sharing is enabled. ``cycle`` is the number of the admission cycle.
    """

    queue: ClusterQueueNode
    flavors: Mapping[str, ResourceFlavor]
    oracle: PreemptionOracle
    is_fair: bool = False
    cycle: int = 0

    def assign(self, info: WorkloadInfo, counts: Sequence[int] | None = None) -> Assignment:
        """The flavors for a Workload, of whose pod sets ``counts`` pods are wanted, or all."""
        requested = [one.scaled_to(one.count if counts is None else counts[i]) for i, one in enumerate(info.pod_sets)]
        if self.queue.group_of(PODS) is not None:
            for one in requested:
                one.requests[PODS] = one.count
        assignment = Assignment([], {}, FlavorScan((), self.queue.generation, self.cycle, info.shape))
        tried: list[Mapping[str, int]] = []
        failed = False
        for indexes in _pod_set_groups(info):
            assigned = self._assign_together(info, [requested[i] for i in indexes], indexes, assignment.usage)
            for pod_set in assigned:
                assignment.pod_sets.append(pod_set)
                for resource, flavor in pod_set.flavors.items():
                    assignment.borrowing = max(assignment.borrowing, flavor.borrowing)
                    fr = FlavorResource(flavor.name, resource)
                    assignment.usage[fr] = assignment.usage.get(fr, 0) + pod_set.requests.get(resource, 0)
                tried.append({resource: flavor.tried for resource, flavor in pod_set.flavors.items()})
                failed |= bool(pod_set.requests) and not pod_set.flavors
            if failed:
                break
        scan = assignment.scan
        assignment.scan = FlavorScan(tuple(tried), scan.generation, scan.cycle, scan.shape)
        if self.queue.topologies and not failed and assignment.mode is not Mode.NO_FIT:
            self._place(info, assignment)
        return assignment

    def _place(self, info: WorkloadInfo, assignment: Assignment) -> None:
        """Find the domains of all pods that are placed by topology; they may need preemption, too, or never fit."""
        requests = placement_requests(info, assignment, self.queue)
        if assignment.mode is Mode.FIT:
            placed = place_all(self.queue, requests)
            failure = next(((name, one.failure) for name, one in placed.items() if one.failure), None)
            if failure is None:
                for pod_set in assignment.pod_sets:
                    if pod_set.name in placed:
                        pod_set.topology = placed[pod_set.name].assignment
            else:
                _add_failure(assignment, *failure)
                assignment.set_mode([failure[0]], Mode.PREEMPT)
        if assignment.mode is Mode.PREEMPT:
            placed = place_all(self.queue, requests, empty=True)
            failure = next(((name, one.failure) for name, one in placed.items() if one.failure), None)
            if failure is None:
                names = [one.pod_set.name for of_flavor in requests.values() for one in of_flavor]
                assignment.set_mode(names, Mode.PREEMPT)
            else:
                _add_failure(assignment, *failure, never=True)
                assignment.set_mode([failure[0]], Mode.NO_FIT)

    def _assign_together(
        self, info: WorkloadInfo, requested: Sequence[PodSetRequests], indexes: Sequence[int], used: Quantities
    ) -> list[PodSetAssignment]:
        """The assignments of pod sets that get the same flavors, with what earlier ones of the Workload use."""
        total: Amounts = {}
        for one in requested:
            for resource, wanted in one.requests.items():
                total[resource] = total.get(resource, 0) + wanted
        flavors: dict[str, FlavorAssignment] = {}
        reasons: list[Reason] = []
        attempts: list[FlavorAttempt] = []
        for resource in sorted(total):
            if resource in flavors:
                continue
            group = self.queue.group_of(resource)
            if group is None:
                if not total[resource]:
                    continue
                flavors, reasons = {}, [Uncovered(resource)]
                break
            best, why, tried = self._flavor_for(info, indexes, total, resource, group, used)
            attempts += tried
            if not best:
                flavors, reasons = {}, list(why)
                break
            flavors |= best
            reasons += why
        return [
            PodSetAssignment(
                one.name,
                one.count,
                one.requests,
                {name: flavor for name, flavor in flavors.items() if name in one.requests},
                tuple(reasons),
                tuple(attempts),
            )
            for one in requested
        ]

    def _flavor_for(
        self,
        info: WorkloadInfo,
        indexes: Sequence[int],
        total: Amounts,
        resource: str,
        group_index: int,
        used: Quantities,
    ) -> tuple[dict[str, FlavorAssignment], list[Reason], list[FlavorAttempt]]:
        """The best flavor for all wanted resources of a group, why it does not fit now, and what was tried."""
        group, fungibility = self.queue.groups[group_index], self.queue.fungibility
        wanted = {name: total[name] for name in sorted(total) if name in group.covered_resources}
        pods = [info.workload.spec.pod_sets[i] for i in indexes]
        nominated = None
        if info.nomination is not None:
            nominated = {info.nomination.get(one.name, {}).get(resource) for one in pods}
        best: dict[str, FlavorAssignment] = {}
        best_quality = (Preemption.NO_FIT, 0)
        reasons: list[Reason] = []
        attempts = []
        last = len(group.flavors) - 1
        index = -1
        first = 0 if info.scan is None else info.scan.next_index(indexes[0], resource)
        for index in range(first, len(group.flavors)):
            name = group.flavors[index].name
            if nominated is not None and name not in nominated:
                continue
            mismatch = self._mismatch(name, pods, group.covered_resources)
            if mismatch is not None:
                reasons.append(mismatch)
                attempts.append(FlavorAttempt(group_index, name, Preemption.NO_FIT, 0, (mismatch,)))
                continue
            found: dict[str, FlavorAssignment] = {}
            quality, borrowing, missing = (Preemption.FIT, 0), 0, list[Reason]()
            for covered, amount in wanted.items():
                fr = FlavorResource(name, covered)
                one, height, shortage = self._how(info, fr, used.get(fr, 0) + amount)
                missing += [] if shortage is None else [shortage]
                borrowing = max(borrowing, height)
                if _is_preferred(quality, (one, height), fungibility):
                    quality = one, height
                found[covered] = FlavorAssignment(name, one.mode, height)
            reasons += missing
            attempts.append(FlavorAttempt(group_index, name, quality[0], borrowing, tuple(missing)))
            if quality[0] is Preemption.NO_FIT:
                continue
            if not _tries_next(quality, fungibility):
                best, best_quality = found, quality
                break
            if _is_preferred(quality, best_quality, fungibility):
                best, best_quality = found, quality
        for assigned in best.values():
            assigned.tried = -1 if index == last else index
        return best, ([] if best_quality[0] is Preemption.FIT else reasons), attempts

    def _mismatch(self, name: str, pod_sets: Iterable[PodSet], covered: Collection[str]) -> Mismatch | None:
        """Why pods cannot run on nodes of a flavor, by its topology, taints and labels."""
        flavor = self.flavors.get(name)
        if flavor is None:
            return Mismatch(name, "does not exist")
        labels = flavor.spec.node_labels
        for pod_set in pod_sets:
            if problem := self._topology_problem(flavor, pod_set, covered):
                return Mismatch(name, problem)
            spec = pod_set.template.spec
            tolerations = (*spec.tolerations, *flavor.spec.tolerations)
            taints = untolerated(
                flavor.spec.node_taints, tolerations, effects=(NO_SCHEDULE, NO_EXECUTE), comparisons=True
            )
            if taints:
                value = f"={taints[0].value}" if taints[0].value else ""
                return Mismatch(name, f"has the taint {taints[0].key}{value}:{taints[0].effect}")
            if not _selects_flavor(spec, labels):
                return Mismatch(name, "does not match the node selector or affinity")
        return None

    def _topology_problem(self, flavor: ResourceFlavor, pod_set: PodSet, covered: Collection[str]) -> str:
        """Why a flavor is not for pods by the topology that one of them has; "" if it is."""
        request = pod_set.topology_request
        if request is None or not request.is_explicit:
            with_topology = flavor.spec.topology_name is not None and not self.queue.is_topology_only
            return "is only for topology-aware scheduling" if with_topology else ""
        if flavor.spec.topology_name is None:
            requested = any(resource in covered for resource in pod_requests(pod_set))
            return "has no topology" if requested else ""
        topology = self.queue.topologies.get(flavor.metadata.name)
        if topology is None:
            return "has a topology that does not exist"
        return "" if topology.has_levels(request) else "does not have the requested level of topology"

    def _how(self, info: WorkloadInfo, fr: FlavorResource, wanted: int) -> tuple[Preemption, int, Shortage | None]:
        """How an amount of a flavor can be had, how far by borrowing, and what is missing."""
        queue = self.queue
        available, most = queue.usable(fr), queue.potential_available(fr)
        if wanted > most:
            return Preemption.NO_FIT, 0, Shortage(*fr, wanted, wanted - available, most)
        height, may_reclaim = lowest_fitting_height(queue, fr, wanted)
        if wanted <= available:
            return Preemption.FIT, height, None
        missing = wanted - available
        policy = queue.preemption
        while_borrowing = policy.may_borrow or (self.is_fair and policy.reclaim_within_cohort != NEVER)
        if queue.quota(fr).nominal >= wanted or may_reclaim or while_borrowing:
            return *self.oracle(info, fr, wanted), Shortage(*fr, wanted, missing, most, is_preemptible=True)
        return Preemption.NO_FIT, height, Shortage(*fr, wanted, missing, most)


def _most_severe(reasons: Iterable[str]) -> str:
    return max(reasons, key=_BY_SEVERITY.index, default="")


def placement_requests(
    info: WorkloadInfo, assignment: Assignment, queue: ClusterQueueNode
) -> dict[str, list[PlacementRequest]]:
    """The pods to place by topology, by flavor; pod sets whose flavors have several topologies are marked so."""
    found: dict[str, list[PlacementRequest]] = {}
    specs = {one.name: one for one in info.workload.spec.pod_sets}
    for assigned in assignment.pod_sets:
        spec = specs[assigned.name]
        is_explicit = spec.topology_request is not None and spec.topology_request.is_explicit
        if not (is_explicit or queue.is_topology_only) or not assigned.count or assigned.topology is not None:
            continue
        names = sorted({flavor.name for flavor in assigned.flavors.values()} & set(queue.topologies))
        if len(names) != 1:
            assigned.is_ambiguous = True
            assigned.reasons += (Unplaceable(", ".join(names), "one flavor with a topology is needed"),)
            continue
        if names[0] in queue.provisioned and not info.has_quota:
            continue  # the nodes do not exist before the check is ready
        request = PlacementRequest(spec, assigned.count, pod_requests(spec), is_implied=not is_explicit)
        found.setdefault(names[0], []).append(request)
    return found


def place_all(
    queue: ClusterQueueNode, requests: Mapping[str, Sequence[PlacementRequest]], *, empty: bool = False
) -> dict[str, Placement]:
    """Where the pods of all flavors go, by pod set; ``empty`` ignores what Workloads use."""
    placed: dict[str, Placement] = {}
    on_hosts: dict[Values, Amounts] = {}
    for name in sorted(requests):
        topology = queue.topologies[name]
        placed |= topology.place(requests[name], on_hosts if topology.by_host else None, empty=empty)
    return placed


def _add_failure(assignment: Assignment, name: str, failure: str, *, never: bool = False) -> None:
    """Say of a pod set that it cannot be placed, if ``never``, not even where nothing else runs."""
    for pod_set in assignment.pod_sets:
        if pod_set.name == name:
            flavor = next(iter(pod_set.flavors.values()), None)
            reason = Unplaceable("" if flavor is None else flavor.name, failure)
            pod_set.reasons += (reason,)
            if never:
                pod_set.attempts = tuple(
                    FlavorAttempt(one.group, one.flavor, Preemption.NO_FIT, one.borrowing, (reason,))
                    if one.flavor == reason.flavor
                    else one
                    for one in pod_set.attempts
                )


def _pod_set_groups(info: WorkloadInfo) -> list[list[int]]:
    """The indexes of the pod sets that get the same flavors: those of one group name, each other one alone."""
    groups: dict[object, list[int]] = {}
    for index, pod_set in enumerate(info.workload.spec.pod_sets):
        request = pod_set.topology_request
        name: object = request.pod_set_group_name if request is not None else None
        groups.setdefault(index if name is None else name, []).append(index)
    return list(groups.values())


def _is_preferred(one: tuple[Preemption, int], other: tuple[Preemption, int], policy: FlavorFungibility) -> bool:
    """Whether one way to have a flavor is better than another."""
    if one[0] is Preemption.NO_FIT or other[0] is Preemption.NO_FIT:
        return one[0] is not Preemption.NO_FIT
    hopeless = one[0] is Preemption.NO_CANDIDATES, other[0] is Preemption.NO_CANDIDATES
    if hopeless[0] != hopeless[1]:
        return hopeless[1]
    if policy.preference == PREEMPTION_OVER_BORROWING:
        return (one[1], -one[0]) < (other[1], -other[0])
    return (-one[0], one[1]) < (-other[0], other[1])


def _tries_next(quality: tuple[Preemption, int], policy: FlavorFungibility) -> bool:
    """Whether further flavors are tried after one that can be had this way."""
    preemption, height = quality
    if preemption in (Preemption.NO_FIT, Preemption.NO_CANDIDATES):
        return True
    if preemption is not Preemption.FIT and policy.when_can_preempt == TRY_NEXT_FLAVOR:
        return True
    return height > 0 and policy.when_can_borrow == TRY_NEXT_FLAVOR


def _selects_flavor(spec: PodSpec, labels: Mapping[str, str]) -> bool:
    """Whether pods may run on nodes with a flavor's labels; what they say about other labels does not count."""
    if any(labels[key] != value for key, value in spec.node_selector.items() if key in labels):
        return False
    terms = required_terms(spec)
    if terms is None:
        return True
    known: list[NodeSelectorTerm] = []
    for term in terms:
        expressions = [one for one in term.match_expressions if one.key in labels]
        if not expressions:
            return True  # terms are ORed, so one about other labels only may match on any flavor
        known.append(msgspec.structs.replace(term, match_expressions=expressions, match_fields=[]))
    return not known or any(_matches(term, labels) for term in known)


def _matches(term: NodeSelectorTerm, labels: Mapping[str, str]) -> bool:
    try:
        requirements = [
            label_requirement(one, f"matchExpressions[{n}]") for n, one in enumerate(term.match_expressions)
        ]
    except InvalidSelector:
        return False
    return all(one.matches(labels) for one in requirements)
