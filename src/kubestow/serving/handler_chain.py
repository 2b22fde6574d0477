"""Which path is whose, and the way that a request takes to it (semantics 1.4).

First it is found out who asks, then whether they may, and only then whether there is such a path: what is not there is
told to those alone who may know. Paths are compared whole and never looked up in a file system. Whatever goes wrong on
the way is an answer too, and the log has the rest.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping

from kubestow.observability.instruments import Histogram
from kubestow.observability.logs import V, fields
from kubestow.observability.metrics import SchedulerMetrics
from kubestow.serving.auth.authentication import DelegatingAuthenticator
from kubestow.serving.auth.authorization import DelegatingAuthorizer
from kubestow.serving.http_messages import HTTPRequest, HTTPResponse, StatusError, UserInfo

__all__ = ["Handler", "HandlerChain", "Subtree"]

_log = logging.getLogger(__name__)

Handler = Callable[[HTTPRequest], HTTPResponse]
#: Answers with the rest of the path, below a prefix.
Subtree = Callable[[str, HTTPRequest], HTTPResponse]

_READING = ("GET", "HEAD")


class HandlerChain:
    """Answers requests. ``paths`` are exact, ``trees`` begin with a prefix, ``deletions`` are paths of DELETE."""

    def __init__(
        self,
        authenticator: DelegatingAuthenticator,
        authorizer: DelegatingAuthorizer,
        *,
        paths: Mapping[str, Handler],
        trees: Mapping[str, Subtree],
        deletions: Mapping[str, Handler],
        metrics: SchedulerMetrics,
    ) -> None:
        self._authenticator, self._authorizer = authenticator, authorizer
        self._paths, self._trees, self._deletions = paths, trees, deletions
        self._metrics = metrics

    async def __call__(self, request: HTTPRequest) -> HTTPResponse:
        """Never raises."""
        began = time.monotonic()
        try:
            answer = await self._answer(request)
        except StatusError as failure:
            answer = failure.answer
        except UnicodeEncodeError:  # header values are bytes, and some of them are no text
            answer = StatusError(400, "BadRequest", "the request holds what is not UTF-8").answer
        except Exception:
            _log.exception("Serving a request failed", extra=fields(verb=request.method, path=request.path[:256]))
            answer = StatusError.internal().answer
        if _log.isEnabledFor(V(3)):
            seconds = round(time.monotonic() - began, 6)
            facts = fields(verb=request.method, path=request.path[:256], code=answer.status, seconds=seconds)
            _log.log(V(3), "Answered a request", extra=facts)
        return answer

    async def _answer(self, request: HTTPRequest) -> HTTPResponse:
        user = await self._who(request)
        await self._may(user, request)
        if request.method == "DELETE" and request.path in self._deletions:
            return self._deletions[request.path](request)
        handler = self._paths.get(request.path)
        if handler is None:
            return self._below(request)
        if request.method not in _READING:
            raise StatusError(
                405, "MethodNotAllowed", "the server does not allow this method on the requested resource"
            )
        return handler(request)

    def _below(self, request: HTTPRequest) -> HTTPResponse:
        for prefix, answer in self._trees.items():
            if request.path.startswith(prefix) and request.method in _READING:
                return answer(request.path.removeprefix(prefix), request)
        raise StatusError.not_found()

    async def _who(self, request: HTTPRequest) -> UserInfo:
        began = time.monotonic()
        try:
            user = await self._authenticator.user(request)
        except StatusError:
            _measured(self._metrics.authentication_duration, "failure", began)
            raise
        _measured(self._metrics.authentication_duration, "success", began)
        return user

    async def _may(self, user: UserInfo, request: HTTPRequest) -> None:
        began, result = time.monotonic(), "allowed"
        try:
            await self._authorizer.check(user, request.method.lower(), request.path)
        except StatusError as failure:
            result = "denied" if failure.code == 403 else "error"
            raise
        finally:
            self._metrics.authorization_attempts.at(result).value += 1
            _measured(self._metrics.authorization_duration, result, began)


def _measured(duration: Histogram, result: str, began: float) -> None:
    duration.at(result).observe(time.monotonic() - began)
