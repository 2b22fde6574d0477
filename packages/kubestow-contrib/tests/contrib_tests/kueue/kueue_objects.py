"""Small objects of Kueue for tests, as manifests."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from kubestow.api.core import Node
from kubestow.api.meta import convert
from kubestow.engine.input.cluster_objects import ClusterObjects
from kubestow.engine.input.documents import SourceObject
from kubestow.testing import node

Manifest = dict[str, Any]
API_VERSION = "kueue.x-k8s.io/v1beta2"
START = "2026-01-01T00:00:00Z"
GPU = "nvidia.com/gpu"


def flavor(name: str, **labels: str) -> Manifest:
    """A ResourceFlavor of nodes with some labels."""
    return {
        "apiVersion": API_VERSION,
        "kind": "ResourceFlavor",
        "metadata": {"name": name},
        "spec": {"nodeLabels": labels},
    }


def cluster_queue(
    name: str, quota: int | str, *, cohort: str = "", flavors: tuple[str, ...] = ("h100",), **spec: Any
) -> Manifest:
    """A ClusterQueue with a quota of GPUs in each flavor."""
    quotas = [{"name": one, "resources": [{"name": GPU, "nominalQuota": quota}]} for one in flavors]
    groups = [{"coveredResources": [GPU], "flavors": quotas}]
    return {
        "apiVersion": API_VERSION,
        "kind": "ClusterQueue",
        "metadata": {"name": name},
        "spec": {"cohortName": cohort, "namespaceSelector": {}, "resourceGroups": groups, **spec},
    }


def local_queue(name: str, cluster_queue: str = "", **spec: Any) -> Manifest:
    """A LocalQueue, of the ClusterQueue of its name by default."""
    return {
        "apiVersion": API_VERSION,
        "kind": "LocalQueue",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"clusterQueue": cluster_queue or name, **spec},
    }


def workload(
    name: str,
    queue: str,
    gpus: int,
    *,
    pods: int = 1,
    admitted: str = "",
    flavor: str = "h100",
    priority: int = 0,
    created: str = START,
    **pod_set: Any,
) -> Manifest:
    """A Workload of a Job with the same name; ``admitted`` is the ClusterQueue that has admitted it."""
    status: Manifest = {}
    if admitted:
        conditions = [
            {"type": kind, "status": "True", "lastTransitionTime": created} for kind in ("QuotaReserved", "Admitted")
        ]
        assigned = {"name": "main", "count": pods, "flavors": {GPU: flavor}, "resourceUsage": {GPU: gpus * pods}}
        admission = {"clusterQueue": admitted, "podSetAssignments": [assigned]}
        status = {"conditions": conditions, "admission": admission}
    container = {"name": "main", "image": "train", "resources": {"requests": {GPU: gpus}}}
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": name, "uid": f"job-{name}", "controller": True}
    return {
        "apiVersion": API_VERSION,
        "kind": "Workload",
        "metadata": {
            "name": f"job-{name}",
            "namespace": "default",
            "creationTimestamp": created,
            "ownerReferences": [owner],
        },
        "spec": {
            "queueName": queue,
            "priority": priority,
            "podSets": [{"name": "main", "count": pods, "template": {"spec": {"containers": [container]}}, **pod_set}],
        },
        "status": status,
    }


def job(name: str, queue: str, gpus: int, *, pods: int = 1, **metadata: Any) -> Manifest:
    """A suspended Job in a queue, with its namespace set."""
    container = {"name": "main", "image": "train", "resources": {"requests": {GPU: gpus}}}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": name,
            "namespace": "default",
            "labels": {"kueue.x-k8s.io/queue-name": queue},
            **metadata,
        },
        "spec": {
            "suspend": True,
            "parallelism": pods,
            "completions": pods,
            "template": {"spec": {"containers": [container]}},
        },
    }


def cluster(*objects: Manifest, nodes: Sequence[Manifest] = ()) -> ClusterObjects:
    """A cluster of some nodes, one by default, with some objects."""
    found = ClusterObjects.of([convert(Node, one) for one in nodes] or [node("a")])
    found.custom_resources = [
        SourceObject(one["apiVersion"], one["kind"], msgspec.json.encode(one), "test", f"items[{n}]")
        for n, one in enumerate(objects)
    ]
    return found
