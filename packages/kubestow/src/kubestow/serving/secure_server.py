"""The secure port of a component: TLS, authentication, authorization, then the handler of the path (semantics 1.4).

It serves from the start of the process on, also on a standby, on an event loop in a thread of its own. There health
checks are answered, so that a long scheduling attempt does not look like a dead process. All other handlers read the
state of the component, so they run on its event loop, after the attempt.

The client CAs published by the cluster and the files of certificates are reloaded every minute; a failure keeps the
current ones.

Authorization precedes routing, so that only authorized users learn which paths exist. Every failure becomes a response;
details go to the log. The time and memory that one client can use are bounded, and request bodies are not read.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import time
from collections.abc import Callable
from contextlib import AsyncExitStack
from functools import partial
from typing import Self

from aiohttp import web

from kubestow.client.rest.credentials import load_credentials, load_in_cluster_credentials
from kubestow.client.rest.transport import Transport
from kubestow.errors import InputError
from kubestow.http import aiohttp_messages
from kubestow.http.listener import ConnectionLimits, HTTPListener
from kubestow.http.messages import HTTPRequest, HTTPResponse, PathMux, StatusError, UserInfo, respond
from kubestow.http.tls import ServerTLS
from kubestow.log_fields import V, fields
from kubestow.observability.instruments import Histogram, MetricSet
from kubestow.process import LoopThread, run_on, stream_from
from kubestow.scheduling.interfaces import Clock
from kubestow.serving.delegated_auth import (
    AccessReviewer,
    ClientTrust,
    DelegatingAuthenticator,
    DelegatingAuthorizer,
    TokenReviewer,
)
from kubestow.serving.options import ServingOptions
from kubestow.serving.trust_reloader import TrustReloader

_log = logging.getLogger(__name__)

_LIMITS = ConnectionLimits()
_SHUTDOWN_SECONDS = 5.0
_MAX_HEADERS = 100
_HEALTH_CHECKS = ("/healthz", "/livez", "/readyz")
#: The paths whose handlers run in the server's thread; they may only use what may be read in any thread.
_BESIDE_THE_COMPONENT = (*_HEALTH_CHECKS, "/metrics/slis")


class HandlerChain:
    """Turns every request into a response, and measures authentication and authorization in ``metrics``.

    ``component`` is the event loop of most handlers.
    """

    def __init__(
        self,
        authenticator: DelegatingAuthenticator,
        authorizer: DelegatingAuthorizer,
        mux: PathMux,
        metrics: MetricSet,
        component: asyncio.AbstractEventLoop,
    ) -> None:
        self._authenticator, self._authorizer, self._mux, self._metrics = authenticator, authorizer, mux, metrics
        self._component = component

    async def __call__(self, request: HTTPRequest) -> HTTPResponse:
        """Never raises."""
        started = time.monotonic()
        response = await respond(request, self._handle)
        if _log.isEnabledFor(V(3)):
            seconds = round(time.monotonic() - started, 6)
            values = fields(verb=request.method, path=request.path[:256], code=response.status, seconds=seconds)
            _log.log(V(3), "HTTP", extra=values)
        return response

    async def _handle(self, request: HTTPRequest) -> HTTPResponse:
        user = await self._authenticate(request)
        await self._authorize(user, request)
        if request.path.startswith(_BESIDE_THE_COMPONENT):
            return await self._mux.handle(request)
        response = await run_on(self._component, self._mux.handle(request))
        if response.stream is not None:
            response.stream = stream_from(self._component, response.stream)
        return response

    async def _authenticate(self, request: HTTPRequest) -> UserInfo:
        started = time.monotonic()
        try:
            user = await self._authenticator.authenticate(request)
        except StatusError:
            _observe(self._metrics.authentication_duration, "failure", started)
            raise
        _observe(self._metrics.authentication_duration, "success", started)
        return user

    async def _authorize(self, user: UserInfo, request: HTTPRequest) -> None:
        started, result = time.monotonic(), "allowed"
        try:
            await self._authorizer.authorize(user, request.method.lower(), request.path)
        except StatusError as error:
            result = "denied" if error.code == 403 else "error"
            raise
        finally:
            self._metrics.authorization_attempts.labels(result).value += 1
            _observe(self._metrics.authorization_duration, result, started)


def _observe(duration: Histogram, result: str, started: float) -> None:
    duration.labels(result).observe(time.monotonic() - started)


class SecureServer:
    """The secure port of a component. Use as ``async with``; raises InputError for invalid options.

    While it runs, ``port`` is the actual port and ``certificate`` the serving certificate in PEM. A server that stops
    waits for its responses to end; ``before_stop`` ends those that would not end by themselves.
    """

    def __init__(
        self,
        options: ServingOptions,
        mux: PathMux,
        metrics: MetricSet,
        *,
        clock: Clock,
        before_stop: Callable[[], None] = lambda: None,
    ) -> None:
        self._options, self._clock, self._metrics, self._mux = options, clock, metrics, mux
        self._before_stop = before_stop
        self._exit_stack = AsyncExitStack()
        self.port, self.certificate = options.port, b""

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as stack:
            thread = await stack.enter_async_context(LoopThread("secure port"))
            running = await thread.run(self._start(asyncio.get_running_loop()))
            stack.push_async_callback(lambda: thread.run(running.aclose()))
            stack.callback(self._before_stop)
            self._exit_stack = stack.pop_all()
        _log.info("Serving securely", extra=fields(address=f"{self._options.address}:{self.port}"))
        return self

    async def __aexit__(self, *error: object) -> None:
        await self._exit_stack.aclose()

    async def _start(self, component: asyncio.AbstractEventLoop) -> AsyncExitStack:
        """Serve until the result is closed; runs in the server's thread."""
        options = self._options
        async with AsyncExitStack() as stack:
            token_reviews = await self._connect(stack, options.authentication.kubeconfig)
            access_reviews = await self._connect(stack, options.authorization.kubeconfig)
            own = [options.address] if options.address not in ("", "0.0.0.0", "::", "127.0.0.1") else []
            tls = ServerTLS(options.tls, hosts=["localhost", "127.0.0.1", *own])
            authenticator = DelegatingAuthenticator(ClientTrust(), self._token_reviewer(token_reviews))
            authorizer = self._authorizer(access_reviews)
            reloader = TrustReloader(options.authentication, token_reviews, authenticator, tls)
            await reloader.load()
            chain = HandlerChain(authenticator, authorizer, self._mux, self._metrics, component)
            self.port, self.certificate = await self._listen(stack, chain, tls), tls.certificate
            reloading = asyncio.create_task(reloader.run(self._clock), name="reload of client trust and certificates")
            stack.callback(reloading.cancel)
            return stack.pop_all()

    async def _listen(self, stack: AsyncExitStack, chain: HandlerChain, tls: ServerTLS) -> int:
        """Listen until the stack is closed, and return the port. Raises InputError if the address is not available."""
        limits, options = _LIMITS, self._options

        async def serve(incoming: web.BaseRequest) -> web.StreamResponse:
            with listener.request(incoming) as connection:
                request = aiohttp_messages.parse(incoming)
                if connection.is_reserved and not request.path.startswith(_HEALTH_CHECKS):
                    error = StatusError(503, "ServiceUnavailable", "too many requests are in progress")
                    response = HTTPResponse.error(error)
                else:
                    response = await chain(request)
                if response.stream is not None:
                    extend_deadline = partial(listener.extend_deadline, incoming)
                    return await aiohttp_messages.send_stream(incoming, response, on_progress=extend_deadline)
            outgoing = aiohttp_messages.whole(response)
            if incoming.can_read_body or connection.is_reserved:
                outgoing.force_close()  # the library would read the body; a reserved connection has one request
            return outgoing

        listener = HTTPListener(
            serve,
            name="secure port",
            limits=limits,
            max_headers=_MAX_HEADERS,
            keepalive_seconds=limits.request_seconds,
            lingering_seconds=0.0,
            shutdown_seconds=_SHUTDOWN_SECONDS,
        )
        try:
            port = await listener.listen(options.address, options.port, tls=tls.context, reuse_port=options.reuse_port)
        except OSError as error:
            problem = "is in use by another process" if error.errno == errno.EADDRINUSE else error.strerror or error
            raise InputError("--secure-port", f"{options.address}:{options.port} {problem}") from None
        stack.push_async_callback(listener.stop)
        return port

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
