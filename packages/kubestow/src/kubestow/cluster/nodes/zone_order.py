"""The order of nodes in kube-scheduler's node list: the zones in turn (semantics 7.2)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import chain, zip_longest

__all__ = ["ZoneOrder"]

_ZONE = ("failure-domain.beta.kubernetes.io/zone", "topology.kubernetes.io/zone")
_REGION = ("failure-domain.beta.kubernetes.io/region", "topology.kubernetes.io/region")


class ZoneOrder:
    """The names of nodes by zone: zones by first appearance, nodes in the order in which they joined theirs."""

    def __init__(self) -> None:
        self._zones: dict[str, dict[str, None]] = {}
        self._zone_of: dict[str, str] = {}

    def add(self, name: str, labels: Mapping[str, str]) -> None:
        """Add a node at the end of its zone."""
        zone = self._zone_of[name] = _zone_key(labels)
        self._zones.setdefault(zone, {})[name] = None

    def update(self, name: str, labels: Mapping[str, str]) -> None:
        """Move a node to the end of its zone, if that is another one than before."""
        if _zone_key(labels) != self._zone_of[name]:
            self.remove(name)
            self.add(name, labels)

    def remove(self, name: str) -> None:
        """Remove a node, and its zone if it was the last one there."""
        zone = self._zone_of.pop(name)
        del self._zones[zone][name]
        if not self._zones[zone]:
            del self._zones[zone]

    def names(self) -> Iterable[str]:
        """The first node of each zone, then the second of each, and so on."""
        return (name for name in chain.from_iterable(zip_longest(*self._zones.values())) if name is not None)


def _zone_key(labels: Mapping[str, str]) -> str:
    """Region and zone; empty without either. A beta label takes precedence, even an empty one."""
    region, zone = _first(labels, _REGION), _first(labels, _ZONE)
    return f"{region}:\x00:{zone}" if region or zone else ""


def _first(labels: Mapping[str, str], keys: Iterable[str]) -> str:
    return next((labels[key] for key in keys if key in labels), "")
