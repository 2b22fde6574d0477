"""One node: its pods and what is free."""

from __future__ import annotations

from typing import Any

from kubestow.cluster.cache import Cluster
from kubestow.rules.requests import PODS

__all__ = ["node_details"]

_MOST_PODS = 512


def node_details(cluster: Cluster, name: str) -> dict[str, Any] | None:
    """A node with its pods, those with the highest priority first; None for an unknown node.

    Amounts are in millicores, bytes and counts.
    """
    table = cluster.nodes
    row = table.rows.get(name)
    if row is None:
        return None
    allocatable, requested = table.allocatable.at(row), table.requested.at(row)
    amounts = {
        resource: {"allocatable": amount, "requested": requested.get(resource, 0)}
        for resource, amount in allocatable.items()
        if amount or requested.get(resource)
    }
    amounts[PODS] = {
        "allocatable": int(table.allowed_pods.values[row]),
        "requested": int(table.pod_count.values[row]),
    }
    pods = sorted(table.pods[row].values(), key=lambda info: (-info.priority, info.key))
    node = table.objects[row]
    return {
        "name": name,
        "labels": node.metadata.labels,
        "cordoned": node.spec.unschedulable,
        "taints": [f"{taint.key}={taint.value}:{taint.effect}" for taint in node.spec.taints],
        "amounts": amounts,
        "podCount": len(pods),
        "pods": [
            {
                "pod": info.key,
                "priority": info.priority,
                "requests": {resource: amount for resource, amount in info.requests.items() if amount},
                "assumed": cluster.is_assumed(info.uid),
                "terminating": info.terminating,
            }
            for info in pods[:_MOST_PODS]
        ],
        "nominated": [info.key for info in cluster.nominated_pods(name)],
    }
