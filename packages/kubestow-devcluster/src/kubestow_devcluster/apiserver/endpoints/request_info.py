"""Request info: group, version, namespace, resource, name and subresource of a resource path.

``/apis/apps/v1/namespaces/default/deployments/web/scale`` is a resource path. Paths outside ``/api`` and ``/apis`` are
not; :mod:`api_handler` serves them separately.
"""

from __future__ import annotations

from typing import NamedTuple
from urllib.parse import unquote

__all__ = ["RequestInfo", "parse_request_info"]


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
