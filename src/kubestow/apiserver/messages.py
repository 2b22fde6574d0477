"""A request as the verbs see it, and their answers: HTTP without a connection.

Nothing in the verbs touches a socket, so the same code answers aiohttp and callers inside the process.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import msgspec

from kubestow.apiserver import statuses
from kubestow.apiserver.negotiation import Representation, accepted

__all__ = ["JSON", "Answer", "Request", "Stream", "User"]

JSON = "application/json"
_TRUE = frozenset({"1", "true", "True", "TRUE", "t", "T"})


@dataclass(frozen=True, slots=True)
class User:
    name: str
    groups: tuple[str, ...] = ()
    uid: str = ""
    extra: Mapping[str, Sequence[str]] = field(default_factory=dict, hash=False)


ADMIN = User("system:admin", ("system:masters", "system:authenticated"))


@dataclass(frozen=True, slots=True)
class Request:
    """One request. ``query`` holds the last value of each parameter; ``body`` is complete and within the size limit."""

    method: str
    path: str
    query: dict[str, str] = field(default_factory=dict)
    accept: str = ""
    content_type: str = ""
    user_agent: str = ""
    if_none_match: str = ""
    body: bytes = b""
    user: User = ADMIN
    #: host:port by which the client reached the server.
    host: str = ""

    @property
    def representation(self) -> Representation:
        """What the client wants to see. Raises a 406 Failure."""
        return accepted(self.accept)

    @property
    def dry_run(self) -> bool:
        """Raises a 422 Failure for an unknown directive."""
        asked = self.query.get("dryRun", "")
        if asked not in ("", "All"):
            cause = statuses.unsupported_value("dryRun", [asked], ("All",))
            raise statuses.invalid("CreateOptions", "", [cause], group="meta.k8s.io")
        return asked == "All"

    @property
    def manager(self) -> str:
        """The field manager: named in the query, or the first word of the user agent."""
        named = self.query.get("fieldManager", "")
        if len(named) > 128:
            cause = statuses.Cause("FieldValueTooLong", "Too long: may not be more than 128 bytes", "fieldManager")
            raise statuses.invalid("CreateOptions", "", [cause], group="meta.k8s.io")
        return named or self.user_agent.partition("/")[0] or "unknown"

    def flag(self, name: str) -> bool:
        return self.query.get(name, "") in _TRUE

    def number(self, name: str) -> int | None:
        """An integer parameter, None when absent. Raises a 400 Failure in Go's words for anything else."""
        text = self.query.get(name, "")
        if not text:
            return None
        try:
            return int(text)
        except ValueError:
            raise statuses.bad_request(f'strconv.ParseInt: parsing "{text}": invalid syntax') from None


@dataclass(slots=True)
class Answer:
    """A finite answer. ``body`` may come in parts, which are sent one after the other as they are made."""

    status: int
    body: bytes | Iterator[bytes]
    content_type: str = JSON
    headers: dict[str, str] = field(default_factory=dict)

    @classmethod
    def json(cls, value: object, status: int = 200, *, headers: dict[str, str] | None = None) -> Answer:
        return cls(status, msgspec.json.encode(value) + b"\n", headers=headers or {})

    @classmethod
    def text(cls, text: str, status: int = 200) -> Answer:
        return cls(status, text.encode(), "text/plain; charset=utf-8", {"X-Content-Type-Options": "nosniff"})

    @classmethod
    def failure(cls, failure: statuses.Failure) -> Answer:
        headers = {} if failure.retry_after is None else {"Retry-After": str(int(failure.retry_after))}
        return cls(failure.code, failure.encode(), headers=headers)


@dataclass(slots=True)
class Stream:
    """An answer without end in sight: a watch."""

    events: AsyncIterator[bytes]
    content_type: str = JSON
