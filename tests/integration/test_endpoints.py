"""The secure port of a running scheduler (semantics 1.4; 11.1 TestEndpointHandlers, TestSchedulerZPages).

Single responses, authentication and authorization are in tests/serving; here a scheduler runs with its API server.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from typing import Any

import aiohttp
import pytest
import yaml

from core_tests.cli.scheduler.test_run import free_port
from core_tests.client import scripted_server
from core_tests.serving.harness import ALLOW_ALL, Reply
from kubestow.cli.scheduler_app import AppOptions, SchedulerApp
from kubestow.scheduling.scheduler import Scheduler
from tests.integration.fixture import ClusterFixture

WARNING = "Warning: This endpoint is not meant to be machine parseable, has no formatting compatibility guarantees"


class SecurePort:
    """Requests to the secure port of a running scheduler."""

    def __init__(self, port: int) -> None:
        self._port = port

    async def get(self, path: str, headers: Mapping[str, str] | None = None) -> Reply:
        url = f"https://127.0.0.1:{self._port}{path}"
        async with (
            aiohttp.ClientSession(skip_auto_headers=["Accept"]) as session,
            session.get(url, headers=headers, ssl=False) as response,
        ):
            return Reply(response.status, await response.read(), response.headers)


@asynccontextmanager
async def serving(url: str, *, until_ready: bool = True) -> AsyncIterator[SecurePort]:
    """Run a scheduler with its own secure port, and wait until it schedules."""
    port = free_port()
    source: dict[str, Any] = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "leaderElection": {"leaderElect": False},
    }
    app = replace(SchedulerApp.create(source=source, seed=1), options=AppOptions(serving=replace(ALLOW_ALL, port=port)))
    ready: asyncio.Future[Scheduler] = asyncio.get_running_loop().create_future()
    running = asyncio.create_task(app.run(kubeconfig="", master=url, on_ready=ready.set_result))
    if until_ready:
        await asyncio.wait((running, ready), return_when=asyncio.FIRST_COMPLETED)
    try:
        yield SecurePort(port)
    finally:
        running.cancel()
        with suppress(asyncio.CancelledError):
            await running


@pytest.mark.parametrize(
    "path", ["/healthz", "/livez", "/livez/ping", "/readyz", "/readyz/sched-handler-sync", "/readyz/shutdown"]
)
async def test_a_running_scheduler_is_healthy(cluster: ClusterFixture, path: str) -> None:
    async with serving(cluster.url) as port:
        response = await port.get(path)
        assert (response.status, response.text) == (200, "ok")


async def test_a_scheduler_is_not_ready_before_its_caches_are_synced() -> None:
    async with scripted_server.scripted_server() as server:
        server.respond("GET", "/version", scripted_server.response(200, {"gitVersion": "v1.36.2"}))
        async with serving(server.url, until_ready=False) as port:
            await server.wait_for_requests(2)
            assert (await port.get("/livez")).status == 200
            response = await port.get("/readyz")
            assert response.status == 500
            assert "[-]sched-handler-sync failed" in response.text


PAGES = [("/statusz", "Statusz"), ("/flagz", "Flagz")]


@pytest.mark.parametrize(("path", "kind"), PAGES)
@pytest.mark.parametrize("accept", ["text/plain", "*/*", ""])
async def test_zpages_are_plain_text_by_default(cluster: ClusterFixture, path: str, kind: str, accept: str) -> None:
    async with serving(cluster.url) as port:
        response = await port.get(path, {"Accept": accept} if accept else {})
        assert response.status == 200
        assert response.text.startswith(f"\nkube-scheduler {kind.lower()}\n{WARNING}")


@pytest.mark.parametrize(("path", "kind"), PAGES)
@pytest.mark.parametrize("read", [json.loads, yaml.safe_load], ids=["json", "yaml"])
@pytest.mark.parametrize("version", ["v1beta1", "v1alpha1"])
async def test_zpages_are_structured_objects_on_request(
    cluster: ClusterFixture, path: str, kind: str, read: Callable[[str], Any], version: str
) -> None:
    media = "application/json" if read is json.loads else "application/yaml"
    async with serving(cluster.url) as port:
        response = await port.get(path, {"Accept": f"{media};v={version};g=config.k8s.io;as={kind}"})
        assert response.status == 200
        assert response.headers["Content-Type"].startswith(media)
        content = read(response.text)
        assert (content["kind"], content["apiVersion"]) == (kind, f"config.k8s.io/{version}")
        assert ("Warning" in response.headers) is (version == "v1alpha1")


@pytest.mark.parametrize("path", ["/statusz", "/flagz"])
@pytest.mark.parametrize(
    "accept", ["application/json", "application/xml", "application/json;v=v1beta1;g=config.k8s.io"]
)
async def test_an_unsupported_media_type_is_not_acceptable(cluster: ClusterFixture, path: str, accept: str) -> None:
    async with serving(cluster.url) as port:
        assert (await port.get(path, {"Accept": accept})).status == 406
