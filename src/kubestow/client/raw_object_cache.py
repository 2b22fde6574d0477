"""The objects that extenders want to see, in full, as the API server sent them.

Decoded objects hold only what scheduling reads; an extender may look at anything. So where extenders are configured
the client keeps the JSON of what could be shown to them, as bytes: pending pods; nodes, if some extender has no cache
of its own; bound pods, if such an extender also takes part in preemption. It comes from the same watch as everything
else, so it is never older than what the scheduler decides by. ``metadata.managedFields`` is left out, as it is by
kube-scheduler.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
from msgspec import Raw

from kubestow import config
from kubestow.scheduling.events.resources import NODES, PODS
from kubestow.scheduling.ports import Resource

__all__ = ["RawObjectCache"]

_OBJECT = msgspec.json.Decoder(dict[str, Raw])

Key = tuple[str, str]


@dataclass(frozen=True, slots=True)
class _Original:
    uid: str
    json: Raw


class RawObjectCache:
    """The JSON of pods and nodes by namespace and name."""

    def __init__(self, *, pods: bool, nodes: bool, bound_pods: bool) -> None:
        self._bound_pods = bound_pods
        self._kept: dict[Resource, dict[Key, _Original]] = {}
        if pods:
            self._kept[PODS] = {}
        if nodes:
            self._kept[NODES] = {}

    @classmethod
    def wanted_by(cls, extenders: Iterable[config.Extender]) -> RawObjectCache:
        """As much as these extenders may ask for; nothing where there are none."""
        deciding = [e for e in extenders if e.filter_verb or e.prioritize_verb or e.preempt_verb]
        uncached = [e for e in deciding if not e.node_cache_capable]
        return cls(
            pods=bool(deciding),
            nodes=any(e.filter_verb or e.prioritize_verb for e in uncached),
            bound_pods=any(e.preempt_verb for e in uncached),
        )

    def __len__(self) -> int:
        """How many objects are kept."""
        return sum(len(objects) for objects in self._kept.values())

    def pod(self, namespace: str, name: str, uid: str) -> Raw | None:
        """A pod, None when it is not there any longer."""
        found = self._kept[PODS].get((namespace, name))
        return found.json if found is not None and found.uid == uid else None

    def node(self, name: str) -> Raw | None:
        """A node, None when it is not there any longer."""
        found = self._kept[NODES].get(("", name))
        return None if found is None else found.json

    # -- what the watch brings -------------------------------------------------------------------------------------

    def saw(self, resource: Resource, obj: Any, data: Raw) -> None:
        """An object has been read from JSON."""
        kept = self._kept.get(resource)
        if kept is None:
            return
        metadata = obj.metadata
        key = (metadata.namespace, metadata.name)
        if resource == PODS and obj.spec.node_name and not self._bound_pods:
            kept.pop(key, None)
        else:
            kept[key] = _Original(metadata.uid, _trimmed(data))

    def gone(self, resource: Resource, obj: Any) -> None:
        """An object has been deleted."""
        kept = self._kept.get(resource)
        if kept is not None:
            kept.pop((obj.metadata.namespace, obj.metadata.name), None)

    def only(self, resource: Resource, objects: Sequence[Any]) -> None:
        """These are all objects there are of a resource."""
        kept = self._kept.get(resource)
        if kept is not None:
            listed = {(obj.metadata.namespace, obj.metadata.name) for obj in objects}
            for key in kept.keys() - listed:
                del kept[key]


def _trimmed(data: Raw) -> Raw:
    """A copy without managed fields, which are often half of an object."""
    obj = _OBJECT.decode(data)
    metadata = _OBJECT.decode(obj.get("metadata", Raw(b"{}")))
    metadata.pop("managedFields", None)
    obj["metadata"] = Raw(msgspec.json.encode(metadata))
    return Raw(msgspec.json.encode(obj))
