"""The embedded API server as one object: start it, use its URL, stop it.

    async with Server(nodes=3) as server:
        ...  # kubectl --server={server.url}

Everything runs on the event loop that started it. In the same process ``server.registry`` writes without HTTP.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from random import Random, SystemRandom
from typing import TYPE_CHECKING, Self

from aiohttp import web

from kubestow.devcluster import bootstrap
from kubestow.devcluster.apiserver.authentication import Authenticator
from kubestow.devcluster.apiserver.http import Handler, connection_log
from kubestow.devcluster.apiserver.registry.registry import Registry
from kubestow.devcluster.apiserver.request_handler import API
from kubestow.devcluster.apiserver.requests import User
from kubestow.devcluster.apiserver.resources import Catalog
from kubestow.devcluster.apiserver.storage.database import Database, Layout
from kubestow.devcluster.apiserver.storage.group_commit import Durability
from kubestow.devcluster.apiserver.storage.store import Store
from kubestow.devcluster.kubelets import GRACE_PERIOD, HEARTBEAT_INTERVAL, Kubelets
from kubestow.errors import KubestowError

if TYPE_CHECKING:
    from kubestow.devcluster.apiserver.tls import TLS

__all__ = ["AddressInUse", "DevCluster"]


#: Addresses to listen on that nobody can be reached at, and what reaches them on this machine.
_EVERYWHERE = {"0.0.0.0": "127.0.0.1", "::": "::1"}


class AddressInUse(KubestowError):
    """Another process listens where the server should."""


def _wall_clock() -> datetime:
    return datetime.now(UTC)


def _layouts(catalog: Catalog) -> dict[str, Layout]:
    return {kind.storage: Layout(kind.selectable, kind.fields_of) for kind in catalog if not kind.stored_in}


class DevCluster:
    """``nodes`` simulated nodes are made at the start; with ``simulate`` off, nothing runs what is bound to any node.

    ``controllers`` runs what kube-controller-manager would: workloads, volumes, garbage, lost nodes and their pods. A
    node counts as lost when it has not been heard of for ``node_grace_period`` seconds.

    The cluster is kept in ``database``, and goes on from what is there; without one it is in memory alone. The server
    closes it in the end. What is in the cluster already, nodes too, is not made again.

    ``port`` 0 takes any free port. ``tls`` makes it HTTPS; ``tokens``, and a ``tls`` that takes client certificates,
    turn authentication on. ``clock`` and ``random`` make a server's timestamps and uids repeatable.
    """

    def __init__(
        self,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        nodes: int = 0,
        simulate: bool = True,
        controllers: bool = False,
        node_grace_period: float = GRACE_PERIOD,
        database: Database | None = None,
        tls: TLS | None = None,
        tokens: Mapping[str, User] | None = None,
        clock: Callable[[], datetime] = _wall_clock,
        random: Random | None = None,
    ) -> None:
        self.host, self.port = host, port
        # Only the seed needs the system's randomness; after it, uids cost no system call.
        seeded = random if random is not None else Random(SystemRandom().getrandbits(128))
        #: Whether there was a cluster already.
        self.is_resumed = database is not None and database.version > 0
        catalog = Catalog()
        self.store = Store() if database is None else database.load(_layouts(catalog))
        self._durability = None if database is None else Durability(self.store, database)
        self.registry = Registry(self.store, catalog, clock=clock, random=seeded)
        authenticator = Authenticator(tokens, certificates=tls is not None and bool(tls.client_authorities))
        self.api = API(self.registry, authenticator)
        settled = None if self._durability is None else self._durability.settled
        self._handler = Handler(self.api, authenticator, settled)
        self._tls = tls
        self._simulate = simulate
        self._runner: web.ServerRunner | None = None
        self._control, self._grace_period = controllers, node_grace_period
        self._tasks: list[asyncio.Task[None]] = []
        bootstrap.create_system_objects(self.registry)
        bootstrap.publish_authorities(self.registry, "" if tls is None else tls.client_authorities)
        self.add_nodes(nodes)

    @property
    def url(self) -> str:
        host = _EVERYWHERE.get(self.host, self.host)
        host = f"[{host}]" if ":" in host else host
        return f"{'http' if self._tls is None else 'https'}://{host}:{self.port}"

    def add_nodes(self, count: int) -> None:
        """Make those of ``count`` simulated nodes that are missing."""
        bootstrap.add_nodes(self.registry, count)

    async def start(self) -> None:
        """Listen. Raises AddressInUse, or OSError for an address that cannot be had."""
        server = web.Server(
            self._handler,
            handler_cancellation=True,
            access_log=None,
            logger=connection_log,
            # As sent: what is compressed may be a thousand times as long.
            auto_decompress=False,
            max_line_size=65536,
            max_field_size=65536,
            keepalive_timeout=300.0,
        )
        runner = web.ServerRunner(server, shutdown_timeout=0.1)
        await runner.setup()
        try:
            context = None if self._tls is None else self._tls.context
            await web.TCPSite(runner, self.host, self.port, backlog=1024, ssl_context=context).start()
        except OSError as error:
            await runner.cleanup()
            await self.stop()
            if error.errno == errno.EADDRINUSE:
                raise AddressInUse(
                    f"{self.host}:{self.port} is in use by another process; choose another --port"
                ) from None
            raise
        self._runner = runner
        self.port = runner.addresses[0][1]
        if self._durability is not None:
            self._durability.start()
        if self._simulate:
            # As often as kubelets do, and often enough not to be taken for lost.
            kubelets = Kubelets(self.registry, heartbeat_interval=min(HEARTBEAT_INTERVAL, self._grace_period / 4))
            self._tasks.append(asyncio.create_task(kubelets.run(), name="simulated nodes"))
        if self._control:
            self._start_controllers()

    def _start_controllers(self) -> None:
        # They bring in the scheduler's rules and with them numpy, which a server without them starts faster without.
        from kubestow.devcluster.controllers import Controllers

        if not self.is_resumed and not len(self.store.collection("storageclasses.storage.k8s.io")):
            bootstrap.add_storage_class(self.registry)
        controllers = Controllers(self.registry, node_grace_period=self._grace_period)
        self._tasks.append(asyncio.create_task(controllers.run(), name="controllers"))

    async def failed(self) -> None:
        """Wait until the cluster can no longer be kept, then raise StorageFailed. In memory that never happens."""
        if self._durability is None:
            await asyncio.get_running_loop().create_future()
        else:
            await self._durability.failed()

    async def stop(self) -> None:
        """Close every connection, watches too, stop controllers and simulated nodes, and let go of the data."""
        while self._tasks:
            task = self._tasks.pop()
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None
        if self._durability is not None:
            durability, self._durability = self._durability, None
            await durability.stop()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self.stop()
