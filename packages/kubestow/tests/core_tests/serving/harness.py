"""A secure port without a scheduler, its options, and the reviews of a scripted API server."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp

from core_tests.client.kubeconfigs import kubeconfig, save
from core_tests.client.scripted_server import Responder, ScriptedServer, response
from core_tests.hang_limit import HANG_LIMIT
from kubestow import config
from kubestow.config import FeatureGates
from kubestow.http.certificates import KeyPair
from kubestow.observability.observability import Observability
from kubestow.process import Heartbeat, WallClock
from kubestow.scheduling.interfaces import Clock
from kubestow.serving.options import DelegatingAuthenticationOptions, DelegatingAuthorizationOptions, ServingOptions
from kubestow.serving.routes import ComponentInfo, SchedulerRoutes
from kubestow.serving.secure_server import SecureServer

TOKEN_REVIEWS = "/apis/authentication.k8s.io/v1/tokenreviews"
ACCESS_REVIEWS = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
CLUSTER_AUTHENTICATION = "/api/v1/namespaces/kube-system/configmaps/extension-apiserver-authentication"

ALLOW_ALL = ServingOptions(
    address="127.0.0.1", port=0, authorization=DelegatingAuthorizationOptions(always_allow_paths=("/*",))
)


def delegating_options(api: ScriptedServer, directory: Path, **authentication: Any) -> ServingOptions:
    """Options that delegate authentication and authorization to the API server."""
    path = save(directory, kubeconfig(api.url))
    return ServingOptions(
        address="127.0.0.1",
        port=0,
        authentication=DelegatingAuthenticationOptions(kubeconfig=path, **{"skip_lookup": True, **authentication}),
        authorization=DelegatingAuthorizationOptions(kubeconfig=path),
    )


def token_review(user: str, *groups: str) -> Responder:
    """The TokenReview of a valid token."""
    return response(201, {"status": {"authenticated": True, "user": {"username": user, "groups": list(groups)}}})


def access_review(allowed: bool, reason: str = "") -> Responder:
    """A SubjectAccessReview."""
    return response(201, {"status": {"allowed": allowed, "reason": reason}})


@dataclass
class Reply:
    """A complete response as the client receives it."""

    status: int
    body: bytes
    headers: Mapping[str, str] = field(default_factory=dict)

    @property
    def text(self) -> str:
        return self.body.decode()


@dataclass
class SecurePort:
    """A running secure server."""

    serving: SecureServer
    observability: Observability
    routes: SchedulerRoutes
    heartbeat: Heartbeat

    async def get(
        self,
        path: str,
        *,
        method: str = "GET",
        token: str = "",
        headers: Mapping[str, str] | None = None,
        certificate: tuple[KeyPair, Path] | None = None,
    ) -> Reply:
        """Send a request, with a bearer token or with a client certificate (and a directory for its files)."""
        context = ssl.create_default_context(cadata=self.serving.certificate.decode())
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
        if certificate is not None:
            pair, directory = certificate
            pair.write(directory / "client.crt", directory / "client.key")
            context.load_cert_chain(directory / "client.crt", directory / "client.key")
        sent = dict(headers or {}) | ({"Authorization": f"Bearer {token}"} if token else {})
        url = f"https://localhost:{self.serving.port}{path}"
        async with (
            aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=context)) as session,
            session.request(method, url, headers=sent) as received,
        ):
            return Reply(received.status, await received.read(), received.headers)

    async def send_raw(self, content: bytes) -> bytes:
        """Send bytes over TLS and return everything that is received until the connection closes."""
        context = ssl.create_default_context(cadata=self.serving.certificate.decode())
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
        reader, writer = await asyncio.open_connection("localhost", self.serving.port, ssl=context)
        try:
            writer.write(content)
            await writer.drain()
            async with asyncio.timeout(HANG_LIMIT):
                return await reader.read()
        finally:
            writer.close()


@asynccontextmanager
async def secure_port(
    options: ServingOptions = ALLOW_ALL,
    *,
    clock: Clock | None = None,
    document: Mapping[str, Any] | None = None,
    gates: FeatureGates | None = None,
) -> AsyncIterator[SecurePort]:
    """The secure port of a process that has no scheduler yet; ``document`` is part of its configuration."""
    clock, gates = clock or WallClock(), gates or FeatureGates()
    configuration = config.load({"apiVersion": config.API_VERSION, "kind": config.KIND, **(document or {})})
    observability = Observability(clock, gates)
    component = ComponentInfo(configuration, gates, {"secure-port": "10259", "bind-address": "0.0.0.0"})
    heartbeat = Heartbeat(clock.monotonic)
    routes = SchedulerRoutes(component, observability, heartbeat, clock)
    server = SecureServer(options, routes.mux(), observability.metrics, clock=clock, before_stop=routes.dashboard.close)
    async with server:
        yield SecurePort(server, observability, routes, heartbeat)
