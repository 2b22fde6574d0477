"""A real Prometheus server, if there is one on the path: Debian and Ubuntu package it as ``prometheus``."""

from __future__ import annotations

import asyncio
import shutil
import socket
from collections.abc import Mapping
from pathlib import Path

import pytest
from aiohttp import web

from kubestow.contrib.node_load.http_json import JSONServer
from kubestow.contrib.node_load.prometheus import Prometheus
from kubestow.contrib.node_load.usage import UsageSample
from kubestow.errors import Unreachable
from tests.contrib.watched_nodes import json_server

PROMETHEUS = shutil.which("prometheus")

#: As the recording rules of the node exporter's mixin name them.
METRICS = """
instance:node_cpu:ratio{instance="a:9100"} 0.25
instance:node_memory_utilisation:ratio{instance="a:9100"} 0.5
instance:node_cpu:ratio{instance="b"} 0.75
instance:node_memory_utilisation:ratio{instance="b"} NaN
instance:node_cpu:ratio{instance="elsewhere:9100"} 1
"""


async def exposed(request: web.Request) -> web.Response:
    return web.Response(text=METRICS)


async def read_when_scraped(source: Prometheus) -> Mapping[str, UsageSample]:
    """What the source reads as soon as the server runs and has scraped both nodes."""
    while True:
        try:
            found = await source.read()
        except Unreachable:
            found = {}
        if {"a", "b"} <= found.keys():
            return found
        await asyncio.sleep(0.2)


@pytest.mark.skipif(PROMETHEUS is None, reason="prometheus is not installed")
async def test_usage_is_read_from_prometheus(tmp_path: Path) -> None:
    assert PROMETHEUS is not None
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{probe.getsockname()[1]}"
    async with json_server(exposed) as exporter:
        (tmp_path / "prometheus.yml").write_text(
            "global: {scrape_interval: 1s}\n"
            "scrape_configs:\n"
            "- job_name: nodes\n"
            "  honor_labels: true\n"
            f"  static_configs: [{{targets: ['127.0.0.1:{exporter.port}']}}]\n"
        )
        server = await asyncio.create_subprocess_exec(
            PROMETHEUS,
            f"--config.file={tmp_path / 'prometheus.yml'}",
            f"--storage.tsdb.path={tmp_path / 'data'}",
            f"--web.listen-address={address}",
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.DEVNULL,
        )
        try:
            source = Prometheus(JSONServer(f"http://{address}"), {"a", "b"}.__contains__)
            found = await read_when_scraped(source)
        finally:
            server.terminate()
            await server.wait()
    assert found["a"][1:] == (25, 50, 0, 0)
    assert found["b"].cpu == 75
