"""Whom to trust, as the API server says: the ConfigMap kube-system/extension-apiserver-authentication.

It holds the authorities that client certificates come from, and how front proxies tell for whom they speak. It is read
again once a minute.
"""

from __future__ import annotations

import msgspec

from kubestow.client.rest.transport import Transport
from kubestow.errors import APIError
from kubestow.serving.auth.client_trust import ClientTrust, FrontProxies

__all__ = ["look_up"]

_PATH = "/api/v1/namespaces/kube-system/configmaps/extension-apiserver-authentication"


class _ConfigMap(msgspec.Struct):
    data: dict[str, str] = {}


async def look_up(transport: Transport) -> ClientTrust:
    """Read it; a cluster without it says nothing. Raises APIError, Unreachable, msgspec.DecodeError and InputError."""
    try:
        data = msgspec.json.decode(await transport.request("GET", _PATH), type=_ConfigMap).data
    except APIError as error:
        if error.code == 404:
            return ClientTrust()
        raise
    proxies = FrontProxies(
        authorities=data.get("requestheader-client-ca-file", "").encode(),
        names=_names(data, "requestheader-allowed-names"),
        username_headers=_headers(data, "requestheader-username-headers"),
        uid_headers=_headers(data, "requestheader-uid-headers"),
        group_headers=_headers(data, "requestheader-group-headers"),
        extra_prefixes=_headers(data, "requestheader-extra-headers-prefix"),
    )
    return ClientTrust(data.get("client-ca-file", "").encode(), proxies)


def _names(data: dict[str, str], key: str) -> tuple[str, ...]:
    text = data.get(key, "")
    return tuple(msgspec.json.decode(text, type=list[str])) if text else ()


def _headers(data: dict[str, str], key: str) -> tuple[str, ...]:
    return tuple(name.lower() for name in _names(data, key))
