"""Which devices suit the requests of a claim, and what is left of them, for models of many claims at once.

The allocator (:mod:`.search`) decides which devices a claim gets; here is what it can choose from.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass

from kubestow.api.formats.quantity import nanos
from kubestow.api.resource import DeviceAttribute
from kubestow.cluster.resource_claims import DeviceID, ResourceClaimTracker
from kubestow.errors import InvalidQuantity
from kubestow.plugins.dynamic_resources.pools import AccessibleDevices, CandidateDevice
from kubestow.plugins.dynamic_resources.requests import Features, MatchAttribute, ResolvedClaim, ResolvedRequest
from kubestow.plugins.dynamic_resources.search import AllocationSearch, AvailableCounters, consumed_capacity


@dataclass(frozen=True, slots=True, eq=False)
class SuitableDevices:
    """The devices that suit a request, or any of its alternatives, of which it needs ``count``.

    What is not exact about that, such as the number of devices for alternatives, is not to be relied on. ``attribute``
    is the first that has to match in the claim, empty if that is not about this request.
    """

    request: ResolvedRequest
    candidates: Sequence[CandidateDevice]
    count: int
    attribute: str
    is_exact: bool
    features: Features

    @property
    def has_shareable(self) -> bool:
        """Whether several claims can have parts of a suitable device."""
        return any(is_shareable(candidate, self.features) for candidate in self.candidates)

    def value(self, candidate: CandidateDevice) -> DeviceAttribute | None:
        """The value of the attribute that has to match; None without one."""
        return candidate.device.attribute(self.attribute) if self.attribute else None

    def consumed(self, candidate: CandidateDevice) -> Mapping[str, int]:
        """What the request takes of the capacities of a device that is shared, in nano units."""
        if not is_shareable(candidate, self.features):
            return {}
        selection, has_fractions = self.request.selection, self.features.fractional_ranges
        try:
            amounts = consumed_capacity(candidate.device, selection.capacity, has_fractions=has_fractions)
        except InvalidQuantity:
            return {}
        return {name: nanos(amount) for name, amount in amounts.items()}


@dataclass(frozen=True, slots=True, eq=False)
class DeviceLeft:
    """What is left of a device: its ``capacity`` (nano units) if it is shared, and what it ``consumes`` of counters.

    ``counters`` are what is left of those. Devices with equal keys are left alike.
    """

    name: DeviceID
    capacity: Mapping[str, int] | None
    consumes: Mapping[Hashable, int]
    counters: Mapping[Hashable, int]
    key: Hashable


def suitable_devices(
    claim: ResolvedClaim, devices: AccessibleDevices, search: AllocationSearch, features: Features, *, is_exact: bool
) -> list[SuitableDevices]:
    """The devices that suit each request of a claim, in this order."""
    match = next((each for each in claim.constraints if isinstance(each, MatchAttribute)), None)
    return [_of_request(subrequests, match, devices, search, features, is_exact) for subrequests in claim.requests]


def _of_request(
    subrequests: Sequence[ResolvedRequest],
    match: MatchAttribute | None,
    devices: AccessibleDevices,
    search: AllocationSearch,
    features: Features,
    is_exact: bool,
) -> SuitableDevices:
    first = subrequests[0]
    found = [each for each in devices.candidates if not is_exact or any(search.may_match(r, each) for r in subrequests)]
    attribute = ""
    if match is not None and len(subrequests) == 1 and match.applies_to(first):
        attribute = match.attribute
        found = [each for each in found if each.device.attribute(attribute) is not None]
    is_certain = is_exact and len(subrequests) == 1 and not first.has_admin_access
    if first.all_devices is not None:
        is_certain = is_certain and not any(is_shareable(each, features) for each in first.all_devices)
    return SuitableDevices(first, found, first.device_count, attribute, is_certain, features)


def is_shareable(candidate: CandidateDevice, features: Features) -> bool:
    """Whether several claims can have parts of a device."""
    return features.consumable_capacity and candidate.device.device.allow_multiple_allocations


def what_is_left(
    candidate: CandidateDevice, tracker: ResourceClaimTracker, available: AvailableCounters, features: Features
) -> DeviceLeft:
    """What is left of a device and of the counters of its pool."""
    device, pool = candidate.device, candidate.pool
    if is_shareable(candidate, features):
        used = tracker.devices.consumed_capacity(device.id) or {}
        capacity = {name: amount - used.get(name, 0) for name, amount in device.capacity.items()}
        key: Hashable = frozenset(capacity.items()), repr(sorted(device.device.capacity.items()))
        return DeviceLeft(device.id, capacity, {}, {}, key)
    consumes = _by_counter(pool.id, device.consumes_counters)
    counters = _by_counter(pool.id, available.of_pool(pool)) if consumes else {}
    return DeviceLeft(device.id, None, consumes, counters, frozenset(consumes.items()))


def _by_counter(pool: Hashable, amounts: Mapping[str, Mapping[str, int]]) -> dict[Hashable, int]:
    return {(pool, of_set, name): amount for of_set, counters in amounts.items() for name, amount in counters.items()}
