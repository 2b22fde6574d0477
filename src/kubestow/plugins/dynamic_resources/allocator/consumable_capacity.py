"""How much of a device's capacity a request takes (semantics 8.16, consumable capacity).

A device that allows multiple allocations is shared until one of its capacities is used up. What a request takes of a
capacity is what it asks for, rounded up as the capacity's policy says; without asking it takes the policy's default, or
all of it.
"""

from __future__ import annotations

from collections.abc import Mapping

from kubestow.api.quantity import NANOS, Quantity, nanos, units
from kubestow.api.resource import (
    CapacityRequestPolicy,
    CapacityRequestPolicyRange,
    CapacityRequirements,
    DeviceCapacity,
)
from kubestow.plugins.dynamic_resources.inventory.devices import PooledDevice

__all__ = ["consumption", "fits"]

_BINARY_SUFFIXES = ("", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei")


def consumption(device: PooledDevice, wanted: CapacityRequirements | None) -> dict[str, Quantity]:
    """What a request would take of each of a device's capacities. Raises InvalidQuantity."""
    requests = wanted.requests if wanted is not None else {}
    return {name: _taken(requests.get(name), capacity) for name, capacity in device.device.capacity.items()}


def fits(device: PooledDevice, wanted: CapacityRequirements | None, *used: Mapping[str, int] | None) -> bool:
    """Whether a device has what a request asks for beside what is used (nano units), in a permitted amount."""
    if wanted is not None and any(name not in device.capacity for name in wanted.requests):
        return False
    for name, quantity in consumption(device, wanted).items():
        amount = nanos(quantity)
        policy = device.device.capacity[name].request_policy
        if policy is not None and not _permits(policy, amount):
            return False
        if amount + sum(taken.get(name, 0) for taken in used if taken) > device.capacity[name]:
            return False
    return True


def _taken(requested: Quantity | None, capacity: DeviceCapacity) -> Quantity:
    policy = capacity.request_policy
    if requested is None:
        return capacity.value if policy is None or policy.default is None else policy.default
    if policy is None:
        return requested
    if policy.valid_range is not None and policy.valid_range.min is not None:
        return _rounded_up(requested, policy.valid_range, policy.valid_range.min)
    return next((value for value in policy.valid_values if nanos(requested) <= nanos(value)), requested)


def _rounded_up(requested: Quantity, permitted: CapacityRequestPolicyRange, least: Quantity) -> Quantity:
    if nanos(requested) < nanos(least):
        return least
    step = _step(permitted)
    if not step:
        return requested
    beyond = units(requested) - units(least)
    return _binary(units(least) + -(-beyond // step) * step)


def _permits(policy: CapacityRequestPolicy, amount: int) -> bool:
    if policy.default is not None and amount == nanos(policy.default):
        return True
    if policy.valid_range is not None:
        return _in_range(policy.valid_range, amount)
    return not policy.valid_values or any(amount == nanos(value) for value in policy.valid_values)


def _in_range(permitted: CapacityRequestPolicyRange, amount: int) -> bool:
    if permitted.max is not None and amount > nanos(permitted.max):
        return False
    step = _step(permitted)
    least = units(permitted.min) if permitted.min is not None else 0
    return not step or (-(-amount // NANOS) - least) % step == 0


def _step(permitted: CapacityRequestPolicyRange) -> int:
    return units(permitted.step) if permitted.step is not None else 0


def _binary(value: int) -> str:
    """A whole number as Kubernetes writes it with binary suffixes."""
    power = 0
    while value and value % 1024 == 0 and power < len(_BINARY_SUFFIXES) - 1:
        value //= 1024
        power += 1
    return f"{value}{_BINARY_SUFFIXES[power]}"
