"""/dashboard on the secure port: authorized as /debug, with a strict policy, read-only."""

from __future__ import annotations

import asyncio
import gzip
import json
import ssl
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from core_tests.client.scripted_server import scripted_server
from core_tests.hang_limit import HANG_LIMIT
from core_tests.serving.harness import (
    ACCESS_REVIEWS,
    ALLOW_ALL,
    TOKEN_REVIEWS,
    SecurePort,
    access_review,
    delegating_options,
    secure_port,
    token_review,
)
from kubestow import config
from kubestow.api.core import Pod
from kubestow.config import FeatureGates
from kubestow.errors import InputError
from kubestow.observability.observability import Observability
from kubestow.process import WallClock
from kubestow.scheduling.queued_pod import Place
from kubestow.serving.dashboard_socket import DashboardSocket
from kubestow.serving.options import DelegatingAuthorizationOptions, ServingOptions
from kubestow.testing import node, pod
from kubestow.testing.scheduler_harness import running_scheduler

PATHS = ["/dashboard", "/dashboard/", "/dashboard/assets/app.js", "/dashboard/events", "/dashboard/nodes/a"]


@asynccontextmanager
async def watched_scheduler(*objects: object) -> AsyncIterator[SecurePort]:
    """A secure port with a scheduler, in real time, that has rejected each of its pods."""
    pods = sum(isinstance(one, Pod) for one in objects)
    async with secure_port() as port, running_scheduler(objects, observer=port.observability.observer) as harness:
        port.observability.attach(harness.scheduler)
        async with asyncio.timeout(HANG_LIMIT):
            await harness.scheduler.started()
            while harness.scheduler.queue.counts()[Place.UNSCHEDULABLE] < pods:  # noqa: ASYNC110
                await asyncio.sleep(0)
        yield port


@pytest.mark.parametrize("path", PATHS)
async def test_it_needs_authorization_as_debug_does(path: str, tmp_path: Path) -> None:
    async with scripted_server() as api, secure_port(delegating_options(api, tmp_path)) as port:
        api.respond("POST", ACCESS_REVIEWS, access_review(False), access_review(False))
        assert (await port.get(path)).status == 403
        api.respond("POST", TOKEN_REVIEWS, token_review("viewer"))
        assert (await port.get(path, token="t")).status == 403


async def test_the_page_can_be_opened_to_all_without_its_data() -> None:
    authorization = DelegatingAuthorizationOptions(always_allow_paths=("/dashboard", "/dashboard/assets/*"))
    async with secure_port(ServingOptions(address="127.0.0.1", port=0, authorization=authorization)) as port:
        assert (await port.get("/dashboard")).status == 200
        assert (await port.get("/dashboard/assets/app.js")).status == 200
        assert (await port.get("/dashboard/events")).status == 403
        assert (await port.get("/dashboard/nodes/a")).status == 403


