"""The secure port of a component: TLS, delegating authentication and authorization, and the handlers of its paths.

It serves from the start of the process on, also on a standby. The client CAs published by the cluster and the files of
certificates are reloaded every minute; a failure keeps the current ones.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import AsyncExitStack
from types import TracebackType
from typing import Self

from kubestow.client.rest.credentials import load_credentials, load_in_cluster_credentials
from kubestow.client.rest.transport import Transport
from kubestow.observability.logs import fields
from kubestow.scheduling.interfaces import Clock
from kubestow.serving.auth.authentication import DelegatingAuthenticator
from kubestow.serving.auth.authorization import DelegatingAuthorizer
from kubestow.serving.auth.client_trust import ClientTrust
from kubestow.serving.auth.reviews import AccessReviewer, TokenReviewer
from kubestow.serving.auth.trust_reloader import TrustReloader
from kubestow.serving.handler_chain import HandlerChain, RequestMetrics
from kubestow.serving.listener import SecureListener
from kubestow.serving.mux import PathMux
from kubestow.serving.options import ServingOptions
from kubestow.serving.tls import ServerTLS

__all__ = ["SecureServer"]

_log = logging.getLogger(__name__)


class SecureServer:
    """The secure port of a component. Use as ``async with``; raises InputError for invalid options.

    While it runs, ``port`` is the actual port and ``certificate`` the serving certificate in PEM. A server that stops
    waits for its responses to end; ``before_stop`` ends those that would not end by themselves.
    """

    def __init__(
        self,
        options: ServingOptions,
        mux: PathMux,
        metrics: RequestMetrics,
        *,
        clock: Clock,
        before_stop: Callable[[], None] = lambda: None,
    ) -> None:
        self._options, self._clock, self._metrics, self._mux = options, clock, metrics, mux
        self._before_stop = before_stop
        self._exit_stack = AsyncExitStack()
        self.port, self.certificate = options.port, b""

    async def __aenter__(self) -> Self:
        options = self._options
        async with AsyncExitStack() as stack:
            token_reviews = await self._connect(stack, options.authentication.kubeconfig)
            access_reviews = await self._connect(stack, options.authorization.kubeconfig)
            tls = ServerTLS(options.tls, hosts=_host_names(options.address))
            authenticator = DelegatingAuthenticator(ClientTrust(), self._token_reviewer(token_reviews))
            authorizer = self._authorizer(access_reviews)
            reloader = TrustReloader(options.authentication, token_reviews, authenticator, tls)
            await reloader.load()
            chain = HandlerChain(authenticator, authorizer, self._mux, self._metrics)
            listener = SecureListener(options, tls.context, chain)
            await listener.start()
            stack.push_async_callback(listener.stop)
            stack.callback(self._before_stop)
            reloading = asyncio.create_task(reloader.run(self._clock), name="reload of client trust and certificates")
            stack.callback(reloading.cancel)
            self.port, self.certificate, self._exit_stack = listener.port, tls.certificate, stack.pop_all()
        _log.info("Serving securely", extra=fields(address=f"{options.address}:{self.port}"))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self._exit_stack.aclose()

    async def _connect(self, stack: AsyncExitStack, kubeconfig: str) -> Transport | None:
        """A transport with the credentials of the kubeconfig, or else in-cluster ones; None if there are neither."""
        credentials = await load_credentials(kubeconfig) if kubeconfig else await load_in_cluster_credentials()
        if credentials is None:
            return None
        return await stack.enter_async_context(Transport(credentials, clock=self._clock))

    def _token_reviewer(self, transport: Transport | None) -> TokenReviewer | None:
        if transport is None:
            _log.info("No authentication-kubeconfig provided and not in a pod, bearer tokens are not accepted")
            return None
        return TokenReviewer(transport, ttl=self._options.authentication.cache_ttl, monotonic=self._clock.monotonic)

    def _authorizer(self, transport: Transport | None) -> DelegatingAuthorizer:
        options = self._options.authorization
        if transport is None:
            _log.info("No authorization-kubeconfig provided and not in a pod, only always-allowed paths are served")
            return DelegatingAuthorizer(options.always_allow_paths)
        reviewer = AccessReviewer(
            transport,
            allowed_ttl=options.allowed_ttl,
            denied_ttl=options.denied_ttl,
            monotonic=self._clock.monotonic,
        )
        return DelegatingAuthorizer(options.always_allow_paths, reviewer)


def _host_names(address: str) -> list[str]:
    return ["localhost", "127.0.0.1", *([address] if address not in ("", "0.0.0.0", "::", "127.0.0.1") else [])]
