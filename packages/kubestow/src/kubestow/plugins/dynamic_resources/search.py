"""The search for devices: depth first, claim by claim, request by request, device by device; the first solution wins.

Devices are tried in the order of their pools (semantics 8.16). For one request only combinations are tried, not
permutations. Allocations on the current path are part of the search's state and are undone by backtracking.

QUIRK (semantics 8.16): a device that is rejected after its shared counters were charged (because of a taint, a
constraint or its capacity) keeps the charge for the rest of the search, and so does a shared device after backtracking.

A device with ``allowMultipleAllocations`` is shared until one of its capacities is used up. A request consumes the
amount that it specifies, rounded up by the request policy of the capacity; without an amount it consumes the policy's
default, or else the whole capacity.

A device consumes the counters of its pool while it is allocated, whether its slice is accessible or not. What a search
in progress has consumed is part of the search.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from kubestow.api.formats.quantity import NANOS, Quantity, nanos, units
from kubestow.api.resource import (
    CapacityRequestPolicy,
    CapacityRequestPolicyRange,
    CapacityRequirements,
    DeviceCapacity,
    DeviceTaint,
    DeviceToleration,
)
from kubestow.cluster.resource_claims import DeviceID, ResourceClaimTracker
from kubestow.plugins.dynamic_resources.cel import SelectorCache
from kubestow.plugins.dynamic_resources.pools import CandidateDevice, CounterAmounts, DevicePool, PooledDevice
from kubestow.plugins.dynamic_resources.requests import (
    MAX_DEVICES_PER_CLAIM,
    AllocationError,
    AllocationTimeout,
    Features,
    ResolvedClaim,
    ResolvedRequest,
)
from kubestow.rules.matching import tolerates

_BINARY_SUFFIXES = ("", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei")
_PREVENTING_EFFECTS = frozenset({"NoSchedule", "NoExecute"})


@dataclass(frozen=True, slots=True)
class DeviceResult:
    """A device for a request; ``consumed_capacity`` is None if the device is not shared."""

    request: ResolvedRequest
    device: PooledDevice
    consumed_capacity: Mapping[str, Quantity] | None


class ClaimLimitExceeded(Exception):
    """This combination of devices exceeds the claim limit; one with other subrequests may not."""


class AllocationSearch:
    """One search. ``max_steps`` bounds the number of combinations that are tried; None for no bound."""

    def __init__(
        self,
        candidates: Sequence[CandidateDevice],
        tracker: ResourceClaimTracker,
        available_counters: AvailableCounters,
        *,
        selectors: SelectorCache,
        features: Features,
        max_steps: int | None,
    ) -> None:
        self._candidates = candidates
        self._tracker = tracker
        self._available_counters = available_counters
        self._selectors = selectors
        self._features = features
        self._steps_left = max_steps
        self._claims: Sequence[ResolvedClaim] = ()
        self._results: list[list[DeviceResult]] = []
        #: The devices that this search has allocated exclusively or with admin access, by claim index.
        self._allocated: dict[DeviceID, set[int]] = {}
        #: The capacity in nano units that this search has consumed, by shared device.
        self._consumed_capacity: dict[DeviceID, Counter[str]] = {}
        #: The amounts in nano units that this search has charged to shared counters, by pool.
        self._consumed_counters: dict[DevicePool, dict[str, dict[str, int]]] = {}

    def run(self, claims: Sequence[ResolvedClaim]) -> list[list[DeviceResult]] | None:
        """The devices for each claim, None if there is no solution. Raises AllocationError or SelectorError."""
        self._claims, self._results = claims, [[] for _ in claims]
        try:
            return self._results if self._allocate_request(0, 0) else None
        except RecursionError:
            raise AllocationError("the claims ask for too many devices at once") from None

    def matches(self, request: ResolvedRequest, candidate: CandidateDevice) -> bool:
        """Whether a device matches a request, as far as its other devices are irrelevant. Raises SelectorError."""
        return request.matches(candidate, self._selectors, self._features) and self._has_capacity(request, candidate)

    # -- backtracking ----------------------------------------------------------------------------------------------

    def _allocate_request(self, claim_index: int, request_index: int) -> bool:
        """Find devices for a request of a claim and for everything after it."""
        if claim_index >= len(self._claims):
            return True
        requests = self._claims[claim_index].requests
        if request_index >= len(requests):
            try:
                return self._allocate_request(claim_index + 1, 0)
            except ClaimLimitExceeded:
                return False
        subrequests = requests[request_index]
        if not subrequests[0].subrequest:
            return self._allocate_device(claim_index, request_index, subrequests[0], 0, 0)
        exceeded = 0
        for subrequest in subrequests:
            try:
                if self._allocate_device(claim_index, request_index, subrequest, 0, 0):
                    return True
            except ClaimLimitExceeded:
                exceeded += 1
        if exceeded == len(subrequests):
            raise ClaimLimitExceeded
        return False

    def _allocate_device(
        self, claim_index: int, request_index: int, request: ResolvedRequest, device_index: int, start: int
    ) -> bool:
        """Find a device of a request among the candidates from ``start`` on, and everything after it."""
        if self._steps_left is not None:
            if not self._steps_left:
                raise AllocationTimeout("timed out trying to allocate devices")
            self._steps_left -= 1
        if request.all_devices is not None and not request.all_devices:
            return False
        if device_index >= request.device_count:
            return self._allocate_request(claim_index, request_index + 1)
        if len(self._results[claim_index]) + request.device_count - device_index > MAX_DEVICES_PER_CLAIM:
            raise ClaimLimitExceeded
        for position, candidate in self._usable_candidates(claim_index, request, device_index, start):
            deallocate = self._allocate(claim_index, request, candidate)
            if deallocate is None:
                continue
            found = False
            try:
                found = self._allocate_device(claim_index, request_index, request, device_index + 1, position + 1)
            finally:
                if not found:
                    deallocate()
            if found:
                return True
        return False

    def _usable_candidates(
        self, claim_index: int, request: ResolvedRequest, device_index: int, start: int
    ) -> Iterator[tuple[int, CandidateDevice]]:
        """The candidates for a device of a request from ``start`` on; the next one of a request for all devices."""
        if request.all_devices is not None:
            yield 0, request.all_devices[device_index]
            return
        for position in range(start, len(self._candidates)):
            candidate = self._candidates[position]
            if not self._is_in_use(claim_index, request, candidate.device.id) and self.matches(request, candidate):
                yield position, candidate

    # -- one device ------------------------------------------------------------------------------------------------

    def _is_in_use(self, claim_index: int, request: ResolvedRequest, device: DeviceID) -> bool:
        claims = self._allocated.get(device, set())
        if request.has_admin_access:
            return claim_index in claims
        return bool(claims) or self._is_allocated(device)

    def _is_allocated(self, device: DeviceID) -> bool:
        devices = self._tracker.devices
        return devices.is_allocated(device) or (not self._features.consumable_capacity and devices.is_shared(device))

    def _allocate(
        self, claim_index: int, request: ResolvedRequest, candidate: CandidateDevice
    ) -> Callable[[], None] | None:
        """Allocate a device. Returns a function that undoes it; None if not possible. Raises AllocationError."""
        device = candidate.device
        is_shared = device.device.allow_multiple_allocations and self._features.consumable_capacity
        if not (is_shared and request.has_admin_access) and self._is_in_use(claim_index, request, device.id):
            return None
        if not self._charge_counters(device, candidate.pool, is_shared=is_shared):
            return None
        if self._features.taints and not self._is_tolerated(request, device):
            return None
        if not self._add_to_constraints(claim_index, request, device):
            return None
        if not self._has_capacity(request, candidate):
            return None
        results, constraints = self._results[claim_index], self._claims[claim_index].constraints
        consumed = consumed_capacity(device, request.selection.capacity) if is_shared else None
        if consumed is None:
            self._allocated.setdefault(device.id, set()).add(claim_index)
        else:
            self._consume_capacity(device.id, consumed, +1)
        results.append(DeviceResult(request, device, consumed))

        def deallocate() -> None:
            results.pop()
            for constraint in constraints:
                constraint.remove(request)
            if consumed is not None:
                self._consume_capacity(device.id, consumed, -1)
                return
            self._allocated[device.id].discard(claim_index)
            if device.consumes_counters:
                add_consumption(self._consumed_counters.setdefault(candidate.pool, {}), device, -1)

        return deallocate

    def _is_tolerated(self, request: ResolvedRequest, device: PooledDevice) -> bool:
        """Whether every taint that prevents allocation is tolerated."""
        preventing = (taint for taint in device.device.taints if taint.effect in _PREVENTING_EFFECTS)
        return tolerates_all(request.selection.tolerations, preventing)

    def _add_to_constraints(self, claim_index: int, request: ResolvedRequest, device: PooledDevice) -> bool:
        constraints = self._claims[claim_index].constraints
        for number, constraint in enumerate(constraints):
            if constraint.add(request, device):
                continue
            if request.all_devices is not None:
                problem = f"cannot add device {device.id} because a claim constraint would not be satisfied"
                raise AllocationError(f"{request.description}: {problem}")
            for earlier in constraints[:number]:
                earlier.remove(request)
            return False
        return True

    # -- capacity and counters -------------------------------------------------------------------------------------

    def _has_capacity(self, request: ResolvedRequest, candidate: CandidateDevice) -> bool:
        if not self._features.consumable_capacity:
            return True
        device = candidate.device
        consumed = self._tracker.devices.consumed_capacity(device.id), self._consumed_capacity.get(device.id)
        return has_capacity(device, request.selection.capacity, *consumed)

    def _consume_capacity(self, device: DeviceID, consumed: Mapping[str, Quantity], sign: int) -> None:
        amounts = self._consumed_capacity.setdefault(device, Counter())
        for name, quantity in consumed.items():
            amounts[name] += sign * nanos(quantity)
        if not any(amounts.values()):
            del self._consumed_capacity[device]

    def _charge_counters(self, device: PooledDevice, pool: DevicePool, *, is_shared: bool) -> bool:
        """Charge a device to its pool's shared counters, a shared device once; False if they do not suffice."""
        if not device.consumes_counters:
            return True
        if not self._features.partitionable_devices:
            return False
        if is_shared and (self._tracker.devices.consumed_capacity(device.id) or device.id in self._consumed_capacity):
            return True
        consumed = self._consumed_counters.setdefault(pool, {})
        add_consumption(consumed, device, +1)
        for counter_set, available in self._available_counters.of_pool(pool).items():
            charged = consumed.get(counter_set, {})
            if any(amount < charged.get(name, 0) for name, amount in available.items()):
                add_consumption(consumed, device, -1)
                return False
        return True


