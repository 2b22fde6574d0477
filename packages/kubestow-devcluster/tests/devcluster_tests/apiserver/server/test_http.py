"""The server over HTTP: size limits, gzip, tokens, clients that disconnect."""

from __future__ import annotations

import asyncio
import gzip
from io import BytesIO

import aiohttp
import msgspec
import pytest

from core_tests.hang_limit import HANG_LIMIT
from devcluster_tests.client import PODS, pod
from kubestow.http.messages import UserInfo
from kubestow_devcluster.apiserver.server.api_server import AddressInUse, APIServerOptions
from kubestow_devcluster.apiserver.server.http_handler import MAX_REQUEST_BODY
from kubestow_devcluster.cluster import DevCluster

JSON = {"Content-Type": "application/json"}


async def test_an_oversized_body_is_rejected_and_the_server_keeps_serving() -> None:
    async with DevCluster(kubelets=False) as server, aiohttp.ClientSession(server.url) as session:
        async with session.post(PODS, data=BytesIO(b"x" * (MAX_REQUEST_BODY + 1)), headers=JSON) as response:
            assert response.status == 413
            assert (await response.json())["message"] == "Request entity too large: limit is 3145728"
        async with session.get("/readyz") as response:
            assert await response.text() == "ok"


async def test_a_long_list_is_gzipped_if_the_client_accepts_it() -> None:
    async with (
        DevCluster(kubelets=False) as server,
        aiohttp.ClientSession(server.url, auto_decompress=False) as session,
    ):
        for index in range(150):
            await session.post(PODS, data=msgspec.json.encode(pod(f"p{index}")), headers=JSON)
        async with session.get(PODS, headers={"Accept-Encoding": "gzip"}) as response:
            assert response.headers["Content-Encoding"] == "gzip"
            gzipped = msgspec.json.decode(gzip.decompress(await response.read()))
        async with session.get(PODS, headers={"Accept-Encoding": "identity"}) as response:
            assert msgspec.json.decode(await response.read()) == gzipped
        assert len(gzipped["items"]) == 150


async def test_a_watch_delivers_events_and_its_client_can_disconnect() -> None:
    async with DevCluster(kubelets=False) as server, aiohttp.ClientSession(server.url) as session:
        watch = await session.get(f"{PODS}?watch=1")
        await session.post(PODS, data=msgspec.json.encode(pod("a")), headers=JSON)
        async with asyncio.timeout(HANG_LIMIT):
            event = msgspec.json.decode(await watch.content.readline())
        assert (event["type"], event["object"]["metadata"]["name"]) == ("ADDED", "a")
        watch.close()
        async with session.post(PODS, data=msgspec.json.encode(pod("b")), headers=JSON) as response:
            assert response.status == 201


async def test_requests_without_a_valid_token_get_401() -> None:
    async with (
        DevCluster(kubelets=False, apiserver=APIServerOptions(tokens={"secret": UserInfo("me")})) as server,
        aiohttp.ClientSession(server.url) as session,
    ):
        for headers, status in (
            ({}, 401),
            ({"Authorization": "Bearer x"}, 401),
            ({"Authorization": "Bearer secret"}, 200),
        ):
            async with session.get(PODS, headers=headers) as response:
                assert response.status == status
        async with session.get("/healthz") as response:
            assert response.status == 200, "probes have no token"


async def test_a_port_in_use_is_an_error() -> None:
    async with DevCluster(kubelets=False) as server:
        with pytest.raises(AddressInUse, match=f"127.0.0.1:{server.apiserver.port} is in use"):
            await DevCluster(apiserver=APIServerOptions(port=server.apiserver.port), kubelets=False).start()
