"""Claims with their requests resolved for a search: subrequests, device classes, device counts and constraints.

Resolving depends on the nodes, because a request with allocation mode All needs all matching devices that they can
access. What is invalid in a claim is found here; which devices it gets is up to :mod:`.search`.

The constraints of a claim on the attributes of its devices, matchAttribute and distinctAttribute, are monotonic: a
device that a constraint rejects stays rejected when further devices are added.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from kubestow.api.resource import (
    DeviceAttribute,
    DeviceClass,
    DeviceRequest,
    DeviceSelection,
    DeviceSubRequest,
    ExactDeviceRequest,
    ResourceClaim,
)
from kubestow.cluster.changes.catalog import Catalog
from kubestow.config.feature_gates import device_taint_rules_gate
from kubestow.framework.interface import Handle
from kubestow.plugins.dynamic_resources.cel import SelectorCache
from kubestow.plugins.dynamic_resources.pools import AccessibleDevices, CandidateDevice, PooledDevice
from kubestow.rules.minors import DEFAULT_MINOR, Behaviour

MAX_DEVICES_PER_CLAIM = 32


@dataclass(frozen=True, slots=True)
class Features:
    """The enabled features of a minor version; the defaults are those of the feature gates.

    Read once, when the plugin is created.
    """

    prioritized_list: bool = True
    admin_access: bool = True
    partitionable_devices: bool = True
    taints: bool = True
    taint_rules: bool = False
    binding_conditions: bool = True
    consumable_capacity: bool = True
    fractional_ranges: bool = False
    compatibility_groups: bool = False
    extended_resources: bool = True
    #: Whether the allocator in use knows consumable capacity and binding conditions, be their gates on or off. Another
    #: one is chosen if both are off: it ignores capacity requests, for example, which this one refuses.
    full_allocator: bool = True
    #: Whether the minor version has a behaviour.
    emulates: Callable[[Behaviour], bool] = DEFAULT_MINOR.has

    @classmethod
    def from_gates(cls, handle: Handle) -> Features:
        """Read the feature gates."""
        enabled = handle.feature_enabled
        conditions, status = enabled("DRADeviceBindingConditions"), enabled("DRAResourceClaimDeviceStatus")
        together = handle.emulates(Behaviour.DEVICE_STATUS_ALONE_CHOOSES_NO_ALLOCATOR)
        binding = conditions and status if together else conditions or status
        return cls(
            full_allocator=handle.emulates(Behaviour.DEVICE_ALLOCATOR_DEPENDS_ON_GATES)
            and (binding or enabled("DRAConsumableCapacity") or enabled("DRADeviceCompatibilityGroups")),
            emulates=handle.emulates,
            admin_access=enabled("DRAAdminAccess") or not handle.emulates(Behaviour.ADMIN_ACCESS_HAS_A_GATE),
            prioritized_list=enabled("DRAPrioritizedList"),
            partitionable_devices=enabled("DRAPartitionableDevices"),
            taints=enabled("DRADeviceTaints"),
            taint_rules=enabled(device_taint_rules_gate(handle.emulates)),
            binding_conditions=conditions and status,
            consumable_capacity=enabled("DRAConsumableCapacity"),
            fractional_ranges=enabled("DRAFractionalCapacityRange"),
            compatibility_groups=enabled("DRADeviceCompatibilityGroups"),
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
        of_class, of_claim = f"class {self.device_class.metadata.name}", f"claim {self.claim.key}"
        is_named = features.emulates(Behaviour.SELECTOR_ERRORS_NAME_THE_DEVICE)
        return (
            device.matches(self.device_class.spec.selectors, selectors, subject=of_class, is_named=is_named)
            and device.matches(self.selection.selectors, selectors, subject=of_claim, is_named=is_named)
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
    classes: Catalog[DeviceClass],
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
                found = tuple(each for each in _all_candidates(subrequest, devices) if matches(subrequest, each))
                subrequest.all_devices, subrequest.device_count = found, len(found)
        requests.append(subrequests)
    resolved = ResolvedClaim(claim, requests, list(_constraints(claim, features)))
    if resolved.min_device_count > MAX_DEVICES_PER_CLAIM:
        requested = f"number of requested devices {resolved.min_device_count}"
        raise AllocationError(f"claim {claim.key}: {requested} exceeds the claim limit of {MAX_DEVICES_PER_CLAIM}")
    return resolved


def _resolve_request(
    claim: ResourceClaim,
    request: DeviceRequest,
    selection: DeviceSelection,
    classes: Catalog[DeviceClass],
    features: Features,
) -> ResolvedRequest:
    subrequest = selection.name if isinstance(selection, DeviceSubRequest) else ""
    description = f"claim {claim.key}, request {subrequest or request.name}"
    problem = _problem(selection, features)
    if problem:
        raise AllocationError(f"{description}{problem}")
    if selection.capacity is not None and features.full_allocator and not features.consumable_capacity:
        named = f"request {request.name}"
        if subrequest and features.emulates(Behaviour.CAPACITY_OF_SUBREQUESTS_IS_REFUSED_BY_NAME):
            named = f"subrequest {subrequest}"
        problem = "has capacity requests, but the DRAConsumableCapacity feature is disabled"
        raise AllocationError(f"claim {claim.key}, {named}: {problem}")
    device_class = classes.get("", selection.device_class_name)
    if device_class is None:
        name = selection.device_class_name
        raise AllocationError(f"{description}: could not retrieve device class {name}: not found")
    return ResolvedRequest(claim, request.name, subrequest, selection, device_class, selection.count)


def _problem(selection: DeviceSelection, features: Features) -> str:
    """What is unsupported in a request, as the rest of an error message; empty if nothing is."""
    if isinstance(selection, DeviceSubRequest) and not features.prioritized_list:
        return ": has subrequests, but the DRAPrioritizedList feature is disabled"
    for number, selector in enumerate(selection.selectors):
        if selector.cel is None:
            return f", selector #{number}: CEL expression empty (unsupported selector type?)"
    if isinstance(selection, ExactDeviceRequest) and selection.admin_access is not None and not features.admin_access:
        return ": admin access is requested, but the feature is disabled"
    if selection.allocation_mode not in ("ExactCount", "All"):
        return f": unsupported count mode {selection.allocation_mode}"
    return ""


def _all_candidates(request: ResolvedRequest, devices: AccessibleDevices) -> Iterator[CandidateDevice]:
    for pool in devices.pools:
        if pool.is_incomplete or pool.invalid_reason:
            state = "being updated" if pool.is_incomplete else "invalid"
            raise AllocationError(
                f"{request.description}: asks for all devices, but resource pool {pool.id} is currently {state}"
            )
        yield from pool.candidates


def _constraints(claim: ResourceClaim, features: Features) -> Iterator[Constraint]:
    compares_values = features.emulates(Behaviour.DISTINCT_ATTRIBUTE_COMPARES_VALUES)
    for number, declared in enumerate(claim.spec.devices.constraints):
        if declared.match_attribute is not None:
            yield MatchAttribute(declared.requests, declared.match_attribute)
        elif declared.distinct_attribute is not None and features.full_allocator:
            distinct = DistinctAttribute if compares_values else DistinctDevices
            yield distinct(declared.requests, declared.distinct_attribute)
        else:
            problem = f"constraint #{number}: empty constraint (unsupported constraint type?)"
            raise AllocationError(f"claim {claim.key}, {problem}")


# -- constraints on the attributes of devices ------------------------------------------------------------


class Constraint(ABC):
    """A constraint with the devices that have been added to it so far."""

    def __init__(self, requests: Iterable[str], attribute: str) -> None:
        self._requests = frozenset(requests)
        #: The fully qualified name.
        self.attribute = attribute

    def add(self, request: ResolvedRequest, device: PooledDevice) -> bool:
        """Add a device for a request that the constraint applies to; False if that violates it."""
        value = device.attribute(self.attribute)
        if value is None or not self._permits_value(value):
            return False
        self._add_value(request.request, value)
        return True

    def remove(self, request: ResolvedRequest) -> None:
        """Undo one successful :meth:`add` for the request."""
        self._remove_value(request.request)

    def permits(self, device: PooledDevice) -> bool:
        """Whether :meth:`add` would add a device."""
        value = device.attribute(self.attribute)
        return value is not None and self._permits_value(value)

    def applies_to(self, request: ResolvedRequest) -> bool:
        """Whether the devices of a request have to satisfy the constraint."""
        requests = self._requests
        return not requests or request.request in requests or request.result_name in requests

    @property
    @abstractmethod
    def values(self) -> Mapping[str, DeviceAttribute]:
        """The values that further devices are compared with; by request if the constraint keeps one for each."""

    @abstractmethod
    def restore(self, values: Mapping[str, DeviceAttribute]) -> None:
        """Return to former :attr:`values` that the same devices may have."""

    @abstractmethod
    def _permits_value(self, value: DeviceAttribute) -> bool: ...

    @abstractmethod
    def _add_value(self, request: str, value: DeviceAttribute) -> None: ...

    @abstractmethod
    def _remove_value(self, request: str) -> None: ...


class MatchAttribute(Constraint):
    """All devices have the attribute, with equal values."""

    _value: DeviceAttribute | None = None
    _device_count = 0

    @property
    def values(self) -> Mapping[str, DeviceAttribute]:
        return {"": self._value} if self._device_count and self._value is not None else {}

    def restore(self, values: Mapping[str, DeviceAttribute]) -> None:
        pass  # the same devices always have the same values

    def _permits_value(self, value: DeviceAttribute) -> bool:
        return not self._device_count or value == self._value

    def _add_value(self, request: str, value: DeviceAttribute) -> None:
        self._value = value
        self._device_count += 1

    def _remove_value(self, request: str) -> None:
        self._device_count -= 1


class DistinctAttribute(Constraint):
    """All devices have the attribute, with different values.

    QUIRK (semantics 8.16): one value is kept per request, so among several devices of one request only the latest is
    compared.
    """

    def __init__(self, requests: Iterable[str], attribute: str) -> None:
        super().__init__(requests, attribute)
        self._values: dict[str, DeviceAttribute] = {}

    @property
    def values(self) -> Mapping[str, DeviceAttribute]:
        return dict(self._values)

    def restore(self, values: Mapping[str, DeviceAttribute]) -> None:
        self._values = dict(values)

    def _permits_value(self, value: DeviceAttribute) -> bool:
        return value not in self._values.values()

    def _add_value(self, request: str, value: DeviceAttribute) -> None:
        self._values[request] = value

    def _remove_value(self, request: str) -> None:
        self._values.pop(request, None)


class DistinctDevices(DistinctAttribute):
    """The constraint before :attr:`Behaviour.DISTINCT_ATTRIBUTE_COMPARES_VALUES`.

    QUIRK: not values are compared but their addresses, so a value equals only itself.
    """

    def _permits_value(self, value: DeviceAttribute) -> bool:
        return all(value is not other for other in self._values.values())
