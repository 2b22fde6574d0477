"""How much of a device's capacity a request consumes (semantics 8.16, consumable capacity).

A device with ``allowMultipleAllocations`` is shared until one of its capacities is used up. A request consumes the
amount that it specifies, rounded up by the request policy of the capacity; without an amount it consumes the policy's
default, or else the whole capacity.
"""

from __future__ import annotations

from collections.abc import Mapping

from kubestow.api.formats.quantity import NANOS, Quantity, nanos, units
from kubestow.api.resource import (
    CapacityRequestPolicy,
    CapacityRequestPolicyRange,
    CapacityRequirements,
    DeviceCapacity,
)
from kubestow.plugins.dynamic_resources.inventory.devices import PooledDevice

__all__ = ["consumed_capacity", "has_capacity"]

_BINARY_SUFFIXES = ("", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei")


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
    if policy.valid_range is not None:
        return _is_in_range(policy.valid_range, amount)
    return not policy.valid_values or any(amount == nanos(value) for value in policy.valid_values)


def _is_in_range(valid_range: CapacityRequestPolicyRange, amount: int) -> bool:
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
