"""The objects of a cluster as of the last entry of a record, from which a file that goes on with it begins."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from kubestow.flight_record.entries import Called, Changed, Entry, Listed

__all__ = ["KnownObjects"]


class KnownObjects:
    """Follows the entries of a record. Holds references to objects that the scheduler has as well, and no copies."""

    def __init__(self, resources: Iterable[tuple[str, str, str]] = ()) -> None:
        #: The resources that are watched, once that is known; entries name them by position.
        self.resources = list(resources)
        #: The time of the last entry that has one, in seconds.
        self.time = 0.0
        self._objects: dict[int, dict[tuple[str, str], Any]] = {}

    def follow(self, entries: Iterable[Entry]) -> None:
        """Take the next entries into account."""
        for entry in entries:
            if isinstance(entry, Changed):
                self.time = entry.time
                known = self._objects.setdefault(entry.resource, {})
                if entry.type == "DELETED":
                    known.pop(_key(entry.object), None)
                else:
                    known[_key(entry.object)] = entry.object
            elif isinstance(entry, Listed):
                self.time = entry.time
                self._objects[entry.resource] = {_key(obj): obj for obj in entry.objects}
            elif isinstance(entry, Called) and entry.method == "subscribe":
                self.resources = list(entry.arguments)

    def entries(self) -> list[Entry]:
        """An entry for each object, as if it was new."""
        return [
            Changed(0, 0, self.time, resource, "ADDED", obj)
            for resource, known in self._objects.items()
            for obj in known.values()
        ]


def _key(obj: Any) -> tuple[str, str]:
    return obj.metadata.namespace, obj.metadata.name
