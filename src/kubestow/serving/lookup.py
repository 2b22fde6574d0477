"""Whom to trust, as the API server says: the ConfigMap kube-system/extension-apiserver-authentication.

It holds the authorities that client certificates come from, and how front proxies tell for whom they speak. It is read
again once a minute.
"""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from kubestow.client.transport import Transport
from kubestow.errors import APIError

__all__ = ["ClusterTrust", "look_up"]

_PATH = "/api/v1/namespaces/kube-system/configmaps/extension-apiserver-authentication"


@dataclass(frozen=True, slots=True)
class ClusterTrust:
    """What the ConfigMap says; authorities are in PEM. Header names are in lower case."""

    client_authorities: bytes = b""
    proxy_authorities: bytes = b""
    proxy_names: tuple[str, ...] = ()
    username_headers: tuple[str, ...] = ()
    uid_headers: tuple[str, ...] = ()
    group_headers: tuple[str, ...] = ()
    extra_prefixes: tuple[str, ...] = ()


class _ConfigMap(msgspec.Struct):
    data: dict[str, str] = {}


async def look_up(transport: Transport) -> ClusterTrust:
    """Read it; a cluster without it says nothing. Raises APIError, Unreachable, and msgspec.DecodeError."""
    try:
        data = msgspec.json.decode(await transport.request("GET", _PATH), type=_ConfigMap).data
    except APIError as error:
        if error.code == 404:
            return ClusterTrust()
        raise
    return ClusterTrust(
        client_authorities=data.get("client-ca-file", "").encode(),
        proxy_authorities=data.get("requestheader-client-ca-file", "").encode(),
        proxy_names=_names(data, "requestheader-allowed-names"),
        username_headers=_headers(data, "requestheader-username-headers"),
        uid_headers=_headers(data, "requestheader-uid-headers"),
        group_headers=_headers(data, "requestheader-group-headers"),
        extra_prefixes=_headers(data, "requestheader-extra-headers-prefix"),
    )


def _names(data: dict[str, str], key: str) -> tuple[str, ...]:
    text = data.get(key, "")
    return tuple(msgspec.json.decode(text, type=list[str])) if text else ()


def _headers(data: dict[str, str], key: str) -> tuple[str, ...]:
    return tuple(name.lower() for name in _names(data, key))
