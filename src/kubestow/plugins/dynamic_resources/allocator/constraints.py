"""Constraints between the devices of a claim: an attribute that all of them share, or that none of them shares.

Both kinds are monotonic: once a device is refused, adding others never makes it welcome. Every accepted ``add`` is
either kept or taken back by one ``remove`` with the same arguments.
"""

from __future__ import annotations

from typing import Protocol

from kubestow.api.resource import DeviceAttribute, DeviceConstraint
from kubestow.plugins.dynamic_resources.inventory.devices import PooledDevice

__all__ = ["Constraint", "constraint"]


class Constraint(Protocol):
    """Watches over the devices of some requests."""

    def add(self, request: str, alternative: str, device: PooledDevice) -> bool:
        """Whether a device may join for a request (and the alternative chosen for it, if it has any)."""

    def remove(self, request: str, alternative: str, device: PooledDevice) -> None:
        """A device that joined is not chosen after all."""


def constraint(declared: DeviceConstraint) -> Constraint | None:
    """The working form of a constraint; None for a kind that is not known."""
    requests = frozenset(declared.requests)
    if declared.match_attribute is not None:
        return _Match(requests, declared.match_attribute)
    if declared.distinct_attribute is not None:
        return _Distinct(requests, declared.distinct_attribute)
    return None


class _OnAttribute:
    def __init__(self, requests: frozenset[str], attribute: str) -> None:
        self._requests = requests
        self._attribute = attribute

    def _concerns(self, request: str, alternative: str) -> bool:
        requests = self._requests
        return not requests or request in requests or (bool(alternative) and f"{request}/{alternative}" in requests)


class _Match(_OnAttribute):
    """All devices have the attribute, with the value of the first of them."""

    def __init__(self, requests: frozenset[str], attribute: str) -> None:
        super().__init__(requests, attribute)
        self._value: DeviceAttribute | None = None
        self._devices = 0

    def add(self, request: str, alternative: str, device: PooledDevice) -> bool:
        """Whether the device has the value of the others."""
        if not self._concerns(request, alternative):
            return True
        value = device.attribute(self._attribute)
        if value is None or (self._devices and value != self._value):
            return False
        self._value = value
        self._devices += 1
        return True

    def remove(self, request: str, alternative: str, device: PooledDevice) -> None:
        """One less; the last to go makes the value free."""
        if self._concerns(request, alternative):
            self._devices -= 1


class _Distinct(_OnAttribute):
    """All devices have the attribute, with different values.

    QUIRK: one value is kept per request, so of several devices of one request only the latest is compared with.
    """

    def __init__(self, requests: frozenset[str], attribute: str) -> None:
        super().__init__(requests, attribute)
        self._values: dict[str, DeviceAttribute] = {}

    def add(self, request: str, alternative: str, device: PooledDevice) -> bool:
        """Whether no other request has the device's value."""
        if not self._concerns(request, alternative):
            return True
        value = device.attribute(self._attribute)
        if value is None or value in self._values.values():
            return False
        self._values[request] = value
        return True

    def remove(self, request: str, alternative: str, device: PooledDevice) -> None:
        """The request's value is free again."""
        if self._concerns(request, alternative):
            self._values.pop(request, None)
