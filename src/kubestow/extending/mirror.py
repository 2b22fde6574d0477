"""The cluster that an extender's answers are about.

With an API server to watch it is kept as a scheduler keeps its own: every node and pod there is. Without one it is what
the last question showed, nodes and nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from typing import Any

from msgspec import Raw

from kubestow.api.core import Node
from kubestow.api.meta import decode
from kubestow.cluster.cache import Cluster
from kubestow.cluster.events import ClusterEvent
from kubestow.cluster.pods.shapes import PodInfo
from kubestow.scheduling.events.handlers import EventHandlers, WatchListener
from kubestow.scheduling.events.pod_store import PodStore
from kubestow.scheduling.events.resources import WATCHED
from kubestow.scheduling.ports import Resource

__all__ = ["Mirror"]


class Mirror:
    """A cluster that follows a watch (it is the subscriber), or the nodes that it is shown."""

    def __init__(self) -> None:
        self.cluster = Cluster()
        self.synced = False
        #: Called when the whole cluster has been read.
        self.on_synced: Callable[[], None] = lambda: None
        self._pods = PodStore()
        self._handlers = EventHandlers(
            self.cluster,
            self._pods,
            _NoQueue(),
            scheduler_names=_Anybody(),
            watched=WATCHED,
            listener=_MirrorListener(self),
        )

    def expect(self, resources: Iterable[Resource]) -> None:
        """More will be watched than usual."""
        self._handlers.expect(resources)

    def complete(self) -> None:
        """Every watched resource has been listed."""
        if not self.synced:
            self.synced = True
            self.on_synced()

    def known(self, uid: str) -> PodInfo | None:
        """The last state of a pod that the API server told."""
        return self._pods.get(uid)

    # -- following a watch -----------------------------------------------------------------------------------------

    def replace(self, resource: Resource, objects: Sequence[Any]) -> None:
        """A complete list."""
        self._handlers.replace(resource, objects)

    def apply(self, resource: Resource, event_type: str, obj: Any) -> None:
        """One watch event."""
        self._handlers.apply(resource, event_type, obj)

    def unreadable(self, resource: Resource, subject: str, problem: str) -> None:
        """An object that does not decode."""
        self._handlers.unreadable(resource, subject, problem)

    # -- being shown nodes -----------------------------------------------------------------------------------------

    def show(self, nodes: Mapping[str, Raw]) -> None:
        """These are all nodes there are, by name. Raises InvalidObject.

        What was shown before and has not changed costs no more than reading it.
        """
        shown = {name: decode(Node, data) for name, data in nodes.items()}
        table = self.cluster.nodes
        for name in [name for name in table.names if name not in shown]:
            self.cluster.remove_node(name)
        for name, node in shown.items():
            row = table.rows.get(name)
            if row is None:
                self.cluster.add_node(node)
            elif table.objects[row] != node:
                self.cluster.update_node(node)


class _NoQueue:
    """Nobody waits to be scheduled here."""

    def add(self, info: PodInfo) -> None:
        pass

    def update(self, old: PodInfo, new: PodInfo, events: Iterable[ClusterEvent]) -> None:
        pass

    def delete(self, uid: str) -> None:
        pass

    def move_all_to_active_or_backoff(self, event: ClusterEvent, old: Any = None, new: Any = None) -> None:
        pass

    def release_nomination(self, pod: PodInfo, node_name: str | None) -> bool:
        return False


class _MirrorListener(WatchListener):
    """Drops assumptions of deleted pods, and reports that the cluster is complete."""

    def __init__(self, mirror: Mirror) -> None:
        self._mirror = mirror

    def assumed_pod_deleted(self, uid: str) -> None:
        self._mirror.cluster.forget(uid)

    def synced(self) -> None:
        self._mirror.complete()


class _Anybody(Container[str]):
    """Promises made to pods count, whichever scheduler made them."""

    def __contains__(self, name: object) -> bool:
        return True
