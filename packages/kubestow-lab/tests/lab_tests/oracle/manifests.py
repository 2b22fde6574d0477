"""Builders of nodes and pods as returned by the API server."""

from __future__ import annotations

from typing import Any

Manifest = dict[str, Any]


def node(name: str = "n", **allocatable: str) -> Manifest:
    """A node with 4 cores, 8Gi and 10 pods by default."""
    resources = {"cpu": "4", "memory": "8Gi", "pods": "10"} | allocatable
    labels = {"kubernetes.io/hostname": name}
    return {"metadata": {"name": name, "labels": labels}, "spec": {}, "status": {"allocatable": resources}}


def in_zone(zone: str, manifest: Manifest) -> Manifest:
    """The node, in a zone."""
    manifest["metadata"]["labels"]["zone"] = zone
    return manifest


def pod(name: str = "p", *, on: str = "", labels: dict[str, str] | None = None, **spec: Any) -> Manifest:
    """A pod that requests one core, bound to the node ``on`` if set; other arguments are fields of its spec."""
    container = {"name": "main", "resources": {"requests": {"cpu": "1"}}}
    binding = {"nodeName": on} if on else {}
    return {
        "metadata": {"name": name, "namespace": "default", "labels": labels or {}},
        "spec": {"containers": [container]} | binding | spec,
        "status": {},
    }


def requesting(**requests: str) -> list[Manifest]:
    """A list of one container with these requests."""
    return [{"name": "main", "resources": {"requests": requests}}]


def requiring(*expressions: Manifest, fields: list[Manifest] | None = None) -> Manifest:
    """A required node affinity with these node selector requirements."""
    term = {"matchExpressions": list(expressions), "matchFields": fields or []}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}}
