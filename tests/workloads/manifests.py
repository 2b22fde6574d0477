"""Nodes and pods as an API server shows them, with defaults, for tests that judge them."""

from __future__ import annotations

from typing import Any

Manifest = dict[str, Any]


def node(name: str = "n", **allocatable: str) -> Manifest:
    """A node with 4 cores, 8Gi and 10 pod slots, unless told otherwise."""
    resources = {"cpu": "4", "memory": "8Gi", "pods": "10"} | allocatable
    labels = {"kubernetes.io/hostname": name}
    return {"metadata": {"name": name, "labels": labels}, "spec": {}, "status": {"allocatable": resources}}


def in_zone(zone: str, manifest: Manifest) -> Manifest:
    """The node, in a zone."""
    manifest["metadata"]["labels"]["zone"] = zone
    return manifest


def pod(name: str = "p", *, on: str = "", labels: dict[str, str] | None = None, **spec: Any) -> Manifest:
    """A pod that asks for one core, bound when ``on`` names a node; other arguments are fields of its spec."""
    container = {"name": "main", "resources": {"requests": {"cpu": "1"}}}
    binding = {"nodeName": on} if on else {}
    return {
        "metadata": {"name": name, "namespace": "default", "labels": labels or {}},
        "spec": {"containers": [container]} | binding | spec,
        "status": {},
    }


def asking(**requests: str) -> list[Manifest]:
    """Containers, one of them, with these requests."""
    return [{"name": "main", "resources": {"requests": requests}}]


def needing(*expressions: Manifest, fields: list[Manifest] | None = None) -> Manifest:
    """An affinity that requires all of these node selector requirements."""
    term = {"matchExpressions": list(expressions), "matchFields": fields or []}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}}
