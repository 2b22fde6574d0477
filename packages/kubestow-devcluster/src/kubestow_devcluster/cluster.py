"""The composition root of a development cluster: API server, simulated kubelets and controllers in one process.

    async with DevCluster(nodes=3) as cluster:
        ...  # kubectl --server={cluster.url}

Everything runs on the event loop that calls :meth:`DevCluster.start`. The kubelets and the controllers are one task
each. They handle one object at a time: a failure is logged and concerns that object only. A task that ends although it
was not stopped is a failure of the whole cluster: it is logged, and :meth:`DevCluster.failed` raises.

The scheduler is not part of it: ``kubestow up`` runs one beside it, which connects to :attr:`DevCluster.url` like any
other client.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from random import Random
from typing import Any, Self

from kubestow.errors import KubestowError
from kubestow.log_fields import fields
from kubestow_devcluster import bootstrap
from kubestow_devcluster.apiserver.server.api_server import APIServer, APIServerOptions, wall_clock
from kubestow_devcluster.apiserver.storage.database import Database
from kubestow_devcluster.event_recorder import EVENT_TTL
from kubestow_devcluster.kubelets import Kubelets
from kubestow_devcluster.node_heartbeats import NODE_MONITOR_GRACE_PERIOD, RENEW_INTERVAL
from kubestow_devcluster.stages import NO_STAGES, Stages
from kubestow_devcluster.stages.resource_metrics import SimulatedMetrics

__all__ = ["ComponentFailed", "ControllerManagerOptions", "DevCluster"]

_log = logging.getLogger(__name__)


class ComponentFailed(KubestowError):
    """The task of a component (kubelets, controller manager) ended although it was not stopped."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerManagerOptions:
    """Options of the controllers; durations in seconds."""

    #: How long a node may miss heartbeats before its conditions become Unknown.
    node_monitor_grace_period: float = NODE_MONITOR_GRACE_PERIOD
    #: How long an event is kept after its last update.
    event_ttl: float = EVENT_TTL


class DevCluster:
    """A cluster with ``nodes`` nodes, created at construction.

    ``kubelets`` simulates a kubelet for every Node object. ``controller_manager`` runs the controllers of
    kube-controller-manager; without it no controllers run. ``apiserver`` says where to listen and how clients
    authenticate.

    ``database`` persists the cluster. If it already holds one, that cluster is resumed: system objects and nodes that
    exist are not created again. :meth:`stop` closes it. ``clock`` and ``random`` make timestamps and uids reproducible.

    ``stages`` are rules for how pods run and what they use. With them, even without a rule, the usage of nodes and pods
    is served as metrics.k8s.io.
    """

    def __init__(
        self,
        *,
        nodes: int = 0,
        kubelets: bool = True,
        controller_manager: ControllerManagerOptions | None = None,
        apiserver: APIServerOptions | None = None,
        database: Database | None = None,
        clock: Callable[[], datetime] = wall_clock,
        random: Random | None = None,
        stages: Stages | None = None,
    ) -> None:
        self._stages, self._simulates_usage = stages or NO_STAGES, stages is not None
        self.apiserver = APIServer(
            apiserver or APIServerOptions(),
            database=database,
            clock=clock,
            random=random,
            resource_metrics=None if stages is None else partial(SimulatedMetrics, stages.usage),
        )
        #: Reads and writes in process, without HTTP.
        self.registry = self.apiserver.registry
        self.store, self.api = self.apiserver.store, self.apiserver.api
        self._runs_kubelets, self._controller_manager = kubelets, controller_manager
        self._tasks: list[asyncio.Task[None]] = []
        self._failure: ComponentFailed | None = None
        self._task_failed = asyncio.Event()
        # Without the controller that creates service accounts, pods would name accounts that do not exist.
        self.registry.admission.has_service_accounts = controller_manager is not None
        bootstrap.create_system_objects(self.registry)
        if apiserver is not None and apiserver.rbac:
            bootstrap.create_default_roles(self.registry)
            if stages is not None:
                bootstrap.create_metrics_reader(self.registry)
        bootstrap.publish_client_ca(self.registry, self.apiserver.client_ca)
        self.add_nodes(nodes)

    @property
    def url(self) -> str:
        """The URL of the API server for clients on this machine."""
        return self.apiserver.url

    @property
    def is_resumed(self) -> bool:
        """Whether the database already held a cluster."""
        return self.apiserver.is_resumed

    def add_nodes(self, count: int) -> None:
        """Create those of the nodes 0 to ``count - 1`` that do not exist."""
        bootstrap.create_nodes(self.registry, count)

    async def start(self) -> None:
        """Listen, then start kubelets and controllers.

        Raises AddressInUse, or OSError for an address that cannot be bound.
        """
        await self.apiserver.start()
        if self._runs_kubelets:
            kubelets = Kubelets(self.registry, lease_renew_interval=self._lease_renew_interval(), stages=self._stages)
            self._run("kubelets", kubelets.run())
        if self._controller_manager is not None:
            self._start_controllers(self._controller_manager)

    def _lease_renew_interval(self) -> float:
        """The kubelet's default, or less, so that a short grace period does not expire between two renewals."""
        if self._controller_manager is None:
            return RENEW_INTERVAL
        return min(RENEW_INTERVAL, self._controller_manager.node_monitor_grace_period / 4)

    def _start_controllers(self, options: ControllerManagerOptions) -> None:
        # Imported here because the controllers need NumPy, which would slow the start of an API server alone.
        from kubestow_devcluster.controllers import ControllerManager

        if not self.is_resumed and not len(self.store.collection("storageclasses.storage.k8s.io")):
            bootstrap.create_default_storage_class(self.registry)
        usage = SimulatedMetrics(self._stages.usage, self.store, self.registry.clock)
        manager = ControllerManager(
            self.registry,
            node_monitor_grace_period=options.node_monitor_grace_period,
            event_ttl=options.event_ttl,
            root_ca=self.apiserver.root_ca,
            usage=usage if self._simulates_usage else None,
        )
        self._run("controller manager", manager.run())

    def _run(self, component: str, coroutine: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(coroutine, name=component)
        task.add_done_callback(self._on_task_done)
        self._tasks.append(task)

    def _on_task_done(self, task: asyncio.Task[None]) -> None:
        if task.cancelled():
            return
        error = task.exception()
        self._failure = ComponentFailed(f"{task.get_name()} ended: {error!r}")
        self._failure.__cause__ = error
        _log.critical("%s ended unexpectedly", task.get_name(), exc_info=error, extra=fields(task=task.get_name()))
        self._task_failed.set()

    async def failed(self) -> None:
        """Wait until the cluster fails, then raise; never returns.

        Raises StorageFailed when a write to the database fails, ComponentFailed when kubelets or controllers end.
        """
        component = asyncio.create_task(self._task_failed.wait())
        storage = asyncio.create_task(self.apiserver.failed())
        try:
            await asyncio.wait((component, storage), return_when=asyncio.FIRST_COMPLETED)
            if storage.done():
                await storage
        finally:
            component.cancel()
            storage.cancel()
        assert self._failure is not None
        raise self._failure

    async def stop(self) -> None:
        """Stop controllers and kubelets, then the API server."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks.clear()
        await self.apiserver.stop()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, error_type: object, *_: object) -> None:
        """Stop. Raises ComponentFailed if kubelets or controllers have ended before, unless the body has raised."""
        await self.stop()
        if error_type is None and self._failure is not None:
            raise self._failure