def tolerates_all(tolerations: Sequence[DeviceToleration], taints: Iterable[DeviceTaint]) -> bool:
    """Whether every taint is tolerated."""
    return all(any(tolerates(toleration, taint) for toleration in tolerations) for taint in taints)


# -- capacity and shared counters ----------------------------------------------------------------------------------


def consumed_capacity(device: PooledDevice, requirements: CapacityRequirements | None) -> dict[str, Quantity]:
    """The amount that a request consumes of each capacity of a device. Raises InvalidQuantity."""
    requests = requirements.requests if requirements is not None else {}
    return {name: _consumed(requests.get(name), capacity) for name, capacity in device.device.capacity.items()}


def has_capacity(
    device: PooledDevice, requirements: CapacityRequirements | None, *consumed: Mapping[str, int] | None
) -> bool:
    """Whether a device has all requested capacities, in amounts that their policies permit.

    ``consumed`` are the amounts in nano units that other allocations consume. Raises InvalidQuantity.
    """
    if requirements is not None and any(name not in device.capacity for name in requirements.requests):
        return False
    for name, quantity in consumed_capacity(device, requirements).items():
        amount = nanos(quantity)
        policy = device.device.capacity[name].request_policy
        if policy is not None and not _permits(policy, amount):
            return False
        if amount + sum(amounts.get(name, 0) for amounts in consumed if amounts) > device.capacity[name]:
            return False
    return True


