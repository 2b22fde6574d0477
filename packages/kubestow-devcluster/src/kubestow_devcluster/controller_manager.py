"""The controller manager: one watch loop over all resources, one work queue, and every controller.

Each change is handled by the controllers that watch its resource, which enqueue what it affects. All changes are
delivered before each reconciliation, so a controller always sees its own writes and needs no expectations.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from kubestow.log_fields import fields
from kubestow_devcluster.apiserver import statuses
from kubestow_devcluster.apiserver.registry.registry import Registry
from kubestow_devcluster.apiserver.storage.store import WatchEvent
from kubestow_devcluster.component_base.event_recorder import EVENT_TTL, RegistryEventRecorder
from kubestow_devcluster.component_base.node_health import NODE_MONITOR_GRACE_PERIOD
from kubestow_devcluster.component_base.stored_objects import uid_of
from kubestow_devcluster.component_base.watch_loop import WatchLoop
from kubestow_devcluster.controllers.controller import (
    Controller,
    ControllerContext,
    ObjectChange,
    PodUsage,
    WorkItem,
    WorkQueue,
)
from kubestow_devcluster.controllers.disruption import DisruptionController
from kubestow_devcluster.controllers.endpoints import EndpointsController
from kubestow_devcluster.controllers.garbage_collector import EventTTLController, GarbageCollector
from kubestow_devcluster.controllers.horizontal_pod_autoscalers import HorizontalPodAutoscalerController
from kubestow_devcluster.controllers.namespaces import NamespaceController, ResourceQuotaController
from kubestow_devcluster.controllers.node_lifecycle import (
    NodeLifecycleController,
    PodGarbageCollector,
    TaintEvictionController,
)
from kubestow_devcluster.controllers.pod_index import PodIndexer
from kubestow_devcluster.controllers.resource_claims import ResourceClaimController, ResourceClaimTemplateController
from kubestow_devcluster.controllers.service_accounts import (
    ClusterRoleAggregationController,
    RootCAController,
    ServiceAccountController,
)
from kubestow_devcluster.controllers.volumes import (
    EphemeralVolumeController,
    PersistentVolumeClaimController,
    PersistentVolumeController,
    Provisioner,
    PVCProtectionController,
    PVProtectionController,
)
from kubestow_devcluster.controllers.workloads.cron_jobs import CronJobController
from kubestow_devcluster.controllers.workloads.daemon_sets import DaemonSetController
from kubestow_devcluster.controllers.workloads.deployments import DeploymentController
from kubestow_devcluster.controllers.workloads.jobs import JobController
from kubestow_devcluster.controllers.workloads.replica_sets import ReplicaSetController, ReplicationControllerController
from kubestow_devcluster.controllers.workloads.stateful_sets import StatefulSetController

_log = logging.getLogger(__name__)

_CONTROLLERS: tuple[type[Controller], ...] = (
    DeploymentController,
    ReplicaSetController,
    ReplicationControllerController,
    StatefulSetController,
    DaemonSetController,
    JobController,
    CronJobController,
    HorizontalPodAutoscalerController,
    DisruptionController,
    EndpointsController,
    NamespaceController,
    ResourceQuotaController,
    ServiceAccountController,
    RootCAController,
    ClusterRoleAggregationController,
    GarbageCollector,
    NodeLifecycleController,
    TaintEvictionController,
    PodGarbageCollector,
    PersistentVolumeClaimController,
    PersistentVolumeController,
    Provisioner,
    PVCProtectionController,
    PVProtectionController,
    EphemeralVolumeController,
    ResourceClaimTemplateController,
    ResourceClaimController,
    EventTTLController,
)


class ControllerManager(WatchLoop):
    """Runs the controllers of a cluster as one task.

    ``node_monitor_grace_period`` is the time in seconds without a heartbeat after which a node's conditions become
    Unknown, ``event_ttl`` the time in seconds for which events are kept. ``root_ca`` are the certificates, in PEM, that
    the API server's is verified with; empty without TLS. ``usage`` is the usage of pods, if it is known.
    ``controllers`` are the ones to run, in order; default: all.
    """

    name = "controller manager"

    def __init__(
        self,
        registry: Registry,
        *,
        node_monitor_grace_period: float = NODE_MONITOR_GRACE_PERIOD,
        event_ttl: float = EVENT_TTL,
        root_ca: str = "",
        usage: PodUsage | None = None,
        controllers: Sequence[type[Controller]] = _CONTROLLERS,
    ) -> None:
        super().__init__(registry.store)
        self._controller_types = tuple(controllers)
        self._node_monitor_grace_period = node_monitor_grace_period
        self._event_ttl = event_ttl
        self._registry, self._root_ca, self._usage = registry, root_ca, usage

    def relist(self) -> None:
        self._queue = WorkQueue[WorkItem]()
        self._pods, self._recorder = PodIndexer(), RegistryEventRecorder(self._registry)
        context = ControllerContext(
            self._registry,
            self._pods,
            self._queue,
            self._recorder,
            node_monitor_grace_period=self._node_monitor_grace_period,
            event_ttl=self._event_ttl,
            root_ca=self._root_ca,
            usage=self._usage,
        )
        self._controllers = [controller_type(context) for controller_type in self._controller_types]
        #: The controllers that handle the changes of each resource.
        self._watchers: dict[str, list[Controller]] = {}
        self._catalog_revision = 0
        self._watch_new_resources()

    def _watch_new_resources(self) -> None:
        """Watch every resource of the catalog; custom resources can be defined at any time."""
        scheme = self._registry.scheme
        if self._catalog_revision == scheme.revision:
            return
        self._catalog_revision = scheme.revision
        resources = {kind.storage for kind in scheme if "list" in kind.rest.verbs}
        lists = {name: self.list_and_watch(name) for name in sorted(resources) if not self.is_watching(name)}
        for resource in lists:
            self._watchers[resource] = [one for one in self._controllers if _watches(one, resource)]
        for resource, objects in lists.items():
            for stored in objects:
                self.handle_event(resource, WatchEvent("ADDED", stored, None))

    def deliver_events(self) -> None:
        self._watch_new_resources()
        super().deliver_events()

    @property
    def next_deadline(self) -> float | None:
        return self._queue.next_deadline

    def process_pending(self) -> None:
        item = self._queue.pop()
        if item is not None:
            self._process(item)

    def handle_event(self, resource: str, event: WatchEvent) -> None:
        if resource == "pods":
            self._pods.update(event)
        change = ObjectChange.of(resource, event)
        for controller in self._watchers[resource]:
            try:
                controller.handle_change(change)
            except Exception:
                # An object that one controller cannot read must not stop the others.
                extra = fields(controller=type(controller).__name__, resource=str(resource), object=str(change.key))
                _log.exception(
                    "%s: handling %s %s failed", type(controller).__name__, resource, change.key, extra=extra
                )
        if event.type == "DELETED" and resource != "events":
            self._recorder.discard(uid_of(event.object))

    def _process(self, item: WorkItem) -> None:
        controller, key = item
        try:
            controller.reconcile(key)
        except statuses.StatusError as failure:
            extra = fields(resource=str(controller.resource), object=str(key), err=failure.message)
            _log.info(
                "reconciling %s %s failed, will retry: %s", controller.resource, key, failure.message, extra=extra
            )
            self._queue.add_rate_limited(item)
        except Exception:
            # An object that cannot be reconciled must not stop the others.
            extra = fields(resource=str(controller.resource), object=str(key))
            _log.exception("reconciling %s %s failed, will retry", controller.resource, key, extra=extra)
            self._queue.add_rate_limited(item)
        else:
            self._queue.forget(item)


def _watches(controller: Controller, resource: str) -> bool:
    return controller.watched is None or resource == controller.resource or resource in controller.watched
