"""Requests of foreign web pages: rejected by a server without authentication, as by ``kubectl proxy``."""

from __future__ import annotations

import asyncio

import aiohttp
import msgspec
import pytest
from multidict import CIMultiDict

from core_tests.hang_limit import HANG_LIMIT
from devcluster_tests.client import PODS, pod
from kubestow.errors import InputError
from kubestow.http.messages import UserInfo
from kubestow_devcluster.apiserver.server.api_server import APIServerOptions
from kubestow_devcluster.apiserver.server.http_handler import HostFilter
from kubestow_devcluster.apiserver.statuses import StatusError
from kubestow_devcluster.cluster import DevCluster


async def test_a_post_of_a_foreign_web_page_is_rejected() -> None:
    body = msgspec.json.encode(pod("attack"))
    attacks = [{"Host": "evil.example.com"}, {"Origin": "http://evil.example.com"}, {"Origin": "null"}]
    async with DevCluster(kubelets=False) as server, aiohttp.ClientSession(server.url) as session:
        for attack in attacks:
            async with session.post(PODS, data=body, headers=attack) as response:
                assert response.status == 403
                assert (await response.json())["reason"] == "Forbidden"
        async with session.get(PODS) as response:
            assert (await response.json())["items"] == []


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Host": "localhost:6443"},
        {"Host": "127.0.0.1"},
        {"Host": "[::1]:6443"},
        {"Host": "10.0.0.1:6443"},
        {"Host": "[fd00::1]:6443"},
        {"Host": "localhost:6443", "Origin": "http://localhost:3000"},
        {"Host": "10.0.0.1:6443", "Origin": "http://10.0.0.1:6443"},
        {"Host": "localhost:6443", "Sec-Fetch-Site": "same-origin", "Sec-Fetch-Mode": "cors"},
        {"Host": "localhost:6443", "Sec-Fetch-Site": "none", "Sec-Fetch-Mode": "navigate"},
        {"Host": "localhost:6443", "Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"},
        {"Host": "localhost:6443", "Origin": "http://127.0.0.1:3000", "Sec-Fetch-Site": "cross-site"},
    ],
    ids=str,
)
def test_local_names_and_addresses_are_accepted(headers: dict[str, str]) -> None:
    HostFilter().check(CIMultiDict(headers))


@pytest.mark.parametrize(
    "headers",
    [
        {"Host": ""},
        {"Origin": "http://evil.example.com"},
        {"Host": "localhost.evil.example.com"},
        {"Host": "evil.example.com:6443"},
        {"Host": "127.0.0.1.evil.example.com"},
        {"Host": "[::1"},
        {"Host": "127.0.0.1:x"},
        {"Host": "localhost", "Origin": "http://10.0.0.1"},
        {"Host": "localhost", "Origin": "http://[::1"},
        {"Host": "localhost", "Origin": ""},
        {"Host": "localhost", "Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors"},
        {"Host": "localhost", "Sec-Fetch-Site": "cross-site"},
    ],
    ids=str,
)
def test_other_hosts_and_origins_are_rejected(headers: dict[str, str]) -> None:
    with pytest.raises(StatusError, match="is not accepted"):
        HostFilter().check(CIMultiDict(headers))


def test_accepted_hosts_are_regular_expressions() -> None:
    HostFilter(r"^dev\.example\.com$,^other$").check(CIMultiDict(Host="dev.example.com:80", Origin="https://other"))
    with pytest.raises(InputError, match="--accept-hosts"):
        HostFilter("(")


async def test_a_server_with_authentication_is_reached_under_any_name() -> None:
    options = APIServerOptions(tokens={"secret": UserInfo("me")})
    headers = {"Host": "dev.example.com", "Authorization": "Bearer secret"}
    async with (
        DevCluster(kubelets=False, apiserver=options) as server,
        aiohttp.ClientSession(server.url) as session,
        session.get(PODS, headers=headers) as response,
    ):
        assert response.status == 200


@pytest.mark.parametrize("media_type", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data"])
async def test_media_types_that_a_web_form_can_send_are_rejected(media_type: str) -> None:
    headers = {"Content-Type": media_type}
    async with DevCluster(kubelets=False) as server, aiohttp.ClientSession(server.url) as session:
        async with session.post(PODS, data=msgspec.json.encode(pod("a")), headers=headers) as response:
            assert response.status == 415
        async with session.delete(f"{PODS}/a", data=b"{}", headers=headers) as response:
            assert response.status == 415


@pytest.mark.parametrize("tokens", [{}, {"secret": UserInfo("me")}], ids=["open", "authenticated"])
@pytest.mark.parametrize("target", ["*", "/", "//", "?", "http://127.0.0.1", "a", "%"])
@pytest.mark.parametrize("method", ["OPTIONS", "GET", "TRACE"])
async def test_unusual_request_targets_get_an_ordinary_response(
    method: str, target: str, tokens: dict[str, UserInfo], caplog: pytest.LogCaptureFixture
) -> None:
    async with DevCluster(kubelets=False, apiserver=APIServerOptions(tokens=tokens)) as server:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.apiserver.port)
        writer.write(f"{method} {target} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n".encode())
        async with asyncio.timeout(HANG_LIMIT):
            response = await reader.read()
        writer.close()
    status = int(response.split(b" ")[1])
    assert status in (200, 400, 401, 404, 405)
    assert status == 200 or (method, target) != ("OPTIONS", "*")
    assert "Traceback" not in caplog.text
