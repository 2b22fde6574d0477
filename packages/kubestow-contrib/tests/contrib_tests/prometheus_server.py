"""A real Prometheus server, if there is one on the path: Debian and Ubuntu package it as ``prometheus``."""

from __future__ import annotations

import asyncio
import shutil
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from aiohttp import web

from contrib_tests.watched_nodes import json_server

PROMETHEUS = shutil.which("prometheus")
needs_prometheus = pytest.mark.skipif(PROMETHEUS is None, reason="prometheus is not installed")


@asynccontextmanager
async def prometheus_server(directory: Path, metrics: str) -> AsyncIterator[str]:
    """A server that scrapes some metrics every second, from when it has started on; its URL."""
    assert PROMETHEUS is not None
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{probe.getsockname()[1]}"

    async def exposed(request: web.Request) -> web.Response:
        return web.Response(text=metrics)

    async with json_server(exposed) as exporter:
        (directory / "prometheus.yml").write_text(
            "global: {scrape_interval: 1s}\n"
            "scrape_configs:\n"
            "- job_name: nodes\n"
            "  honor_labels: true\n"
            f"  static_configs: [{{targets: ['127.0.0.1:{exporter.port}']}}]\n"
        )
        server = await asyncio.create_subprocess_exec(
            PROMETHEUS,
            f"--config.file={directory / 'prometheus.yml'}",
            f"--storage.tsdb.path={directory / 'data'}",
            f"--web.listen-address={address}",
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.DEVNULL,
        )
        try:
            yield f"http://{address}"
        finally:
            server.terminate()
            await server.wait()
