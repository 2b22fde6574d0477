"""What claims ask for, made ready for the search: requests with their alternatives, classes and numbers of devices."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from kubestow.api.resource import (
    DeviceClass,
    DeviceRequest,
    DeviceSelection,
    DeviceSubRequest,
    ExactDeviceRequest,
    ResourceClaim,
)
from kubestow.plugins.dynamic_resources.allocator.constraints import Constraint, constraint
from kubestow.plugins.dynamic_resources.features import Features
from kubestow.plugins.dynamic_resources.inventory.cel import Selectors
from kubestow.plugins.dynamic_resources.inventory.pools import Candidate, ReachableDevices

__all__ = ["MOST_DEVICES", "AllocationError", "ClaimDemand", "Demand", "TimedOut", "demanded"]

MOST_DEVICES = 32
"""A claim can hold this many devices."""

#: Finds a device class by its name.
Classes = Callable[[str], DeviceClass | None]


class AllocationError(Exception):
    """Something is wrong with a claim or class; the text says with which, and what."""


class TimedOut(AllocationError):
    """A search was given up."""


@dataclass(slots=True, eq=False)
class Demand:
    """One request, or one alternative of a request. ``everything`` are the devices of one that takes all."""

    claim: ResourceClaim
    request: str
    alternative: str
    selection: DeviceSelection
    device_class: DeviceClass
    count: int
    everything: tuple[Candidate, ...] | None = None

    @property
    def has_admin_access(self) -> bool:
        """Whether devices are only looked at, and not taken from others."""
        return isinstance(self.selection, ExactDeviceRequest) and bool(self.selection.admin_access)

    @property
    def name(self) -> str:
        """The name that allocation results carry."""
        return f"{self.request}/{self.alternative}" if self.alternative else self.request

    @property
    def subject(self) -> str:
        """For messages."""
        return f"claim {self.claim.key}, request {self.alternative or self.request}"

    def selects(self, candidate: Candidate, selectors: Selectors, features: Features) -> bool:
        """Whether class and request want a device that is reachable. Raises SelectorError."""
        device = candidate.device
        if device.device.binding_conditions and not features.binding_conditions:
            return False
        return (
            device.matches(
                self.device_class.spec.selectors, selectors, subject=f"class {self.device_class.metadata.name}"
            )
            and device.matches(self.selection.selectors, selectors, subject=f"claim {self.claim.key}")
            and candidate.reachable
        )


@dataclass(slots=True, eq=False)
class ClaimDemand:
    """A claim's requests, each with its alternatives (a single one where there is no choice), and its constraints."""

    claim: ResourceClaim
    requests: list[list[Demand]]
    constraints: list[Constraint]

    @property
    def fewest_devices(self) -> int:
        """How many devices the claim needs at least."""
        return sum(min(demand.count for demand in alternatives) for alternatives in self.requests)


def demanded(
    claim: ResourceClaim,
    reached: ReachableDevices,
    classes: Classes,
    *,
    features: Features,
    wanted: Callable[[Demand, Candidate], bool],
) -> ClaimDemand:
    """A claim's demand on some nodes. Raises AllocationError, or what ``wanted`` raises.

    ``wanted`` says whether a device is among "all" devices of a demand.
    """
    requests = []
    for request in claim.spec.devices.requests:
        alternatives = [_demand(claim, request, selection, classes, features) for selection in _selections(request)]
        for demand in alternatives:
            _count(demand, reached, wanted)
        requests.append(alternatives)
    whole = ClaimDemand(claim, requests, list(_constraints(claim)))
    if whole.fewest_devices > MOST_DEVICES:
        asked = f"number of requested devices {whole.fewest_devices}"
        raise AllocationError(f"claim {claim.key}: {asked} exceeds the claim limit of {MOST_DEVICES}")
    return whole


def _selections(request: DeviceRequest) -> Sequence[DeviceSelection]:
    if request.first_available:
        return request.first_available
    return [request.exactly or ExactDeviceRequest()]


def _demand(
    claim: ResourceClaim, request: DeviceRequest, selection: DeviceSelection, classes: Classes, features: Features
) -> Demand:
    alternative = selection.name if isinstance(selection, DeviceSubRequest) else ""
    subject = f"claim {claim.key}, request {alternative or request.name}"
    problem = _unsupported(selection, features)
    if problem:
        raise AllocationError(f"{subject}{problem}")
    device_class = classes(selection.device_class_name)
    if device_class is None:
        name = selection.device_class_name
        raise AllocationError(f"{subject}: could not retrieve device class {name}: not found")
    return Demand(claim, request.name, alternative, selection, device_class, selection.count)


def _unsupported(selection: DeviceSelection, features: Features) -> str:
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


def _count(demand: Demand, reached: ReachableDevices, wanted: Callable[[Demand, Candidate], bool]) -> None:
    """Find out how many "all" are."""
    if demand.selection.allocation_mode != "All":
        return
    everything: list[Candidate] = []
    for pool in reached.pools:
        if pool.is_incomplete or pool.invalid:
            state = "being updated" if pool.is_incomplete else "invalid"
            raise AllocationError(
                f"{demand.subject}: asks for all devices, but resource pool {pool.id} is currently {state}"
            )
        everything += (candidate for candidate in pool.candidates if wanted(demand, candidate))
    demand.everything, demand.count = tuple(everything), len(everything)


def _constraints(claim: ResourceClaim) -> Iterator[Constraint]:
    for number, declared in enumerate(claim.spec.devices.constraints):
        made = constraint(declared)
        if made is None:
            problem = f"constraint #{number}: empty constraint (unsupported constraint type?)"
            raise AllocationError(f"claim {claim.key}, {problem}")
        yield made
