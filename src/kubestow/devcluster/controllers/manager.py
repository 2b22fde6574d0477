"""Running the controllers: one task that follows every resource of the store and reconciles what changes concern.

Before each reconciliation all that has happened is taken note of, so a controller never acts on less than it has done
itself.
"""

from __future__ import annotations

import logging

from kubestow.devcluster.apiserver import statuses
from kubestow.devcluster.apiserver.registry.registry import Registry
from kubestow.devcluster.apiserver.storage.store import Event
from kubestow.devcluster.controllers.controller import Controller, Happening, Item, World
from kubestow.devcluster.controllers.disruption_budgets import DisruptionBudgetController
from kubestow.devcluster.controllers.lifecycle.event_expiry import EventExpiry
from kubestow.devcluster.controllers.lifecycle.garbage_collection import GarbageCollector
from kubestow.devcluster.controllers.lifecycle.namespaces import NamespaceController
from kubestow.devcluster.controllers.lifecycle.node_lifecycle import NodeLifecycleController
from kubestow.devcluster.controllers.lifecycle.pod_garbage_collection import PodGarbageCollector
from kubestow.devcluster.controllers.lifecycle.taint_eviction import TaintEvictionController
from kubestow.devcluster.controllers.owners import owners_of, uid_of
from kubestow.devcluster.controllers.pods import Pods
from kubestow.devcluster.controllers.resource_claims import ClaimTemplateController, ResourceClaimController
from kubestow.devcluster.controllers.storage.claims import ClaimController
from kubestow.devcluster.controllers.storage.ephemeral_volumes import EphemeralVolumeController
from kubestow.devcluster.controllers.storage.protection import ClaimProtection, VolumeProtection
from kubestow.devcluster.controllers.storage.provisioning import Provisioner
from kubestow.devcluster.controllers.storage.volumes import VolumeController
from kubestow.devcluster.controllers.work_queue import Work
from kubestow.devcluster.controllers.workloads.cron_jobs import CronJobController
from kubestow.devcluster.controllers.workloads.daemon_sets import DaemonSetController
from kubestow.devcluster.controllers.workloads.deployments import DeploymentController
from kubestow.devcluster.controllers.workloads.jobs import JobController
from kubestow.devcluster.controllers.workloads.replica_sets import ReplicaSetController, ReplicationControllerController
from kubestow.devcluster.controllers.workloads.stateful_sets import StatefulSetController
from kubestow.devcluster.event_recorder import Recorder
from kubestow.devcluster.kubelets import GRACE_PERIOD
from kubestow.devcluster.watch_loop import Follower

__all__ = ["Controllers"]

_log = logging.getLogger(__name__)

#: Reconciliations in one turn of the event loop, so that requests are served in between.
TURN = 20

_KINDS: tuple[type[Controller], ...] = (
    DeploymentController,
    ReplicaSetController,
    ReplicationControllerController,
    StatefulSetController,
    DaemonSetController,
    JobController,
    CronJobController,
    DisruptionBudgetController,
    NamespaceController,
    GarbageCollector,
    NodeLifecycleController,
    TaintEvictionController,
    PodGarbageCollector,
    ClaimController,
    VolumeController,
    Provisioner,
    ClaimProtection,
    VolumeProtection,
    EphemeralVolumeController,
    ClaimTemplateController,
    ResourceClaimController,
    EventExpiry,
)


class Controllers(Follower):
    """All controllers of a cluster.

    A node that has not been heard of for ``node_grace_period`` seconds is taken to be lost.
    """

    title = "controllers"

    def __init__(self, registry: Registry, *, node_grace_period: float = GRACE_PERIOD) -> None:
        super().__init__(registry.store)
        self._grace_period = node_grace_period
        self._registry = registry

    def begin(self) -> None:
        self._work, self._pods, self._recorder = Work[Item](), Pods(), Recorder(self._registry)
        world = World(self._registry, self._pods, self._work, self._recorder, self._grace_period)
        self._controllers = [make(world) for make in _KINDS]
        self._revision = 0
        self._follow_kinds()

    def _follow_kinds(self) -> None:
        """Follow what the catalog has now, custom resources that were defined meanwhile too."""
        catalog = self._registry.catalog
        if self._revision == catalog.revision:
            return
        self._revision = catalog.revision
        listed = {kind.storage for kind in catalog if "list" in kind.verbs}
        there = {resource: self.follow(resource) for resource in sorted(listed) if not self.is_following(resource)}
        for resource, objects in there.items():
            for stored in objects:
                self.observe(resource, Event("ADDED", stored, None))

    def catch_up(self) -> None:
        self._follow_kinds()
        super().catch_up()

    @property
    def next_time(self) -> float | None:
        return self._work.next_time

    def act(self) -> None:
        for _ in range(TURN):
            self.catch_up()
            item = self._work.take()
            if item is None:
                return
            self._reconcile(*item)

    def observe(self, resource: str, event: Event) -> None:
        if resource == "pods":
            self._pods.observe(event)
        before = () if event.previous is None else owners_of(event.previous)
        happening = Happening(resource, event, owners_of(event.object), before)
        for controller in self._controllers:
            try:
                controller.observe(happening)
            except Exception:
                # One object that a controller cannot read must not end all of them.
                _log.exception("%s %s cannot be observed by %s", resource, happening.key, type(controller).__name__)
        if event.type == "DELETED" and resource != "events":
            self._recorder.forget(uid_of(event.object))

    def _reconcile(self, controller: Controller, key: str) -> None:
        item = (controller, key)
        try:
            controller.reconcile(key)
        except statuses.Failure as refused:
            _log.info("%s %s is tried again: %s", controller.resource, key, refused.message)
            self._work.failed(item)
        except Exception:
            # One object that cannot be reconciled must not keep the others waiting.
            _log.exception("%s %s cannot be reconciled", controller.resource, key)
            self._work.failed(item)
        else:
            self._work.succeeded(item)
