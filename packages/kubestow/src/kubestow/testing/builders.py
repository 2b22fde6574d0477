"""Builders of pods and nodes with defaults.

    pod("a", cpu="2", node="n1")
    nodes(3, zones=2)

Fields without a parameter are given as in the API: ``pod("a", spec={"hostNetwork": True})``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from kubestow.api.core import Node, Pod
from kubestow.api.meta import convert

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
    """A pod with one container, bound to ``node`` if set. Its UID is ``uid-<namespace>-<name>``."""
    requested = dict(requests or {})
    requested |= {resource: amount for resource, amount in (("cpu", cpu), ("memory", memory)) if amount is not None}
    container = {
        "name": "main",
        "image": "app",
        "resources": {"requests": requested},
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
    """A node with its hostname label. Taints can be ``key=value:Effect``; images are sizes in bytes by name."""
    topology = {"kubernetes.io/hostname": name, **(labels or {})}
    if zone is not None:
        topology.setdefault("topology.kubernetes.io/zone", zone)
    return convert(
        Node,
        {
            "metadata": {"name": name, "uid": f"uid-{name}", "labels": topology, **(metadata or {})},
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
    """Nodes ``node-0``, ``node-1``, …, assigned round-robin to ``zone-0``, ``zone-1``, … if ``zones`` is set."""
    return [node(f"node-{number}", zone=f"zone-{number % zones}" if zones else None, **same) for number in range(count)]


def _taint(taint: Object | str) -> Object:
    if not isinstance(taint, str):
        return taint
    pair, _, effect = taint.partition(":")
    key, _, value = pair.partition("=")
    return {"key": key, "value": value, "effect": effect}