@pytest.mark.parametrize("path", ["/dashboard", "/dashboard/assets/style.css", "/dashboard/nodes/a"])
async def test_responses_have_a_strict_policy(path: str) -> None:
    async with watched_scheduler(node("a")) as port:
        headers = (await port.get(path)).headers
    policy = headers["Content-Security-Policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert "frame-ancestors 'none'" in policy
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert headers["X-Frame-Options"] == "DENY"


async def test_a_file_is_compressed_and_not_sent_again() -> None:
    async with secure_port() as port:
        first = await port.get("/dashboard/assets/app.js")
        assert first.headers["Content-Encoding"] == "gzip"
        again = await port.get("/dashboard/assets/app.js", headers={"If-None-Match": first.headers["ETag"]})
        assert (again.status, again.body) == (304, b"")
        plain = await port.get("/dashboard/assets/app.js", headers={"Accept-Encoding": "identity"})
        assert (plain.body, "Content-Encoding" in plain.headers) == (first.body, False)


async def test_data_is_not_available_before_there_is_a_scheduler() -> None:
    async with secure_port() as port:
        assert (await port.get("/dashboard")).status == 200
        assert (await port.get("/dashboard/events")).status == 503


async def test_nothing_can_be_written() -> None:
    async with watched_scheduler(node("a")) as port:
        for method in ("POST", "PUT", "PATCH", "DELETE"):
            for path in PATHS:
                assert (await port.get(path, method=method)).status in (404, 405)


@pytest.mark.parametrize("site", ["cross-site", "same-site"])
async def test_data_is_refused_to_the_pages_of_other_sites(site: str) -> None:
    async with watched_scheduler(node("a"), pod("big", cpu="100")) as port:
        headers = {"Sec-Fetch-Site": site}
        for path in ("events", "queue", "nodes/a", "pods/default/big", "pods/default/big/counterfactuals"):
            assert (await port.get(f"/dashboard/{path}", method="HEAD", headers=headers)).status == 403
        for path in ("/dashboard", "/dashboard/assets/app.js"):  # a link to the page may be followed
            assert (await port.get(path, headers=headers)).status == 200


@pytest.mark.parametrize("site", ["same-origin", "none"])
async def test_data_is_sent_to_the_page_and_the_address_bar(site: str) -> None:
    async with watched_scheduler(node("a")) as port:
        assert (await port.get("/dashboard/nodes/a", headers={"Sec-Fetch-Site": site})).status == 200


@pytest.mark.parametrize(
    "path",
    [
        "/dashboard/assets/../../app.py",
        "/dashboard/assets/%2e%2e/page.py",
        "/dashboard/nodes/none",
        "/dashboard/pods/x/y",
    ],
)
async def test_unknown_paths_are_not_found(path: str) -> None:
    async with watched_scheduler(node("a")) as port:
        assert (await port.get(path)).status == 404


async def test_details_are_plain_data() -> None:
    async with watched_scheduler(node("a"), pod("big", cpu="100")) as port:
        assert json.loads((await port.get("/dashboard/nodes/a")).body)["name"] == "a"
        assert json.loads((await port.get("/dashboard/pods/default/big")).body)["pod"] == "default/big"
        found = json.loads((await port.get("/dashboard/pods/default/big/counterfactuals")).body)
        assert "instead of 100" in found["counterfactuals"][0]["text"]


async def test_the_queue_is_read_page_by_page() -> None:
    pods = [pod(f"big-{number}", cpu="100") for number in range(120)]
    async with watched_scheduler(node("a"), *pods) as port:

        async def page(query: str) -> dict[str, Any]:
            found: dict[str, Any] = json.loads((await port.get(f"/dashboard/queue?{query}")).body)
            return found

        first, second = await page(""), await page("place=unschedulable&offset=100")
        assert (first["matches"], len(first["pods"]), len(second["pods"])) == (120, 100, 20)
        assert len({one["pod"] for one in first["pods"] + second["pods"]}) == 120
        found = await page("text=BIG-7&place=unschedulable")
        assert {one["pod"] for one in found["pods"]} == {f"default/big-{number}" for number in (7, *range(70, 80))}
        assert (await page("place=gated"))["matches"] == (await page("text=none"))["matches"] == 0


@pytest.mark.parametrize("query", ["offset=-1", "offset=x", "offset=1234567890", f"text={'x' * 400}"])
async def test_an_invalid_page_is_refused(query: str) -> None:
    async with watched_scheduler(node("a")) as port:
        assert (await port.get(f"/dashboard/queue?{query}")).status == 400


async def test_the_stream_begins_with_a_snapshot_and_ends_with_the_server() -> None:
    async with secure_port(ALLOW_ALL) as port:
        context = ssl.create_default_context(cadata=port.serving.certificate.decode())
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
        url = f"https://localhost:{port.serving.port}/dashboard/events"
        async with (
            running_scheduler([node("a")], observer=port.observability.observer) as harness,
            aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=context), auto_decompress=False) as session,
        ):
            port.observability.attach(harness.scheduler)
            await asyncio.wait_for(harness.scheduler.started(), HANG_LIMIT)
            async with session.get(url, headers={"Accept-Encoding": "identity"}) as response:
                assert response.headers["Content-Type"].startswith("text/event-stream")
                assert await response.content.readline() == b"event: snapshot\n"
                data = await response.content.readline()
                assert json.loads(data.removeprefix(b"data: "))["nodes"]["names"] == ["a"]
                port.routes.dashboard.close()
                await asyncio.wait_for(response.content.read(), HANG_LIMIT)
            async with session.get(url, headers={"Accept-Encoding": "gzip"}) as response:
                assert response.headers["Content-Encoding"] == "gzip"


async def test_a_path_that_is_too_long_for_a_socket_is_an_error(tmp_path: Path) -> None:
    clock, gates = WallClock(), FeatureGates()
    configuration = config.load({"apiVersion": config.API_VERSION, "kind": config.KIND})
    socket = tmp_path / ("long" * 50)
    server = DashboardSocket(socket, Observability(clock, gates), clock, configuration, gates)
    with pytest.raises(InputError, match=r"cannot be used for the dashboard: .*shorter TMPDIR"):
        async with server:
            pass


async def test_the_socket_is_served_from_the_first_connection_on(tmp_path: Path) -> None:
    clock, gates = WallClock(), FeatureGates()
    configuration = config.load({"apiVersion": config.API_VERSION, "kind": config.KIND})
    socket = tmp_path / "dashboard.sock"
    async with DashboardSocket(socket, Observability(clock, gates), clock, configuration, gates):
        connector = aiohttp.UnixConnector(str(socket))
        async with aiohttp.ClientSession("http://localhost", connector=connector) as session:
            for _ in range(2):
                async with session.get("/dashboard", headers={"Connection": "close"}) as response:
                    assert "<title>kubestow</title>" in await response.text()


def test_nothing_that_serves_the_dashboard_delays_the_start_of_a_scheduler() -> None:
    imports = (
        "import sys, kubestow.cli.scheduler_app, kubestow.serving.dashboard_socket; print('aiohttp' in sys.modules)"
    )
    found = subprocess.run([sys.executable, "-c", imports], capture_output=True, text=True, check=True)
    assert found.stdout == "False\n"


async def test_a_large_response_is_compressed() -> None:
    nodes = [node(f"node-{number}") for number in range(300)]
    async with watched_scheduler(*nodes, pod("big", cpu="100")) as port:
        found = await port.get("/dashboard/pods/default/big")
        assert found.headers["Content-Encoding"] == "gzip"
        assert len(gzip.compress(found.body)) < len(found.body) / 4
