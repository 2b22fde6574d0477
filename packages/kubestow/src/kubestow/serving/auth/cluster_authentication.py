"""The client trust that the API server publishes in the ConfigMap kube-system/extension-apiserver-authentication."""

from __future__ import annotations

import msgspec

from kubestow.client.rest.transport import Transport
from kubestow.errors import APIError
from kubestow.serving.auth.client_trust import ClientTrust
from kubestow.serving.options import RequestHeaderOptions

__all__ = ["read_cluster_authentication"]

_PATH = "/api/v1/namespaces/kube-system/configmaps/extension-apiserver-authentication"


class _ConfigMap(msgspec.Struct):
    data: dict[str, str] = {}


async def read_cluster_authentication(transport: Transport) -> ClientTrust:
    """Read the ConfigMap; if it does not exist, the trust is empty.

    Raises APIError, Unreachable, msgspec.DecodeError and InputError.
    """
    try:
        data = msgspec.json.decode(await transport.request("GET", _PATH), type=_ConfigMap).data
    except APIError as error:
        if error.code == 404:
            return ClientTrust()
        raise
    request_headers = RequestHeaderOptions(
        allowed_names=_names(data, "requestheader-allowed-names"),
        username_headers=_headers(data, "requestheader-username-headers"),
        uid_headers=_headers(data, "requestheader-uid-headers"),
        group_headers=_headers(data, "requestheader-group-headers"),
        extra_header_prefixes=_headers(data, "requestheader-extra-headers-prefix"),
    )
    return ClientTrust(
        data.get("client-ca-file", "").encode(), data.get("requestheader-client-ca-file", "").encode(), request_headers
    )


def _names(data: dict[str, str], key: str) -> tuple[str, ...]:
    text = data.get(key, "")
    return tuple(msgspec.json.decode(text, type=list[str])) if text else ()


def _headers(data: dict[str, str], key: str) -> tuple[str, ...]:
    return tuple(name.lower() for name in _names(data, key))
