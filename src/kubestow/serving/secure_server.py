"""Serving, put together for one scheduler: it answers as soon as the process starts, also while it stands by.

What needs a scheduler (readiness, the metrics that are read, /debug) says so until there is one. Whom to trust is asked
of the API server in the background, once a minute, and files are looked at as often; a failure leaves what was known.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Self

import msgspec
from prometheus_client import CollectorRegistry

from kubestow.client.rest.credentials import load_credentials, service_account
from kubestow.client.rest.transport import Transport
from kubestow.config import FeatureGates, SchedulerConfiguration
from kubestow.errors import APIError, InputError, Unreachable
from kubestow.observability.logs import fields
from kubestow.observability.observability import Observability, exposed
from kubestow.scheduling.ports import Clock
from kubestow.serving.auth.authentication import DelegatingAuthenticator
from kubestow.serving.auth.authorization import DelegatingAuthorizer
from kubestow.serving.auth.client_trust import ClientTrust, FrontProxies
from kubestow.serving.auth.cluster_authentication import look_up
from kubestow.serving.auth.reviews import AccessReviewer, TokenReviewer
from kubestow.serving.handler_chain import Handler, HandlerChain, Subtree
from kubestow.serving.handlers.debug import SchedulingDebugger
from kubestow.serving.handlers.healthz import PING, HealthCheck, HealthChecks
from kubestow.serving.handlers.zpages import ZPages
from kubestow.serving.http_messages import HTTPRequest, HTTPResponse, StatusError
from kubestow.serving.listener import SecureListener
from kubestow.serving.options import DelegatingAuthenticationOptions, ServingOptions
from kubestow.serving.tls import ServerTLS

__all__ = ["ComponentInfo", "SecureServer"]

_log = logging.getLogger(__name__)

_REFRESH = 60.0
#: Seconds after the lease ran out from which on a leader counts as sick.
_GRACE = 20.0


@dataclass(frozen=True, slots=True)
class ComponentInfo:
    """What the process says of itself."""

    configuration: SchedulerConfiguration
    gates: FeatureGates
    flags: Mapping[str, str]


class SecureServer:
    """The secure port of one scheduler. Use as ``async with``; raises InputError for options that cannot be used."""

    def __init__(
        self, options: ServingOptions, about: ComponentInfo, observability: Observability, *, clock: Clock
    ) -> None:
        self._options, self._about, self._clock = options, about, clock
        self._observability = observability
        self._health = HealthChecks(self._checks())
        self._open = AsyncExitStack()
        self.port = options.port

    # -- its life --------------------------------------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as opening:
            asking = await self._transport(opening, self._options.authentication.kubeconfig)
            reviewing = await self._transport(opening, self._options.authorization.kubeconfig)
            if asking is None:
                _log.info("No credentials for token reviews: bearer tokens are not accepted")
            if reviewing is None:
                _log.info("No credentials for access reviews: only paths that are always allowed are served")
            tls = ServerTLS(self._options.tls, hosts=self._hosts())
            authenticator = DelegatingAuthenticator(ClientTrust(), self._token_reviews(asking))
            self._trusting = _Trusting(self._options.authentication, asking, authenticator, tls)
            await self._trusting.begin()
            server = SecureListener(self._options, tls.context, self._endpoints(authenticator, reviewing))
            await server.start()
            opening.push_async_callback(server.stop)
            refreshing = asyncio.create_task(self._trusting.keep_fresh(self._clock), name="serving refresh")
            opening.callback(refreshing.cancel)
            self.port, self._open = server.port, opening.pop_all()
        _log.info("Serving securely", extra=fields(address=f"{self._options.address}:{self.port}"))
        self.certificate = tls.certificate
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self._open.aclose()

    async def _transport(self, opening: AsyncExitStack, kubeconfig: str) -> Transport | None:
        """Connections of the kubeconfig's user or, without one, of this pod's service account, if it has one."""
        credentials = await load_credentials(kubeconfig) if kubeconfig else await service_account()
        if credentials is None:
            return None
        return await opening.enter_async_context(Transport(credentials, clock=self._clock))

    def _hosts(self) -> list[str]:
        address = self._options.address
        return ["localhost", "127.0.0.1", *([address] if address not in ("", "0.0.0.0", "::", "127.0.0.1") else [])]

    def _token_reviews(self, transport: Transport | None) -> TokenReviewer | None:
        if transport is None:
            return None
        return TokenReviewer(transport, ttl=self._options.authentication.cache_ttl, monotonic=self._clock.monotonic)

    # -- what is served --------------------------------------------------------------------------------------------

    def _endpoints(self, authenticator: DelegatingAuthenticator, transport: Transport | None) -> HandlerChain:
        options = self._options.authorization
        reviews = None
        if transport is not None:
            reviews = AccessReviewer(
                transport,
                allowed_ttl=options.allowed_ttl,
                denied_ttl=options.denied_ttl,
                monotonic=self._clock.monotonic,
            )
        return HandlerChain(
            authenticator,
            DelegatingAuthorizer(options.always_allow_paths, reviews),
            paths=self._paths(),
            trees={
                **{f"/{endpoint}/": self._one_check(endpoint) for endpoint in self._health.endpoints},
                "/debug/pods/": self._debug_pod,
                "/debug/pprof": _no_pprof,
            },
            deletions={"/metrics": self._forget_metrics},
            metrics=self._observability.metrics,
        )

    def _paths(self) -> dict[str, Handler]:
        paths: dict[str, Handler] = {
            f"/{endpoint}": partial(self._health.answer, endpoint) for endpoint in self._health.endpoints
        }
        gates = self._about.gates
        pages = ZPages(
            self._about.configuration,
            self._about.flags,
            paths=["/configz", "/flagz", "/healthz", "/livez", "/metrics", "/readyz"],
            now=self._clock.now,
        )
        paths["/configz"] = pages.configz
        if gates.enabled("ComponentFlagz"):
            paths["/flagz"] = pages.flagz
        if gates.enabled("ComponentStatusz"):
            paths["/statusz"] = pages.statusz
        paths["/metrics"] = lambda request: _scraped(self._observability.scrape(request.header("accept")))
        paths["/metrics/resources"] = self._resources
        paths["/metrics/slis"] = self._slis
        paths["/debug"] = paths["/debug/"] = lambda request: self._why().index()
        paths["/debug/queue"] = lambda request: self._why().queue(request)
        paths["/debug/cache"] = lambda request: self._why().cache(request)
        return paths

    def _one_check(self, endpoint: str) -> Subtree:
        return lambda name, request: self._health.answer_one(endpoint, name)

    def _forget_metrics(self, request: HTTPRequest) -> HTTPResponse:
        self._observability.metrics.clear()
        return HTTPResponse.text("metrics reset\n")

    def _resources(self, request: HTTPRequest) -> HTTPResponse:
        return _scraped(self._observability.scrape_resources(request.header("accept")))

    def _slis(self, request: HTTPRequest) -> HTTPResponse:
        registry = CollectorRegistry(auto_describe=False)
        registry.register(self._health)
        return _scraped(exposed(registry, request.header("accept")))

    def _why(self) -> SchedulingDebugger:
        scheduler = self._observability.scheduler
        if scheduler is None:
            raise StatusError(503, "ServiceUnavailable", "the scheduler is still starting")
        return SchedulingDebugger(scheduler, self._observability.attempts, self._clock)

    def _debug_pod(self, rest: str, request: HTTPRequest) -> HTTPResponse:
        namespace, slash, name = rest.partition("/")
        if not slash or not name or "/" in name:
            raise StatusError.not_found("expected /debug/pods/<namespace>/<name>")
        return self._why().pod(namespace, name, request)

    # -- health ----------------------------------------------------------------------------------------------------

    def _checks(self) -> dict[str, list[HealthCheck]]:
        electing = self._about.configuration.leader_election.leader_elect
        election = [HealthCheck("leaderElection", self._lease_problem)] if electing else []
        shutdown = HealthCheck(
            "shutdown", lambda: "process is shutting down" if self._observability.is_ending() else None
        )
        synced = HealthCheck("sched-handler-sync", self._sync_problem)
        return {"healthz": election or [PING], "livez": [PING], "readyz": [*election, shutdown, synced]}

    def _lease_problem(self) -> str | None:
        leadership = self._observability.leadership
        overdue = 0.0 if leadership is None else leadership.overdue
        return f"failed election to renew leadership on lease, {overdue:.0f} s overdue" if overdue > _GRACE else None

    def _sync_problem(self) -> str | None:
        scheduler = self._observability.scheduler
        synced = scheduler is not None and scheduler.synced.is_set()
        return None if synced else "handlers are not fully synchronized"


class _Trusting:
    """Keeps what is believed of others up to date: files, and what the API server says."""

    def __init__(
        self,
        options: DelegatingAuthenticationOptions,
        transport: Transport | None,
        authenticator: DelegatingAuthenticator,
        tls: ServerTLS,
    ) -> None:
        self._options, self._transport = options, None if options.skip_lookup else transport
        self._authenticator, self._tls = authenticator, tls
        self._said = ClientTrust()

    async def begin(self) -> None:
        """Believe the files; ask the API server at once only where a failure must end the process."""
        if self._transport is not None and not self._options.tolerate_lookup_failure:
            try:
                self._said = await look_up(self._transport)
            except (APIError, Unreachable, InputError, msgspec.DecodeError) as error:
                raise InputError("--authentication-kubeconfig", f"cannot look up whom to trust: {error}") from None
        self._believe()

    async def keep_fresh(self, clock: Clock) -> None:
        """Look again and again, until cancelled."""
        while True:
            await self._look()
            self._tls.refresh()
            await clock.sleep(_REFRESH)

    async def _look(self) -> None:
        try:
            if self._transport is not None:
                self._said = await look_up(self._transport)
            self._believe()
        except (APIError, Unreachable, InputError, msgspec.DecodeError) as error:
            _log.warning("Unable to look up whom to trust, going on as before", extra=fields(err=str(error)))

    def _believe(self) -> None:
        """Files go before what the API server says, each for its own: users, and front proxies."""
        given = self._options
        trust = ClientTrust(
            _content(given.client_ca) or self._said.client_authorities, _given_proxies(given) or self._said.proxies
        )
        self._tls.trust(trust.authorities)
        self._authenticator.trust = trust


def _given_proxies(given: DelegatingAuthenticationOptions) -> FrontProxies | None:
    if given.requestheader_ca is None:
        return None
    return FrontProxies(
        authorities=_content(given.requestheader_ca),
        names=given.requestheader_names,
        username_headers=given.username_headers,
        uid_headers=given.uid_headers,
        group_headers=given.group_headers,
        extra_prefixes=given.extra_prefixes,
    )


def _content(file: Path | None) -> bytes:
    if file is None:
        return b""
    try:
        return file.read_bytes()
    except OSError as error:
        raise InputError(str(file), f"cannot be read: {os.strerror(error.errno or 0)}") from None


def _scraped(scrape: tuple[bytes, str]) -> HTTPResponse:
    return HTTPResponse(200, scrape[0], scrape[1])


def _no_pprof(rest: str, request: HTTPRequest) -> HTTPResponse:
    raise StatusError.not_found("profiles of Go's pprof do not exist here; try /debug")
