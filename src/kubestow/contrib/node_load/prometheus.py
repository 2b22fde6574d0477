"""Source: a Prometheus server with the recording rules of the node exporter's mixin.

The queries are load-watcher's: averages and standard deviations over 15 minutes of ``instance:node_cpu:ratio`` and
``instance:node_memory_utilisation:ratio``. The label ``instance`` is the name of the node, with or without a port.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from kubestow.contrib.node_load.http_json import JSONServer
from kubestow.contrib.node_load.usage import UsageSample
from kubestow.errors import Unreachable

__all__ = ["DEFAULT_ADDRESS", "Prometheus", "Sample", "node_name", "query_vector"]

#: The address that load-watcher uses by default.
DEFAULT_ADDRESS = "http://prometheus-k8s:9090"

_WINDOW = "15m"
_QUERIES = {
    "cpu": f"avg_over_time(instance:node_cpu:ratio[{_WINDOW}])",
    "memory": f"avg_over_time(instance:node_memory_utilisation:ratio[{_WINDOW}])",
    "cpu_deviation": f"stddev_over_time(instance:node_cpu:ratio[{_WINDOW}])",
    "memory_deviation": f"stddev_over_time(instance:node_memory_utilisation:ratio[{_WINDOW}])",
}


class Sample(NamedTuple):
    """An entry of an instant vector: the label ``instance`` ("" without), the time (Unix) and the value."""

    instance: str
    time: float
    value: float


async def query_vector(server: JSONServer, query: str) -> list[Sample]:
    """The instant vector that a query returns now; malformed entries are left out. Raises Unreachable."""
    answer = await server.get("/api/v1/query", {"query": query})
    samples = []
    try:
        data = answer["data"]
        if answer["status"] != "success" or data["resultType"] != "vector":
            raise Unreachable(server.url, f"query failed: {answer.get('error', data['resultType'])}")
        for entry in data["result"]:
            try:
                time, value = entry["value"]
                samples.append(Sample(str(entry["metric"].get("instance", "")), float(time), float(value)))
            except (KeyError, TypeError, ValueError, AttributeError):
                continue
    except (KeyError, TypeError, AttributeError):
        raise Unreachable(server.url, "the response is not one of the Prometheus HTTP API") from None
    return samples


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
