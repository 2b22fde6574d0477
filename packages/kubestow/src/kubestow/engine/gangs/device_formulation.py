"""The devices for the claims of a gang, formulated for a model: which pods can get which, as the allocator sees it.

What a node has for requests of local devices is found by the allocator of DynamicResources itself, on trial: it
allocates for pods of the kinds in every order, on one node of those whose devices are in the same state, and the
largest combinations of pods that get devices are what these nodes take. Wide devices are those that suit a request, as
the allocator decides that.

What is not certain is left out, so that there is never less room than the allocator finds. That are requests for which
both sorts are suitable, alternatives, admin access, and all attributes but the first that has to match.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import msgspec
import numpy as np
from numpy.typing import NDArray

from kubestow.api.resource import (
    AllocationResult,
    DeviceConstraint,
    DeviceRequest,
    DeviceSelection,
    ExactDeviceRequest,
    ResourceClaim,
    ResourceClaimSpec,
    ResourceClaimStatus,
)
from kubestow.cluster.cache import Cluster
from kubestow.cluster.nodes.columns import MISSING
from kubestow.cluster.pods.shapes import PodInfo
from kubestow.cluster.resource_claims import DeviceID, ResourceClaimTracker
from kubestow.engine.gangs.gang_devices import (
    DeviceGroup,
    DeviceUse,
    GangDevices,
    LocalDevices,
    WideClaim,
    WideDevices,
)
from kubestow.plugins.dynamic_resources.dynamic_resources import DynamicResourcesWithoutScore
from kubestow.plugins.dynamic_resources.filtering import ClaimFilter, ClaimLookup, ClaimNotUsable
from kubestow.plugins.dynamic_resources.pools import CandidateDevice, NodeSelectionError
from kubestow.plugins.dynamic_resources.suitable_devices import DeviceLeft, SuitableDevices

Amounts = NDArray[np.int64]
Mask = NDArray[np.bool_]

#: On the nodes of a class the allocator is asked for so many sets of pods; beyond that, their devices do not limit pods
#: more than their number.
_MOST_TRIALS = 2_000

_encode = msgspec.json.Encoder(order="deterministic").encode


# -- the claims of pods ------------------------------------------------------------------------------------------------


class ClaimsOfPods:
    """The claims of pods that are placed together. A claim without an allocation that several of them use is shared."""

    def __init__(self, lookup: ClaimLookup, pods: Sequence[PodInfo]) -> None:
        self._tracker = lookup.tracker
        self._claims: dict[str, list[ResourceClaim] | None] = {}
        users: Counter[str] = Counter()
        for pod in pods:
            if not pod.spec.resource_claims:
                continue
            try:
                claims = lookup.claims_of(pod)
            except ClaimNotUsable:
                self._claims[pod.uid] = None
                continue
            self._claims[pod.uid] = claims
            users.update({claim.metadata.uid for claim in claims})
        self.shared = frozenset(uid for uid, count in users.items() if count > 1)

    def key(self, pod: PodInfo) -> Hashable:
        """Equal for pods whose claims are as good as each other's."""
        claims = self._claims.get(pod.uid, [])
        if claims is None:
            return pod.uid
        return tuple(map(self._key_of, claims))

    def _key_of(self, claim: ResourceClaim) -> Hashable:
        uid = claim.metadata.uid
        is_own = uid not in self.shared and claim.status.allocation is None
        return _encode(claim.spec) if is_own and not self._tracker.has_pending_allocation(uid) else uid


# -- what there is -----------------------------------------------------------------------------------------------------


def find_devices(
    cluster: Cluster,
    plugin: DynamicResourcesWithoutScore,
    pods: Sequence[Sequence[PodInfo]],
    shared: frozenset[str],
    passes: Sequence[Mask],
    rooms: Sequence[Amounts],
) -> GangDevices | None:
    """The devices for the ``pods`` of some kinds; None if none of them needs any.

    ``rooms`` (int64 per node, by kind) is how many pods of a kind nodes take, whatever their devices. Nodes that lack a
    resource which no devices are behind are taken out of ``passes`` (bool per node, by kind).
    """
    claims_of_kinds: list[list[_ClaimsOnNodes]] = []
    nodes = cluster.all_nodes()
    for (pod, *_), of_kind, room in zip(pods, passes, rooms, strict=True):
        found: list[_ClaimsOnNodes] = []
        state = plugin.claims_of(pod)
        for positions, claims in () if state is None else plugin.claim_filter.claims_by_node(state, pod, nodes):
            if claims is None:
                of_kind[positions] = False
            elif claims and room[positions].any():
                mask = np.zeros(len(nodes), np.bool_)
                mask[positions] = True
                found.append(_ClaimsOnNodes(mask & (room > 0), claims))
        claims_of_kinds.append(found)
    if not any(claims_of_kinds):
        return None
    try:
        return _Devices(cluster, plugin, claims_of_kinds, list(map(len, pods)), shared, rooms).of_gang()
    except NodeSelectionError:  # no node passes the filter
        return None


