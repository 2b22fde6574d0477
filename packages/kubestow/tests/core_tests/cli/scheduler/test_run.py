"""``kubestow run`` as a process: endpoints, scheduling, termination."""

from __future__ import annotations

import asyncio
import json
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp

from core_tests.client.kubeconfigs import kubeconfig, save
from core_tests.hang_limit import HANG_LIMIT
from kubestow.http.messages import UserInfo
from kubestow_devcluster.apiserver.security.authentication import ADMIN
from kubestow_devcluster.apiserver.server.api_server import APIServerOptions
from kubestow_devcluster.cluster import DevCluster

KNOWN = {"own": ADMIN, "prometheus": UserInfo("prometheus", ("system:authenticated",))}


def free_port() -> int:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        return int(unused.getsockname()[1])


@asynccontextmanager
async def running(*arguments: str) -> AsyncIterator[asyncio.subprocess.Process]:
    """The process, killed on exit if it still runs."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "kubestow", "run", *arguments), stderr=asyncio.subprocess.PIPE
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def status(port: int, path: str, token: str = "") -> int:
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    async with (
        aiohttp.ClientSession() as session,
        session.get(f"https://127.0.0.1:{port}{path}", ssl=False, headers=headers) as response,
    ):
        return response.status


async def test_a_scheduler_serves_its_endpoints_and_ends_on_sigterm(tmp_path: Path) -> None:
    port = free_port()
    async with DevCluster(nodes=2, apiserver=APIServerOptions(tokens=KNOWN)) as api:
        named = save(tmp_path, kubeconfig(api.url, token="own"))
        configs = [f"--{use}kubeconfig={named}" for use in ("", "authentication-", "authorization-")]
        flags = [*configs, f"--secure-port={port}", "--bind-address=127.0.0.1", "--leader-elect=false"]
        async with running(*flags, "--logging-format=json") as process, asyncio.timeout(HANG_LIMIT):
            assert process.stderr is not None
            lines = [json.loads(await process.stderr.readline())]
            while lines[-1]["msg"] != "Scheduling":
                lines.append(json.loads(await process.stderr.readline()))
            assert lines[-1]["nodes"] == 2
            assert "Serving securely" in [line["msg"] for line in lines]
            assert [await status(port, path) for path in ("/readyz", "/metrics")] == [200, 403]
            assert await status(port, "/metrics", "prometheus") == 200
            process.terminate()
            assert await process.wait() == 0


async def test_a_scheduler_started_before_its_api_server_waits_for_it(tmp_path: Path) -> None:
    port, api_port = free_port(), free_port()
    flags = [f"--master=http://127.0.0.1:{api_port}", f"--secure-port={port}", "--leader-elect=false"]
    async with running(*flags) as process, asyncio.timeout(HANG_LIMIT):
        assert process.stderr is not None
        log = await process.stderr.readuntil(b"retrying in")
        assert f"API server http://127.0.0.1:{api_port} is not available: " in log.decode()
        assert f'"Serving securely" address="0.0.0.0:{port}"' in log.decode()
        assert [await status(port, path) for path in ("/livez", "/readyz")] == [200, 500]
        async with DevCluster(apiserver=APIServerOptions(port=api_port), nodes=1):
            log = await process.stderr.readuntil(b'"Scheduling"')
            assert await status(port, "/readyz") == 200
            process.terminate()
            log += await process.stderr.read()
            assert await process.wait() == 0
    assert "Traceback" not in log.decode()


async def test_a_scheduler_that_waits_for_its_api_server_ends_on_sigterm(tmp_path: Path) -> None:
    flags = [f"--master=http://127.0.0.1:{free_port()}", "--secure-port=0", "--leader-elect=false"]
    async with running(*flags) as process, asyncio.timeout(HANG_LIMIT):
        assert process.stderr is not None
        await process.stderr.readuntil(b"retrying in")
        process.terminate()
        assert await process.wait() == 0


async def test_a_port_in_use_is_named(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        flags = [f"--secure-port={port}", "--bind-address=127.0.0.1", "--master=http://127.0.0.1:1"]
        async with running(*flags) as process, asyncio.timeout(HANG_LIMIT):
            assert await process.wait() == 1
            assert process.stderr is not None
            lines = (await process.stderr.read()).decode().splitlines()
    assert lines[-1] == f"kubestow: --secure-port: 127.0.0.1:{port} is in use by another process"
