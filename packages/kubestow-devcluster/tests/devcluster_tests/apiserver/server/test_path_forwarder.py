"""Requests for /dashboard of an API server, forwarded to a Unix socket after authentication and authorization."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import aiohttp
import pytest
from aiohttp import web
from yarl import URL

from kubestow.http.messages import ALL_AUTHENTICATED, UserInfo
from kubestow_devcluster.apiserver.server.api_server import APIServerOptions
from kubestow_devcluster.apiserver.server.http_handler import ForwardedPaths
from kubestow_devcluster.cluster import DevCluster

TOKENS = {"secret": UserInfo("developer", (ALL_AUTHENTICATED,))}


@dataclass
class Backend:
    """What listens on the socket; it records the requests that arrive."""

    socket: Path
    requests: list[tuple[str, str, dict[str, str]]] = field(default_factory=list)
    queries: list[str] = field(default_factory=list)

    @property
    def paths(self) -> ForwardedPaths:
        return ForwardedPaths("/dashboard", "/dashboard/assets/", self.socket)

    async def respond(self, request: web.BaseRequest) -> web.StreamResponse:
        self.queries.append(request.rel_url.raw_query_string)
        self.requests.append((request.method, request.rel_url.raw_path, dict(request.headers)))
        if request.rel_url.raw_path.endswith("/events"):
            response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
            await response.prepare(request)
            for part in (b"one\n", b"two\n"):
                await response.write(part)
            return response
        return web.Response(body=b"page", headers={"Content-Security-Policy": "default-src 'none'", "ETag": '"1"'})


@asynccontextmanager
async def backend(directory: Path) -> AsyncIterator[Backend]:
    found = Backend(directory / "dashboard.sock")
    runner = web.ServerRunner(web.Server(found.respond))
    await runner.setup()
    await web.UnixSite(runner, found.socket).start()
    try:
        yield found
    finally:
        await runner.cleanup()


@asynccontextmanager
async def forwarding(paths: ForwardedPaths, **options: object) -> AsyncIterator[aiohttp.ClientSession]:
    """A client of an API server with these paths."""
    apiserver = APIServerOptions(forwarded=paths, **options)  # type: ignore[arg-type]
    async with DevCluster(kubelets=False, apiserver=apiserver) as server, aiohttp.ClientSession(server.url) as session:
        yield session


async def test_responses_are_passed_on_with_their_headers(tmp_path: Path) -> None:
    async with backend(tmp_path) as found, forwarding(found.paths) as session:
        async with session.get("/dashboard") as response:
            assert (response.status, await response.read()) == (200, b"page")
            assert response.headers["Content-Security-Policy"] == "default-src 'none'"
            assert response.headers["ETag"] == '"1"'
        async with session.get("/dashboard/events") as response:
            assert await response.read() == b"one\ntwo\n"
        async with session.get("/dashboard/queue?text=a%26b") as response:
            assert response.status == 200
        assert found.queries == ["", "", "text=a%26b"]


async def test_other_paths_are_the_api_servers(tmp_path: Path) -> None:
    async with backend(tmp_path) as found, forwarding(found.paths) as session:
        for path in ("/version", "/dashboards", "/api/v1/nodes"):
            async with session.get(path):
                pass
        assert found.requests == []


async def test_credentials_and_cookies_are_not_passed_on(tmp_path: Path) -> None:
    headers = {"Authorization": "Bearer secret", "Cookie": "a=b", "X-Remote-User": "admin"}
    async with backend(tmp_path) as found, forwarding(found.paths, tokens=TOKENS) as session:
        async with session.get("/dashboard/events", headers=headers) as response:
            assert response.status == 200
        (_, _, received), *_ = found.requests
        assert not {"Authorization", "Cookie", "X-Remote-User"} & received.keys()


@pytest.mark.parametrize("path", ["/dashboard", "/dashboard/assets/app.js", "/dashboard/assets/vendor/uplot.js"])
async def test_the_page_needs_no_credentials(path: str, tmp_path: Path) -> None:
    async with (
        backend(tmp_path) as found,
        forwarding(found.paths, tokens=TOKENS) as session,
        session.get(path) as response,
    ):
        assert response.status == 200


@pytest.mark.parametrize(
    "path",
    [
        "/dashboard/events",
        "/dashboard/pods/default/a",
        "/dashboard/assets/../events",
        "/dashboard/assets/%2e%2e/events",
        "/dashboard/assets/..%2fevents",
        "/dashboard/assets//events",
        "/dashboard/",
    ],
)
async def test_the_data_needs_credentials(path: str, tmp_path: Path) -> None:
    async with backend(tmp_path) as found, forwarding(found.paths, tokens=TOKENS) as session:
        async with session.get(URL(path, encoded=True)) as response:
            assert response.status == 401
        assert found.requests == []


async def test_the_data_needs_authorization(tmp_path: Path) -> None:
    headers = {"Authorization": "Bearer secret"}
    async with backend(tmp_path) as found, forwarding(found.paths, tokens=TOKENS, rbac=True) as session:
        async with session.get("/dashboard/events", headers=headers) as response:
            assert response.status == 403
            assert 'cannot get path \\"/dashboard/events\\"' in await response.text()
        assert found.requests == []


async def test_nothing_is_forwarded_for_a_foreign_web_page(tmp_path: Path) -> None:
    attacks = [
        {"Host": "evil.example.com"},
        {"Origin": "http://evil.example.com"},
        {"Origin": "null"},
        {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors"},
    ]
    async with backend(tmp_path) as found, forwarding(found.paths) as session:
        for attack in attacks:
            async with session.get("/dashboard/events", headers=attack) as response:
                assert response.status == 403
        assert found.requests == []


async def test_the_site_of_the_requesting_page_is_passed_on(tmp_path: Path) -> None:
    """The dashboard refuses data to other sites, whose links the API server lets be followed."""
    headers = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"}
    async with backend(tmp_path) as found, forwarding(found.paths) as session:
        async with session.get("/dashboard", headers=headers) as response:
            assert response.status == 200
        ((_, _, received),) = found.requests
        assert received["Sec-Fetch-Site"] == "cross-site"


async def test_nothing_is_written(tmp_path: Path) -> None:
    async with backend(tmp_path) as found, forwarding(found.paths) as session:
        for method in ("POST", "PUT", "PATCH", "DELETE", "OPTIONS"):
            async with session.request(method, "/dashboard/events") as response:
                assert response.status == 405
        assert found.requests == []


async def test_without_a_scheduler_the_dashboard_is_unavailable(tmp_path: Path) -> None:
    paths = ForwardedPaths("/dashboard", "/dashboard/assets/", tmp_path / "none.sock")
    async with forwarding(paths) as session, session.get("/dashboard") as response:
        assert response.status == 503
        assert (await response.json())["message"] == "the scheduler is not running"
