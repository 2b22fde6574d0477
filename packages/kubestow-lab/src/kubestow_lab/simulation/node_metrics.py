"""The metrics of simulated nodes: a pod uses what it requests, or what a file says that was measured on nodes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from kubestow.api.core import Node, Pod
from kubestow.api.formats.timestamps import micro_timestamp
from kubestow.engine.input.documents import read_yaml
from kubestow.errors import InputError
from kubestow.rules.requests import CPU, MEMORY, requests_by_spec

NODE_METRICS_PATH = "/apis/metrics.k8s.io/v1beta1/nodes"
"""The path of the NodeMetricsList."""


def node_metrics(nodes: Iterable[Node], pods: Iterable[Pod], now: datetime) -> dict[str, Any]:
    """The NodeMetricsList at a time: what the pods on each node request."""
    copies: dict[int, tuple[Pod, Counter[str]]] = {}
    for pod in pods:
        if pod.spec.node_name:
            # Copies of a pod that are on nodes have a spec each, but share the list of containers.
            _, counts = copies.setdefault(id(pod.spec.containers), (pod, Counter()))
            counts[pod.spec.node_name] += 1
    cpu: Counter[str] = Counter()
    memory: Counter[str] = Counter()
    for pod, counts in copies.values():
        requests: Mapping[str, int] = requests_by_spec(pod)
        for node_name, count in counts.items():
            cpu[node_name] += count * requests.get(CPU, 0)
            memory[node_name] += count * requests.get(MEMORY, 0)
    names, sample = [node.metadata.name for node in nodes], {"timestamp": micro_timestamp(now), "window": "30s"}
    usages = ({"cpu": f"{cpu[name]}m", "memory": str(memory[name])} for name in names)
    items = ({"metadata": {"name": name}, **sample, "usage": usage} for name, usage in zip(names, usages, strict=True))
    return {"items": list(items)}


@dataclass(frozen=True, slots=True)
class Measurements:
    """Metrics of nodes that were measured once, and that a simulation has at all times.

    ``content`` is what load-watcher answers (``GET /watcher``), or a NodeMetricsList of metrics.k8s.io.
    """

    subject: str
    content: Mapping[str, Any]

    @classmethod
    def load(cls, path: str | Path) -> Measurements:
        """Read a file. Raises InputError."""
        content = read_yaml(path)
        if isinstance(content, Mapping):
            found = cls(str(path), content)
            if found._is_watched or found._is_listed:
                return found
        raise InputError(str(path), "expected the response of load-watcher (GET /watcher) or a NodeMetricsList")

    @property
    def _is_watched(self) -> bool:
        data = self.content.get("data")
        return isinstance(data, Mapping) and "NodeMetricsMap" in data

    @property
    def _is_listed(self) -> bool:
        items = self.content.get("items")
        return isinstance(items, list) and all(isinstance(item, Mapping) for item in items)

    def node_metrics(self, now: datetime) -> dict[str, Any] | None:
        """The NodeMetricsList as of a time, None if the file has none."""
        if not self._is_listed:
            return None
        return {"items": [{**item, "timestamp": micro_timestamp(now)} for item in self.content["items"]]}

    def answer(self, path: str, now: datetime) -> dict[str, Any] | None:
        """What a server answers as of a time to a GET, None if the file has no such answer."""
        if path != "/watcher" or not self._is_watched:
            return None
        end = int(now.timestamp())
        return {**self.content, "timestamp": end, "window": {**(self.content.get("window") or {}), "end": end}}
