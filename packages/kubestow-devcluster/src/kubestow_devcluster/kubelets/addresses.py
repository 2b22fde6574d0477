"""Allocation of node IPs, pod CIDRs and pod IPs. Nothing listens on these addresses.

Node IPs are from 172.16.0.0/12. Each node gets a /24 of 10.128.0.0/9 as pod CIDR unless its spec has one. When a pod
CIDR is exhausted, or there are more nodes than CIDRs, pod IPs are from 10.64.0.0/10.
"""

from __future__ import annotations

import itertools
from ipaddress import IPv4Address, ip_network

_NODE_NETWORK = int(IPv4Address("172.16.0.0"))
_POD_NETWORK = int(IPv4Address("10.128.0.0"))
_OVERFLOW_NETWORK = int(IPv4Address("10.64.0.0"))
#: The number of /24 pod CIDRs in the pod network.
_MAX_POD_CIDRS = 1 << 15
#: IPs used of one pod CIDR at most, as many as in a /16.
_MAX_PODS_PER_CIDR = 1 << 16


class NodeAddressAllocator:
    """Allocates node IPs and pod CIDRs. Addresses in use must be reserved before the first allocation."""

    def __init__(self) -> None:
        self._ip_numbers = itertools.count(1)
        self._cidr_numbers = itertools.count()
        self._in_use: set[str] = set()

    def reserve(self, address: str) -> None:
        """Mark an IP or a pod CIDR as in use."""
        self._in_use.add(address)

    def allocate_ip(self) -> str:
        while (ip := _dotted(_NODE_NETWORK + next(self._ip_numbers))) in self._in_use:
            pass
        return ip

    def allocate_pod_cidr(self) -> str | None:
        """A /24, or None when all are in use."""
        for number in self._cidr_numbers:
            cidr = f"{_dotted(_POD_NETWORK + number * 256)}/24"
            if number >= _MAX_POD_CIDRS:
                return None
            if cidr not in self._in_use:
                return cidr
        return None


class PodIPAllocator:
    """Allocates pod IPs. Pods are identified by key, ``namespace/name``."""

    def __init__(self) -> None:
        self._ip_of: dict[str, str] = {}
        self._in_use: set[str] = set()
        self._cidrs: dict[str, _PodCIDR] = {}
        self._overflow_numbers = itertools.count(1)

    def reserve(self, pod: str, ip: str) -> None:
        """Mark ``ip`` as in use by ``pod``, in place of the IP it had."""
        if self._ip_of.get(pod) != ip:
            self.release(pod)
            self._ip_of[pod] = ip
            self._in_use.add(ip)

    def release(self, pod: str) -> None:
        """Free the IP of a pod that finished or was deleted, if it has one."""
        self._in_use.discard(self._ip_of.pop(pod, ""))

    def allocate(self, pod: str, pod_cidr: str) -> str:
        """An IP from the node's ``pod_cidr``, or from the overflow network if the CIDR is empty or exhausted."""
        if pod_cidr and pod_cidr not in self._cidrs:
            self._cidrs[pod_cidr] = _PodCIDR(pod_cidr)
        ip = self._cidrs[pod_cidr].next_free(self._in_use) if pod_cidr else ""
        while not ip or ip in self._in_use:
            ip = _dotted(_OVERFLOW_NETWORK + next(self._overflow_numbers))
        self.reserve(pod, ip)
        return ip


class _PodCIDR:
    """Allocates round-robin, so that a released IP is not reused at once."""

    def __init__(self, pod_cidr: str) -> None:
        try:
            network = ip_network(pod_cidr, strict=False)
        except ValueError:
            self._first = self._size = self._next = 0
            return
        # Without the network address and the broadcast address.
        self._first = int(network.network_address) + 1
        self._size = min(network.num_addresses - 2, _MAX_PODS_PER_CIDR)
        self._address_type = type(network.network_address)
        self._next = 0

    def next_free(self, in_use: set[str]) -> str:
        """The next IP that is not in use; empty if there is none."""
        for _ in range(self._size):
            ip = str(self._address_type(self._first + self._next))
            self._next = (self._next + 1) % self._size
            if ip not in in_use:
                return ip
        return ""


def _dotted(number: int) -> str:
    return f"{number >> 24}.{(number >> 16) & 255}.{(number >> 8) & 255}.{number & 255}"
