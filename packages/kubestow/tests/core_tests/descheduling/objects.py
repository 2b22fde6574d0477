"""Builders of small clusters for tests of descheduling, and a loop over them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

from kubestow.api.meta import convert
from kubestow.descheduling.descheduler_policy import load_policy, with_priority_thresholds
from kubestow.descheduling.eviction import DryRunEvictions
from kubestow.descheduling.interface import DeschedulingPlugin
from kubestow.descheduling.loop import Descheduler, LoopResult
from kubestow.descheduling.snapshot import Node, Pod, QueryResult, Snapshot
from kubestow.descheduling.strategies.plugin_registry import find_plugins

NOW = datetime(2026, 7, 1, tzinfo=UTC)
OWNER = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "rs-web", "controller": True}

Object = dict[str, Any]


def node(
    name: str, *, cpu: str = "4", pods: str = "10", labels: Mapping[str, str] | None = None, **spec: Any
) -> Object:
    """A ready node."""
    amounts = {"cpu": cpu, "memory": "8Gi", "pods": pods}
    return {
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name, **(labels or {})}},
        "spec": spec,
        "status": {"allocatable": amounts, "capacity": amounts, "conditions": [{"type": "Ready", "status": "True"}]},
    }


def pod(
    name: str,
    node_name: str,
    *,
    cpu: str = "100m",
    metadata: Object | None = None,
    status: Object | None = None,
    **spec: Any,
) -> Object:
    """A running pod of a ReplicaSet, created a day ago."""
    container = {"name": "c", "image": "app:1", "resources": {"requests": {"cpu": cpu}}}
    return {
        "metadata": {
            "name": name,
            "namespace": "default",
            "uid": f"uid-{name}",
            "labels": {"app": "web"},
            "creationTimestamp": "2026-06-30T00:00:00Z",
            "ownerReferences": [OWNER],
            **(metadata or {}),
        },
        "spec": {"nodeName": node_name, "schedulerName": "default-scheduler", "containers": [container], **spec},
        "status": {"phase": "Running", "startTime": "2026-06-30T00:00:05Z", **(status or {})},
    }


def policy(
    plugin: str, args: Object | None = None, *, evictor: Object | None = None, point: str = "deschedule", **more: Any
) -> Object:
    """A policy with one profile and one strategy."""
    configs = [{"name": plugin, "args": args or {}}]
    if evictor is not None:
        configs.append({"name": "DefaultEvictor", "args": evictor})
    plugins = {point: {"enabled": [plugin]}}
    profile = {"name": "main", "pluginConfig": configs, "plugins": plugins}
    return {"apiVersion": "descheduler/v1alpha2", "kind": "DeschedulerPolicy", "profiles": [profile], **more}


def loop(
    document: Object,
    nodes: Iterable[Object],
    pods: Iterable[Object],
    *others: Any,
    plugins: Iterable[type[DeschedulingPlugin]] = (),
    query_results: Mapping[str, QueryResult] | None = None,
) -> LoopResult:
    """One dry-run loop."""
    registry = find_plugins(classes=plugins)
    snapshot = Snapshot.of([*(convert(Node, n) for n in nodes), *(convert(Pod, p) for p in pods), *others])
    snapshot.query_results = query_results or {}
    loaded = with_priority_thresholds(load_policy(document, registry=registry), snapshot.priority_classes)
    backend = DryRunEvictions(snapshot.budgets)
    return Descheduler(loaded, registry).run(snapshot, now=NOW, backend=backend)


def evicted(result: LoopResult) -> list[str]:
    """The names of the evicted pods, in order."""
    return [eviction.pod.name for eviction in result.evicted]
