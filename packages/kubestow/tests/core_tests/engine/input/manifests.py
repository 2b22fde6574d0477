"""Manifests and files for the tests of input."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kubestow.engine.input.cluster_objects import ClusterObjects
from kubestow_lab.simulation.arrivals import Arrivals

Object = dict[str, Any]


def node(name: str, *, cpu: str = "4", labels: Mapping[str, str] | None = None, **spec: Any) -> Object:
    """A node as kubectl prints it."""
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "uid": f"uid-{name}", "labels": dict(labels or {})},
        "spec": spec,
        "status": {"allocatable": {"cpu": cpu, "memory": "16Gi", "pods": "110"}},
    }


def container(cpu: str = "100m", **fields: Any) -> Object:
    """A container that requests CPU."""
    return {"name": "main", "image": "x", "resources": {"requests": {"cpu": cpu}}, **fields}


def pod(name: str, *, cpu: str = "100m", **spec: Any) -> Object:
    """A pod manifest."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {"containers": [container(cpu)], **spec},
    }


def workload(kind: str, name: str, *, cpu: str = "100m", pod_spec: Object | None = None, **spec: Any) -> Object:
    """A controller with a pod template."""
    template = {
        "metadata": {"labels": {"app": name}},
        "spec": {"containers": [container(cpu)], **(pod_spec or {})},
    }
    api_version = "batch/v1" if kind in ("Job", "CronJob") else "apps/v1"
    return {
        "apiVersion": api_version,
        "kind": kind,
        "metadata": {"name": name},
        "spec": {"selector": {"matchLabels": {"app": name}}, "template": template, **spec},
    }


def write(folder: Path, *objects: Object, name: str = "dump.json") -> Path:
    """A file with a List."""
    path = folder / name
    path.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": list(objects)}))
    return path


def cluster(folder: Path, *objects: Object) -> ClusterObjects:
    """A cluster of these objects, with two nodes if they have none."""
    nodes = () if any(o["kind"] == "Node" for o in objects) else (node("a"), node("b"))
    return ClusterObjects.load(write(folder, *nodes, *objects, name="cluster.json"))


def arrivals(folder: Path, *objects: Object, within: ClusterObjects | None = None) -> Arrivals:
    """The arrivals of a workload of these objects."""
    return Arrivals.load(write(folder, *objects, name="workload.json"), cluster=within or cluster(folder))
