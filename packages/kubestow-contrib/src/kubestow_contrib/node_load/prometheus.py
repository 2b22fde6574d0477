"""Source: a Prometheus server with the recording rules of the node exporter's mixin.

The queries are load-watcher's: averages and standard deviations over 15 minutes of ``instance:node_cpu:ratio`` and
``instance:node_memory_utilisation:ratio``. The label ``instance`` is the name of the node, with or without a port.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from kubestow.client.http_json import JSONServer, query_vector
from kubestow_contrib.node_load.usage import UsageSample

__all__ = ["DEFAULT_ADDRESS", "Prometheus", "node_name"]

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
