"""A request once it is understood, and an answer before it is bytes.

Failures are Kubernetes Status objects, as every client of a Kubernetes component expects. What they say is meant for
strangers: never a traceback, never a path of this machine.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

__all__ = ["JSON", "TEXT", "HTTPRequest", "HTTPResponse", "PeerCertificate", "StatusError", "UserInfo"]

JSON = "application/json"
TEXT = "text/plain; charset=utf-8"


@dataclass(frozen=True, slots=True)
class UserInfo:
    """Who is asking."""

    name: str
    groups: tuple[str, ...] = ()
    uid: str = ""
    extra: Mapping[str, Sequence[str]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class PeerCertificate:
    """A client's certificate, which TLS has verified: whom it names, and the whole of it in DER."""

    common_name: str
    organizations: tuple[str, ...]
    der: bytes


@dataclass(frozen=True, slots=True)
class HTTPRequest:
    """One request. ``path`` is percent-decoded, header names are in lower case."""

    method: str
    path: str
    query: Mapping[str, Sequence[str]] = field(default_factory=dict)
    headers: Mapping[str, Sequence[str]] = field(default_factory=dict)
    certificate: PeerCertificate | None = None

    def header(self, name: str) -> str:
        """All values of a header in one, "" when there is none."""
        return ",".join(self.headers.get(name, ()))

    def parameter(self, name: str) -> str | None:
        """The first value of a query parameter."""
        return next(iter(self.query.get(name, ())), None)


@dataclass(frozen=True, slots=True)
class HTTPResponse:
    """What is sent back."""

    status: int
    body: bytes
    content_type: str = JSON
    headers: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def text(cls, text: str, status: int = 200) -> HTTPResponse:
        """Plain text."""
        return cls(status, text.encode(), TEXT, {"X-Content-Type-Options": "nosniff"})

    @classmethod
    def json(cls, value: Any, status: int = 200) -> HTTPResponse:
        """JSON for people: indented, and in the order in which it is meant to be read."""
        return cls(status, msgspec.json.format(msgspec.json.encode(value), indent=2) + b"\n")


class StatusError(Exception):
    """A request that gets a Status of failure."""

    def __init__(self, code: int, reason: str, message: str) -> None:
        super().__init__(message)
        self.code, self.reason, self.message = code, reason, message

    @classmethod
    def unauthorized(cls) -> StatusError:
        """Whoever asks is not who they say."""
        return cls(401, "Unauthorized", "Unauthorized")

    @classmethod
    def forbidden(cls, user: UserInfo, verb: str, path: str, reason: str = "") -> StatusError:
        """They may not."""
        told = f'forbidden: User "{user.name}" cannot {verb} path "{path}"'
        return cls(403, "Forbidden", f"{told}: {reason}" if reason else told)

    @classmethod
    def not_found(cls, message: str = "the server could not find the requested resource") -> StatusError:
        """There is no such thing."""
        return cls(404, "NotFound", message)

    @classmethod
    def internal(cls) -> StatusError:
        """Something is wrong in here, and the log says what."""
        return cls(500, "InternalError", "Internal error occurred; the scheduler's log has the details")

    @property
    def answer(self) -> HTTPResponse:
        """The Status."""
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
