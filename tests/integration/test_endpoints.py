"""What a scheduler at work answers on its secure port (semantics 1.4; 11.1 TestEndpointHandlers, TestSchedulerZPages).

The answers one by one, and who may ask, are in tests/serving; here a scheduler, its API server and its port are
together. Not here: /flagz and /statusz as CBOR, which is refused like any other type that is not offered.
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

from kubestow.app import AppOptions, SchedulerApp
from kubestow.scheduling.scheduler import Scheduler
from tests.cli.test_run import free_port
from tests.client import scripted_server
from tests.integration.fixture import Stage
from tests.serving.harness import ALLOW_ALL, Reply

WARNING = "Warning: This endpoint is not meant to be machine parseable, has no formatting compatibility guarantees"


class Answering:
    """The port of a scheduler that runs."""

    def __init__(self, port: int) -> None:
        self._port = port

    async def get(self, path: str, headers: Mapping[str, str] | None = None) -> Reply:
        url = f"https://127.0.0.1:{self._port}{path}"
        async with (
            aiohttp.ClientSession(skip_auto_headers=["Accept"]) as session,
            session.get(url, headers=headers, ssl=False) as response,
        ):
            return Reply(response.status, await response.text(), response.headers)


@asynccontextmanager
async def serving(url: str, *, until_ready: bool = True) -> AsyncIterator[Answering]:
    """A scheduler that serves on a port of its own, once it schedules."""
    port = free_port()
    given: dict[str, Any] = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "leaderElection": {"leaderElect": False},
    }
    live = replace(SchedulerApp.create(source=given, seed=1), options=AppOptions(serving=replace(ALLOW_ALL, port=port)))
    ready: asyncio.Future[Scheduler] = asyncio.get_running_loop().create_future()
    running = asyncio.create_task(live.run(kubeconfig="", master=url, on_ready=ready.set_result))
    if until_ready:
        await asyncio.wait((running, ready), return_when=asyncio.FIRST_COMPLETED)
    try:
        yield Answering(port)
    finally:
        running.cancel()
        with suppress(asyncio.CancelledError):
            await running


@pytest.mark.parametrize(
    "path", ["/healthz", "/livez", "/livez/ping", "/readyz", "/readyz/sched-handler-sync", "/readyz/shutdown"]
)
async def test_a_scheduler_at_work_is_well(stage: Stage, path: str) -> None:
    async with serving(stage.url) as at:
        told = await at.get(path)
        assert (told.status, told.text) == (200, "ok")


async def test_a_scheduler_whose_server_does_not_list_anything_is_not_ready() -> None:
    async with scripted_server.scripted_server() as server:
        server.respond("GET", "/version", scripted_server.response(200, {"gitVersion": "v1.36.2"}))
        async with serving(server.url, until_ready=False) as at:
            await server.wait_for_requests(2)
            assert (await at.get("/livez")).status == 200
            told = await at.get("/readyz")
            assert told.status == 500
            assert "[-]sched-handler-sync failed" in told.text


PAGES = [("/statusz", "Statusz"), ("/flagz", "Flagz")]


@pytest.mark.parametrize(("path", "kind"), PAGES)
@pytest.mark.parametrize("accept", ["text/plain", "*/*", ""])
async def test_pages_are_text_for_people(stage: Stage, path: str, kind: str, accept: str) -> None:
    async with serving(stage.url) as at:
        told = await at.get(path, {"Accept": accept} if accept else {})
        assert told.status == 200
        assert told.text.startswith(f"\nkube-scheduler {kind.lower()}\n{WARNING}")


@pytest.mark.parametrize(("path", "kind"), PAGES)
@pytest.mark.parametrize("read", [json.loads, yaml.safe_load], ids=["json", "yaml"])
@pytest.mark.parametrize("version", ["v1beta1", "v1alpha1"])
async def test_pages_are_objects_for_machines(
    stage: Stage, path: str, kind: str, read: Callable[[str], Any], version: str
) -> None:
    media = "application/json" if read is json.loads else "application/yaml"
    async with serving(stage.url) as at:
        told = await at.get(path, {"Accept": f"{media};v={version};g=config.k8s.io;as={kind}"})
        assert told.status == 200
        assert told.headers["Content-Type"].startswith(media)
        content = read(told.text)
        assert (content["kind"], content["apiVersion"]) == (kind, f"config.k8s.io/{version}")
        assert ("Warning" in told.headers) is (version == "v1alpha1")


@pytest.mark.parametrize("path", ["/statusz", "/flagz"])
@pytest.mark.parametrize(
    "accept", ["application/json", "application/xml", "application/json;v=v1beta1;g=config.k8s.io"]
)
async def test_what_is_not_offered_is_not_acceptable(stage: Stage, path: str, accept: str) -> None:
    async with serving(stage.url) as at:
        assert (await at.get(path, {"Accept": accept})).status == 406
