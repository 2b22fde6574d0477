"""Addresses of nodes and pods, in networks that exist nowhere else.

Nodes are in 172.16.0.0/12. Each has a range of 254 pod addresses of its own, out of 10.128.0.0/9, unless its
``podCIDR`` says otherwise. Where a range is used up, or there are more nodes than ranges, pods share 10.64.0.0/10.
"""

from __future__ import annotations

import itertools
from ipaddress import IPv4Address, ip_network

__all__ = ["NodeAddresses", "PodAddresses"]

_NODES = int(IPv4Address("172.16.0.0"))
_RANGES = int(IPv4Address("10.128.0.0"))
_SHARED = int(IPv4Address("10.64.0.0"))
#: How many ranges of 256 addresses there are.
_MOST_RANGES = 1 << 15


class NodeAddresses:
    """Addresses and pod ranges for nodes that have none; those in use are to be named first."""

    def __init__(self) -> None:
        self._numbers = itertools.count(1)
        self._range_numbers = itertools.count()
        self._taken: set[str] = set()

    def note(self, taken: str) -> None:
        """An address or range is in use."""
        self._taken.add(taken)

    def address(self) -> str:
        while (found := _text(_NODES + next(self._numbers))) in self._taken:
            pass
        return found

    def pod_range(self) -> str | None:
        """A range of 256, or None when there are no more."""
        for number in self._range_numbers:
            found = f"{_text(_RANGES + number * 256)}/24"
            if number >= _MOST_RANGES:
                return None
            if found not in self._taken:
                return found
        return None


class PodAddresses:
    """Who has which pod address."""

    def __init__(self) -> None:
        self._held: dict[str, str] = {}
        self._taken: set[str] = set()
        self._ranges: dict[str, _Range] = {}
        self._shared = itertools.count(1)

    def note(self, pod: str, address: str) -> None:
        """A pod, by its key, has an address."""
        if self._held.get(pod) != address:
            self.release(pod)
            self._held[pod] = address
            self._taken.add(address)

    def release(self, pod: str) -> None:
        """The pod is gone or has ended."""
        self._taken.discard(self._held.pop(pod, ""))

    def take(self, pod: str, pod_range: str) -> str:
        """An address for a pod in the range of its node (empty: it has none)."""
        found = self._in_range(pod_range) if pod_range else ""
        while not found or found in self._taken:
            found = _text(_SHARED + next(self._shared))
        self.note(pod, found)
        return found

    def _in_range(self, pod_range: str) -> str:
        known = self._ranges.get(pod_range)
        if known is None:
            known = self._ranges[pod_range] = _Range(pod_range)
        return known.next_free(self._taken)


class _Range:
    """Walks round its addresses, so that one that was given back is not used again at once."""

    def __init__(self, pod_range: str) -> None:
        try:
            network = ip_network(pod_range, strict=False)
        except ValueError:
            self._first = self._size = self._next = 0
            return
        # The network's own address and the last one belong to nobody; beyond a /16 nobody counts.
        self._first, self._size = int(network.network_address) + 1, min(network.num_addresses - 2, 1 << 16)
        self._make = type(network.network_address)
        self._next = 0

    def next_free(self, taken: set[str]) -> str:
        for _ in range(self._size):
            found = str(self._make(self._first + self._next))
            self._next = (self._next + 1) % self._size
            if found not in taken:
                return found
        return ""


def _text(number: int) -> str:
    return f"{number >> 24}.{(number >> 16) & 255}.{(number >> 8) & 255}.{number & 255}"
