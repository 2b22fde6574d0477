"""Claims with their requests resolved for a search: subrequests, device classes, device counts and constraints.

Resolving depends on the nodes, because a request with allocation mode All needs all matching devices that they can
access. What is invalid in a claim is found here; which devices it gets is up to :mod:`.search`.

The constraints of a claim on the attributes of its devices, matchAttribute and distinctAttribute, are monotonic: a
device that a constraint rejects stays rejected when further devices are added. Each successful ``add`` is undone by at
most one ``remove`` with the same arguments.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from kubestow.api.resource import (
    DeviceAttribute,
    DeviceClass,
    DeviceConstraint,
    DeviceRequest,
    DeviceSelection,
    DeviceSubRequest,
    ExactDeviceRequest,
    ResourceClaim,
)
from kubestow.framework.interface import Handle
from kubestow.plugins.dynamic_resources.cel import SelectorCache
from kubestow.plugins.dynamic_resources.pools import AccessibleDevices, CandidateDevice, PooledDevice

MAX_DEVICES_PER_CLAIM = 32

#: Returns the device class of a name.
ClassLookup = Callable[[str], DeviceClass | None]


@dataclass(frozen=True, slots=True)
class Features:
    """The enabled features; the defaults are those of the feature gates. Read once, when the plugin is created."""

    prioritized_list: bool = True
    partitionable_devices: bool = True
    taints: bool = True
    binding_conditions: bool = True
    consumable_capacity: bool = True
    extended_resources: bool = True

    @classmethod
    def from_gates(cls, handle: Handle) -> Features:
        """Read the feature gates."""
        enabled = handle.feature_enabled
        return cls(
            prioritized_list=enabled("DRAPrioritizedList"),
            partitionable_devices=enabled("DRAPartitionableDevices"),
            taints=enabled("DRADeviceTaints"),
            binding_conditions=enabled("DRADeviceBindingConditions") and enabled("DRAResourceClaimDeviceStatus"),
            consumable_capacity=enabled("DRAConsumableCapacity"),
            extended_resources=enabled("DRAExtendedResource"),
        )


class AllocationError(Exception):
    """A claim, class or pool is invalid; the text names it and says what is wrong."""


class AllocationTimeout(AllocationError):
    """A search has reached its limit."""


@dataclass(slots=True, eq=False)
class ResolvedRequest:
    """A request or one of its subrequests; ``all_devices`` are the matching devices if the allocation mode is All."""

    claim: ResourceClaim
    request: str
    subrequest: str
    selection: DeviceSelection
    device_class: DeviceClass
    device_count: int
    all_devices: tuple[CandidateDevice, ...] | None = None

    @property
    def has_admin_access(self) -> bool:
        """Whether the request uses devices without allocating them exclusively."""
        return isinstance(self.selection, ExactDeviceRequest) and bool(self.selection.admin_access)

    @property
    def result_name(self) -> str:
        """The name in allocation results, ``request`` or ``request/subrequest``."""
        return f"{self.request}/{self.subrequest}" if self.subrequest else self.request

    @property
    def description(self) -> str:
        """The request in error messages."""
        return f"claim {self.claim.key}, request {self.subrequest or self.request}"

    def matches(self, candidate: CandidateDevice, selectors: SelectorCache, features: Features) -> bool:
        """Whether a device is accessible and the selectors of class and request match it. Raises SelectorError."""
        device = candidate.device
        if device.device.binding_conditions and not features.binding_conditions:
            return False
        of_class = f"class {self.device_class.metadata.name}"
        return (
            device.matches(self.device_class.spec.selectors, selectors, subject=of_class)
            and device.matches(self.selection.selectors, selectors, subject=f"claim {self.claim.key}")
            and candidate.accessible
        )


@dataclass(slots=True, eq=False)
class ResolvedClaim:
    """A claim with its constraints, and per request the subrequests in order of preference, or the request itself."""

    claim: ResourceClaim
    requests: list[list[ResolvedRequest]]
    constraints: list[Constraint]

    @property
    def min_device_count(self) -> int:
        """The number of devices that the claim needs at least."""
        return sum(min(request.device_count for request in subrequests) for subrequests in self.requests)


def resolve_claim(
    claim: ResourceClaim,
    devices: AccessibleDevices,
    classes: ClassLookup,
    *,
    features: Features,
    matches: Callable[[ResolvedRequest, CandidateDevice], bool],
) -> ResolvedClaim:
    """Resolve the requests of a claim for nodes with the given accessible devices.

    ``matches`` selects the devices of requests with allocation mode All. Raises AllocationError, and what ``matches``
    raises.
    """
    requests = []
    for request in claim.spec.devices.requests:
        selections: Sequence[DeviceSelection] = request.first_available or [request.exactly or ExactDeviceRequest()]
        subrequests = [_resolve_request(claim, request, selection, classes, features) for selection in selections]
        for subrequest in subrequests:
            if subrequest.selection.allocation_mode == "All":
                _resolve_all_devices(subrequest, devices, matches)
        requests.append(subrequests)
    resolved = ResolvedClaim(claim, requests, list(_constraints(claim)))
    if resolved.min_device_count > MAX_DEVICES_PER_CLAIM:
        requested = f"number of requested devices {resolved.min_device_count}"
        raise AllocationError(f"claim {claim.key}: {requested} exceeds the claim limit of {MAX_DEVICES_PER_CLAIM}")
    return resolved


def _resolve_request(
    claim: ResourceClaim, request: DeviceRequest, selection: DeviceSelection, classes: ClassLookup, features: Features
) -> ResolvedRequest:
    subrequest = selection.name if isinstance(selection, DeviceSubRequest) else ""
    description = f"claim {claim.key}, request {subrequest or request.name}"
    problem = _problem(selection, features)
    if problem:
        raise AllocationError(f"{description}{problem}")
    device_class = classes(selection.device_class_name)
    if device_class is None:
        name = selection.device_class_name
        raise AllocationError(f"{description}: could not retrieve device class {name}: not found")
    return ResolvedRequest(claim, request.name, subrequest, selection, device_class, selection.count)


def _problem(selection: DeviceSelection, features: Features) -> str:
    """What is unsupported in a request, as the rest of an error message; empty if nothing is."""
    if isinstance(selection, DeviceSubRequest) and not features.prioritized_list:
        return ": has subrequests, but the DRAPrioritizedList feature is disabled"
    if selection.capacity is not None and not features.consumable_capacity:
        return ": has capacity requests, but the DRAConsumableCapacity feature is disabled"
    for number, selector in enumerate(selection.selectors):
        if selector.cel is None:
            return f", selector #{number}: CEL expression empty (unsupported selector type?)"
    if selection.allocation_mode not in ("ExactCount", "All"):
        return f": unsupported count mode {selection.allocation_mode}"
    return ""


def _resolve_all_devices(
    request: ResolvedRequest, devices: AccessibleDevices, matches: Callable[[ResolvedRequest, CandidateDevice], bool]
) -> None:
    all_devices: list[CandidateDevice] = []
    for pool in devices.pools:
        if pool.is_incomplete or pool.invalid_reason:
            state = "being updated" if pool.is_incomplete else "invalid"
            raise AllocationError(
                f"{request.description}: asks for all devices, but resource pool {pool.id} is currently {state}"
            )
        all_devices += (candidate for candidate in pool.candidates if matches(request, candidate))
    request.all_devices, request.device_count = tuple(all_devices), len(all_devices)


def _constraints(claim: ResourceClaim) -> Iterator[Constraint]:
    for number, declared in enumerate(claim.spec.devices.constraints):
        constraint = compile_constraint(declared)
        if constraint is None:
            problem = f"constraint #{number}: empty constraint (unsupported constraint type?)"
            raise AllocationError(f"claim {claim.key}, {problem}")
        yield constraint


# -- constraints on the attributes of devices ------------------------------------------------------------


class Constraint(Protocol):
    """A constraint with the devices that have been added to it so far."""

    def add(self, request: str, subrequest: str, device: PooledDevice) -> bool:
        """Add a device for a request (and subrequest, or ""); False if that violates the constraint."""

    def remove(self, request: str, subrequest: str, device: PooledDevice) -> None:
        """Undo one successful :meth:`add`."""


def compile_constraint(declared: DeviceConstraint) -> Constraint | None:
    """The constraint as the search uses it; None for an unknown type."""
    requests = frozenset(declared.requests)
    if declared.match_attribute is not None:
        return _MatchAttribute(requests, declared.match_attribute)
    if declared.distinct_attribute is not None:
        return _DistinctAttribute(requests, declared.distinct_attribute)
    return None


class _AttributeConstraint:
    def __init__(self, requests: frozenset[str], attribute: str) -> None:
        self._requests = requests
        self._attribute = attribute

    def _applies_to(self, request: str, subrequest: str) -> bool:
        requests = self._requests
        return not requests or request in requests or (bool(subrequest) and f"{request}/{subrequest}" in requests)


class _MatchAttribute(_AttributeConstraint):
    """All devices have the attribute, with equal values."""

    def __init__(self, requests: frozenset[str], attribute: str) -> None:
        super().__init__(requests, attribute)
        self._value: DeviceAttribute | None = None
        self._device_count = 0

    def add(self, request: str, subrequest: str, device: PooledDevice) -> bool:
        if not self._applies_to(request, subrequest):
            return True
        value = device.attribute(self._attribute)
        if value is None or (self._device_count and value != self._value):
            return False
        self._value = value
        self._device_count += 1
        return True

    def remove(self, request: str, subrequest: str, device: PooledDevice) -> None:
        if self._applies_to(request, subrequest):
            self._device_count -= 1


class _DistinctAttribute(_AttributeConstraint):
    """All devices have the attribute, with different values.

    QUIRK (semantics 8.16): one value is kept per request, so among several devices of one request only the latest is
    compared.
    """

    def __init__(self, requests: frozenset[str], attribute: str) -> None:
        super().__init__(requests, attribute)
        self._values: dict[str, DeviceAttribute] = {}

    def add(self, request: str, subrequest: str, device: PooledDevice) -> bool:
        if not self._applies_to(request, subrequest):
            return True
        value = device.attribute(self._attribute)
        if value is None or value in self._values.values():
            return False
        self._values[request] = value
        return True

    def remove(self, request: str, subrequest: str, device: PooledDevice) -> None:
        if self._applies_to(request, subrequest):
            self._values.pop(request, None)
