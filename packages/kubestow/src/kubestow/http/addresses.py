"""Addresses of servers: which are on this machine, and through which proxy the others are reached."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from urllib.parse import urlsplit


def is_loopback(host: str) -> bool:
    """Whether a host is reachable from this machine only. No name but ``localhost`` is resolved."""
    address = _address(host)
    return address.is_loopback if address is not None else host == "localhost"


def proxy_from_environment(server: str, environ: Mapping[str, str]) -> str | None:
    """The URL of the proxy for requests to ``server``; None for a direct connection."""
    url = urlsplit(server)
    host = url.hostname or ""
    proxy = _variable(environ, f"{url.scheme}_proxy")
    if not proxy or is_loopback(host):
        return None
    port = url.port or (443 if url.scheme == "https" else 80)
    exceptions = (entry.strip().lower() for entry in _variable(environ, "no_proxy").split(","))
    if any(_matches(entry, host.lower(), port) for entry in exceptions if entry):
        return None
    return proxy if "://" in proxy else f"http://{proxy}"


def _variable(environ: Mapping[str, str], name: str) -> str:
    return environ.get(name.upper()) or environ.get(name) or ""


def _address(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None


def _is_loopback(host: str) -> bool:
    address = _address(host)
    return address.is_loopback if address is not None else host == "localhost"


def _matches(entry: str, host: str, port: int) -> bool:
    """Whether one entry of NO_PROXY matches the host."""
    if entry == "*":
        return True
    if (address := _address(host)) is not None and "/" in entry:
        return _in_network(address, entry)
    if entry.count(":") == 1:
        entry, _, entry_port = entry.partition(":")
        if entry_port != str(port):
            return False
    if entry.startswith("."):
        return host.endswith(entry)
    return host == entry or (address is None and host.endswith("." + entry))


def _in_network(address: ipaddress.IPv4Address | ipaddress.IPv6Address, network: str) -> bool:
    try:
        return address in ipaddress.ip_network(network, strict=False)
    except ValueError:
        return False
