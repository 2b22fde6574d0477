"""HTTP requests and responses as handlers see them, independent of the HTTP library, and handlers by path.

Failures are Kubernetes Status objects, as in every Kubernetes component. Their messages go to any client, so they never
contain tracebacks or paths of this machine. Paths are compared as a whole and never looked up in a file system.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from kubestow.errors import APIError
from kubestow.log_fields import fields

JSON = "application/json"
TEXT = "text/plain; charset=utf-8"

ALL_AUTHENTICATED, ALL_UNAUTHENTICATED = "system:authenticated", "system:unauthenticated"


@dataclass(frozen=True, slots=True)
class UserInfo:
    """The user of a request."""

    name: str
    groups: tuple[str, ...] = ()
    uid: str = ""
    extra: Mapping[str, Sequence[str]] = field(default_factory=dict, hash=False)


ANONYMOUS = UserInfo("system:anonymous", (ALL_UNAUTHENTICATED,))


@dataclass(frozen=True, slots=True)
class PeerCertificate:
    """A client certificate that TLS has verified: names of its subject, and the whole certificate in DER."""

    common_name: str
    organizations: tuple[str, ...]
    der: bytes


@dataclass(frozen=True, slots=True)
class HTTPRequest:
    """A request without its body. ``path`` is percent-decoded, header names are in lower case."""

    method: str
    path: str
    query: Mapping[str, Sequence[str]] = field(default_factory=dict)
    headers: Mapping[str, Sequence[str]] = field(default_factory=dict)
    certificate: PeerCertificate | None = None

    def header(self, name: str) -> str:
        """The values of a header, joined by commas; "" if there is none."""
        return ",".join(self.headers.get(name, ()))

    def parameter(self, name: str) -> str | None:
        """The first value of a query parameter."""
        return next(iter(self.query.get(name, ())), None)


class StatusError(APIError):
    """Ends a request with a failure Status.

    ``details`` and ``continue_`` are fields of the Status; ``retry_after`` (seconds) is a header too.
    """

    def __init__(
        self,
        code: int,
        reason: str,
        message: str,
        *,
        details: dict[str, Any] | None = None,
        retry_after: int | None = None,
        continue_: str = "",
    ) -> None:
        super().__init__(code, reason, message, retry_after=retry_after)
        self.details, self.continue_ = details, continue_

    @classmethod
    def unauthorized(cls) -> StatusError:
        """401: the credentials are invalid."""
        return cls(401, "Unauthorized", "Unauthorized")

    @classmethod
    def forbidden(cls, user: UserInfo, verb: str, path: str, reason: str = "") -> StatusError:
        """403: the user is not allowed to access the path."""
        message = f'forbidden: User "{user.name}" cannot {verb} path "{path}"'
        return cls(403, "Forbidden", f"{message}: {reason}" if reason else message)

    @classmethod
    def not_found(cls, message: str = "the server could not find the requested resource") -> StatusError:
        """404: the path or the object does not exist."""
        return cls(404, "NotFound", message)

    @classmethod
    def method_not_allowed(cls) -> StatusError:
        """405: the path has no such method."""
        return cls(405, "MethodNotAllowed", "the server does not allow this method on the requested resource")

    @classmethod
    def internal(cls) -> StatusError:
        """500: an internal error, which the log explains."""
        return cls(500, "InternalError", "Internal error occurred; see the scheduler's log")

    def status(self) -> dict[str, Any]:
        """The Status object."""
        details = self.details
        if self.retry_after is not None:
            details = {**(details or {}), "retryAfterSeconds": int(self.retry_after)}
        status: dict[str, Any] = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {"continue": self.continue_} if self.continue_ else {},
            "status": "Failure",
            "message": self.message,
        }
        if self.reason:
            status["reason"] = self.reason
        if details is not None:
            status["details"] = details
        status["code"] = self.code
        return status

    def encode(self) -> bytes:
        """The Status in JSON, in one line."""
        return msgspec.json.encode(self.status()) + b"\n"


@dataclass(slots=True)
class HTTPResponse:
    """A response with a complete ``body``, or one whose body is produced while it is sent.

    ``chunks`` make up a long body, ``stream`` one without an end (a watch, server-sent events); the server closes the
    stream when the client has gone.
    """

    status: int
    body: bytes = b""
    content_type: str = JSON
    headers: dict[str, str] = field(default_factory=dict)
    chunks: Iterator[bytes] | None = None
    stream: AsyncGenerator[bytes, None] | None = None

    @classmethod
    def json(cls, value: Any, status: int = 200) -> HTTPResponse:
        """A response in JSON, in one line; keys keep their order."""
        return cls(status, msgspec.json.encode(value) + b"\n")

    @classmethod
    def indented_json(cls, value: Any) -> HTTPResponse:
        """A response in JSON for people to read; keys keep their order."""
        return cls(200, msgspec.json.format(msgspec.json.encode(value), indent=2) + b"\n")

    @classmethod
    def text(cls, text: str, status: int = 200) -> HTTPResponse:
        """A response in plain text."""
        return cls(status, text.encode(), TEXT, {"X-Content-Type-Options": "nosniff"})

    @classmethod
    def error(cls, error: StatusError) -> HTTPResponse:
        """The Status of a failure."""
        headers = {} if error.retry_after is None else {"Retry-After": str(int(error.retry_after))}
        return cls(error.code, error.encode(), headers=headers)


_log = logging.getLogger(__name__)

Result = HTTPResponse | Awaitable[HTTPResponse]
Handler = Callable[[HTTPRequest], Result]
#: Called with the rest of the path after the prefix.
PrefixHandler = Callable[[str, HTTPRequest], Result]

_READ_METHODS = ("GET", "HEAD")


async def respond(request: HTTPRequest, handle: Callable[[HTTPRequest], Awaitable[HTTPResponse]]) -> HTTPResponse:
    """The response of a handler; every failure becomes a response too, and its details go to the log."""
    try:
        return await handle(request)
    except StatusError as error:
        response = HTTPResponse.error(error)
        if error.code == 401:
            response.headers["WWW-Authenticate"] = "Bearer"
        return response
    except UnicodeEncodeError:  # header values are arbitrary bytes
        return HTTPResponse.error(StatusError(400, "BadRequest", "the request contains text that is not UTF-8"))
    except Exception:
        _log.exception("Failed to handle a request", extra=fields(verb=request.method, path=request.path[:256]))
        return HTTPResponse.error(StatusError.internal())


class PathMux:
    """Selects the handler of a request: by exact path, by prefix, or by exact path for DELETE."""

    def __init__(
        self,
        *,
        paths: Mapping[str, Handler],
        prefixes: Mapping[str, PrefixHandler],
        deletions: Mapping[str, Handler],
    ) -> None:
        self._paths, self._prefixes, self._deletions = paths, prefixes, deletions

    async def handle(self, request: HTTPRequest) -> HTTPResponse:
        """Call the handler. Raises StatusError: 404 for an unknown path, 405 for another method, or the handler's."""
        result = self._call(request)
        return result if isinstance(result, HTTPResponse) else await result

    def _call(self, request: HTTPRequest) -> Result:
        if request.method == "DELETE" and request.path in self._deletions:
            return self._deletions[request.path](request)
        handler = self._paths.get(request.path)
        if handler is not None:
            if request.method not in _READ_METHODS:
                raise StatusError.method_not_allowed()
            return handler(request)
        for prefix, prefix_handler in self._prefixes.items():
            if request.path.startswith(prefix) and request.method in _READ_METHODS:
                return prefix_handler(request.path.removeprefix(prefix), request)
        raise StatusError.not_found()
