"""The path of a request: authentication, authorization, then its handler (semantics 1.4).

Authorization precedes routing, so that only authorized users learn which paths exist. Every failure becomes a response;
details go to the log.
"""

from __future__ import annotations

import logging
import time
from typing import Protocol

from kubestow.observability.instruments import Counter, Histogram
from kubestow.observability.logs import V, fields
from kubestow.serving.auth.authentication import DelegatingAuthenticator
from kubestow.serving.auth.authorization import DelegatingAuthorizer
from kubestow.serving.http_messages import HTTPRequest, HTTPResponse, StatusError, UserInfo
from kubestow.serving.mux import PathMux

__all__ = ["HandlerChain", "RequestMetrics"]

_log = logging.getLogger(__name__)


class RequestMetrics(Protocol):
    """The metrics of authentication and authorization, by result."""

    @property
    def authentication_duration(self) -> Histogram:
        """In seconds."""

    @property
    def authorization_duration(self) -> Histogram:
        """In seconds."""

    @property
    def authorization_attempts(self) -> Counter:
        """The number of attempts."""


class HandlerChain:
    """Turns every request into a response, and measures authentication and authorization."""

    def __init__(
        self,
        authenticator: DelegatingAuthenticator,
        authorizer: DelegatingAuthorizer,
        mux: PathMux,
        metrics: RequestMetrics,
    ) -> None:
        self._authenticator, self._authorizer, self._mux, self._metrics = authenticator, authorizer, mux, metrics

    async def __call__(self, request: HTTPRequest) -> HTTPResponse:
        """Never raises."""
        started = time.monotonic()
        try:
            user = await self._authenticate(request)
            await self._authorize(user, request)
            response = await self._mux.handle(request)
        except StatusError as error:
            response = error.response
        except UnicodeEncodeError:  # header values are arbitrary bytes
            response = StatusError(400, "BadRequest", "the request contains text that is not UTF-8").response
        except Exception:
            _log.exception("Failed to handle a request", extra=fields(verb=request.method, path=request.path[:256]))
            response = StatusError.internal().response
        if _log.isEnabledFor(V(3)):
            seconds = round(time.monotonic() - started, 6)
            values = fields(verb=request.method, path=request.path[:256], code=response.status, seconds=seconds)
            _log.log(V(3), "HTTP", extra=values)
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
