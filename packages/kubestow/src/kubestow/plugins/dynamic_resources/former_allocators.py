"""The allocators of former minor versions: how slices are gathered into pools, and how devices are searched.

Before 1.35, a pool was what a node can access of it, and shared counters belonged to the slice that publishes them.
Before 1.36, the devices of a request were tried in all orders, and matches of subrequests were mixed up. Which rule a
minor version has is asked for by name (:class:`~kubestow.rules.minors.Behaviour`) when one of these is created.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from kubestow.cluster.nodes.table import NodeTable
from kubestow.cluster.resource_claims import DeviceID
from kubestow.plugins.dynamic_resources.compatibility_groups import SearchWithCompatibilityGroups
from kubestow.plugins.dynamic_resources.pools import (
    CandidateDevice,
    DevicePool,
    DevicePools,
    PooledDevice,
    PoolID,
    PublishedSlice,
    PublishedSlices,
    Slices,
    duplicate_name,
)
from kubestow.plugins.dynamic_resources.requests import (
    MAX_DEVICES_PER_CLAIM,
    AllocationError,
    Features,
    ResolvedClaim,
    ResolvedRequest,
)
from kubestow.plugins.dynamic_resources.search import (
    AllocationSearch,
    ClaimLimitExceeded,
    DeviceResult,
    add_consumption,
    tolerates_all,
)
from kubestow.rules.minors import Behaviour


def device_pools(catalog: Slices, table: NodeTable, features: Features) -> DevicePools:
    """The pools of all slices, as a minor version gathers them."""
    partitionable = features.partitionable_devices
    last = features.full_allocator
    if not features.emulates(Behaviour.UNUSABLE_POOLS_ARE_PASSED_OVER):
        return PoolsOfNodes(SlicesWithCounters(catalog, features), table, features)
    slices = PublishedSlices(catalog, partitionable_devices=partitionable)
    if not features.emulates(Behaviour.SLICES_OF_A_POOL_ARE_IN_ORDER_OF_NAMES):
        return PoolsWithConditionsLast(slices, table, binding_conditions_last=last)
    return DevicePools(slices, table, binding_conditions_last=last)


def allocation_search(features: Features) -> Callable[..., AllocationSearch]:
    """The search of a minor version, with the parameters of :class:`AllocationSearch`."""
    current = (Behaviour.DEVICES_ARE_TRIED_IN_COMBINATIONS, Behaviour.SUBREQUESTS_FOR_ALL_DEVICES_STAND_ALONE)
    if not all(map(features.emulates, current)):
        return FormerAllocationSearch
    has_groups = features.emulates(Behaviour.COMPATIBILITY_GROUPS_ARE_READ)
    return SearchWithCompatibilityGroups if has_groups else AllocationSearch


# -- pools ---------------------------------------------------------------------------------------------------------


class PoolsWithConditionsLast(DevicePools):
    """The pools before :attr:`Behaviour.SLICES_OF_A_POOL_ARE_IN_ORDER_OF_NAMES`."""

    def _slice_order(self, published: PublishedSlice) -> Any:
        has_conditions = any(device.binding_conditions for device in published.source.spec.devices)
        return (self._binding_conditions_last and has_conditions, published.name)


class SlicesWithCounters(PublishedSlices):
    """The slices before :attr:`Behaviour.COUNTERS_BELONG_TO_POOLS`."""

    counters_are_apart = False

    def __init__(self, catalog: Slices, features: Features) -> None:
        super().__init__(catalog, partitionable_devices=features.partitionable_devices)
        self._reads_counters = features.emulates(Behaviour.SLICES_WITH_COUNTERS_ARE_READ_WITHOUT_THE_GATE)

    def _needs_partitionable_devices(self, published: PublishedSlice) -> bool:
        return published.per_device_node_selection or (
            not self._reads_counters and bool(published.source.spec.shared_counters)
        )


class PoolsOfNodes(PoolsWithConditionsLast):
    """The pools before :attr:`Behaviour.UNUSABLE_POOLS_ARE_PASSED_OVER`: the slices that a node can access.

    Incomplete and invalid pools keep their devices. The pool of a candidate has only the devices and the counters of
    its slice.
    """

    def __init__(self, slices: PublishedSlices, table: NodeTable, features: Features) -> None:
        super().__init__(slices, table, binding_conditions_last=features.full_allocator)
        self._finds_duplicates = features.emulates(Behaviour.DUPLICATE_DEVICES_ARE_FOUND)

    def _pool(self, pool: PoolID, accessible: list[PublishedSlice], inaccessible: set[PooledDevice]) -> DevicePool:
        is_incomplete = len(accessible) != accessible[0].source.spec.pool.resource_slice_count
        accessible = sorted(accessible, key=self._slice_order)
        names = [device.id.device for published in accessible for device in published.devices]
        invalid_reason = duplicate_name(names, "device name") if self._finds_duplicates else ""
        candidates: list[CandidateDevice] = []
        for published in accessible:
            of_slice = DevicePool(pool, invalid_reason=invalid_reason, shared_counters=dict(published.shared_counters))
            of_slice.candidates = tuple(
                CandidateDevice(device, of_slice, device not in inaccessible) for device in published.devices
            )
            candidates += of_slice.candidates
        gathered = DevicePool(
            pool, is_incomplete=is_incomplete, invalid_reason=invalid_reason, candidates=tuple(candidates)
        )
        is_plain = not (is_incomplete or invalid_reason or inaccessible)
        if is_plain and not any(published.shared_counters for published in accessible):
            gathered.content = tuple(published.content for published in accessible)
        return gathered


# -- search --------------------------------------------------------------------------------------------------------


class _SearchEnded(Exception):
    """There is no solution, whatever else could be tried."""


#: A device, and the claim, the request and the subrequest that it was matched with.
_MatchKey = tuple[DeviceID, str, str, str]


class FormerAllocationSearch(AllocationSearch):
    """The search before :attr:`Behaviour.DEVICES_ARE_TRIED_IN_COMBINATIONS` or another behaviour that came with it."""

    def __init__(self, *args: Any, features: Features, **options: Any) -> None:
        super().__init__(*args, features=features, **options)
        has = features.emulates
        self._needs_combinations_only = has(Behaviour.DEVICES_ARE_TRIED_IN_COMBINATIONS)
        self._mixes_subrequests = not has(Behaviour.SUBREQUESTS_FOR_ALL_DEVICES_STAND_ALONE)
        self._passes_over_pools = has(Behaviour.UNUSABLE_POOLS_ARE_PASSED_OVER)
        self._fails_at_once = has(Behaviour.INVALID_POOLS_ARE_AN_ERROR_AT_ONCE)
        self._all_needs_a_device = has(Behaviour.MODE_ALL_NEEDS_A_DEVICE)
        self._all_needs_all = has(Behaviour.MODE_ALL_NEEDS_ALL_DEVICES)
        self._returns_all = has(Behaviour.ALL_DEVICES_ARE_RETURNED)
        self._admin_access_takes = has(Behaviour.ADMIN_ACCESS_TAKES_DEVICES_DURING_THE_SEARCH)
        self._only_some_taints = has(Behaviour.ONLY_SOME_TAINTS_PREVENT_ALLOCATION)
        self._charges = has(Behaviour.COUNTERS_ARE_CHARGED_DURING_THE_SEARCH)
        self._charges_once = has(Behaviour.SHARED_DEVICES_CHARGE_COUNTERS_ONCE)
        self._checks_itself = has(Behaviour.CAPACITY_OF_THE_DEVICE_ITSELF_IS_CHECKED)
        self._is_resolving, self._order_matters = True, False
        self._matches: dict[_MatchKey, bool] = {}
        #: The index, in its request, of the device that is being allocated.
        self._device_index: int | None = None

    def run(self, claims: Sequence[ResolvedClaim]) -> list[list[DeviceResult]] | None:
        self._is_resolving = False
        self._order_matters = not self._needs_combinations_only and self._is_order_relevant(claims)
        try:
            return super().run(claims)
        except _SearchEnded:
            return None

    # -- matching --------------------------------------------------------------------------------------------------

    def matches(self, request: ResolvedRequest, candidate: CandidateDevice) -> bool:
        """As before :attr:`Behaviour.SUBREQUESTS_FOR_ALL_DEVICES_STAND_ALONE`.

        QUIRK: while the devices of requests with mode All are gathered, the second subrequest has the matches of the
        first one.
        """
        if self._mixes_subrequests and self._is_resolving and request.subrequest:
            matches = self._remembered_match(request, candidate)
        else:
            matches = request.matches(candidate, self._selectors, self._features)
            if matches and candidate.pool.invalid_reason:
                raise _invalid(candidate.pool)
        return matches and self._has_capacity(request, candidate)

    def _remembered_match(self, request: ResolvedRequest, candidate: CandidateDevice) -> bool:
        names = next(
            [each.name for each in declared.first_available]
            for declared in request.claim.spec.devices.requests
            if declared.name == request.request
        )
        first = names[max(names.index(request.subrequest) - 1, 0)]
        key = (candidate.device.id, request.claim.key, request.request, first)
        if key not in self._matches:
            self._matches[key] = request.matches(candidate, self._selectors, self._features)
        return self._matches[key]

    # -- backtracking ----------------------------------------------------------------------------------------------

    def _allocate_device(
        self, claim_index: int, request_index: int, request: ResolvedRequest, device_index: int, start: int
    ) -> bool:
        self._take_step()
        is_for_all = request.all_devices is not None
        if is_for_all and not request.all_devices and self._all_needs_a_device:
            return False
        if device_index >= request.device_count:
            return self._allocate_request(claim_index, request_index + 1)
        if len(self._results[claim_index]) + request.device_count - device_index > MAX_DEVICES_PER_CLAIM:
            raise ClaimLimitExceeded
        following = request
        if self._mixes_subrequests and is_for_all and request.subrequest:  # QUIRK: the first subrequest takes over
            following = self._claims[claim_index].requests[request_index][0]
        for position, candidate in self._usable_candidates(claim_index, request, device_index, start):
            self._device_index = device_index
            deallocate = self._allocate(claim_index, request, candidate)
            self._device_index = None
            if deallocate is None and not (is_for_all and not self._all_needs_all):
                if is_for_all and not self._all_needs_a_device:
                    raise _SearchEnded
                continue
            found = False
            try:
                found = self._allocate_device(
                    claim_index, request_index, following, device_index + 1, self._next_start(request, position)
                )
            finally:
                if not found and deallocate is not None and (self._returns_all or not is_for_all):
                    deallocate()
            if found:
                return True
            if is_for_all and not self._all_needs_all:
                raise _SearchEnded
        return False

    def _next_start(self, request: ResolvedRequest, position: int) -> int:
        """From where the next device of a request is searched: from the first one, unless combinations suffice."""
        is_reusable = request.has_admin_access and not self._admin_access_takes
        return 0 if self._order_matters or is_reusable else position + 1

    def _is_order_relevant(self, claims: Sequence[ResolvedClaim]) -> bool:
        """Whether another order of the same devices may be a solution, or have other effects.

        A device may be shared; distinctAttribute looks at the latest device only; rejected devices keep their charges.
        """
        shares, counts = self._features.consumable_capacity, self._features.partitionable_devices
        return any(
            (shares and each.device.device.allow_multiple_allocations) or (counts and each.device.consumes_counters)
            for each in self._candidates
        ) or any(
            declared.distinct_attribute is not None
            for claim in claims
            for declared in claim.claim.spec.devices.constraints
        )

    def _usable_candidates(self, claim_index: int, request: ResolvedRequest, device_index: int, start: int) -> Any:
        if request.all_devices is not None or self._passes_over_pools or not self._fails_at_once:
            yield from super()._usable_candidates(claim_index, request, device_index, start)
            return
        for position in range(start, len(self._candidates)):
            candidate = self._candidates[position]
            if candidate.pool.invalid_reason:
                raise _invalid(candidate.pool)
            if not self._is_in_use(claim_index, request, candidate.device.id) and self.matches(request, candidate):
                yield position, candidate

    # -- one device ------------------------------------------------------------------------------------------------

    def _is_in_use(self, claim_index: int, request: ResolvedRequest, device: DeviceID) -> bool:
        if self._admin_access_takes:
            return super()._is_in_use(claim_index, request, device)
        if request.has_admin_access:
            return False
        return self._is_allocated(device) or self._is_taken(device)

    def _is_taken(self, device: DeviceID) -> bool:
        """Whether this search has allocated a device without admin access."""
        return any(
            result.device.id == device and not result.request.has_admin_access
            for results in self._results
            for result in results
        )

    def _is_tolerated(self, request: ResolvedRequest, device: PooledDevice) -> bool:
        if self._only_some_taints:
            return super()._is_tolerated(request, device)
        return tolerates_all(request.selection.tolerations, device.device.taints)

    def _has_capacity(self, request: ResolvedRequest, candidate: CandidateDevice) -> bool:
        """QUIRK: before a device is allocated another device of its slice is checked, by the index in the request.

        kube-scheduler crashes if the slice has fewer devices; here the device itself is checked then.
        """
        index, of_slice = self._device_index, candidate.pool.candidates
        if not self._checks_itself and index is not None and index < len(of_slice):
            candidate = of_slice[index]
        return super()._has_capacity(request, candidate)

    def _charge_counters(self, device: PooledDevice, pool: DevicePool, *, is_shared: bool) -> bool:
        if self._charges:
            return super()._charge_counters(device, pool, is_shared=is_shared and self._charges_once)
        if not device.consumes_counters or not self._features.partitionable_devices:
            return True
        left = {name: dict(counters) for name, counters in self._available_counters.of_pool(pool).items()}
        for other in pool.devices():
            if self._is_taken(other.id):
                add_consumption(left, other, -1)
        return all(
            amount <= left.get(counter_set, {}).get(name, -1)
            for counter_set, consumed in device.consumes_counters.items()
            for name, amount in consumed.items()
        )


def _invalid(pool: DevicePool) -> AllocationError:
    return AllocationError(f"pool {pool.id.name} is invalid: {pool.invalid_reason}")
