"""The search for devices: depth first, claim by claim, request by request, device by device; the first solution wins.

Devices are tried in the order of their pools (semantics 8.16). For one request only combinations are tried, not
permutations. Allocations on the current path are part of the search's state and are undone by backtracking. What the
search learns from its first dead end on (:mod:`.dead_ends`) spares it combinations that have no solution.

QUIRK (semantics 8.16): a device that is rejected after its shared counters were charged (because of a taint, a
constraint or its capacity) keeps the charge for the rest of the search, and so does a shared device after backtracking.

A device with ``allowMultipleAllocations`` is shared until one of its capacities is used up. A request consumes the
amount that it specifies, rounded up by the request policy of the capacity; without an amount it consumes the policy's
default, or else the whole capacity.

A device consumes the counters of its pool while it is allocated, whether its slice is accessible or not. What a search
in progress has consumed is part of the search.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate

from kubestow.api.formats.quantity import NANOS, Quantity, nanos, whole
from kubestow.api.resource import (
    CapacityRequestPolicy,
    CapacityRequestPolicyRange,
    CapacityRequirements,
    DeviceCapacity,
    DeviceTaint,
    DeviceToleration,
)
from kubestow.cluster.resource_claims import DeviceID, ResourceClaimTracker
from kubestow.errors import InvalidQuantity
from kubestow.plugins.dynamic_resources.cel import SelectorCache, SelectorError
from kubestow.plugins.dynamic_resources.dead_ends import DeadEnd, DeadEnds, Place, SideEffects
from kubestow.plugins.dynamic_resources.pools import CandidateDevice, CounterAmounts, DevicePool, PooledDevice
from kubestow.plugins.dynamic_resources.requests import (
    MAX_DEVICES_PER_CLAIM,
    AllocationError,
    AllocationTimeout,
    Constraint,
    DistinctAttribute,
    Features,
    ResolvedClaim,
    ResolvedRequest,
)
from kubestow.rules.matching import tolerates

_BINARY_SUFFIXES = ("", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei")
_THOUSANDTH = NANOS // 1000
#: The largest amount of a range that is computed in thousandths, in nano units.
_MOST_IN_THOUSANDTHS = (2**63 - 1) // 1000 * NANOS
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
        #: From the first dead end on.
        self._dead_ends: DeadEnds | None = None
        #: The position of each candidate, from the first dead end on.
        self._positions: dict[DeviceID, int] = {}
        #: The number of the first request of each claim among all requests, and how many have been reached.
        self._first_requests: list[int] = []
        self._reached = 0
        self._claims: Sequence[ResolvedClaim] = ()
        self._results: list[list[DeviceResult]] = []
        #: The constraints that apply to each request.
        self._constraints: dict[ResolvedRequest, list[Constraint]] = {}
        #: The devices that this search has allocated exclusively or with admin access, by claim index.
        self._allocated: dict[DeviceID, set[int]] = {}
        #: The capacity in nano units that this search has consumed, by shared device.
        self._consumed_capacity: dict[DeviceID, Counter[str]] = {}
        #: The amounts in nano units that this search has charged to shared counters, by pool.
        self._consumed_counters: dict[DevicePool, dict[str, dict[str, int]]] = {}

    def run(self, claims: Sequence[ResolvedClaim]) -> list[list[DeviceResult]] | None:
        """The devices for each claim, None if there is no solution. Raises AllocationError or SelectorError."""
        self._claims, self._results = claims, [[] for _ in claims]
        self._first_requests = [0, *accumulate(len(claim.requests) for claim in claims)]
        try:
            return self._results if self._allocate_request(0, 0) else None
        except RecursionError:
            raise AllocationError("the claims ask for too many devices at once") from None

    def matches(self, request: ResolvedRequest, candidate: CandidateDevice) -> bool:
        """Whether a device matches a request, as far as its other devices are irrelevant. Raises SelectorError."""
        return request.matches(candidate, self._selectors, self._features) and self._has_capacity(request, candidate)

    def may_match(self, request: ResolvedRequest, candidate: CandidateDevice) -> bool | None:
        """Whether a search can give a device to a request; None if its selectors or quantities are invalid."""
        device = candidate.device
        if not request.has_admin_access and self._is_allocated(device.id):
            return False
        prevents = self._features.taints and not device.consumes_counters
        consumed = self._tracker.devices.consumed_capacity(device.id)
        try:
            return (
                request.matches(candidate, self._selectors, self._features)
                and (not prevents or self._is_tolerated(request, device))
                and (
                    not self._features.consumable_capacity
                    or has_capacity(
                        device, request.selection.capacity, consumed, has_fractions=self._features.fractional_ranges
                    )
                )
            )
        except (SelectorError, InvalidQuantity):
            return None

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
        self._reached = max(self._reached, self._first_requests[claim_index] + request_index + 1)
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

    def _take_step(self) -> None:
        """Count a step of the search. Raises AllocationTimeout when none is left."""
        if self._steps_left is not None:
            if not self._steps_left:
                raise AllocationTimeout("timed out trying to allocate devices")
            self._steps_left -= 1

    def _allocate_device(
        self, claim_index: int, request_index: int, request: ResolvedRequest, device_index: int, start: int
    ) -> bool:
        """Find a device of a request among the candidates from ``start`` on, and everything after it."""
        self._take_step()
        if request.all_devices is not None and not request.all_devices:
            return False
        if device_index >= request.device_count:
            return self._allocate_request(claim_index, request_index + 1)
        if len(self._results[claim_index]) + request.device_count - device_index > MAX_DEVICES_PER_CLAIM:
            raise ClaimLimitExceeded
        place = Place(claim_index, self._first_requests[claim_index] + request_index, request, device_index, start)
        if self._dead_ends is None:
            found = False
            try:
                found = self._try_devices(place, request_index)
            finally:
                # A search that ends with the first request has nothing to learn.
                if not found and self._dead_ends is None and (place.request_number or device_index):
                    self._dead_ends = self._new_dead_ends()
            return found
        return self._avoid_dead_ends(self._dead_ends, place, request_index)

    def _avoid_dead_ends(self, dead_ends: DeadEnds, place: Place, request_index: int) -> bool:
        """Find devices for a place and everything after it, unless it is known that there are none."""
        dead_ends.reach(self._reached)
        before, in_use = self._side_effects(dead_ends, place), self._devices_in_use()
        known = dead_ends.known(dead_ends.state(place, in_use, len(self._results[place.claim_index]), before))
        if known is not None:
            if known.after is not None:
                self._restore(dead_ends, place, known.after)
            if known.exceeds_limit:
                raise ClaimLimitExceeded
            return False
        if dead_ends.lacks_devices(place, {at for at, _ in in_use}):
            return False
        try:
            if self._try_devices(place, request_index):
                return True
        except ClaimLimitExceeded:
            self._remember(dead_ends, place, before, exceeds_limit=True)
            raise
        self._remember(dead_ends, place, before, exceeds_limit=False)
        return False

    def _try_devices(self, place: Place, request_index: int) -> bool:
        """Try the usable devices for a place in turn, each with everything after it."""
        claim_index, request = place.claim_index, place.request
        tried: list[int] = []
        #: The classes of interchangeable devices that ``tried`` rules out, for the requests reached so far.
        ruled_out: set[int] = set()
        reached = -1
        for position, candidate in self._usable_candidates(claim_index, request, place.device_index, place.start):
            dead_ends = self._dead_ends
            if dead_ends is not None and dead_ends.interchangeable:
                if reached != dead_ends.reached:
                    reached, ruled_out = dead_ends.reached, set(map(dead_ends.class_of, tried))
                    if tried and dead_ends.lacks_devices(place, {at for at, _ in self._devices_in_use()}):
                        return False
                if dead_ends.class_of(position) in ruled_out:
                    continue
                ruled_out.add(dead_ends.class_of(position))
            tried.append(position)
            deallocate = self._allocate(claim_index, request, candidate)
            if deallocate is None:
                continue
            found = False
            try:
                found = self._allocate_device(claim_index, request_index, request, place.device_index + 1, position + 1)
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
        positions: Sequence[int] = range(start, len(self._candidates))
        known = self._dead_ends.positions(request) if self._dead_ends is not None else None
        if known is not None:
            positions = known[bisect_left(known, start) :]
        is_certain = self._dead_ends is not None and self._dead_ends.is_certain(request)
        for position in positions:
            candidate = self._candidates[position]
            if is_certain:
                if not self._allocated.get(candidate.device.id):
                    yield position, candidate
            elif not self._is_in_use(claim_index, request, candidate.device.id) and self.matches(request, candidate):
                yield position, candidate

    # -- dead ends -------------------------------------------------------------------------------------------------

    def _new_dead_ends(self) -> DeadEnds:
        candidates, features = self._candidates, self._features
        self._positions = {candidate.device.id: position for position, candidate in enumerate(candidates)}
        has_counters = any(candidate.device.consumes_counters for candidate in candidates)
        dead_ends = DeadEnds(
            candidates,
            self._claims,
            may_match=self.may_match,
            has_side_effects=has_counters or any(map(_has_side_effects, self._claims)),
            are_shared=features.consumable_capacity
            and any(candidate.device.device.allow_multiple_allocations for candidate in candidates),
        )
        dead_ends.reach(self._reached)
        return dead_ends

    def _devices_in_use(self) -> list[tuple[int, Hashable]]:
        """The positions of the devices that the search has allocated, with what is in use of each."""
        in_use: list[tuple[int, Hashable]] = []
        for claim_index, results in enumerate(self._results):
            for result in results:
                what: Hashable = claim_index
                if result.consumed_capacity is not None:
                    what = tuple(sorted(self._consumed_capacity.get(result.device.id, {}).items()))
                in_use.append((self._positions[result.device.id], what))
        return in_use

    def _side_effects(self, dead_ends: DeadEnds, place: Place) -> SideEffects | None:
        if dead_ends.interchangeable:
            return None
        constraints = dead_ends.remaining_constraints(place.request_number)
        counters = frozenset(
            (pool, counter_set, name, amount)
            for pool, counter_sets in self._consumed_counters.items()
            for counter_set, amounts in counter_sets.items()
            for name, amount in amounts.items()
            if amount
        )
        return SideEffects(tuple(frozenset(each.values.items()) for each in constraints), counters)

    def _restore(self, dead_ends: DeadEnds, place: Place, side_effects: SideEffects) -> None:
        constraints = dead_ends.remaining_constraints(place.request_number)
        for constraint, values in zip(constraints, side_effects.values, strict=True):
            constraint.restore(dict(values))
        self._consumed_counters.clear()
        for pool, counter_set, name, amount in side_effects.counters:
            self._consumed_counters.setdefault(pool, {}).setdefault(counter_set, {})[name] = amount

    def _remember(self, dead_ends: DeadEnds, place: Place, before: SideEffects | None, *, exceeds_limit: bool) -> None:
        """Remember that a place had no solution; all requests reached by now had a part in it."""
        dead_ends.reach(self._reached)
        state = dead_ends.state(place, self._devices_in_use(), len(self._results[place.claim_index]), before)
        dead_ends.add(state, DeadEnd(exceeds_limit, self._side_effects(dead_ends, place)))

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
        results, constraints = self._results[claim_index], self._constraints_on(claim_index, request)
        consumed = self._amounts_of(device, request) if is_shared else None
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
        constraints = self._constraints_on(claim_index, request)
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

    def _constraints_on(self, claim_index: int, request: ResolvedRequest) -> list[Constraint]:
        found = self._constraints.get(request)
        if found is None:
            found = [each for each in self._claims[claim_index].constraints if each.applies_to(request)]
            self._constraints[request] = found
        return found

    # -- capacity and counters -------------------------------------------------------------------------------------

    def _has_capacity(self, request: ResolvedRequest, candidate: CandidateDevice) -> bool:
        if not self._features.consumable_capacity:
            return True
        device = candidate.device
        consumed = self._tracker.devices.consumed_capacity(device.id), self._consumed_capacity.get(device.id)
        return has_capacity(
            device, request.selection.capacity, *consumed, has_fractions=self._features.fractional_ranges
        )

    def _amounts_of(self, device: PooledDevice, request: ResolvedRequest) -> dict[str, Quantity]:
        capacity, has_fractions = request.selection.capacity, self._features.fractional_ranges
        return consumed_capacity(device, capacity, has_fractions=has_fractions)

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
        if self._is_charged(device, is_shared=is_shared):
            return True
        consumed = self._consumed_counters.setdefault(pool, {})
        add_consumption(consumed, device, +1)
        for counter_set, available in self._available_counters.of_pool(pool).items():
            charged = consumed.get(counter_set, {})
            if any(amount < charged.get(name, 0) for name, amount in available.items()):
                add_consumption(consumed, device, -1)
                return False
        return True

    def _is_charged(self, device: PooledDevice, *, is_shared: bool) -> bool:
        """Whether a device has been charged to its counters with another share of it."""
        return is_shared and bool(
            self._tracker.devices.consumed_capacity(device.id) or device.id in self._consumed_capacity
        )


def tolerates_all(tolerations: Sequence[DeviceToleration], taints: Iterable[DeviceTaint]) -> bool:
    """Whether every taint is tolerated."""
    return all(any(tolerates(toleration, taint) for toleration in tolerations) for taint in taints)


def _has_side_effects(claim: ResolvedClaim) -> bool:
    """Whether dead ends in the search for a claim may change constraints, or fail it with an error."""
    names = [subrequests[0].request for subrequests in claim.requests]
    if claim.constraints and len(set(names)) < len(names):
        return True
    return any(
        constraint.applies_to(request)
        and bool(request.all_devices or (isinstance(constraint, DistinctAttribute) and request.device_count > 1))
        for constraint in claim.constraints
        for subrequests in claim.requests
        for request in subrequests
    )


# -- capacity and shared counters ----------------------------------------------------------------------------------


def consumed_capacity(
    device: PooledDevice, requirements: CapacityRequirements | None, *, has_fractions: bool = False
) -> dict[str, Quantity]:
    """The amount that a request consumes of each capacity of a device. Raises InvalidQuantity.

    ``has_fractions``: ranges with a fraction of a unit are computed in thousandths (DRAFractionalCapacityRange).
    """
    requests = requirements.requests if requirements is not None else {}
    return {
        name: _consumed(requests.get(name), capacity, has_fractions)
        for name, capacity in device.device.capacity.items()
    }


def has_capacity(
    device: PooledDevice,
    requirements: CapacityRequirements | None,
    *consumed: Mapping[str, int] | None,
    has_fractions: bool = False,
) -> bool:
    """Whether a device has all requested capacities, in amounts that their policies permit.

    ``consumed`` are the amounts in nano units that other allocations consume, ``has_fractions`` is as above. Raises
    InvalidQuantity.
    """
    if requirements is not None and any(name not in device.capacity for name in requirements.requests):
        return False
    for name, quantity in consumed_capacity(device, requirements, has_fractions=has_fractions).items():
        amount = nanos(quantity)
        policy = device.device.capacity[name].request_policy
        if policy is not None and not _permits(policy, amount, has_fractions):
            return False
        if amount + sum(amounts.get(name, 0) for amounts in consumed if amounts) > device.capacity[name]:
            return False
    return True


def _consumed(requested: Quantity | None, capacity: DeviceCapacity, has_fractions: bool) -> Quantity:
    policy = capacity.request_policy
    if requested is None:
        return capacity.value if policy is None or policy.default is None else policy.default
    if policy is None:
        return requested
    if policy.valid_range is not None and policy.valid_range.min is not None:
        return _rounded_up(requested, policy.valid_range, policy.valid_range.min, has_fractions)
    return next((value for value in policy.valid_values if nanos(requested) <= nanos(value)), requested)


def _rounded_up(
    requested: Quantity, valid_range: CapacityRequestPolicyRange, minimum: Quantity, has_fractions: bool
) -> Quantity:
    if nanos(requested) < nanos(minimum):
        return minimum
    if valid_range.step is None:
        return requested
    scale = _scale(valid_range, has_fractions)
    first, step = whole(nanos(minimum), scale), whole(nanos(valid_range.step), scale)
    if not step:
        return requested
    above_minimum = whole(nanos(requested), scale) - first
    value = first + -(-above_minimum // step) * step
    if scale == NANOS:
        return _binary_quantity(value)
    return f"{value}m" if value % 1000 else _binary_quantity(value // 1000)


def _permits(policy: CapacityRequestPolicy, amount: int, has_fractions: bool) -> bool:
    if policy.default is not None and amount == nanos(policy.default):
        return True
    valid_range = policy.valid_range
    if valid_range is None:
        return not policy.valid_values or any(amount == nanos(value) for value in policy.valid_values)
    if valid_range.max is not None and amount > nanos(valid_range.max):
        return False
    if valid_range.step is None:
        return True
    scale = _scale(valid_range, has_fractions)
    if scale != NANOS and amount % scale:
        return False
    step = whole(nanos(valid_range.step), scale)
    minimum = whole(nanos(valid_range.min), scale) if valid_range.min is not None else 0
    return not step or (whole(amount, scale) - minimum) % step == 0


def _scale(valid_range: CapacityRequestPolicyRange, has_fractions: bool) -> int:
    """How many nano units a range is computed in: those of a unit, or of a thousandth where it has fractions of it."""
    if not has_fractions:
        return NANOS
    amounts = [nanos(each) for each in (valid_range.min, valid_range.max, valid_range.step) if each is not None]
    in_thousandths = any(amount % NANOS for amount in amounts) and all(
        amount <= _MOST_IN_THOUSANDTHS for amount in amounts
    )
    return _THOUSANDTH if in_thousandths else NANOS


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

    def allocated(self, pool: DevicePool) -> Iterator[PooledDevice]:
        """The devices of a pool that consume counters because they are allocated, accessible or not."""
        devices = self._tracker.devices
        for device in pool.devices():
            if devices.is_allocated(device.id) or (self._shares and devices.is_shared(device.id)):
                yield device

    def of_pool(self, pool: DevicePool) -> CounterAmounts:
        """The available amounts of a pool in nano units; negative where devices consume more than there is."""
        changes = self._tracker.devices.pool_version(*pool.id)
        cached = self._cache.get(pool)
        if cached is None or cached[0] != changes:
            available = {name: dict(counters) for name, counters in pool.shared_counters.items()}
            for device in self.allocated(pool):
                add_consumption(available, device, -1)
            cached = self._cache[pool] = (changes, available)
        return cached[1]


def add_consumption(amounts: dict[str, dict[str, int]], device: PooledDevice, sign: int) -> None:
    """Add (+1) or subtract (-1) what a device consumes of shared counters."""
    for counter_set, consumed in device.consumes_counters.items():
        counters = amounts.setdefault(counter_set, {})
        for name, amount in consumed.items():
            counters[name] = counters.get(name, 0) + sign * amount