@dataclass(frozen=True, slots=True, eq=False)
class _ClaimsOnNodes:
    """The claims that pods of a kind need devices for on some ``nodes`` (bool per node)."""

    nodes: Mask
    claims: Sequence[ResourceClaim]


@dataclass(eq=False)
class _Spec:
    """What the devices of a cluster are for claims of one specification.

    ``local`` are the positions of the requests that devices of single nodes suit, ``wide`` those that others suit.
    ``by_class`` and ``by_reach`` have the suitable devices of each request, for the classes and the reaches of nodes.
    """

    claim: ResourceClaim
    number: int
    local: set[int] = field(default_factory=set)
    wide: set[int] = field(default_factory=set)
    #: Whether devices of single nodes consume counters that devices elsewhere consume as well.
    shares_counters: bool = False
    by_class: dict[int, list[SuitableDevices]] = field(default_factory=dict)
    by_reach: dict[int, list[SuitableDevices]] = field(default_factory=dict)
    drivers: set[str] = field(default_factory=set)

    @cached_property
    def only_local(self) -> ResourceClaim | None:
        """The claim without its wide requests; None if no other is left."""
        requests = [each for number, each in enumerate(self.claim.spec.devices.requests) if number not in self.wide]
        if not requests:
            return None
        names = {each.name for each in requests}
        devices = self.claim.spec.devices
        constraints = [each for each in devices.constraints if not each.requests or names & _names_in(each)]
        spec = ResourceClaimSpec(
            msgspec.structs.replace(devices, requests=requests, constraints=constraints, config=[])
        )
        return msgspec.structs.replace(self.claim, spec=spec)

    @property
    def can_be_split(self) -> bool:
        """Whether the allocator finds devices of single nodes and others independently of each other."""
        if self.local & self.wide or self.shares_counters:
            return False
        if not (self.local and self.wide):
            return True
        requests = self.claim.spec.devices.requests
        wide = {requests[number].name for number in self.wide}
        others = {each.name for each in requests} - wide
        return not any(
            not each.requests or (wide & _names_in(each) and others & _names_in(each))
            for each in self.claim.spec.devices.constraints
        )


def _names_in(constraint: DeviceConstraint) -> set[str]:
    """The names of the requests that a constraint is about, those of subrequests left out."""
    return {name.partition("/")[0] for name in constraint.requests}


