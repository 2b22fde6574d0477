"""TopologicalSort orders the pods of one AppGroup by its topology, and all others by priority and time."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from kubestow.framework.interface import Queued, QueueSortPlugin
from kubestow_contrib.network_aware.custom_resources import GROUP_LABEL, WORKLOAD_LABEL, AppGroup, first_of

__all__ = ["TopologicalSort", "TopologicalSortArgs"]


class TopologicalSortArgs(msgspec.Struct, frozen=True):
    """The namespaces in which AppGroups are looked for."""

    namespaces: list[str] | None = None


@dataclass(frozen=True, slots=True, eq=False)
class _Key:
    """The place of a pod: by ``position`` among the pods of its group, else by ``otherwise``.

    As upstream, this is no total order: pods of one group may be separated by others.
    """

    group: str
    position: int
    otherwise: tuple[int, float]

    def __lt__(self, other: _Key) -> bool:
        if self.group and self.group == other.group and self.position != other.position:
            return self.position < other.position
        return self.otherwise < other.otherwise

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Key) and not self < other and not other < self


class TopologicalSort(QueueSortPlugin):
    """Pods that others of the application depend on later or earlier, as the AppGroup's status says."""

    name = "TopologicalSort"
    Args = TopologicalSortArgs
    events_to_register = ()
    kinds = (AppGroup,)

    def sort_key(self, queued: Queued) -> _Key:
        """The key with the position that the AppGroup has now; a pod without AppGroup is like one without label."""
        labels, otherwise = queued.info.labels, (-queued.info.priority, queued.timestamp)
        name = labels.get(GROUP_LABEL, "")
        group = None
        if name:
            group = first_of(self.handle.cluster, AppGroup, self.args.namespaces or ["default"], name)
        if group is None:
            return _Key("", 0, otherwise)
        return _Key(name, group.position(labels.get(WORKLOAD_LABEL, "")), otherwise)
