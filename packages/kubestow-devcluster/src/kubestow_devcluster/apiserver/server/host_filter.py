"""Protection of a server without authentication from web pages in a browser on this machine.

A page can send requests to a server on loopback: directly (cross-site request forgery), or under its own host name,
which it lets resolve to 127.0.0.1 (DNS rebinding). Both show in headers that a page cannot change, ``Origin`` and
``Host``. A GET for an image or a script has no ``Origin``; it shows in ``Sec-Fetch-Site``. Its response cannot be read,
but has been made.
Accepted hosts are regular expressions, as for ``kubectl proxy --accept-hosts``.
"""

from __future__ import annotations

import ipaddress
from typing import Any
from urllib.parse import urlsplit

import re2
from multidict import MultiMapping

from kubestow.errors import InputError
from kubestow_devcluster.apiserver import statuses

__all__ = ["DEFAULT_ACCEPT_HOSTS", "HostFilter"]

#: The default of ``kubectl proxy``.
DEFAULT_ACCEPT_HOSTS = r"^localhost$,^127\.0\.0\.1$,^\[::1\]$"


class HostFilter:
    """Accepts requests by the headers that browsers set; ``accept_hosts`` are separated by commas.

    Raises InputError for an invalid regular expression.
    """

    def __init__(self, accept_hosts: str = DEFAULT_ACCEPT_HOSTS) -> None:
        self._patterns = [_compile(pattern) for pattern in accept_hosts.split(",")]

    def check(self, headers: MultiMapping[str]) -> None:
        """Raises a 403 StatusError for a request that a foreign web page may have sent.

        A request without ``Host``, as HTTP/1.0 permits, is not from a browser. Links of a foreign page may be followed.
        """
        host = headers.get("Host")
        if host is not None and not _is_address(_host_name(host)) and not self._accepts(_host_name(host)):
            raise statuses.forbidden_host(f"host {host!r} is not accepted")
        for origin in headers.getall("Origin", ()):
            netloc = _network_location(origin)
            if netloc != host and not self._accepts(_host_name(netloc)):
                raise statuses.forbidden_host(f"origin {origin!r} is not accepted")
        if _is_part_of_another_site(headers):
            raise statuses.forbidden_host("the page of another site is not accepted")

    def _accepts(self, host: str) -> bool:
        return any(pattern.search(host) for pattern in self._patterns)


def _is_part_of_another_site(headers: MultiMapping[str]) -> bool:
    """Whether a page of another site loads this as a part of itself, without an ``Origin`` that could be checked."""
    return (
        "Origin" not in headers
        and headers.get("Sec-Fetch-Site") == "cross-site"
        and headers.get("Sec-Fetch-Mode") != "navigate"
    )


def _compile(pattern: str) -> Any:
    options = re2.Options()
    options.log_errors = False
    try:
        return re2.compile(pattern, options)
    except re2.error as error:
        problem = error.args[0].decode(errors="replace")
        raise InputError("--accept-hosts", f"expected regular expressions, got {pattern!r}: {problem}") from None


def _network_location(origin: str) -> str:
    """The host and port of an origin; empty for ``null`` and for what is not an origin."""
    try:
        return urlsplit(origin).netloc
    except ValueError:
        return ""


def _host_name(host: str) -> str:
    """A ``Host`` header without its port."""
    name, colon, port = host.rpartition(":")
    return name if colon and (port.isdecimal() or not port) else host


def _is_address(host: str) -> bool:
    """Whether a host is an IP address, which DNS cannot rebind."""
    try:
        ipaddress.ip_address(host.removeprefix("[").removesuffix("]"))
    except ValueError:
        return False
    return True
