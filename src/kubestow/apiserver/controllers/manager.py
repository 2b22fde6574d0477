"""Running the controllers: one task that follows every resource of the store and reconciles what changes concern.

It sleeps until the store changes or something falls due, so an idle cluster costs nothing. Before each reconciliation
all that has happened is taken note of, so a controller never acts on less than it has done itself.
"""

from __future__ import annotations

import asyncio
import logging

from kubestow.apiserver import statuses
from kubestow.apiserver.controllers.claims import ClaimController
from kubestow.apiserver.controllers.controller import Controller, Happening, World
from kubestow.apiserver.controllers.cron_jobs import CronJobController
from kubestow.apiserver.controllers.daemon_sets import DaemonSetController
from kubestow.apiserver.controllers.deployments import DeploymentController
from kubestow.apiserver.controllers.disruption_budgets import DisruptionBudgetController
from kubestow.apiserver.controllers.ephemeral_volumes import EphemeralVolumeController
from kubestow.apiserver.controllers.event_expiry import EventExpiry
from kubestow.apiserver.controllers.garbage import GarbageCollector
from kubestow.apiserver.controllers.jobs import JobController
from kubestow.apiserver.controllers.namespaces import NamespaceController
from kubestow.apiserver.controllers.node_lifecycle import NodeLifecycleController
from kubestow.apiserver.controllers.owners import owners_of, uid_of
from kubestow.apiserver.controllers.pod_garbage import PodGarbageCollector
from kubestow.apiserver.controllers.pods import Pods
from kubestow.apiserver.controllers.provisioning import Provisioner
from kubestow.apiserver.controllers.replica_sets import ReplicaSetController, ReplicationControllerController
from kubestow.apiserver.controllers.resource_claims import ClaimTemplateController, ResourceClaimController
from kubestow.apiserver.controllers.stateful_sets import StatefulSetController
from kubestow.apiserver.controllers.taint_eviction import TaintEvictionController
from kubestow.apiserver.controllers.volume_protection import ClaimProtection, VolumeProtection
from kubestow.apiserver.controllers.volumes import VolumeController
from kubestow.apiserver.controllers.work import Work
from kubestow.apiserver.event_recorder import Recorder
from kubestow.apiserver.kubelets import GRACE_PERIOD
from kubestow.apiserver.registry import Registry
from kubestow.apiserver.storage import Cursor, Event, Expired

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


class Controllers:
    """All controllers of a cluster.

    A node that has not been heard of for ``node_grace_period`` seconds is taken to be lost.
    """

    def __init__(self, registry: Registry, *, node_grace_period: float = GRACE_PERIOD) -> None:
        self._store = registry.store
        self._grace_period = node_grace_period
        self._registry = registry
        self._changed = asyncio.Event()

    async def run(self) -> None:
        """Run until cancelled."""
        while True:
            try:
                await self._follow()
            except Expired:
                # More happened in one turn than the history holds; begin again from what is there.
                _log.warning("controllers fell behind and start over from the current state")

    async def _follow(self) -> None:
        self._work, self._pods, self._recorder = Work(), Pods(), Recorder(self._registry)
        world = World(self._registry, self._pods, self._work, self._recorder, self._grace_period)
        self._controllers = [make(world) for make in _KINDS]
        version = self._store.version
        self._cursors: dict[str, Cursor] = {}
        self._seen, self._revision = version, 0
        self._follow_kinds()
        while True:
            for _ in range(TURN):
                self._catch_up()
                item = self._work.take()
                if item is None:
                    break
                self._reconcile(*item)
            await self._wait()

    def _follow_kinds(self) -> None:
        """Follow what the catalog has now, custom resources that were defined meanwhile too."""
        if self._revision == self._registry.catalog.revision:
            return
        self._revision = self._registry.catalog.revision
        listed = {kind.storage for kind in self._registry.catalog if "list" in kind.verbs}
        new = {resource: self._store.collection(resource) for resource in sorted(listed - self._cursors.keys())}
        for resource, collection in new.items():
            self._cursors[resource] = collection.cursor(self._store.version)
        for resource, collection in new.items():
            for stored in collection.snapshot():
                self._observe(resource, Event("ADDED", stored, None))

    def _catch_up(self) -> None:
        if self._seen == self._store.version:
            return
        self._follow_kinds()
        self._seen = self._store.version
        for resource, cursor in self._cursors.items():
            if cursor.has_more:
                self._take(resource, cursor)

    def _take(self, resource: str, cursor: Cursor) -> None:
        for event in cursor.take():
            self._observe(resource, event)

    def _observe(self, resource: str, event: Event) -> None:
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

    async def _wait(self) -> None:
        """Return when something has changed or falls due."""
        if self._work.is_ready or self._seen != self._store.version:
            await asyncio.sleep(0)
            return
        changed = self._changed
        changed.clear()
        self._store.wake(changed.set)
        due = self._work.next_time
        timer = None if due is None else asyncio.get_running_loop().call_at(due, changed.set)
        try:
            await changed.wait()
        finally:
            if timer is not None:
                timer.cancel()
