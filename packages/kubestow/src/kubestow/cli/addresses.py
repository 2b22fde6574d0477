"""Addresses that commands listen on."""

from __future__ import annotations

import ipaddress

__all__ = ["is_loopback"]


def is_loopback(address: str) -> bool:
    """Whether an address is reachable from this machine only. No name but ``localhost`` is resolved."""
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return address == "localhost"