def _consumed(requested: Quantity | None, capacity: DeviceCapacity) -> Quantity:
    policy = capacity.request_policy
    if requested is None:
        return capacity.value if policy is None or policy.default is None else policy.default
    if policy is None:
        return requested
    if policy.valid_range is not None and policy.valid_range.min is not None:
        return _rounded_up(requested, policy.valid_range, policy.valid_range.min)
    return next((value for value in policy.valid_values if nanos(requested) <= nanos(value)), requested)


def _rounded_up(requested: Quantity, valid_range: CapacityRequestPolicyRange, minimum: Quantity) -> Quantity:
    if nanos(requested) < nanos(minimum):
        return minimum
    step = _step(valid_range)
    if not step:
        return requested
    above_minimum = units(requested) - units(minimum)
    return _binary_quantity(units(minimum) + -(-above_minimum // step) * step)


def _permits(policy: CapacityRequestPolicy, amount: int) -> bool:
    if policy.default is not None and amount == nanos(policy.default):
        return True
    valid_range = policy.valid_range
    if valid_range is None:
        return not policy.valid_values or any(amount == nanos(value) for value in policy.valid_values)
    if valid_range.max is not None and amount > nanos(valid_range.max):
        return False
    step = _step(valid_range)
    minimum = units(valid_range.min) if valid_range.min is not None else 0
    return not step or (-(-amount // NANOS) - minimum) % step == 0


def _step(valid_range: CapacityRequestPolicyRange) -> int:
    return units(valid_range.step) if valid_range.step is not None else 0


def _binary_quantity(value: int) -> str:
    """A whole number in the canonical form of a quantity with a binary suffix."""
    power = 0
    while value and value % 1024 == 0 and power < len(_BINARY_SUFFIXES) - 1:
        value //= 1024
        power += 1
    return f"{value}{_BINARY_SUFFIXES[power]}"


class AvailableCounters:
    """Counter amounts that allocated devices do not consume, cached per pool until its allocations change.

    Without ``shares``, devices of which only shares are allocated consume nothing.
    """

    def __init__(self, tracker: ResourceClaimTracker, *, shares: bool = True) -> None:
        self._tracker = tracker
        self._shares = shares
        self._cache: dict[DevicePool, tuple[int, dict[str, dict[str, int]]]] = {}

    def clear(self) -> None:
        """Drop the cache, because slices have changed."""
        self._cache.clear()

    def of_pool(self, pool: DevicePool) -> CounterAmounts:
        """The available amounts of a pool in nano units; negative where devices consume more than there is."""
        changes = self._tracker.devices.pool_version(*pool.id)
        cached = self._cache.get(pool)
        if cached is None or cached[0] != changes:
            available = {name: dict(counters) for name, counters in pool.shared_counters.items()}
            for device in pool.devices():
                devices = self._tracker.devices
                if devices.is_allocated(device.id) or (self._shares and devices.is_shared(device.id)):
                    add_consumption(available, device, -1)
            cached = self._cache[pool] = (changes, available)
        return cached[1]


def add_consumption(amounts: dict[str, dict[str, int]], device: PooledDevice, sign: int) -> None:
    """Add (+1) or subtract (-1) what a device consumes of shared counters."""
    for counter_set, consumed in device.consumes_counters.items():
        counters = amounts.setdefault(counter_set, {})
        for name, amount in consumed.items():
            counters[name] = counters.get(name, 0) + sign * amount
