"""The metrics of simulated nodes: a pod uses what it requests, from its start to its end."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from kubestow.api.core import Node, Pod
from kubestow.api.formats.timestamps import micro_timestamp
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