class _Devices:
    """Finds out about the devices for the claims of kinds."""

    def __init__(
        self,
        cluster: Cluster,
        plugin: DynamicResourcesWithoutScore,
        claims: Sequence[Sequence[_ClaimsOnNodes]],
        counts: Sequence[int],
        shared: frozenset[str],
        rooms: Sequence[Amounts],
    ) -> None:
        self._tracker, self._filter = cluster.resource_claims, plugin.claim_filter
        self._claims, self._counts, self._shared, self._rooms = claims, counts, shared, rooms
        by_node = self._filter.devices_by_node()
        self._devices, self._reaches = by_node.devices, by_node.reaches
        self._entries = by_node.positions
        relevant = np.logical_or.reduce([each.nodes for of_kind in claims for each in of_kind])
        #: The class of each node: its devices are in one state, and it needs them for the same claims.
        columns = [self._filter.device_states(by_node)[by_node.positions]]
        columns += [_number_of_mask([each.nodes for each in of_kind]) for of_kind in claims if of_kind]
        table = np.where(relevant, np.array(columns, np.intp), MISSING)
        _, firsts, classes = np.unique(table, axis=1, return_index=True, return_inverse=True)
        self._class_of_node: NDArray[np.intp] = classes.reshape(-1)
        #: A node of each class on which devices matter, and of each reach.
        self._rows = {number: row for number, row in enumerate(firsts.tolist()) if relevant[row]}
        numbers, positions = np.unique(self._reaches[relevant], return_index=True)
        self._reach_rows = dict(zip(numbers.tolist(), np.flatnonzero(relevant)[positions].tolist(), strict=True))
        self._specs: dict[bytes, _Spec] = {}
        for each in (each for of_kind in claims for each in of_kind):
            for claim in each.claims:
                self._specs.setdefault(_encode(claim.spec), _Spec(claim, len(self._specs)))
        for spec in self._specs.values():
            self._find_suitable(spec)

    def _find_suitable(self, spec: _Spec) -> None:
        """Find the devices that suit claims of a specification, on a node of each class and of each reach."""
        for number, row in self._rows.items():
            spec.by_class[number] = self._suitable(spec, row)
            for position, request in enumerate(spec.by_class[number]):
                for candidate in request.candidates:
                    (spec.local if candidate.device.node_name else spec.wide).add(position)
                    if candidate.device.node_name and candidate.shares_counters_across_nodes:
                        spec.shares_counters = True
                    spec.drivers.add(candidate.device.id.driver)
        for reach, row in self._reach_rows.items():
            spec.by_reach[reach] = [
                replace(
                    request,
                    candidates=[each for each in request.candidates if not each.device.node_name],
                    is_exact=request.is_exact and position in spec.wide - spec.local,
                )
                for position, request in enumerate(self._suitable(spec, row))
            ]

    def _suitable(self, spec: _Spec, row: int) -> list[SuitableDevices]:
        return self._filter.suitable_devices(spec.claim, self._devices[self._entries[row]])

    def _spec_of(self, claim: ResourceClaim) -> _Spec:
        return self._specs[_encode(claim.spec)]

    def of_gang(self) -> GangDevices:
        """What the kinds need, and what there is."""
        every = [claim for of_kind in self._claims for each in of_kind for claim in each.claims]
        shared = {claim.metadata.uid: claim for claim in every if claim.metadata.uid in self._shared}
        specs = self._specs.values()
        free = np.zeros(int(self._class_of_node.max()) + 1, np.int64)
        for number in self._rows:
            suitable = (each for spec in specs for request in spec.by_class[number] for each in request.candidates)
            free[number] = len({each.device.id for each in suitable if each.device.node_name})
        return GangDevices(
            sorted({name for spec in specs for name in _names(spec)}),
            {kind: max(map(self._count_per_pod, of_kind)) for kind, of_kind in enumerate(self._claims) if of_kind},
            sum(map(_device_count, shared.values())),
            free[self._class_of_node],
            self._local(),
            self._wide(shared),
            [
                self._users_of(uid)
                for uid, claim in shared.items()
                if self._spec_of(claim).local - self._spec_of(claim).wide
            ],
        )

    def _count_per_pod(self, on_nodes: _ClaimsOnNodes) -> int:
        return sum(_device_count(claim) for claim in on_nodes.claims if claim.metadata.uid not in self._shared)

    def _users_of(self, uid: str) -> frozenset[int]:
        """The kinds of the pods that share a claim."""
        return frozenset(
            kind
            for kind, of_kind in enumerate(self._claims)
            if any(claim.metadata.uid == uid for each in of_kind for claim in each.claims)
        )

    # -- the devices of single nodes -----------------------------------------------------------------------------------

    def _local(self) -> LocalDevices | None:
        """What nodes have for the claims of all kinds; no more than the number of suitable devices says if it is not
        certain what the allocator finds on one node.
        """
        kinds = [kind for kind, of_kind in enumerate(self._claims) if of_kind]
        is_certain = all(spec.can_be_split for spec in self._specs.values())
        patterns = []
        for number in range(int(self._class_of_node.max()) + 1):
            most = [self._counts[kind] for kind in kinds]
            row = self._rows.get(number)
            if row is not None:
                claims = [next((each.claims for each in self._claims[kind] if each.nodes[row]), ()) for kind in kinds]
                most = [self._most(number, of_kind, count) for of_kind, count in zip(claims, most, strict=True)]
                if is_certain:
                    patterns.append(self._tried(number, row, kinds, claims, most))
                    continue
            patterns.append(np.array([most], np.int64))
        return LocalDevices(tuple(kinds), self._class_of_node, patterns)

    def _tried(
        self,
        number: int,
        row: int,
        kinds: Sequence[int],
        claims: Sequence[Sequence[ResourceClaim]],
        most: Sequence[int],
    ) -> Amounts:
        """The largest combinations of pods that get devices on a node of a class, ``most`` of each kind.

        Not more pods are tried than there is room for; where that is what limits them, devices do not.
        """
        in_class = self._class_of_node == number
        rooms = [int(self._rooms[kind][in_class].max(initial=0)) for kind in kinds]
        split = [[each for each in map(self._only_local, of_kind) if each is not None] for of_kind in claims]
        limits = np.minimum(rooms, most)
        found = _Trials(self._tracker, self._filter, split, self._shared, limits.tolist(), row).largest()
        patterns: Amounts = np.where(found == limits, most, found)
        return patterns

    def _only_local(self, claim: ResourceClaim) -> ResourceClaim | None:
        reduced = self._spec_of(claim).only_local
        return None if reduced is None else msgspec.structs.replace(reduced, metadata=claim.metadata)

    def _most(self, number: int, claims: Sequence[ResourceClaim], count: int) -> int:
        """For how many of so many pods with some claims a node of a class has enough suitable devices."""
        found = [count]
        for claim in claims:
            spec, is_shared = self._spec_of(claim), claim.metadata.uid in self._shared
            for position, request in enumerate(spec.by_class[number]):
                # Devices of several nodes for a shared claim may have been allocated on another node of theirs.
                if not request.is_exact or (is_shared and position in spec.wide):
                    continue
                # All devices of a sort are none where there are none.
                if not request.count or len(request.candidates) < (1 if request.has_shareable else request.count):
                    return 0
                if not request.has_shareable and not is_shared:
                    found.append(len(request.candidates) // request.count)
        return min(found)

    # -- the devices of several nodes ----------------------------------------------------------------------------------

    def _wide(self, shared: Mapping[str, ResourceClaim]) -> WideDevices | None:
        specs = [spec for spec in self._specs.values() if spec.wide - spec.local]
        if not specs:
            return None
        groups = _Groups(self._filter, specs)
        claims = [
            WideClaim(self._users_of(uid), True, groups.modes(self._spec_of(claim)))
            for uid, claim in shared.items()
            if self._spec_of(claim) in specs
        ]
        for kind, of_kind in enumerate(self._claims):
            if len(of_kind) == 1:  # else a node may offer what others have devices for
                own = (claim for claim in of_kind[0].claims if claim.metadata.uid not in shared)
                wide = (spec for spec in map(self._spec_of, own) if spec in specs)
                claims += [WideClaim(frozenset({kind}), False, groups.modes(spec)) for spec in wide]
        return WideDevices(self._reaches, groups.found, claims, groups.counters)


def _number_of_mask(masks: Sequence[Mask]) -> NDArray[np.intp]:
    """Which of some masks each node is in, from 1, intp per node; 0 for none."""
    numbers = np.zeros(len(masks[0]), np.intp)
    for number, mask in enumerate(masks, 1):
        numbers[mask] = number
    return numbers


class _Trials:
    """Allocates devices on trial, on one node: which pods of some kinds can be there with the devices of that node.

    ``claims`` are those of one pod of each kind, and ``limits`` how many pods of it are tried.
    """

    def __init__(
        self,
        tracker: ResourceClaimTracker,
        claim_filter: ClaimFilter,
        claims: Sequence[Sequence[ResourceClaim]],
        shared: frozenset[str],
        limits: Sequence[int],
        row: int,
    ) -> None:
        self._tracker, self._filter, self._claims, self._shared = tracker, claim_filter, claims, shared
        self._limits, self._row = limits, row
        self._trials = 0
        self._reached: set[tuple[int, ...]] = set()
        self._seen: set[Hashable] = set()
        self._allocated: dict[str, AllocationResult] = {}

    def largest(self) -> Amounts:
        """The combinations of pods, int64 (combinations, kinds), to which no pod of any kind can be added."""
        free = [0 if claims else limit for claims, limit in zip(self._claims, self._limits, strict=True)]
        if not self._explore(tuple(free)):
            return np.array([self._limits], np.int64)
        found = np.array(sorted(self._reached), np.int64)
        exceeded_by = (found[None, :, :] >= found[:, None, :]).all(axis=2).sum(axis=1)
        largest: Amounts = found[exceeded_by == 1]  # by itself alone
        return largest

    def _explore(self, counts: tuple[int, ...]) -> bool:
        """Go on from a number of pods of each kind; whether that has come to its end."""
        state = counts, frozenset(Counter(map(_what_is_used, self._allocated.items())).items())
        if state in self._seen:
            return True
        self._seen.add(state)
        self._reached.add(counts)
        for kind, (count, limit) in enumerate(zip(counts, self._limits, strict=True)):
            if count >= limit:
                continue
            self._trials += 1
            if self._trials > _MOST_TRIALS:
                return False
            allocated = self._allocate(kind, count)
            if allocated is None:
                continue
            try:
                if not self._explore((*counts[:kind], count + 1, *counts[kind + 1 :])):
                    return False
            finally:
                for uid in allocated:
                    del self._allocated[uid]
                    self._tracker.remove_pending_allocation(uid)
        return True

    def _allocate(self, kind: int, number: int) -> list[str] | None:
        """Allocate devices to one more pod of a kind; the uids of its claims, None if there are none."""
        claims = []
        for position, claim in enumerate(self._claims[kind]):
            if claim.metadata.uid not in self._shared:
                metadata = msgspec.structs.replace(claim.metadata, uid=f"{kind}/{number}/{position}")
                claims.append(msgspec.structs.replace(claim, metadata=metadata))
            elif claim.metadata.uid not in self._allocated:
                claims.append(claim)
        allocations = self._filter.allocate_on(claims, self._row) if claims else []
        if allocations is None:
            return None
        for claim, allocation in zip(claims, allocations, strict=True):
            self._allocated[claim.metadata.uid] = allocation
            status = ResourceClaimStatus(allocation=allocation)
            self._tracker.signal_pending_allocation(msgspec.structs.replace(claim, status=status))
        return [claim.metadata.uid for claim in claims]


def _what_is_used(allocated: tuple[str, AllocationResult]) -> Hashable:
    """The devices of an allocation, and what it takes of their capacity."""
    return tuple(
        (each.driver, each.pool, each.device, tuple(sorted(each.consumed_capacity.items())))
        for each in allocated[1].devices.results
    )


class _Groups:
    """The groups of the devices that suit some wide claims, and the ways to satisfy these."""

    def __init__(self, claim_filter: ClaimFilter, specs: Sequence[_Spec]) -> None:
        self.found: list[DeviceGroup] = []
        #: What is left of the counters of pools.
        self.counters: dict[Hashable, int] = {}
        self._group_of: dict[DeviceID, int] = {}
        candidates: dict[DeviceID, CandidateDevice] = {}
        reaches: dict[DeviceID, set[int]] = {}
        suited: dict[DeviceID, dict[Hashable, None]] = {}
        for spec in specs:
            for reach, requests in spec.by_reach.items():
                for position, request in enumerate(requests):
                    for candidate in request.candidates if request.is_exact else ():
                        name = candidate.device.id
                        candidates[name] = candidate
                        reaches.setdefault(name, set()).add(reach)
                        suited.setdefault(name, {})[spec.number, position, request.value(candidate)] = None
        alike: dict[tuple[frozenset[int], Hashable, Hashable], list[DeviceLeft]] = {}
        numbers: dict[Hashable, int] = {}
        for name, candidate in candidates.items():
            left = claim_filter.what_is_left(candidate)
            key = frozenset(reaches[name]), frozenset(suited[name]), left.key
            alike.setdefault(key, []).append(left)
            self._group_of[name] = numbers.setdefault(key, len(numbers))
        for (of_reaches, *_), members in alike.items():
            first = members[0]
            capacity: Counter[str] | None = None
            if first.capacity is not None:
                capacity = Counter()
                for each in members:
                    capacity.update(each.capacity or {})
            self.found.append(DeviceGroup(len(members), of_reaches, capacity, first.consumes))
            self.counters |= first.counters

    def modes(self, spec: _Spec) -> dict[int, list[list[DeviceUse]]]:
        """The ways to satisfy a claim, by reach: one for each value of the attribute that has to match."""
        return {reach: list(self._modes(requests)) for reach, requests in spec.by_reach.items()}

    def _modes(self, requests: Sequence[SuitableDevices]) -> Iterator[list[DeviceUse]]:
        exact = [(number, request) for number, request in enumerate(requests) if request.is_exact]
        constrained = [request for _, request in exact if request.attribute]
        values = {request.value(each) for request in constrained for each in request.candidates}
        for value in sorted(values, key=repr) if constrained else [None]:
            uses = [
                DeviceUse(
                    number,
                    request.count,
                    {
                        self._group_of[each.device.id]: request.consumed(each)
                        for each in request.candidates
                        if not request.attribute or request.value(each) == value
                    },
                )
                for number, request in exact
            ]
            if all(use.groups for use in uses):
                yield uses


def _selections(request: DeviceRequest) -> Sequence[DeviceSelection]:
    """The alternatives of a request, or what it asks for exactly."""
    return request.first_available or [request.exactly or ExactDeviceRequest()]


def _names(spec: _Spec) -> Iterator[str]:
    """The device classes that a claim requests devices of, with the drivers of those that suit it."""
    of_drivers = f" (driver {', '.join(sorted(spec.drivers))})" if spec.drivers else ""
    for request in spec.claim.spec.devices.requests:
        for selection in _selections(request):
            yield f"{selection.device_class_name}{of_drivers}"


def _device_count(claim: ResourceClaim) -> int:
    """How many devices a claim requests at least; one if it requests all of a sort."""
    requests = claim.spec.devices.requests
    return sum(min(max(1, selection.count) for selection in _selections(request)) for request in requests)
