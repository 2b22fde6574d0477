"""A request as the verbs see it, and their answers: HTTP without a connection.

Nothing in the verbs touches a socket, so the same code answers aiohttp and callers inside the process.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import msgspec

from kubestow.devcluster.apiserver import field_errors, statuses
from kubestow.devcluster.apiserver.serialization.negotiation import Representation, accepted

__all__ = ["JSON", "Answer", "Request", "Stream", "UserInfo"]

JSON = "application/json"
_INTEGER = re.compile(r"[+-]?[0-9]+", re.ASCII)
_INT64 = range(-(2**63), 2**63)
_FIELD_VALIDATION = ("Ignore", "Strict", "Warn")
#: What the options of a write are called in refusals.
_OPTIONS = {"POST": "CreateOptions", "PUT": "UpdateOptions", "PATCH": "PatchOptions", "DELETE": "DeleteOptions"}


@dataclass(frozen=True, slots=True)
class UserInfo:
    name: str
    groups: tuple[str, ...] = ()
    uid: str = ""
    extra: Mapping[str, Sequence[str]] = field(default_factory=dict, hash=False)


ADMIN = UserInfo("system:admin", ("system:masters", "system:authenticated"))


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
    user: UserInfo = ADMIN
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
            raise self._invalid(field_errors.unsupported_value("dryRun", [asked], ("All",)))
        return asked == "All"

    @property
    def manager(self) -> str:
        """The field manager: named in the query, or the first word of the user agent. Raises a 422 Failure."""
        named = self.query.get("fieldManager", "")
        if len(named) > 128:
            raise self._invalid(field_errors.too_long("fieldManager", 128))
        if not named.isprintable():
            problem = "should only contain printable characters"
            raise self._invalid(field_errors.invalid_value("fieldManager", named, problem))
        return named or self.user_agent.partition("/")[0] or "unknown"

    @property
    def field_validation(self) -> str:
        """What to do about unknown fields: Ignore, Strict or Warn. Raises a 422 Failure."""
        asked = self.query.get("fieldValidation", "") or "Warn"
        if asked not in _FIELD_VALIDATION:
            raise self._invalid(field_errors.unsupported_value("fieldValidation", asked, _FIELD_VALIDATION))
        return asked

    def flag(self, name: str) -> bool:
        """Whatever is said but ``false`` and ``0`` means yes, as it does to kube-apiserver."""
        said = self.query.get(name)
        return said is not None and said != "0" and said.lower() != "false"

    def number(self, name: str) -> int | None:
        """A 64-bit integer parameter, None when absent. Raises a 400 Failure in Go's words for anything else."""
        text = self.query.get(name, "")
        if not text:
            return None
        if not _INTEGER.fullmatch(text):
            raise statuses.bad_request(f'strconv.ParseInt: parsing "{text}": invalid syntax')
        # Longer than any such number: not worth the quadratic time that reading it takes.
        if len(text) > 100 or (number := int(text)) not in _INT64:
            raise statuses.bad_request(f'strconv.ParseInt: parsing "{text}": value out of range')
        return number

    def _invalid(self, cause: field_errors.Cause) -> statuses.StatusError:
        options = _OPTIONS.get(self.method, "CreateOptions")
        return statuses.invalid(options, "", [cause], group="meta.k8s.io")


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
    def failure(cls, failure: statuses.StatusError) -> Answer:
        headers = {} if failure.retry_after is None else {"Retry-After": str(int(failure.retry_after))}
        return cls(failure.code, failure.encode(), headers=headers)


@dataclass(slots=True)
class Stream:
    """An answer without end in sight: a watch."""

    events: AsyncIterator[bytes]
    content_type: str = JSON
