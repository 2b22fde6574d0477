"""Keeps the client trust and the serving certificates up to date: files, and the ConfigMap of the cluster.

The API server publishes its client trust in the ConfigMap kube-system/extension-apiserver-authentication.
"""

from __future__ import annotations

import logging
from pathlib import Path

import msgspec

from kubestow.client.rest.transport import Transport
from kubestow.errors import APIError, InputError, Unreachable
from kubestow.files import read_file
from kubestow.http.tls import ServerTLS
from kubestow.log_fields import fields
from kubestow.scheduling.interfaces import Clock
from kubestow.serving.delegated_auth import ClientTrust, DelegatingAuthenticator
from kubestow.serving.options import DelegatingAuthenticationOptions, RequestHeaderOptions

_log = logging.getLogger(__name__)

_RELOAD_SECONDS = 60.0
_CONFIG_MAP = "/api/v1/namespaces/kube-system/configmaps/extension-apiserver-authentication"


class TrustReloader:
    """Applies the client trust to the authenticator and to TLS; without ``transport`` only files are loaded."""

    def __init__(
        self,
        options: DelegatingAuthenticationOptions,
        transport: Transport | None,
        authenticator: DelegatingAuthenticator,
        tls: ServerTLS,
    ) -> None:
        self._options, self._transport = options, None if options.skip_lookup else transport
        self._authenticator, self._tls = authenticator, tls
        self._published = ClientTrust()

    async def load(self) -> None:
        """Load the files and, unless a failed lookup is tolerated, the ConfigMap. Raises InputError."""
        if self._transport is not None and not self._options.tolerate_lookup_failure:
            try:
                self._published = await _read_cluster_authentication(self._transport)
            except (APIError, Unreachable, InputError, msgspec.DecodeError) as error:
                raise InputError(
                    "--authentication-kubeconfig", f"unable to load the authentication configuration: {error}"
                ) from None
        self._apply()

    async def run(self, clock: Clock) -> None:
        """Reload at once and every minute, until cancelled. A failure is logged and keeps the current state."""
        while True:
            try:
                if self._transport is not None:
                    self._published = await _read_cluster_authentication(self._transport)
                self._apply()
            except (APIError, Unreachable, InputError, msgspec.DecodeError) as error:
                _log.warning("Unable to reload the authentication configuration", extra=fields(err=str(error)))
            self._tls.reload()
            await clock.sleep(_RELOAD_SECONDS)

    def _apply(self) -> None:
        """Files take precedence over the ConfigMap, separately for users and for front proxies."""
        options, published = self._options, self._published
        client_ca = _content(options.client_ca) or published.client_ca
        if options.request_header_ca is None:
            trust = ClientTrust(client_ca, published.request_header_ca, published.request_headers)
        else:
            trust = ClientTrust(client_ca, _content(options.request_header_ca), options.request_headers)
        self._tls.trust(trust.bundle)
        self._authenticator.trust = trust


class _ConfigMap(msgspec.Struct):
    data: dict[str, str] = {}


async def _read_cluster_authentication(transport: Transport) -> ClientTrust:
    """Read the ConfigMap; if it does not exist, the trust is empty.

    Raises APIError, Unreachable, msgspec.DecodeError and InputError.
    """
    try:
        data = msgspec.json.decode(await transport.request("GET", _CONFIG_MAP), type=_ConfigMap).data
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


def _content(file: Path | None) -> bytes:
    return b"" if file is None else read_file(file)
