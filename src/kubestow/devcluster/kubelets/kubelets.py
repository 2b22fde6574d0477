"""All simulated kubelets as one task: it follows nodes and pods, and does what falls due."""

from __future__ import annotations

import logging

from kubestow.devcluster.apiserver import statuses
from kubestow.devcluster.apiserver.registry.registry import Registry
from kubestow.devcluster.apiserver.storage.store import Event
from kubestow.devcluster.event_recorder import Recorder
from kubestow.devcluster.kubelets.heartbeats import INTERVAL
from kubestow.devcluster.kubelets.nodes import Nodes
from kubestow.devcluster.kubelets.pod_workers import PodWorkers
from kubestow.devcluster.kubelets.timers import Timetable
from kubestow.devcluster.watch_loop import Follower

__all__ = ["Kubelets"]

#: Deeds done in one turn of the event loop, so that requests are served in between.
TURN = 100

_log = logging.getLogger(__name__)


class Kubelets(Follower):
    """The kubelets of a cluster. Time is the running event loop's.

    ``heartbeat_interval`` is the time between two heartbeats of a node, in seconds.
    """

    title = "simulated nodes"

    def __init__(self, registry: Registry, *, heartbeat_interval: float = INTERVAL) -> None:
        super().__init__(registry.store)
        self._registry = registry
        self._interval = heartbeat_interval

    def begin(self) -> None:
        self._timetable = Timetable()
        self._nodes = Nodes(self._registry, self._timetable, self._look_at_pods, heartbeat_interval=self._interval)
        self._pods = PodWorkers(self._registry, self._timetable, self._nodes, Recorder(self._registry))
        self._pods_of: dict[str, dict[str, None]] = {}
        nodes = self.follow("nodes")
        for stored in nodes:
            self._nodes.note_addresses(stored)
        for stored in self.follow("pods"):
            self._pods.note_address(stored)
            if stored.fields[0]:
                self._pods_of.setdefault(stored.fields[0], {})[stored.key] = None
        for stored in nodes:
            self._nodes.observe(stored)

    @property
    def next_time(self) -> float | None:
        return self._timetable.next_time

    def observe(self, resource: str, event: Event) -> None:
        if resource == "nodes":
            self._observe_node(event)
        else:
            self._observe_pod(event)

    def act(self) -> None:
        for _ in range(TURN):
            deed = self._timetable.take()
            if deed is None:
                return
            try:
                deed()
            except statuses.Failure as failure:
                # Somebody else was faster: what there is to do now is seen in what they did.
                if failure.code not in (404, 409):
                    _log.warning("a simulated node was refused: %s", failure.message)

    def _observe_node(self, event: Event) -> None:
        if event.type == "DELETED":
            self._nodes.forget(event.object.name)
        else:
            self._nodes.observe(event.object)

    def _observe_pod(self, event: Event) -> None:
        stored = event.object
        if event.type == "DELETED":
            self._pods.forget(stored.key)
            self._pods_of.get(stored.fields[0], {}).pop(stored.key, None)
        elif stored.fields[0]:
            self._pods_of.setdefault(stored.fields[0], {})[stored.key] = None
            self._pods.observe(stored)

    def _look_at_pods(self, node: str) -> None:
        """A node has become ready, or begun to shut down: that concerns every pod on it."""
        pods = self._registry.store.collection("pods")
        for key in self._pods_of.get(node, ()):
            if (stored := pods.get(key)) is not None and stored.fields[0] == node:
                (self._pods.resume if self._nodes.state(node) == "running" else self._pods.observe)(stored)
