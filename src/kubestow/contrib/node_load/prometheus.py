"""Source: a Prometheus server with the recording rules of the node exporter's mixin.

The queries are load-watcher's: averages and standard deviations over 15 minutes of ``instance:node_cpu:ratio`` and
``instance:node_memory_utilisation:ratio``. The label ``instance`` is the name of the node, with or without a port.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from kubestow.contrib.node_load.http_json import JSONServer
from kubestow.contrib.node_load.usage import UsageSample
from kubestow.errors import Unreachable

__all__ = ["DEFAULT_ADDRESS", "Prometheus"]

#: The address that load-watcher uses by default.
DEFAULT_ADDRESS = "http://prometheus-k8s:9090"

_WINDOW = "15m"
_QUERIES = {
    "cpu": f"avg_over_time(instance:node_cpu:ratio[{_WINDOW}])",
    "memory": f"avg_over_time(instance:node_memory_utilisation:ratio[{_WINDOW}])",
    "cpu_deviation": f"stddev_over_time(instance:node_cpu:ratio[{_WINDOW}])",
    "memory_deviation": f"stddev_over_time(instance:node_memory_utilisation:ratio[{_WINDOW}])",
}


class Prometheus:
    """Reads ratios from Prometheus. ``knows`` says whether there is a node of a name."""

    def __init__(self, server: JSONServer, knows: Callable[[str], bool]) -> None:
        self._server, self._knows = server, knows

    async def read(self) -> Mapping[str, UsageSample]:
        """Averages and deviations of each node in percent. Raises Unreachable."""
        found: dict[str, UsageSample] = {}
        for field, query in _QUERIES.items():
            answer = await self._server.get("/api/v1/query", {"query": query})
            for instance, time, ratio in self._vector(answer):
                name = self._node_name(instance)
                if name is not None:
                    sample = found.get(name, UsageSample(time))
                    found[name] = sample._replace(**{field: 100 * ratio})
        return found

    def _vector(self, answer: Any) -> list[tuple[str, float, float]]:
        """The instance, time and value of each entry of an instant vector; entries of another form are left out."""
        try:
            data = answer["data"]
            if answer["status"] != "success" or data["resultType"] != "vector":
                raise Unreachable(self._server.url, f"query failed: {answer.get('error', data['resultType'])}")
            entries = data["result"]
            vector = []
            for entry in entries:
                try:
                    time, value = entry["value"]
                    vector.append((str(entry["metric"]["instance"]), float(time), float(value)))
                except (KeyError, TypeError, ValueError):
                    continue
        except (KeyError, TypeError, AttributeError):
            raise Unreachable(self._server.url, "the response is not one of the Prometheus HTTP API") from None
        return vector

    def _node_name(self, instance: str) -> str | None:
        host = instance.rpartition(":")[0]
        return next((name for name in (instance, host) if name and self._knows(name)), None)
