"""Requests without a connection, so that handlers serve HTTP and in-process callers alike.

A resource path such as ``/apis/apps/v1/namespaces/default/deployments/web/scale`` has a :class:`RequestInfo`; paths
outside ``/api`` and ``/apis`` have none, and :mod:`api_handler` serves them separately.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import NamedTuple
from urllib.parse import unquote

from kubestow.api.formats.duration import Duration
from kubestow.http.messages import UserInfo
from kubestow_devcluster.apiserver import field_errors, statuses
from kubestow_devcluster.apiserver.security.users import ADMIN

_INTEGER = re.compile(r"[+-]?[0-9]+", re.ASCII)
_INT64 = range(-(2**63), 2**63)
_FIELD_VALIDATION = ("Ignore", "Strict", "Warn")
#: The kind of the options of a write, as error messages name it.
_OPTIONS = {"POST": "CreateOptions", "PUT": "UpdateOptions", "PATCH": "PatchOptions", "DELETE": "DeleteOptions"}


@dataclass(frozen=True, slots=True)
class RequestHeaders:
    accept: str = ""
    content_type: str = ""
    user_agent: str = ""
    if_none_match: str = ""


@dataclass(frozen=True, slots=True)
class Request:
    """One request. ``query`` has the first value of each parameter; ``body`` is complete and within the size limit.

    ``host`` is the host:port of the server that the client connected to.
    """

    method: str
    path: str
    query: dict[str, str] = field(default_factory=dict)
    headers: RequestHeaders = field(default_factory=RequestHeaders)
    body: bytes = b""
    user: UserInfo = ADMIN
    host: str = ""

    @property
    def dry_run(self) -> bool:
        """Raises a 422 StatusError for an unknown directive."""
        directive = self.query.get("dryRun", "")
        if directive not in ("", "All"):
            raise self._invalid(field_errors.unsupported_value("dryRun", [directive], ("All",)))
        return directive == "All"

    @property
    def field_manager(self) -> str:
        """The ``fieldManager`` parameter, or the product name of the user agent. Raises a 422 StatusError."""
        name = self.query.get("fieldManager", "")
        if len(name) > 128:
            raise self._invalid(field_errors.too_long("fieldManager", 128))
        if not name.isprintable():
            problem = "should only contain printable characters"
            raise self._invalid(field_errors.invalid_value("fieldManager", name, problem))
        return name or self.headers.user_agent.partition("/")[0] or "unknown"

    @property
    def field_validation(self) -> str:
        """How unknown fields are handled: Ignore, Strict or Warn. Raises a 422 StatusError."""
        directive = self.query.get("fieldValidation", "") or "Warn"
        if directive not in _FIELD_VALIDATION:
            raise self._invalid(field_errors.unsupported_value("fieldValidation", directive, _FIELD_VALIDATION))
        return directive

    def validate_timeout(self) -> None:
        """Raises a 400 StatusError for a ``timeout`` that is not a duration. Requests are not limited by it."""
        if text := self.query.get("timeout", ""):
            try:
                Duration.parse(text)
            except ValueError as error:
                raise statuses.bad_request(f"invalid timeout specified in the request URL - {error}") from None

    def flag(self, name: str) -> bool:
        """A boolean parameter. Any value but ``false`` and ``0`` is true, as in kube-apiserver."""
        value = self.query.get(name)
        return value is not None and value != "0" and value.lower() != "false"

    def number(self, name: str) -> int | None:
        """A 64-bit integer parameter, None without it. Raises a 400 StatusError with Go's message."""
        text = self.query.get(name, "")
        if not text:
            return None
        if not _INTEGER.fullmatch(text):
            raise statuses.bad_request(f'strconv.ParseInt: parsing "{text}": invalid syntax')
        # Parsing a long number takes quadratic time.
        if len(text) > 100 or (number := int(text)) not in _INT64:
            raise statuses.bad_request(f'strconv.ParseInt: parsing "{text}": value out of range')
        return number

    def _invalid(self, error: field_errors.FieldError) -> statuses.StatusError:
        options = _OPTIONS.get(self.method, "CreateOptions")
        return statuses.invalid(options, "", [error], group="meta.k8s.io")


class RequestInfo(NamedTuple):
    """What a resource path addresses; absent parts are empty. ``watch`` is set for the deprecated ``/watch/`` form."""

    group: str
    version: str
    namespace: str
    resource: str
    name: str
    subresource: str
    watch: bool


def parse_request_info(path: str) -> RequestInfo | None:
    """The info of a path below a version (``/api/v1/...``, ``/apis/G/V/...``); None for any other path."""
    segments = [unquote(segment) for segment in path.split("/")] if "%" in path else path.split("/")
    if segments[-1] == "":
        segments.pop()
    if len(segments) > 3 and segments[1] == "api":
        return _request_info("", segments[2], segments[3:])
    if len(segments) > 4 and segments[1] == "apis":
        return _request_info(segments[2], segments[3], segments[4:])
    return None


def _request_info(group: str, version: str, rest: list[str]) -> RequestInfo | None:
    watch = rest[0] == "watch" and len(rest) > 1
    if watch:
        rest = rest[1:]
    namespace = ""
    if rest[0] == "namespaces" and len(rest) > 2 and not (len(rest) == 3 and rest[2] in ("status", "finalize")):
        namespace, rest = rest[1], rest[2:]
    if len(rest) > 3:
        return None
    resource, name, subresource = (*rest, "", "")[:3]
    return RequestInfo(group, version, namespace, resource, name, subresource, watch)
