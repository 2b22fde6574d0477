"""A real Prometheus that scrapes a real scheduler on an embedded cluster."""

from __future__ import annotations

import asyncio
import json
import shutil
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import yaml

from core_tests.hang_limit import HANG_LIMIT
from kubestow_devcluster.cluster import DevCluster

NEEDS_PROMETHEUS = pytest.mark.skipif(
    not (shutil.which("prometheus") and shutil.which("promtool")), reason="Prometheus is not installed"
)


class Prometheus:
    """A Prometheus server; ``scheduler`` is the process that it scrapes."""

    def __init__(self, url: str, scheduler: asyncio.subprocess.Process) -> None:
        self._url, self.scheduler = url, scheduler

    async def query(self, expression: str) -> list[Any]:
        """The result of an instant query, by promtool."""
        process = await asyncio.create_subprocess_exec(
            *("promtool", "query", "instant", "--format=json", self._url, expression),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        out, err = await process.communicate()
        assert process.returncode == 0, f"{expression}: {err.decode()}"
        series: list[Any] = json.loads(out)
        return series

    async def until(self, expression: str) -> None:
        """Return once the result of an instant query is not empty."""
        async with asyncio.timeout(HANG_LIMIT):
            while True:
                if await self.query(expression):
                    return
                await asyncio.sleep(0.2)


@asynccontextmanager
async def scraping(home: Path) -> AsyncIterator[Prometheus]:
    """A Prometheus that scrapes the scheduler of a small cluster every second, as the job ``kubestow``."""
    async with DevCluster(nodes=3) as server:
        port, own_port = _free_port(), _free_port()
        scheduler = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "kubestow", "run", "--master", server.url, "--kube-api-qps=-1"),
            *(f"--secure-port={port}", "--bind-address=127.0.0.1", "--authorization-always-allow-paths=/metrics"),
            stderr=asyncio.subprocess.DEVNULL,
        )
        await _create_pods(server.url)
        prometheus = await asyncio.create_subprocess_exec(
            *("prometheus", f"--config.file={_configuration(home, port)}", f"--storage.tsdb.path={home / 'data'}"),
            f"--web.listen-address=127.0.0.1:{own_port}",
            stderr=asyncio.subprocess.DEVNULL,
        )
        try:
            url = f"http://127.0.0.1:{own_port}"
            await _is_ready(url)
            yield Prometheus(url, scheduler)
        finally:
            for process in (prometheus, scheduler):
                if process.returncode is None:
                    process.kill()
                await process.wait()


def _configuration(home: Path, port: int) -> Path:
    job = {
        "job_name": "kubestow",
        "scheme": "https",
        "tls_config": {"insecure_skip_verify": True},
        "static_configs": [{"targets": [f"127.0.0.1:{port}"]}],
    }
    file = home / "prometheus.yaml"
    file.write_text(yaml.safe_dump({"global": {"scrape_interval": "1s"}, "scrape_configs": [job]}))
    return file


async def _create_pods(url: str) -> None:
    """Create schedulable pods of distinct shapes, and one unschedulable pod."""
    async with aiohttp.ClientSession() as session:
        for number, cpu in enumerate((*(f"{100 + number}m" for number in range(40)), "1000")):
            container = {"name": "c", "image": "none", "resources": {"requests": {"cpu": cpu}}}
            pod = {"metadata": {"name": f"pod-{number}"}, "spec": {"containers": [container]}}
            async with session.post(f"{url}/api/v1/namespaces/default/pods", json=pod) as response:
                assert response.status == 201


async def _is_ready(url: str) -> None:
    async with asyncio.timeout(HANG_LIMIT), aiohttp.ClientSession() as session:
        while True:
            try:
                async with session.get(f"{url}/-/ready") as response:
                    if response.status == 200:
                        return
            except aiohttp.ClientConnectionError:
                pass
            await asyncio.sleep(0.1)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
