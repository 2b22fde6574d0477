"""The composition root of the API server: storage, registry, authentication and API handler behind an HTTP server.

:attr:`APIServer.registry` reads and writes in process, before :meth:`APIServer.start` too. Everything runs on the event
loop that calls :meth:`APIServer.start`.
"""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from random import Random, SystemRandom
from typing import TYPE_CHECKING

from kubestow.errors import KubestowError
from kubestow.http.listener import HTTPListener
from kubestow.http.messages import UserInfo
from kubestow.rules.minors import DEFAULT_MINOR, Minor
from kubestow_devcluster.apiserver.endpoints.api_handler import APIHandler
from kubestow_devcluster.apiserver.endpoints.reading_handlers import ResourceMetrics
from kubestow_devcluster.apiserver.kinds.kind import Scheme
from kubestow_devcluster.apiserver.registry.registry import Registry
from kubestow_devcluster.apiserver.resources.built_in import METRICS_KINDS
from kubestow_devcluster.apiserver.resources.minor_versions import kinds_of_minor
from kubestow_devcluster.apiserver.security.authentication import RequestAuthenticator, ServiceAccountTokens
from kubestow_devcluster.apiserver.security.authorization import RBAC, AlwaysAllow
from kubestow_devcluster.apiserver.server.http_handler import (
    DEFAULT_ACCEPT_HOSTS,
    ForwardedPaths,
    HostFilter,
    HTTPHandler,
    PathForwarder,
)
from kubestow_devcluster.apiserver.storage.database import Database, GroupCommit
from kubestow_devcluster.apiserver.storage.store import Store, compact_periodically

if TYPE_CHECKING:
    from kubestow.config.feature_gates import FeatureGates
    from kubestow_devcluster.apiserver.server.pki import TLS

#: The loopback address to connect to when the server listens on all interfaces.
_LOOPBACK = {"0.0.0.0": "127.0.0.1", "::": "::1"}


class AddressInUse(KubestowError):
    """Another process listens on the address and port."""


@dataclass(frozen=True, slots=True, kw_only=True)
class APIServerOptions:
    """Where the API server listens, and how clients authenticate.

    ``port`` 0 takes any free port. ``tls`` serves HTTPS. ``tokens``, or ``tls`` with CAs of client certificates,
    enable authentication; without them every request from an accepted host is the administrator's (``HostFilter``).
    ``rbac`` authorizes requests by the RBAC objects in the store, instead of allowing authenticated users everything.
    ``minor`` is the version of Kubernetes that is served.
    """

    host: str = "127.0.0.1"
    port: int = 0
    tls: TLS | None = None
    #: The user by bearer token.
    tokens: Mapping[str, UserInfo] = field(default_factory=dict)
    rbac: bool = False
    #: Regular expressions of accepted ``Host`` headers, separated by commas. IP addresses are always accepted.
    accept_hosts: str = DEFAULT_ACCEPT_HOSTS
    #: Paths that another process of the cluster serves.
    forwarded: ForwardedPaths | None = None
    minor: Minor = DEFAULT_MINOR
    #: Decide which fields are dropped; None: the defaults of the version.
    feature_gates: FeatureGates | None = None


def wall_clock() -> datetime:
    return datetime.now(UTC)


class APIServer:
    """The API server of one cluster.

    With a ``database`` it loads the cluster from there and persists every write; :meth:`stop` closes the database.
    Without one the cluster is in memory only. ``clock`` and ``random`` make timestamps and uids reproducible.
    ``resource_metrics`` makes the usage of nodes and pods in a store, which is served as metrics.k8s.io.
    Raises InputError for invalid options.
    """

    def __init__(
        self,
        options: APIServerOptions,
        *,
        database: Database | None = None,
        clock: Callable[[], datetime] = wall_clock,
        random: Random | None = None,
        resource_metrics: Callable[[Store, Callable[[], datetime]], ResourceMetrics] | None = None,
    ) -> None:
        self.host, self.port, self._tls = options.host, options.port, options.tls
        #: Whether the database already held a cluster.
        self.is_resumed = database is not None and database.resource_version > 0
        served, hub_kinds = kinds_of_minor(options.minor, options.feature_gates)
        if resource_metrics is not None:
            served += METRICS_KINDS
        scheme = Scheme(served, minor=options.minor, hub_kinds=hub_kinds)
        self.store = Store() if database is None else database.load(scheme.selectable_fields())
        self._group_commit = None if database is None else GroupCommit(self.store, database)
        # Seeded once, so that uids need no system call each.
        random = random if random is not None else Random(SystemRandom().getrandbits(128))
        self.registry = Registry(self.store, scheme, clock=clock, random=random)
        authorizer = RBAC(self.store) if options.rbac else AlwaysAllow()
        tokens = ServiceAccountTokens(self.store, clock)
        authenticator = RequestAuthenticator(
            options.tokens,
            tokens,
            client_certificates=bool(self.client_ca),
            accepts_anonymous=authorizer.accepts_anonymous,
        )
        metrics = None if resource_metrics is None else resource_metrics(self.store, clock)
        self.api = APIHandler(self.registry, authenticator, authorizer, tokens, metrics)
        wait_durable = None if self._group_commit is None else self._group_commit.wait_durable
        self._forwarder = None if options.forwarded is None else PathForwarder(options.forwarded)
        host_filter = HostFilter(options.accept_hosts)
        self._handler = HTTPHandler(self.api, authenticator, authorizer, host_filter, wait_durable, self._forwarder)
        self._listener: HTTPListener | None = None
        self._compaction: asyncio.Task[None] | None = None

    @property
    def client_ca(self) -> str:
        """The CAs of client certificates, in PEM; empty without any."""
        return "" if self._tls is None else self._tls.client_ca

    @property
    def root_ca(self) -> str:
        """The certificates that clients verify the server's with, in PEM; empty without TLS."""
        return "" if self._tls is None else self._tls.ca_bundle.decode()

    @property
    def url(self) -> str:
        """The URL for clients on this machine; before :meth:`start` with the port from the options."""
        host = _LOOPBACK.get(self.host, self.host)
        host = f"[{host}]" if ":" in host else host
        return f"{'http' if self._tls is None else 'https'}://{host}:{self.port}"

    async def start(self) -> None:
        """Listen and serve. Raises AddressInUse, or OSError for an address that cannot be bound."""
        listener = HTTPListener(
            self._handler, name="API server", max_line_size=65536, keepalive_seconds=300.0, shutdown_seconds=0.1
        )
        try:
            context = None if self._tls is None else self._tls.context
            self.port = await listener.listen(self.host, self.port, tls=context)
        except OSError as error:
            await self.stop()
            if error.errno == errno.EADDRINUSE:
                raise AddressInUse(
                    f"{self.host}:{self.port} is in use by another process; choose another --port"
                ) from None
            raise
        self._listener = listener
        self._compaction = asyncio.create_task(compact_periodically(self.store), name="compaction")
        if self._group_commit is not None:
            self._group_commit.start()

    async def failed(self) -> None:
        """Wait until a write to the database fails, then raise StorageFailed. Never returns without a database."""
        if self._group_commit is None:
            await asyncio.get_running_loop().create_future()
        else:
            await self._group_commit.wait_for_failure()

    async def stop(self) -> None:
        """Close all connections, watches included, and the database."""
        if self._compaction is not None:
            self._compaction.cancel()
            self._compaction = None
        if self._forwarder is not None:
            await self._forwarder.close()
        if self._listener is not None:
            await self._listener.stop()
            self._listener = None
        if self._group_commit is not None:
            group_commit, self._group_commit = self._group_commit, None
            await group_commit.stop()
