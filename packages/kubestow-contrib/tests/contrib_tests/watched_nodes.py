"""A plugin that reads node metrics from a load-watcher service, and its scores."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from aiohttp import web
from aiohttp.test_utils import TestServer

from kubestow.api.core import Node, Pod
from kubestow.framework.interface import Plugin
from kubestow.testing import PluginHarness
from kubestow_contrib.node_load.usage import UsageSample

#: Resource, operator and percentage, as load-watcher reports them.
Metric = tuple[str, str, float]


def watcher_document(metrics: Mapping[str, Sequence[Metric]], end: float) -> dict[str, Any]:
    """What load-watcher answers for these metrics by node, whose window ends at a Unix time."""
    by_node = {
        node: {"metrics": [{"type": kind, "operator": operator, "value": value} for kind, operator, value in listed]}
        for node, listed in metrics.items()
    }
    return {
        "window": {"duration": "15m", "start": int(end) - 900, "end": int(end)},
        "data": {"NodeMetricsMap": by_node},
    }


def json_server(handler: Any) -> TestServer:
    """A server that answers every GET with a handler."""
    app = web.Application()
    app.router.add_get("/{path:.*}", handler)
    return TestServer(app)


def profile_of(plugin: str, args: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """A profile with one plugin besides the default ones."""
    return {
        "plugins": {"multiPoint": {"enabled": [{"name": plugin}]}},
        "pluginConfig": [] if args is None else [{"name": plugin, "args": args}],
    }


def collected(
    plugin: type[Plugin],
    nodes: Iterable[Node],
    metrics: Mapping[str, Sequence[Metric]],
    *,
    pods: Iterable[Pod] = (),
    args: Mapping[str, Any] | None = None,
    age: float = 0.0,
) -> PluginHarness:
    """A harness in which the plugin has collected metrics once; their window ended ``age`` seconds ago."""
    harness: list[PluginHarness] = []

    async def answer(request: web.Request) -> web.Response:
        return web.json_response(watcher_document(metrics, harness[0].time.timestamp() - age))

    async def main() -> None:
        async with json_server(answer) as server:
            document = {"watcherAddress": str(server.make_url("")), **(args or {})}
            harness.append(PluginHarness(nodes, pods, profile=profile_of(plugin.name, document), plugins=[plugin]))
            for work in harness[0].periodic_work:
                await work()

    asyncio.run(main())
    return harness[0]


class EveryNode(dict[str, UsageSample]):
    """Samples for nodes of any name, different ones; some have none."""

    def __init__(self, time: float) -> None:
        super().__init__()
        self._time = time

    def get(self, name: str, default: Any = None) -> Any:
        number = sum(name.encode())
        if number % 5 == 0:
            return default
        return UsageSample(self._time, number * 7 % 90, number * 11 % 90, number % 13, number % 17)
