"""HTTP requests and responses as handlers see them, independent of the HTTP library.

Failures are Kubernetes Status objects, as in every Kubernetes component. Their messages go to any client, so they never
contain tracebacks or paths of this machine.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

__all__ = ["JSON", "TEXT", "HTTPRequest", "HTTPResponse", "PeerCertificate", "StatusError", "UserInfo"]

JSON = "application/json"
TEXT = "text/plain; charset=utf-8"


@dataclass(frozen=True, slots=True)
class UserInfo:
    """An authenticated user."""

    name: str
    groups: tuple[str, ...] = ()
    uid: str = ""
    extra: Mapping[str, Sequence[str]] = field(default_factory=dict)


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


@dataclass(frozen=True, slots=True)
class HTTPResponse:
    """A complete response, or one whose body is a ``stream`` that the server closes when the client has gone."""

    status: int
    body: bytes
    content_type: str = JSON
    headers: Mapping[str, str] = field(default_factory=dict)
    stream: AsyncGenerator[bytes, None] | None = None

    @classmethod
    def text(cls, text: str, status: int = 200) -> HTTPResponse:
        """A response in plain text."""
        return cls(status, text.encode(), TEXT, {"X-Content-Type-Options": "nosniff"})

    @classmethod
    def json(cls, value: Any, status: int = 200) -> HTTPResponse:
        """A response in indented JSON; keys keep their order."""
        return cls(status, msgspec.json.format(msgspec.json.encode(value), indent=2) + b"\n")


class StatusError(Exception):
    """Ends a request with a failure Status."""

    def __init__(self, code: int, reason: str, message: str) -> None:
        super().__init__(message)
        self.code, self.reason, self.message = code, reason, message

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
    def internal(cls) -> StatusError:
        """500: an internal error, which the log explains."""
        return cls(500, "InternalError", "Internal error occurred; see the scheduler's log")

    @property
    def response(self) -> HTTPResponse:
        """The Status as a response."""
        status = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": self.message,
            "reason": self.reason,
            "code": self.code,
        }
        headers = {"WWW-Authenticate": "Bearer"} if self.code == 401 else {}
        return HTTPResponse(self.code, msgspec.json.encode(status), JSON, headers)
