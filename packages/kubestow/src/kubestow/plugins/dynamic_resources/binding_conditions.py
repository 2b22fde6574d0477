"""Binding conditions: what a driver must report of an allocated device before the pod is bound (semantics 8.16).

Allocation results name the binding conditions and the binding failure conditions of their devices; drivers report
conditions in ``status.devices`` of the claim. The functions here compare both and do not wait.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta

from kubestow.api.resource import AllocatedDeviceStatus, DeviceRequestAllocationResult, ResourceClaim

__all__ = [
    "DeviceBindingFailed",
    "binding_deadline",
    "drivers_with_binding_conditions",
    "has_binding_conditions",
    "is_ready_for_binding",
]


class DeviceBindingFailed(Exception):
    """A binding failure condition of a device is true; the text names the claim, the reason and the message."""


def has_binding_conditions(claim: ResourceClaim) -> bool:
    """Whether any allocated device has binding conditions."""
    allocation = claim.status.allocation
    return allocation is not None and any(result.binding_conditions for result in allocation.devices.results)


def drivers_with_binding_conditions(claims: Iterable[ResourceClaim]) -> list[str]:
    """The drivers of all allocated devices with binding conditions, sorted, without duplicates."""
    allocations = [claim.status.allocation for claim in claims if claim.status.allocation is not None]
    results = [result for allocation in allocations for result in allocation.devices.results]
    return sorted({result.driver for result in results if result.binding_conditions})


def is_ready_for_binding(claim: ResourceClaim) -> bool:
    """Whether all binding conditions of an allocated claim are true. Raises DeviceBindingFailed."""
    allocation = claim.status.allocation
    if allocation is None:
        return False
    for result in allocation.devices.results:
        if not result.binding_conditions:
            continue
        status = _device_status(claim, result)
        if status is None:
            return False
        _check_failure_conditions(claim, result, status)
        true = {condition.type for condition in status.conditions if condition.status == "True"}
        if not true.issuperset(result.binding_conditions):
            return False
    return True


def binding_deadline(claim: ResourceClaim, timeout: timedelta) -> datetime | None:
    """The allocation timestamp plus ``timeout``; None for a claim without binding conditions or timestamp."""
    allocation = claim.status.allocation
    if allocation is None or not allocation.allocation_timestamp or not has_binding_conditions(claim):
        return None
    return datetime.fromisoformat(allocation.allocation_timestamp) + timeout


def _check_failure_conditions(
    claim: ResourceClaim, result: DeviceRequestAllocationResult, status: AllocatedDeviceStatus
) -> None:
    for condition in status.conditions:
        if condition.type in result.binding_failure_conditions and condition.status == "True":
            subject = f"claim={claim.metadata.name}, reason={condition.reason}"
            raise DeviceBindingFailed(f'device binding failed: {subject}, message="{condition.message}"')


def _device_status(claim: ResourceClaim, result: DeviceRequestAllocationResult) -> AllocatedDeviceStatus | None:
    identity = (result.driver, result.pool, result.device)
    return next((s for s in claim.status.devices if (s.driver, s.pool, s.device) == identity), None)
