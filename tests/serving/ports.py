"""A secure port to knock at, and an API server behind it that says who is who."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp

from kubestow import config
from kubestow.certificates import KeyPair
from kubestow.config import FeatureGates
from kubestow.observability.observability import Observability
from kubestow.scheduling.ports import Clock
from kubestow.serving.options import DelegatingAuthenticationOptions, DelegatingAuthorizationOptions, ServingOptions
from kubestow.serving.secure_server import ComponentInfo, SecureServer
from kubestow.wall_clock import WallClock
from tests.client.kubeconfigs import kubeconfig, save
from tests.client.scripted_server import ScriptedServer, answer

TOKENS = "/apis/authentication.k8s.io/v1/tokenreviews"
ACCESS = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
TRUST = "/api/v1/namespaces/kube-system/configmaps/extension-apiserver-authentication"

OPEN = ServingOptions(
    address="127.0.0.1", port=0, authorization=DelegatingAuthorizationOptions(always_allow_paths=("/*",))
)
"""Everybody may everything."""


def behind(api: ScriptedServer, directory: Path, **authentication: Any) -> ServingOptions:
    """Options of a port that asks an API server who is who and who may what."""
    named = save(directory, kubeconfig(api.url))
    return ServingOptions(
        address="127.0.0.1",
        port=0,
        authentication=DelegatingAuthenticationOptions(kubeconfig=named, **{"skip_lookup": True, **authentication}),
        authorization=DelegatingAuthorizationOptions(kubeconfig=named),
    )


def belongs_to(user: str, *groups: str) -> Any:
    """The API server's answer to whose a token is."""
    return answer(201, {"status": {"authenticated": True, "user": {"username": user, "groups": list(groups)}}})


def may(allowed: bool, reason: str = "") -> Any:
    """The API server's answer to whether they may."""
    return answer(201, {"status": {"allowed": allowed, "reason": reason}})


@dataclass
class Reply:
    """What came back."""

    status: int
    text: str
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass
class Port:
    """An open port."""

    serving: SecureServer
    observability: Observability

    async def get(
        self,
        path: str,
        *,
        method: str = "GET",
        token: str = "",
        headers: Mapping[str, str] | None = None,
        certificate: tuple[KeyPair, Path] | None = None,
    ) -> Reply:
        """Ask for a path, perhaps with a token or a client certificate (and a directory to keep it in)."""
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
            session.request(method, url, headers=sent) as response,
        ):
            return Reply(response.status, await response.text(), response.headers)


@asynccontextmanager
async def port(
    options: ServingOptions = OPEN,
    *,
    clock: Clock | None = None,
    document: Mapping[str, Any] | None = None,
    gates: FeatureGates | None = None,
) -> AsyncIterator[Port]:
    """A port of a process that has no scheduler yet."""
    clock, gates = clock or WallClock(), gates or FeatureGates()
    configuration = config.load({"apiVersion": config.API_VERSION, "kind": config.KIND, **(document or {})})
    observability = Observability(clock, gates)
    about = ComponentInfo(configuration, gates, {"secure-port": "10259", "bind-address": "0.0.0.0"})
    async with SecureServer(options, about, observability, clock=clock) as serving:
        yield Port(serving, observability)


async def raw(at: Port, content: bytes) -> bytes:
    """Say something that may be no HTTP at all, and hear what comes back until the end."""
    context = ssl.create_default_context(cadata=at.serving.certificate.decode())
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    reader, writer = await asyncio.open_connection("localhost", at.serving.port, ssl=context)
    try:
        writer.write(content)
        await writer.drain()
        async with asyncio.timeout(10):
            return await reader.read()
    finally:
        writer.close()
