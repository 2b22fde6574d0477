"""Source: the load-watcher service, which reads the metrics of a provider and serves them by node."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kubestow.client.http_json import JSONServer
from kubestow.errors import Unreachable
from kubestow_contrib.node_load.usage import UsageSample

__all__ = ["LoadWatcher"]

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
            return {str(name): _sample(end, node) for name, node in by_node.items()}
        except (KeyError, TypeError, ValueError, AttributeError):
            raise Unreachable(self._server.url, "the response is not one of load-watcher") from None


def _sample(end: float, node: Any) -> UsageSample:
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
