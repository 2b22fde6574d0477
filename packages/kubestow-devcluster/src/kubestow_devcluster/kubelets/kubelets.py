"""The watch loop of all simulated kubelets: events of nodes and pods in, timers for everything they do later."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial

from kubestow.log_fields import fields
from kubestow_devcluster.apiserver import statuses
from kubestow_devcluster.apiserver.registry.registry import Registry
from kubestow_devcluster.apiserver.storage.store import WatchEvent
from kubestow_devcluster.behaviour.stages_file import NO_STAGES, Stages
from kubestow_devcluster.component_base.event_recorder import RegistryEventRecorder
from kubestow_devcluster.component_base.node_health import RENEW_INTERVAL
from kubestow_devcluster.component_base.stored_objects import node_name_of, uid_of
from kubestow_devcluster.component_base.watch_loop import Timers, WatchLoop
from kubestow_devcluster.kubelets.node_status import NodeStatusManager
from kubestow_devcluster.kubelets.pod_workers import PodStages, PodWorkers

#: Timer callbacks per turn of the event loop; requests are served between turns.
BATCH = 100

_log = logging.getLogger(__name__)


class Kubelets(WatchLoop):
    """The kubelets of all nodes of a cluster, in the running event loop's time.

    ``lease_renew_interval`` is the time between two heartbeats of a node, in seconds. ``stages`` are rules for how pods
    run.
    """

    name = "kubelets"

    def __init__(
        self, registry: Registry, *, lease_renew_interval: float = RENEW_INTERVAL, stages: Stages = NO_STAGES
    ) -> None:
        super().__init__(registry.store)
        self._stages = stages
        self._registry = registry
        self._lease_renew_interval = lease_renew_interval

    def relist(self) -> None:
        self._timers = Timers()
        self._nodes = NodeStatusManager(
            self._registry, self._timers, self._sync_pods_on, lease_renew_interval=self._lease_renew_interval
        )
        self._recorder = recorder = RegistryEventRecorder(self._registry)
        self._pods = PodWorkers(self._registry, self._timers, self._nodes, recorder, self._stages.behaviour)
        self._pod_stages = PodStages(self._registry, self._timers, self._nodes, recorder, self._stages.pod_stages)
        #: The keys of the pods bound to each node; dicts keep them in order.
        self._pods_on: dict[str, dict[str, None]] = {}
        nodes = self.list_and_watch("nodes")
        for stored in nodes:
            self._nodes.reserve_addresses(stored)
        for stored in self.list_and_watch("pods"):
            self._pods.restore(stored)
            if node := node_name_of(stored):
                self._pods_on.setdefault(node, {})[stored.key] = None
        for stored in nodes:
            self._attempt(partial(self._nodes.sync, stored))

    @property
    def next_deadline(self) -> float | None:
        return self._timers.next_deadline

    def handle_event(self, resource: str, event: WatchEvent) -> None:
        handle = self._handle_node if resource == "nodes" else self._handle_pod
        self._attempt(partial(handle, event))

    def process_pending(self) -> None:
        for _ in range(BATCH):
            callback = self._timers.pop_expired()
            if callback is None:
                return
            self._attempt(callback)

    @staticmethod
    def _attempt(callback: Callable[[], None]) -> None:
        """Do what is to be done about one node or pod. A failure is logged and does not affect the others."""
        try:
            callback()
        except statuses.StatusError as failure:
            # Not found and conflict: another client's write came first, and its event leads to the next step.
            if failure.code not in (404, 409):
                _log.warning("kubelets: write rejected: %s", failure.message, extra=fields(err=failure.message))
        except Exception as error:
            _log.exception("kubelets: a node or pod could not be handled", extra=fields(err=str(error)))

    def _handle_node(self, event: WatchEvent) -> None:
        if event.type == "DELETED":
            self._nodes.remove(event.object.name)
            self._pods.discard_node(event.object.name)
        else:
            self._nodes.sync(event.object)

    def _handle_pod(self, event: WatchEvent) -> None:
        stored, node = event.object, node_name_of(event.object)
        if event.type == "DELETED":
            self._pods.remove(stored.key)
            self._pod_stages.remove(stored.key)
            self._recorder.discard(uid_of(stored))
            self._pods_on.get(node, {}).pop(stored.key, None)
        elif node:
            self._pods_on.setdefault(node, {})[stored.key] = None
            self._pods.sync(stored)
            self._pod_stages.sync(stored)

    def _sync_pods_on(self, node: str) -> None:
        """Sync every pod on a node that has become ready or started to shut down."""
        pods = self._registry.store.collection("pods")
        for key in self._pods_on.get(node, ()):
            if (stored := pods.get(key)) is not None and node_name_of(stored) == node:
                (self._pods.resume if self._nodes.state(node) == "running" else self._pods.sync)(stored)
                self._pod_stages.sync(stored)
