"""The composition root of a development cluster: API server, simulated kubelets and controllers in one process.

    async with DevCluster(nodes=3) as cluster:
        ...  # kubectl --server={cluster.url}

Everything runs on the event loop that calls :meth:`DevCluster.start`. The scheduler is not part of it: ``kubestow up``
runs one beside it, which connects to :attr:`DevCluster.url` like any other client.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from random import Random
from typing import Self

from kubestow.devcluster import bootstrap
from kubestow.devcluster.apiserver.server.api_server import APIServer, APIServerOptions, wall_clock
from kubestow.devcluster.apiserver.storage.database import Database
from kubestow.devcluster.kubelets import Kubelets
from kubestow.devcluster.node_heartbeats import NODE_MONITOR_GRACE_PERIOD, RENEW_INTERVAL

__all__ = ["ControllerManagerOptions", "DevCluster"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerManagerOptions:
    """Options of the controllers; durations in seconds."""

    #: How long a node may miss heartbeats before its conditions become Unknown.
    node_monitor_grace_period: float = NODE_MONITOR_GRACE_PERIOD


class DevCluster:
    """A cluster with ``nodes`` nodes, created at construction.

    ``kubelets`` simulates a kubelet for every Node object. ``controller_manager`` runs the controllers of
    kube-controller-manager; without it no controllers run. ``apiserver`` says where to listen and how clients
    authenticate.

    ``database`` persists the cluster. If it already holds one, that cluster is resumed: system objects and nodes that
    exist are not created again. :meth:`stop` closes it. ``clock`` and ``random`` make timestamps and uids reproducible.
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
    ) -> None:
        self.apiserver = APIServer(apiserver or APIServerOptions(), database=database, clock=clock, random=random)
        #: Reads and writes in process, without HTTP.
        self.registry = self.apiserver.registry
        self.store, self.api = self.apiserver.store, self.apiserver.api
        self._runs_kubelets, self._controller_manager = kubelets, controller_manager
        self._tasks: list[asyncio.Task[None]] = []
        bootstrap.create_system_objects(self.registry)
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
            kubelets = Kubelets(self.registry, lease_renew_interval=self._lease_renew_interval())
            self._tasks.append(asyncio.create_task(kubelets.run(), name="kubelets"))
        if self._controller_manager is not None:
            self._start_controllers(self._controller_manager)

    def _lease_renew_interval(self) -> float:
        """The kubelet's default, or less, so that a short grace period does not expire between two renewals."""
        if self._controller_manager is None:
            return RENEW_INTERVAL
        return min(RENEW_INTERVAL, self._controller_manager.node_monitor_grace_period / 4)

    def _start_controllers(self, options: ControllerManagerOptions) -> None:
        # Imported here because the controllers need NumPy, which would slow the start of an API server alone.
        from kubestow.devcluster.controllers import ControllerManager

        if not self.is_resumed and not len(self.store.collection("storageclasses.storage.k8s.io")):
            bootstrap.create_default_storage_class(self.registry)
        manager = ControllerManager(self.registry, node_monitor_grace_period=options.node_monitor_grace_period)
        self._tasks.append(asyncio.create_task(manager.run(), name="controller manager"))

    async def failed(self) -> None:
        """Wait until a write to the database fails, then raise StorageFailed. Never returns without a database."""
        await self.apiserver.failed()

    async def stop(self) -> None:
        """Stop controllers and kubelets, then the API server."""
        while self._tasks:
            task = self._tasks.pop()
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
        await self.apiserver.stop()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self.stop()
