"""The JSON of pods and nodes as the API server sent it, for extenders.

Decoded objects hold only the fields that scheduling reads, whereas an extender may read any field. If extenders are
configured, the client therefore caches the JSON of the objects that their arguments contain: pending pods; nodes, if an
extender is not ``nodeCacheCapable``; bound pods, if such an extender also takes part in preemption. The JSON comes from
the same watch as the decoded objects, so it is never older than they are. ``metadata.managedFields`` is removed, as
kube-scheduler does.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
from msgspec import Raw

from kubestow import config
from kubestow.api.json_text import decode_readable, readable_json
from kubestow.scheduling.events.resources import NODES, PODS
from kubestow.scheduling.interfaces import Resource

_OBJECT = msgspec.json.Decoder(dict[str, Raw])

#: Namespace and name.
Key = tuple[str, str]


@dataclass(frozen=True, slots=True)
class _RawObject:
    uid: str
    json: Raw


class RawObjectCache:
    """The JSON of pods and nodes by namespace and name; the arguments select what is cached."""

    def __init__(self, *, pods: bool, nodes: bool, bound_pods: bool) -> None:
        self._bound_pods = bound_pods
        self._objects: dict[Resource, dict[Key, _RawObject]] = {}
        if pods:
            self._objects[PODS] = {}
        if nodes:
            self._objects[NODES] = {}

    @classmethod
    def for_extenders(cls, extenders: Iterable[config.Extender]) -> RawObjectCache:
        """A cache of the objects that the arguments of these extenders contain."""
        deciding = [e for e in extenders if e.filter_verb or e.prioritize_verb or e.preempt_verb]
        uncached = [e for e in deciding if not e.node_cache_capable]
        return cls(
            pods=bool(deciding),
            nodes=any(e.filter_verb or e.prioritize_verb for e in uncached),
            bound_pods=any(e.preempt_verb for e in uncached),
        )

    def __len__(self) -> int:
        return sum(len(objects) for objects in self._objects.values())

    def pod(self, namespace: str, name: str, uid: str) -> Raw | None:
        """The JSON of a pod; None if it is not cached or has another uid."""
        found = self._objects[PODS].get((namespace, name))
        return found.json if found is not None and found.uid == uid else None

    def node(self, name: str) -> Raw | None:
        """The JSON of a node; None if it is not cached."""
        found = self._objects[NODES].get(("", name))
        return None if found is None else found.json

    # -- updates from the watch ----------------------------------------------------------------------------------------

    def store(self, resource: Resource, obj: Any, data: Raw) -> None:
        """Cache the JSON of an added or modified object; a bound pod is removed unless bound pods are cached."""
        objects = self._objects.get(resource)
        if objects is None:
            return
        metadata = obj.metadata
        key = (metadata.namespace, metadata.name)
        if resource == PODS and obj.spec.node_name and not self._bound_pods:
            objects.pop(key, None)
        else:
            objects[key] = _RawObject(metadata.uid, _without_managed_fields(data))

    def delete(self, resource: Resource, obj: Any) -> None:
        """Remove a deleted object."""
        objects = self._objects.get(resource)
        if objects is not None:
            objects.pop((obj.metadata.namespace, obj.metadata.name), None)

    def retain(self, resource: Resource, listed: Sequence[Any]) -> None:
        """Remove the objects of a resource that a new list does not contain."""
        objects = self._objects.get(resource)
        if objects is not None:
            keys = {(obj.metadata.namespace, obj.metadata.name) for obj in listed}
            for key in objects.keys() - keys:
                del objects[key]


def _without_managed_fields(data: Raw) -> Raw:
    """A copy that any JSON reader accepts; managed fields are often half of an object."""
    obj = decode_readable(_OBJECT, data)
    metadata = decode_readable(_OBJECT, obj.get("metadata", Raw(b"{}")))
    metadata.pop("managedFields", None)
    obj["metadata"] = Raw(msgspec.json.encode(metadata))
    return Raw(readable_json(msgspec.json.encode(obj)))
