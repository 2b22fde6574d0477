"""API paths: ``/apis/apps/v1/namespaces/default/deployments/web/scale`` as a :class:`Target`.

The grammar is regular, so one split and a few lengths decide; what the segments name is looked up by the caller. Paths
outside ``/api`` and ``/apis`` are not targets and answered elsewhere.
"""

from __future__ import annotations

from typing import NamedTuple
from urllib.parse import unquote

__all__ = ["Target", "parse"]


class Target(NamedTuple):
    """What a path points at. Empty strings where the path says nothing; ``watch`` for the old ``/watch/`` form."""

    group: str
    version: str
    namespace: str
    resource: str
    name: str
    subresource: str
    watch: bool


def parse(path: str) -> Target | None:
    """The target of a path below a version (``/api/v1/...``, ``/apis/G/V/...``), or None for any other path."""
    segments = [unquote(segment) for segment in path.split("/")] if "%" in path else path.split("/")
    if segments[-1] == "":
        segments.pop()
    if len(segments) > 3 and segments[1] == "api":
        return _target("", segments[2], segments[3:])
    if len(segments) > 4 and segments[1] == "apis":
        return _target(segments[2], segments[3], segments[4:])
    return None


def _target(group: str, version: str, rest: list[str]) -> Target | None:
    watch = rest[0] == "watch" and len(rest) > 1
    if watch:
        rest = rest[1:]
    namespace = ""
    if rest[0] == "namespaces" and len(rest) > 2 and not (len(rest) == 3 and rest[2] in ("status", "finalize")):
        namespace, rest = rest[1], rest[2:]
    if len(rest) > 3:
        return None
    resource, name, subresource = (*rest, "", "")[:3]
    return Target(group, version, namespace, resource, name, subresource, watch)
