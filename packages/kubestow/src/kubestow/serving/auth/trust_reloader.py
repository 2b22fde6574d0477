"""Keeps the client trust and the serving certificates up to date: files, and the ConfigMap of the cluster."""

from __future__ import annotations

import logging
import os
from pathlib import Path

import msgspec

from kubestow.client.rest.transport import Transport
from kubestow.errors import APIError, InputError, Unreachable
from kubestow.observability.logs import fields
from kubestow.scheduling.interfaces import Clock
from kubestow.serving.auth.authentication import DelegatingAuthenticator
from kubestow.serving.auth.client_trust import ClientTrust
from kubestow.serving.auth.cluster_authentication import read_cluster_authentication
from kubestow.serving.options import DelegatingAuthenticationOptions
from kubestow.serving.tls import ServerTLS

__all__ = ["TrustReloader"]

_log = logging.getLogger(__name__)

_RELOAD_SECONDS = 60.0


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
                self._published = await read_cluster_authentication(self._transport)
            except (APIError, Unreachable, InputError, msgspec.DecodeError) as error:
                raise InputError(
                    "--authentication-kubeconfig", f"unable to load the authentication configuration: {error}"
                ) from None
        self._apply()

    async def run(self, clock: Clock) -> None:
        """Reload at once and every minute, until cancelled. A failure is logged and keeps the current state."""
        while True:
            await self._reload()
            self._tls.reload()
            await clock.sleep(_RELOAD_SECONDS)

    async def _reload(self) -> None:
        try:
            if self._transport is not None:
                self._published = await read_cluster_authentication(self._transport)
            self._apply()
        except (APIError, Unreachable, InputError, msgspec.DecodeError) as error:
            _log.warning("Unable to reload the authentication configuration", extra=fields(err=str(error)))

    def _apply(self) -> None:
        """Files take precedence over the ConfigMap, separately for users and for front proxies."""
        options, published = self._options, self._published
        client_ca = _read(options.client_ca) or published.client_ca
        if options.request_header_ca is None:
            trust = ClientTrust(client_ca, published.request_header_ca, published.request_headers)
        else:
            trust = ClientTrust(client_ca, _read(options.request_header_ca), options.request_headers)
        self._tls.trust(trust.bundle)
        self._authenticator.trust = trust


def _read(file: Path | None) -> bytes:
    if file is None:
        return b""
    try:
        return file.read_bytes()
    except OSError as error:
        raise InputError(str(file), f"cannot be read: {os.strerror(error.errno or 0)}") from None
