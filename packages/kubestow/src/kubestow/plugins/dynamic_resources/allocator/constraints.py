"""The constraints of a claim on the attributes of its devices: matchAttribute and distinctAttribute.

Both are monotonic: a device that a constraint rejects stays rejected when further devices are added. Each successful
``add`` is undone by at most one ``remove`` with the same arguments.
"""

from __future__ import annotations

from typing import Protocol

from kubestow.api.resource import DeviceAttribute, DeviceConstraint
from kubestow.plugins.dynamic_resources.inventory.devices import PooledDevice

__all__ = ["Constraint", "compile_constraint"]


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
