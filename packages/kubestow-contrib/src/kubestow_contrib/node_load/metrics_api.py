"""Source: the resource metrics API, as metrics-server serves it. It has latest values only, no deviations."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from kubestow.api.formats.quantity import millis, units
from kubestow.errors import InvalidQuantity, Unreachable
from kubestow.framework.interface import Handle
from kubestow_contrib.node_load.usage import UsageSample

__all__ = ["MetricsAPI", "node_capacity"]

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
                    found[name] = _sample(item, *capacity)
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


def _sample(item: Mapping[str, Any], cpu: int, memory: int) -> UsageSample:
    usage = item["usage"]
    time = datetime.fromisoformat(item["timestamp"]).timestamp()
    sample = UsageSample(time)
    if cpu > 0 and "cpu" in usage:
        sample = sample._replace(cpu=100 * millis(usage["cpu"]) / cpu)
    if memory > 0 and "memory" in usage:
        sample = sample._replace(memory=100 * units(usage["memory"]) / memory)
    return sample
