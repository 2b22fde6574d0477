"""Snapshots of clusters that were read from files or listed from an API server."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from kubestow.descheduling.snapshot import Snapshot
from kubestow.engine.input.documents import SourceObject
from kubestow.engine.input.problems import Problems
from kubestow.errors import InvalidObject

__all__ = ["read_snapshot"]

_CLUSTER_SCOPED = ("Node", "Namespace", "PriorityClass", "NodeMetrics")


def read_snapshot(sources: Iterable[SourceObject], problems: Problems) -> tuple[Snapshot, list[SourceObject]]:
    """A snapshot, and the objects that can be used, those of other kinds included.

    Objects that cannot be decoded are reported and left out; of several with one name the first counts.
    """
    found: list[Any] = []
    usable: list[SourceObject] = []
    names: set[tuple[str, str, str]] = set()
    for source in sources:
        try:
            obj = Snapshot.decoded(source.api_version, source.kind, source.raw)
        except InvalidObject as error:
            problems.report(source.subject, source.place, f"invalid {source.kind}: {error}")
            continue
        usable.append(source)
        if obj is None or not obj.metadata.name:
            continue
        obj = _with_identity(obj, source.kind)
        key = source.kind, obj.metadata.namespace, obj.metadata.name
        if key not in names:
            names.add(key)
            found.append(obj)
    return Snapshot.of(found), usable


def _with_identity(obj: Any, kind: str) -> Any:
    """The object with a namespace and a uid, as the simulated scheduler completes it."""
    metadata = obj.metadata
    namespace = "" if kind in _CLUSTER_SCOPED else metadata.namespace or "default"
    if metadata.uid and metadata.namespace == namespace:
        return obj
    uid = metadata.uid or f"{kind}/{namespace}/{metadata.name}".lower()
    return msgspec.structs.replace(obj, metadata=msgspec.structs.replace(metadata, namespace=namespace, uid=uid))
