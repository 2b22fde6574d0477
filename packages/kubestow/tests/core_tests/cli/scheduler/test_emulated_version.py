"""``kubestow run`` as the minor version of its API server, which is a small one without objects."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from core_tests.cli.scheduler.test_run import running
from core_tests.hang_limit import HANG_LIMIT
from kubestow.config import API_VERSION, KIND


@asynccontextmanager
async def api_server(version: str) -> AsyncIterator[tuple[str, list[str]]]:
    """Its URL, and the paths of the requests. It has a version, and no objects."""
    paths: list[str] = []

    async def answer(request: web.Request) -> web.Response:
        paths.append(request.path)
        if request.path == "/version":
            return web.json_response({"gitVersion": version} if version else {})
        if request.path == "/apis/resource.k8s.io":
            return web.json_response({"kind": "Status", "code": 404}, status=404)
        return web.json_response({"kind": "List", "metadata": {"resourceVersion": "1"}, "items": []})

    server = web.Server(answer)  # type: ignore[arg-type]
    runner = web.ServerRunner(server)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}", paths
    finally:
        await runner.cleanup()


async def log_until(process: asyncio.subprocess.Process, message: str) -> list[dict[str, Any]]:
    assert process.stderr is not None
    found = [json.loads(await process.stderr.readline())]
    while not found[-1]["msg"].startswith(message):
        found.append(json.loads(await process.stderr.readline()))
    return found


@pytest.mark.parametrize(
    ("version", "flags", "message", "emulated", "devices"),
    [
        ("v1.33.4-eks-1", [], "Emulating the API server's version", "1.33", False),
        ("v1.34.1", [], "Emulating the API server's version", "1.34", True),
        ("v1.37.0", [], "Emulating the API server's version", "1.37", True),
        ("v1.34.1", ["--emulated-version=kube=1.33"], "Emulating the version of --emulated-version", "1.33", False),
        ("v1.29.1", ["--emulated-version=1.31"], "Emulating the version of --emulated-version", "1.31", False),
    ],
)
async def test_the_scheduler_is_that_of_its_api_server(
    version: str, flags: list[str], message: str, emulated: str, devices: bool
) -> None:
    """Devices are watched if the minor version has their gate on."""
    async with api_server(version) as (url, paths), asyncio.timeout(HANG_LIMIT):
        where = [f"--master={url}", "--secure-port=0", "--leader-elect=false", "--logging-format=json"]
        async with running(*where, *flags) as process:
            *_, record = await log_until(process, "Emulating")
            assert (record["msg"], record["emulated"]) == (message, emulated)
            while not any(path.endswith("/pods") for path in paths):
                await log_until(process, "")
            process.terminate()
            assert await process.wait() == 0
    assert any(path.endswith("/resourceclaims") for path in paths) is devices


@pytest.mark.parametrize(
    ("version", "problem"),
    [
        ("v1.29.4", "version 1.29 is not supported, expected 1.31 to 1.37, or --emulated-version with one of these"),
        ("v1.99.0", "version 1.99 is not supported, expected 1.31 to 1.37, or --emulated-version with one of these"),
        ("", "tells no version, expected 1.31 to 1.37, or --emulated-version with one of these"),
    ],
)
async def test_another_api_server_ends_with_one_line(version: str, problem: str) -> None:
    async with (
        api_server(version) as (url, _),
        asyncio.timeout(HANG_LIMIT),
        running(f"--master={url}", "--secure-port=0", "--leader-elect=false") as process,
    ):
        assert process.stderr is not None
        log = (await process.stderr.read()).decode()
        assert await process.wait() == 1
    assert log.splitlines()[-1].endswith(f"API server: {problem}")
    assert "Traceback" not in log


async def test_the_configuration_is_that_of_the_version(tmp_path: Path) -> None:
    """A gate that only newer minor versions have is accepted before the version is known, and then refused."""
    config = tmp_path / "config.yaml"
    config.write_text(json.dumps({"apiVersion": API_VERSION, "kind": KIND, "leaderElection": {"leaderElect": False}}))
    async with api_server("v1.33.4") as (url, _), asyncio.timeout(HANG_LIMIT):
        flags = [f"--config={config}", f"--master={url}", "--secure-port=0", "--feature-gates=GenericWorkload=true"]
        async with running(*flags) as process:
            assert process.stderr is not None
            log = (await process.stderr.read()).decode()
            assert await process.wait() == 1
    assert "unrecognized feature gate: GenericWorkload" in log.splitlines()[-1]
