"""Builders: pods, nodes and clusters with sensible defaults, in a line each.

    pod("a", cpu="2", node="n1")
    cluster = world(nodes=3, zones=2)
    assert cluster.schedule(pod("a")).node_name == "node-0"

What a builder has no parameter for is given as the API spells it: ``pod("a", spec={"hostNetwork": True})``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from kubestow.api.core import Node, Pod
from kubestow.api.meta import convert

__all__ = ["node", "nodes", "pod", "pods"]

Object = Mapping[str, Any]


def pod(
    name: str = "pod",
    *,
    namespace: str = "default",
    node: str = "",
    cpu: str | None = None,
    memory: str | None = None,
    requests: Mapping[str, str] | None = None,
    labels: Mapping[str, str] | None = None,
    priority: int | None = None,
    node_selector: Mapping[str, str] | None = None,
    affinity: Object | None = None,
    tolerations: Sequence[Object] = (),
    spread: Sequence[Object] = (),
    gates: Sequence[str] = (),
    host_ports: Sequence[int] = (),
    scheduler: str = "default-scheduler",
    deleting: bool = False,
    nominated: str = "",
    metadata: Object | None = None,
    spec: Object | None = None,
    status: Object | None = None,
) -> Pod:
    """A pod of one container; with ``node`` it is bound there. Its uid is ``uid-<namespace>-<name>``."""
    asked = dict(requests or {})
    asked |= {resource: amount for resource, amount in (("cpu", cpu), ("memory", memory)) if amount is not None}
    container = {
        "name": "main",
        "image": "app",
        "resources": {"requests": asked},
        "ports": [{"hostPort": port, "containerPort": port} for port in host_ports],
    }
    return convert(
        Pod,
        {
            "metadata": {
                "name": name,
                "namespace": namespace,
                "uid": f"uid-{namespace}-{name}",
                "resourceVersion": "1",
                "labels": labels,
                "deletionTimestamp": "2026-01-01T00:00:00Z" if deleting else None,
                **(metadata or {}),
            },
            "spec": {
                "schedulerName": scheduler,
                "containers": [container],
                "nodeName": node,
                "priority": priority,
                "nodeSelector": node_selector,
                "affinity": affinity,
                "tolerations": list(tolerations),
                "topologySpreadConstraints": list(spread),
                "schedulingGates": [{"name": gate} for gate in gates],
                **(spec or {}),
            },
            "status": {"phase": "Running" if node else "Pending", "nominatedNodeName": nominated, **(status or {})},
        },
    )


def pods(count: int, *, prefix: str = "pod", **same: Any) -> list[Pod]:
    """Pods that differ only in name."""
    return [pod(f"{prefix}-{number}", **same) for number in range(count)]


def node(
    name: str = "node",
    *,
    cpu: str = "4",
    memory: str = "16Gi",
    max_pods: int = 110,
    allocatable: Mapping[str, str] | None = None,
    zone: str | None = None,
    labels: Mapping[str, str] | None = None,
    taints: Iterable[Object | str] = (),
    unschedulable: bool = False,
    images: Mapping[str, int] | None = None,
    metadata: Object | None = None,
    status: Object | None = None,
) -> Node:
    """A node with its hostname label. A taint may be written ``key=value:Effect``; images are name to size in bytes."""
    marks = {"kubernetes.io/hostname": name}
    if zone is not None:
        marks["topology.kubernetes.io/zone"] = zone
    return convert(
        Node,
        {
            "metadata": {"name": name, "uid": f"uid-{name}", "labels": marks | dict(labels or {}), **(metadata or {})},
            "spec": {"unschedulable": unschedulable, "taints": [_taint(taint) for taint in taints]},
            "status": {
                "allocatable": {"cpu": cpu, "memory": memory, "pods": str(max_pods), **(allocatable or {})},
                "images": [{"names": [image], "sizeBytes": size} for image, size in (images or {}).items()],
                "conditions": [{"type": "Ready", "status": "True"}],
                **(status or {}),
            },
        },
    )


def nodes(count: int, *, zones: int = 0, **same: Any) -> list[Node]:
    """Nodes ``node-0``, ``node-1``, …; with ``zones`` they are dealt out to ``zone-0``, ``zone-1``, … in turn."""
    return [node(f"node-{number}", zone=f"zone-{number % zones}" if zones else None, **same) for number in range(count)]


def _taint(taint: Object | str) -> Object:
    if not isinstance(taint, str):
        return taint
    pair, _, effect = taint.partition(":")
    key, _, value = pair.partition("=")
    return {"key": key, "value": value, "effect": effect}
