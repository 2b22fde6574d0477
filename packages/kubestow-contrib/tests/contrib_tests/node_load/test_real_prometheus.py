"""What is read from a real Prometheus server."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Mapping
from pathlib import Path

from contrib_tests.prometheus_server import needs_prometheus, prometheus_server
from kubestow.client.http_json import JSONServer
from kubestow.errors import Unreachable
from kubestow_contrib.node_load.sources import Prometheus
from kubestow_contrib.node_load.usage import UsageSample

#: As the recording rules of the node exporter's mixin name them.
METRICS = """
instance:node_cpu:ratio{instance="a:9100"} 0.25
instance:node_memory_utilisation:ratio{instance="a:9100"} 0.5
instance:node_cpu:ratio{instance="b"} 0.75
instance:node_memory_utilisation:ratio{instance="b"} NaN
instance:node_cpu:ratio{instance="elsewhere:9100"} 1
"""


async def read_when_scraped(source: Prometheus) -> Mapping[str, UsageSample]:
    """What the source reads as soon as the server runs and has scraped both nodes.

    The source asks several times, and the first scrape may come in between.
    """
    while True:
        try:
            found = await source.read()
        except Unreachable:
            found = {}
        if {"a", "b"} <= found.keys() and not math.isnan(found["a"].cpu + found["a"].memory + found["b"].cpu):
            return found
        await asyncio.sleep(0.2)


@needs_prometheus
async def test_usage_is_read_from_prometheus(tmp_path: Path) -> None:
    async with prometheus_server(tmp_path, METRICS) as url:
        found = await read_when_scraped(Prometheus(JSONServer(url), {"a", "b"}.__contains__))
    assert found["a"][1:] == (25, 50, 0, 0)
    assert found["b"].cpu == 75
