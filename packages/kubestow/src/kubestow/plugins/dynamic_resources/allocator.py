"""Allocates devices for the claims of a pod, and caches the results.

Claims with the same spec share results: the search does not depend on claim names and uids. What is specific to a claim
and a node is added when the pod is reserved.

Results are remembered by the state of devices (:class:`DeviceStates`): a search for the same claims finds the same
devices on all nodes whose devices are in one state, until device classes change. Nodes of one kind publish equal
devices in pools of their own. As long as the same ones are allocated, it does not matter on which of these nodes a
search takes place. Devices with shares in use, and pools that are incomplete or partly accessible are never equal to
others; their state changes with every allocation.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from functools import cached_property
from uuid import NAMESPACE_OID, uuid5

import msgspec
import numpy as np
from numpy.typing import NDArray

from kubestow.api.core import NodeSelector, NodeSelectorRequirement, NodeSelectorTerm
from kubestow.api.json_text import MAX_DEPTH, is_cut_off
from kubestow.api.resource import (
    AllocationResult,
    DeviceAllocationConfiguration,
    DeviceAllocationResult,
    DeviceClass,
    DeviceRequestAllocationResult,
    ResourceClaim,
)
from kubestow.cluster.changes.catalog import Catalog
from kubestow.cluster.resource_claims import ResourceClaimTracker
from kubestow.plugins.dynamic_resources.cel import SelectorCache, SelectorError
from kubestow.plugins.dynamic_resources.former_allocators import FormerAllocationSearch, allocation_search
from kubestow.plugins.dynamic_resources.pools import (
    AccessibleDevices,
    CandidateDevice,
    DevicesByNode,
    PooledDevice,
)
from kubestow.plugins.dynamic_resources.requests import (
    AllocationError,
    AllocationTimeout,
    Features,
    ResolvedClaim,
    ResolvedRequest,
    resolve_claim,
)
from kubestow.plugins.dynamic_resources.search import AllocationSearch, AvailableCounters, DeviceResult
from kubestow.plugins.dynamic_resources.suitable_devices import (
    DeviceLeft,
    SuitableDevices,
    suitable_devices,
    what_is_left,
)
from kubestow.rules.minors import Behaviour

#: About 1.5 kB each; those of the least recently used claim specs are evicted first.
_MAX_CACHED_SOLUTIONS = 50_000
#: So many outcomes count as one solution.
_OUTCOMES_PER_SOLUTION = 1000

#: With more states than this, and more than twice as many as there are nodes, they are numbered anew.
_MAX_STATES = 16_384

_encode = msgspec.json.Encoder(order="deterministic").encode


@dataclass(frozen=True)
class Solution:
    """Devices for a list of claims, valid for any list of claims with the same specs.

    ``positions`` are those of the devices of the results among the candidates of ``devices``.
    """

    claims: Sequence[ResolvedClaim]
    results: Sequence[Sequence[DeviceResult]]
    devices: AccessibleDevices
    positions: Sequence[Sequence[int]]

    @cached_property
    def allocated_requests(self) -> list[set[str]]:
        """For each claim the names of its requests or chosen subrequests (``request/subrequest``)."""
        return [{result.request.result_name for result in results} for results in self.results]

    def on(self, devices: AccessibleDevices) -> Solution:
        """The solution that a search among other devices in the same state finds."""
        if devices is self.devices:
            return self
        results = [
            [
                DeviceResult(result.request, devices.candidates[position].device, result.consumed_capacity)
                for result, position in zip(of_claim, positions, strict=True)
            ]
            for of_claim, positions in zip(self.results, self.positions, strict=True)
        ]
        return Solution(self.claims, results, devices, self.positions)

    def allocation_results(
        self, claims: Sequence[ResourceClaim], node_name: str, features: Features
    ) -> list[AllocationResult]:
        """``status.allocation`` of each claim if the pod is placed on this node. Raises AllocationError."""
        return [
            AllocationResult(
                devices=DeviceAllocationResult(
                    results=[_result(claim, number, result, features) for number, result in enumerate(results)],
                    config=list(_configuration(resolved, results, features)),
                ),
                node_selector=_node_selector(
                    claim, [result.device for result in results], node_name, may_bind=features.full_allocator
                ),
            )
            for claim, resolved, results in zip(claims, self.claims, self.results, strict=True)
        ]


class Outcome(IntEnum):
    """What is known about claims and a state of devices."""

    UNKNOWN = 0
    SOLVED = 1
    NO_SOLUTION = 2
    INVALID_POOLS = 3
    TIMED_OUT = 4


@dataclass(slots=True)
class _Results:
    """The cached results for claims of one spec."""

    #: By the number of a device state.
    solutions: dict[int, Solution] = field(default_factory=dict)
    #: By the number of a device state, int8, grown on demand.
    outcomes: NDArray[np.int8] = field(default_factory=lambda: np.zeros(0, np.int8))
    #: The texts of searches that reached the limit of steps, by device state.
    timeouts: dict[int, str] = field(default_factory=dict)
    #: What the allocator counts as the cost of this.
    counted: int = 0

    @property
    def cost(self) -> int:
        """The size, in solutions."""
        return 1 + len(self.solutions) + len(self.timeouts) + len(self.outcomes) // _OUTCOMES_PER_SOLUTION


@dataclass(frozen=True, slots=True)
class ClaimsToAllocate:
    """Claims that are allocated together or not at all, with the cached results for their specs."""

    claims: Sequence[ResourceClaim]
    results: _Results


class Allocator:
    """Allocates claims. ``max_steps`` bounds each search; None for no bound."""

    def __init__(
        self, tracker: ResourceClaimTracker, classes: Catalog[DeviceClass], features: Features, *, max_steps: int | None
    ) -> None:
        self._tracker = tracker
        shares = not features.consumable_capacity or features.emulates(Behaviour.SHARES_COUNT_IN_COUNTERS)
        self._available_counters = AvailableCounters(tracker, shares=shares)
        self._new_search = allocation_search(features)
        self._reports_invalid_pools = features.emulates(Behaviour.UNUSABLE_POOLS_ARE_PASSED_OVER)
        self._timeout_is_an_error = features.emulates(Behaviour.DEVICE_SEARCH_TIMEOUT_IS_AN_ERROR)
        self._classes = classes
        self._selectors = SelectorCache(multiple_allocations=features.consumable_capacity)
        self._features = features
        self._max_steps = max_steps
        self._states = DeviceStates(tracker)
        #: Those of the slices, the device classes and the numbering of device states.
        self._versions = (-1, -1, -1)
        self._results: OrderedDict[bytes, _Results] = OrderedDict()
        #: The sum of what is counted as the cost of the results.
        self._cost = 0

    def device_states(self, by_node: DevicesByNode) -> NDArray[np.intp]:
        """The number of the device state of each entry of ``by_node.devices``, intp; valid for :meth:`prepare`."""
        return self._states.of(by_node)

    def prepare(self, claims: Sequence[ResourceClaim], *, slices_version: int) -> ClaimsToAllocate:
        """Claims to allocate from the slices of a version of their catalog."""
        versions = slices_version, self._classes.version, self._states.generation
        if self._versions[0] != slices_version:
            self._available_counters.clear()
        # A device state says everything about its devices, so slices do not matter to results.
        if self._versions[1:] != versions[1:]:
            self._results.clear()
            self._cost = 0
        self._versions = versions
        key = _encode([claim.spec for claim in claims])
        if self._results:
            self._count(self._results[next(reversed(self._results))])  # what grew since it was prepared
        results = self._results.pop(key, None)
        self._results[key] = results = _Results() if results is None else results
        self._count(results)
        while len(self._results) > 1 and self._cost > _MAX_CACHED_SOLUTIONS:
            _, evicted = self._results.popitem(last=False)
            self._cost -= evicted.counted
        return ClaimsToAllocate(claims, results)

    def _count(self, results: _Results) -> None:
        cost = results.cost
        self._cost += cost - results.counted
        results.counted = cost

    def allocate(self, to_allocate: ClaimsToAllocate, devices: AccessibleDevices, state: int) -> Solution | None:
        """Devices for all claims among those that are in a state, None if there is no solution.

        Raises AllocationError or SelectorError.
        """
        solutions = to_allocate.results.solutions
        known = solutions.get(state)
        if known is not None:
            return known.on(devices)
        found = self._search(to_allocate.claims, devices)
        if found is not None:
            solutions[state] = found
        return found

    def outcomes(self, to_allocate: ClaimsToAllocate, states: NDArray[np.intp]) -> NDArray[np.int8]:
        """What is known about the claims and some device states, int8 (:class:`Outcome`)."""
        results, count = to_allocate.results, len(self._states)
        if len(results.outcomes) < count:
            grown = np.zeros(max(count, 2 * len(results.outcomes)), np.int8)
            grown[: len(results.outcomes)] = results.outcomes
            results.outcomes = grown
        return results.outcomes[states]

    def determine(self, to_allocate: ClaimsToAllocate, devices: AccessibleDevices, state: int) -> None:
        """Find out about devices that have a state not known yet. Raises AllocationError or SelectorError.

        A search takes the same steps whenever the state is the same, so one that reached the limit is not repeated.
        """
        timeouts = to_allocate.results.timeouts
        if state in timeouts:
            raise AllocationTimeout(timeouts[state])
        try:
            solution = self.allocate(to_allocate, devices, state)
        except AllocationTimeout as error:
            if not self._timeout_is_an_error:
                to_allocate.results.outcomes[state] = Outcome.TIMED_OUT
                return
            timeouts[state] = str(error)
            raise
        if solution is not None:
            outcome = Outcome.SOLVED
        else:
            is_invalid = self._reports_invalid_pools and any(pool.invalid_reason for pool in devices.pools)
            outcome = Outcome.INVALID_POOLS if is_invalid else Outcome.NO_SOLUTION
        to_allocate.results.outcomes[state] = outcome

    def suitable_devices(self, claim: ResourceClaim, devices: AccessibleDevices) -> list[SuitableDevices]:
        """The devices that suit each request of a claim; none at all if the claim cannot be allocated there."""
        search = self._prepared(devices)
        try:
            resolved = self._resolved(claim, devices, search)
        except (AllocationError, SelectorError):
            return []
        is_exact = not isinstance(search, FormerAllocationSearch)
        return suitable_devices(resolved, devices, search, self._features, is_exact=is_exact)

    def what_is_left(self, candidate: CandidateDevice) -> DeviceLeft:
        """What is left of a device."""
        return what_is_left(candidate, self._tracker, self._available_counters, self._features)

    def _prepared(self, devices: AccessibleDevices) -> AllocationSearch:
        return self._new_search(
            devices.candidates,
            self._tracker,
            self._available_counters,
            selectors=self._selectors,
            features=self._features,
            max_steps=self._max_steps,
        )

    def _resolved(self, claim: ResourceClaim, devices: AccessibleDevices, search: AllocationSearch) -> ResolvedClaim:
        return resolve_claim(claim, devices, self._classes, features=self._features, matches=search.matches)

    def _search(self, claims: Sequence[ResourceClaim], devices: AccessibleDevices) -> Solution | None:
        search = self._prepared(devices)
        resolved = [self._resolved(claim, devices, search) for claim in claims]
        results = search.run(resolved)
        if results is None:
            return None
        numbers = {candidate.device: number for number, candidate in enumerate(devices.candidates)}
        positions = [[numbers[result.device] for result in of_claim] for of_claim in results]
        return Solution(resolved, results, devices, positions)


# -- states of devices ---------------------------------------------------------------------------------------------


class DeviceStates:
    """Numbers the states of the devices that nodes can access, and follows the changes of allocations."""

    def __init__(self, tracker: ResourceClaimTracker) -> None:
        self._tracker = tracker
        #: Incremented when the states are numbered anew.
        self.generation = 0
        self._numbers: dict[Hashable, int] = {}
        self._by_node: DevicesByNode | None = None
        self._states = np.empty(0, np.intp)
        #: The entries of ``_states`` that depend on each pool.
        self._entries: dict[tuple[str, str], list[int]] = {}
        #: The version of the tracker that ``_states`` holds for.
        self._version = -1

    def __len__(self) -> int:
        return len(self._numbers)

    def of(self, by_node: DevicesByNode) -> NDArray[np.intp]:
        """The number of the state of each entry of ``by_node.devices``, intp."""
        if by_node is self._by_node and self._version == self._tracker.devices.version:
            return self._states
        changed = self._tracker.devices.pools_changed_since(self._version)
        if by_node is not self._by_node or changed is None:
            self._number_all(by_node)
        else:
            for entry in {entry for pool in changed for entry in self._entries.get(pool, ())}:
                self._states[entry] = self._number(by_node.devices[entry])
        if len(self._numbers) > max(_MAX_STATES, 2 * len(by_node.devices)):
            self._numbers.clear()
            self.generation += 1
            self._number_all(by_node)
        self._version = self._tracker.devices.version
        return self._states

    def _number_all(self, by_node: DevicesByNode) -> None:
        self._by_node, self._entries = by_node, {}
        self._states = np.empty(len(by_node.devices), np.intp)
        for entry, devices in enumerate(by_node.devices):
            self._states[entry] = self._number(devices)
            for pool in devices.pools:
                self._entries.setdefault(pool.id, []).append(entry)

    def _number(self, devices: AccessibleDevices) -> int:
        content, tracker = devices.content, self._tracker
        ids = [candidate.device.id for candidate in devices.candidates]
        if content is None or any(map(tracker.devices.is_shared, ids)):
            state: Hashable = devices, sum(tracker.devices.pool_version(*pool.id) for pool in devices.pools)
        else:
            state = content, bytes(map(tracker.devices.is_allocated, ids))
        return self._numbers.setdefault(state, len(self._numbers))


# -- allocation results --------------------------------------------------------------------------------------------


def _result(
    claim: ResourceClaim, number: int, result: DeviceResult, features: Features
) -> DeviceRequestAllocationResult:
    device, request = result.device, result.request
    conditions, share_id, tolerations = features.binding_conditions, None, request.selection.tolerations
    if result.consumed_capacity is not None:
        # Deterministic, and unique because claim uids are unique and ``number`` is unique within the claim.
        share_id = str(uuid5(NAMESPACE_OID, f"{claim.metadata.uid}/{number}/{device.id}"))
    return DeviceRequestAllocationResult(
        request=request.result_name,
        driver=device.id.driver,
        pool=device.id.pool,
        device=device.id.device,
        admin_access=(request.has_admin_access and features.emulates(Behaviour.ADMIN_ACCESS_IS_RECORDED)) or None,
        tolerations=tolerations if tolerations and features.emulates(Behaviour.TOLERATIONS_ARE_RECORDED) else [],
        binding_conditions=device.device.binding_conditions if conditions else [],
        binding_failure_conditions=device.device.binding_failure_conditions if conditions else [],
        share_id=share_id,
        consumed_capacity=dict(result.consumed_capacity or {}),
    )


def _configuration(
    resolved: ResolvedClaim, results: Sequence[DeviceResult], features: Features
) -> Iterator[DeviceAllocationConfiguration]:
    """The configuration of each class, then that of the claim. An entry for all requests names none."""
    chosen = {result.request.request: result.request for result in results}
    # Each request, or the subrequest that was chosen for it.
    requests = [chosen.get(subrequests[0].request, subrequests[0]) for subrequests in resolved.requests]
    by_class: dict[str, list[ResolvedRequest]] = {}
    for request in requests:
        by_class.setdefault(request.device_class.metadata.name, []).append(request)
    for users in by_class.values():
        for config in users[0].device_class.spec.config:
            names = [user.result_name for user in users]
            yield DeviceAllocationConfiguration(
                source="FromClass", requests=names if len(names) < len(requests) else [], opaque=config.opaque
            )
    for config in resolved.claim.spec.devices.config:
        if is_cut_off(config.opaque):
            what = f"opaque parameters of more than {MAX_DEPTH} levels are not supported"
            raise AllocationError(f"create configuration for claim {resolved.claim.metadata.name}: {what}")
        users = [user for user in requests if user.request in config.requests or user.result_name in config.requests]
        if features.emulates(Behaviour.CONFIGURATIONS_ARE_RECORDED_ONCE):
            is_for_all, times = len(users) == len(requests), min(len(users), 1)
        else:
            is_for_all, times = len(config.requests) == len(requests), len(users)
        names = [] if is_for_all else config.requests
        for _ in range(times if config.requests else 1):
            yield DeviceAllocationConfiguration(source="FromClaim", requests=names, opaque=config.opaque)


def _node_selector(
    claim: ResourceClaim, devices: Sequence[PooledDevice], node_name: str, *, may_bind: bool
) -> NodeSelector | None:
    """The nodes that can access all devices; None for all nodes. Unless it ``may_bind``, bindsToNode is ignored."""
    merged = NodeSelectorTerm(match_expressions=[], match_fields=[])
    for device in devices:
        spec = device.slice.spec
        source = device.device if spec.per_device_node_selection else spec
        if source.node_name or (may_bind and device.device.binds_to_node):
            by_name = NodeSelectorRequirement(key="metadata.name", operator="In", values=[node_name])
            return NodeSelector(node_selector_terms=[NodeSelectorTerm(match_fields=[by_name])])
        terms = source.node_selector.node_selector_terms if source.node_selector is not None else []
        if len(terms) > 1:
            problem = f"unsupported ResourceSlice.NodeSelector with {len(terms)} terms"
            raise AllocationError(f"create NodeSelector for claim {claim.metadata.name}: {problem}")
        for term in terms:
            _add_missing(merged.match_fields, term.match_fields)
            _add_missing(merged.match_expressions, term.match_expressions)
    return NodeSelector(node_selector_terms=[merged]) if merged.match_fields or merged.match_expressions else None


def _add_missing(merged: list[NodeSelectorRequirement], requirements: Sequence[NodeSelectorRequirement]) -> None:
    for requirement in requirements:
        identity = requirement.key, requirement.operator, set(requirement.values)
        if all(identity != (other.key, other.operator, set(other.values)) for other in merged):
            merged.append(requirement)
