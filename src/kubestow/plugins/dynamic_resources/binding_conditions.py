"""Devices that have to be made ready between allocation and use: binding conditions (semantics 8.16)."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta

from kubestow.api.resource import AllocatedDeviceStatus, DeviceRequestAllocationResult, ResourceClaim

__all__ = ["BindingFailed", "drivers_awaited", "has_binding_conditions", "is_ready", "overdue_at"]


class BindingFailed(Exception):
    """A device reports that it will not become ready; the text says which claim's, and why."""


def has_binding_conditions(claim: ResourceClaim) -> bool:
    """Whether some allocated device has to become ready first."""
    allocation = claim.status.allocation
    return allocation is not None and any(result.binding_conditions for result in allocation.devices.results)


def drivers_awaited(claims: Iterable[ResourceClaim]) -> list[str]:
    """The drivers that have to make devices of some claims ready, each once."""
    allocations = [claim.status.allocation for claim in claims if claim.status.allocation is not None]
    results = [result for allocation in allocations for result in allocation.devices.results]
    return sorted({result.driver for result in results if result.binding_conditions})


def is_ready(claim: ResourceClaim) -> bool:
    """Whether all devices of an allocated claim are ready. Raises BindingFailed when one never will be."""
    allocation = claim.status.allocation
    if allocation is None:
        return False
    for result in allocation.devices.results:
        if not result.binding_conditions:
            continue
        status = _status(claim, result)
        if status is None:
            return False
        _check_failures(claim, result, status)
        true = {condition.type for condition in status.conditions if condition.status == "True"}
        if not true.issuperset(result.binding_conditions):
            return False
    return True


def overdue_at(claim: ResourceClaim, timeout: timedelta) -> datetime | None:
    """When devices of a claim will have been given ``timeout`` to become ready; None when nothing has to."""
    allocation = claim.status.allocation
    if allocation is None or not allocation.allocation_timestamp or not has_binding_conditions(claim):
        return None
    return datetime.fromisoformat(allocation.allocation_timestamp) + timeout


def _check_failures(claim: ResourceClaim, result: DeviceRequestAllocationResult, status: AllocatedDeviceStatus) -> None:
    for condition in status.conditions:
        if condition.type in result.binding_failure_conditions and condition.status == "True":
            subject = f"claim={claim.metadata.name}, reason={condition.reason}"
            raise BindingFailed(f'device binding failed: {subject}, message="{condition.message}"')


def _status(claim: ResourceClaim, result: DeviceRequestAllocationResult) -> AllocatedDeviceStatus | None:
    identity = (result.driver, result.pool, result.device)
    return next((s for s in claim.status.devices if (s.driver, s.pool, s.device) == identity), None)
