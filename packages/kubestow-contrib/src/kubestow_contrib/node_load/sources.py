"""The sources of measured load: the resource metrics API (metrics.k8s.io), load-watcher, and Prometheus."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

from kubestow.api.formats.quantity import millis, units
from kubestow.client.http_json import JSONServer, query_vector
from kubestow.errors import InvalidQuantity, Unreachable
from kubestow.framework.interface import Handle
from kubestow_contrib.node_load.usage import UsageSample

_PATH = "/apis/metrics.k8s.io/v1beta1/nodes"
#: After so many nodes other tasks get a turn.
_BATCH = 256


class MetricsAPI:
    """Reads NodeMetrics through the API server."""

    def __init__(self, handle: Handle) -> None:
        self._handle = handle

    async def read(self) -> Mapping[str, UsageSample]:
        """The latest usage of each node, in percent of its capacity. Raises APIError or Unreachable."""
        found: dict[str, UsageSample] = {}
        answer = await self._handle.request("GET", _PATH)
        items = answer.get("items") if isinstance(answer, Mapping) else None
        if not isinstance(items, list):
            raise Unreachable(_PATH, "returned no NodeMetricsList")
        for number, item in enumerate(items, 1):
            try:
                name = item["metadata"]["name"]
                capacity = node_capacity(self._handle, name)
                if capacity is not None:
                    found[name] = _metrics_sample(item, *capacity)
            except (KeyError, TypeError, ValueError, AttributeError, InvalidQuantity):
                pass  # the node is one without metrics
            if number % _BATCH == 0:
                await asyncio.sleep(0)
        return found


def node_capacity(handle: Handle, name: str) -> tuple[int, int] | None:
    """CPU (millicores) and memory (bytes) of a node, its allocatable ones if it reports no capacity; None: no node."""
    table = handle.cluster.nodes
    row = table.rows.get(name)
    if row is None:
        return None
    status = table.objects[row].status
    amounts = {**status.allocatable, **status.capacity}
    return millis(amounts.get("cpu", 0)), units(amounts.get("memory", 0))


def _metrics_sample(item: Mapping[str, Any], cpu: int, memory: int) -> UsageSample:
    usage = item["usage"]
    time = datetime.fromisoformat(item["timestamp"]).timestamp()
    sample = UsageSample(time)
    if cpu > 0 and "cpu" in usage:
        sample = sample._replace(cpu=100 * millis(usage["cpu"]) / cpu)
    if memory > 0 and "memory" in usage:
        sample = sample._replace(memory=100 * units(usage["memory"]) / memory)
    return sample


_FIELDS = {"cpu": "cpu", "memory": "memory"}


class LoadWatcher:
    """Reads the metrics of all nodes from a load-watcher."""

    def __init__(self, server: JSONServer) -> None:
        self._server = server

    async def read(self) -> Mapping[str, UsageSample]:
        """Averages, or else the latest values, and deviations of each node in percent. Raises Unreachable."""
        answer = await self._server.get("/watcher", {})
        try:
            end = float(answer["window"]["end"])
            by_node = answer["data"]["NodeMetricsMap"] or {}
            return {str(name): _watched_sample(end, node) for name, node in by_node.items()}
        except (KeyError, TypeError, ValueError, AttributeError):
            raise Unreachable(self._server.url, "the response is not one of load-watcher") from None


def _watched_sample(end: float, node: Any) -> UsageSample:
    """The values of a node; metrics that are malformed are left out."""
    values: dict[str, float] = {}
    averaged: set[str] = set()
    metrics = node.get("metrics") if isinstance(node, Mapping) else None
    for metric in metrics if isinstance(metrics, list) else ():
        try:
            field, operator = _FIELDS.get(metric["type"].lower()), metric.get("operator") or ""
            value = float(metric["value"])
        except (KeyError, TypeError, ValueError, AttributeError):
            continue
        if field is None:
            continue
        if operator == "STD":
            values[f"{field}_deviation"] = value
        elif operator == "AVG":
            values[field] = value
            averaged.add(field)
        elif operator in ("", "Latest") and field not in averaged:
            values[field] = value
    return UsageSample(end, **values)


#: The address that load-watcher uses by default.
DEFAULT_ADDRESS = "http://prometheus-k8s:9090"

_WINDOW = "15m"
_QUERIES = {
    "cpu": f"avg_over_time(instance:node_cpu:ratio[{_WINDOW}])",
    "memory": f"avg_over_time(instance:node_memory_utilisation:ratio[{_WINDOW}])",
    "cpu_deviation": f"stddev_over_time(instance:node_cpu:ratio[{_WINDOW}])",
    "memory_deviation": f"stddev_over_time(instance:node_memory_utilisation:ratio[{_WINDOW}])",
}


def node_name(instance: str, knows: Callable[[str], bool]) -> str | None:
    """The node that an instance names, with or without a port; None if there is no such node."""
    host = instance.rpartition(":")[0]
    return next((name for name in (instance, host) if name and knows(name)), None)


class Prometheus:
    """Reads ratios from Prometheus. ``knows`` says whether there is a node of a name."""

    def __init__(self, server: JSONServer, knows: Callable[[str], bool]) -> None:
        self._server, self._knows = server, knows

    async def read(self) -> Mapping[str, UsageSample]:
        """Averages and deviations of each node in percent. Raises Unreachable."""
        found: dict[str, UsageSample] = {}
        for field, query in _QUERIES.items():
            for instance, time, ratio in await query_vector(self._server, query):
                name = node_name(instance, self._knows)
                if name is not None:
                    sample = found.get(name, UsageSample(time))
                    found[name] = sample._replace(**{field: 100 * ratio})
        return found
