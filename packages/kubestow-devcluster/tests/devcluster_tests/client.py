"""A client of the API without a network, and objects with defaults."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import parse_qsl

import msgspec

from kubestow.http.messages import HTTPResponse
from kubestow_devcluster.apiserver.endpoints.requests import Request, RequestHeaders
from kubestow_devcluster.cluster import DevCluster

PODS = "/api/v1/namespaces/default/pods"
NODES = "/api/v1/nodes"


class ClientResponse:
    """A response whose body has been read."""

    def __init__(self, response: HTTPResponse) -> None:
        self.status, self.headers, self.content_type = response.status, response.headers, response.content_type
        self.content = response.body if response.chunks is None else b"".join(response.chunks)

    @property
    def json(self) -> Any:
        return msgspec.json.decode(self.content)

    @property
    def message(self) -> str:
        return str(self.json["message"])


class Client:
    """Sends requests to the API handler of a server. Bodies are objects, or bytes that are sent as they are."""

    def __init__(self, server: DevCluster) -> None:
        self.server = server

    async def __call__(
        self, method: str, path: str, body: Any = None, *, content_type: str = "application/json", accept: str = ""
    ) -> ClientResponse:
        response = await self.server.api.handle(self.request(method, path, body, content_type, accept))
        assert response.stream is None
        return ClientResponse(response)

    async def get(self, path: str, *, accept: str = "") -> ClientResponse:
        return await self("GET", path, accept=accept)

    async def post(self, path: str, body: Any) -> ClientResponse:
        return await self("POST", path, body)

    async def put(self, path: str, body: Any) -> ClientResponse:
        return await self("PUT", path, body)

    async def delete(self, path: str, body: Any = None) -> ClientResponse:
        return await self("DELETE", path, body)

    async def patch(self, path: str, body: Any, kind: str = "merge-patch+json") -> ClientResponse:
        return await self("PATCH", path, body, content_type=f"application/{kind}")

    async def watch(self, path: str, *, accept: str = "") -> AsyncIterator[dict[str, Any]]:
        """The events of a watch, one by one."""
        stream = await self.server.api.handle(self.request("GET", path, None, "", accept))
        assert stream.stream is not None
        async for chunk in stream.stream:
            for line in chunk.splitlines():
                yield msgspec.json.decode(line)

    def request(self, method: str, path: str, body: Any = None, content_type: str = "", accept: str = "") -> Request:
        """The request to be handled."""
        route, _, query = path.partition("?")
        content = body if isinstance(body, bytes) else b"" if body is None else msgspec.json.encode(body)
        return Request(
            method=method,
            path=route,
            query=dict(parse_qsl(query, keep_blank_values=True)),
            headers=RequestHeaders(content_type=content_type, accept=accept),
            body=content,
        )


def pod(name: str = "p", *, labels: dict[str, str] | None = None, cpu: str = "100m", **spec: Any) -> dict[str, Any]:
    container = {"name": "c", "image": "x:1", "resources": {"requests": {"cpu": cpu}}}
    metadata: dict[str, Any] = {"name": name}
    if labels:
        metadata["labels"] = labels
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"containers": [container], **spec}}


def node(name: str = "n", **labels: str) -> dict[str, Any]:
    metadata = {"name": name, "labels": labels} if labels else {"name": name}
    capacity = {"cpu": "4", "memory": "8Gi", "pods": "110"}
    return {"apiVersion": "v1", "kind": "Node", "metadata": metadata, "status": {"capacity": capacity}}
