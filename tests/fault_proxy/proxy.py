"""An HTTP proxy in front of an API server, with a port for each client, that injects faults.

It passes requests on with the credentials of its kubeconfig and answers as they are, watches part by part. What it sees
of bindings and leases is recorded when the API server has answered, whether or not the client gets the answer.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

import aiohttp
from aiohttp import web
from yarl import URL

from kubestow.client.rest.credentials import Credentials
from kubestow.http.listener import HTTPListener
from tests.fault_proxy.faults import Fault, Faults
from tests.fault_proxy.observation import BindingRequest, LeaseWrite, Observations

_BINDING = re.compile(r"/api/v1/namespaces/[^/]+/pods/([^/]+)/binding")
_LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases"
#: Headers that are about one connection.
_HOP_BY_HOP = frozenset({"connection", "content-length", "host", "keep-alive", "transfer-encoding", "authorization"})
#: Seconds that something slow takes, at most, and a silent watch.
_SLOW, _SILENT = 3.0, 20.0
_STATUS = {Fault.ERROR_500: 500, Fault.ERROR_503: 503, Fault.ERROR_429: 429}


class FaultProxy:
    """Passes requests on to the API server of ``credentials``."""

    def __init__(
        self,
        credentials: Credentials,
        faults: Faults,
        observations: Observations,
        clock: Callable[[], float],
    ) -> None:
        self._credentials, self._faults, self._observations, self._clock = credentials, faults, observations, clock
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0),
            auto_decompress=False,
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=30.0),
        )

    @asynccontextmanager
    async def serving(self, client: str, port: int = 0) -> AsyncIterator[str]:
        """Listen for one client; its URL."""

        async def handle(incoming: web.BaseRequest) -> web.StreamResponse:
            return await self._handle(client, incoming)

        listener = HTTPListener(handle, name=f"fault proxy of {client}", max_line_size=65536, shutdown_seconds=0.1)
        port = await listener.listen("127.0.0.1", port)
        try:
            yield f"http://127.0.0.1:{port}"
        finally:
            await listener.stop()

    async def close(self) -> None:
        await self._session.close()

    async def _handle(self, client: str, incoming: web.BaseRequest) -> web.StreamResponse:
        arrived = self._clock()
        body = await incoming.read()
        fault = self._faults.for_request(client)
        if fault in (Fault.LOST_REQUEST, Fault.PARTITION):
            return _reset(incoming)
        if fault in _STATUS:
            return _error(_STATUS[fault], self._faults.random.choice((None, 0, 1)))
        if fault is Fault.SLOW_REQUEST:
            await asyncio.sleep(self._faults.random.uniform(0, _SLOW))
        if "watch" in incoming.query:
            return await self._pass_watch_on(client, incoming)
        try:
            status, headers, answered = await self._ask(incoming, body)
        except (aiohttp.ClientError, OSError):
            return _reset(incoming)
        self._observe(client, arrived, incoming, body, status, answered)
        if fault is Fault.LOST_ANSWER or self._faults.is_partitioned(client):
            return _reset(incoming)
        if fault is Fault.SLOW_ANSWER:
            await asyncio.sleep(self._faults.random.uniform(0, _SLOW))
        if fault is Fault.TORN_ANSWER:
            return await _torn(incoming, status, headers, answered)
        return web.Response(status=status, headers=headers, body=answered)

    async def _ask(self, incoming: web.BaseRequest, body: bytes) -> tuple[int, dict[str, str], bytes]:
        async with self._upstream(incoming, body) as response:
            return response.status, _passed_on(response.headers), await response.read()

    def _upstream(self, incoming: web.BaseRequest, body: bytes | None = None) -> Any:
        url = URL(f"{self._credentials.server}{incoming.rel_url.raw_path_qs}", encoded=True)
        headers = _passed_on(incoming.headers) | dict(self._credentials.headers)
        tls = self._credentials.tls_for_connection()
        return self._session.request(
            incoming.method, url, data=body or None, headers=headers, ssl=True if tls is None else tls
        )

    async def _pass_watch_on(self, client: str, incoming: web.BaseRequest) -> web.StreamResponse:
        try:
            async with self._upstream(incoming) as response:
                outgoing = web.StreamResponse(status=response.status, headers=_passed_on(response.headers))
                outgoing.enable_chunked_encoding()
                await outgoing.prepare(incoming)
                async for part in response.content.iter_any():
                    fault = self._faults.for_watch_part(client)
                    if fault is Fault.WATCH_TRUNCATED:
                        await outgoing.write(part[: len(part) // 2])
                    elif fault is Fault.WATCH_SILENT:
                        await asyncio.sleep(self._faults.random.uniform(0, _SILENT))
                    if fault is not None:
                        return _reset(incoming, outgoing)
                    await outgoing.write(part)
                await outgoing.write_eof()
                return outgoing
        except (aiohttp.ClientError, OSError):
            return _reset(incoming)

    def _observe(
        self, client: str, arrived: float, incoming: web.BaseRequest, body: bytes, status: int, answered: bytes
    ) -> None:
        path = incoming.rel_url.raw_path
        if incoming.method == "POST" and (found := _BINDING.fullmatch(path)):
            binding = json.loads(body)
            uid = (binding.get("metadata") or {}).get("uid", "")
            self._observations.add_binding(
                BindingRequest(client, arrived, found[1], uid, binding["target"]["name"], status)
            )
        elif path.startswith(_LEASES) and incoming.method in ("POST", "PUT", "PATCH") and status in (200, 201):
            spec = json.loads(answered)["spec"]
            self._observations.add_lease_write(LeaseWrite(client, self._clock(), spec.get("holderIdentity") or ""))


def _passed_on(headers: Any) -> dict[str, str]:
    return {name: value for name, value in headers.items() if name.lower() not in _HOP_BY_HOP}


def _reset(incoming: web.BaseRequest, outgoing: web.StreamResponse | None = None) -> web.StreamResponse:
    """End the connection of a request without an answer, or in the middle of it."""
    if incoming.transport is not None:
        incoming.transport.abort()
    return outgoing or web.Response()


def _error(code: int, retry_after: int | None) -> web.Response:
    reason = {429: "TooManyRequests", 500: "InternalError", 503: "ServiceUnavailable"}[code]
    status = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "message": "injected", "reason": reason}
    headers = {} if retry_after is None else {"Retry-After": str(retry_after)}
    return web.json_response({**status, "code": code}, status=code, headers=headers)


async def _torn(incoming: web.BaseRequest, status: int, headers: dict[str, str], body: bytes) -> web.StreamResponse:
    """A part of an answer."""
    outgoing = web.StreamResponse(status=status, headers=headers)
    outgoing.content_length = len(body)
    with suppress(ConnectionError):
        await outgoing.prepare(incoming)
        await outgoing.write(body[: len(body) // 2])
    return _reset(incoming, outgoing)
