"""The cases of Volcano's tests (``tables``), and what a scheduler does with the objects of one."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from contrib_tests.recorded_tables import Case, RecordedTables
from contrib_tests.volcano.objects import GROUP
from kubestow.api.core import Node, Pod
from kubestow.api.meta import convert
from kubestow.scheduling.interfaces import ObjectReference
from kubestow.testing import MemoryCluster, SchedulerHarness, in_virtual_time
from kubestow_contrib.preemption_toleration import PriorityClass
from kubestow_contrib.volcano.conversion import to_scheduler_configuration
from kubestow_contrib.volcano.pod_groups import VOLCANO, PodGroup
from kubestow_contrib.volcano.queues import Queue
from kubestow_contrib.volcano.volcano import Volcano

_TABLES = RecordedTables(Path(__file__).parent / "tables")
cases_of, parameters = _TABLES.cases_of, _TABLES.parameters

#: The functions of plugins that a case enables; all others are disabled.
_FUNCTIONS = (
    *("enableJobOrder", "enableTaskOrder", "enableQueueOrder", "enablePreemptable", "enableReclaimable"),
    *("enablePreemptive", "enablePredicate", "enableNodeOrder", "enableJobEnqueued", "enableJobStarving"),
    *("enabledOverused", "enabledAllocatable", "enableJobReady", "enableJobPipelined"),
)


def group_of(pod: Mapping[str, Any]) -> str:
    """The namespace and name of the pod group of a pod."""
    return f"{pod['metadata']['namespace']}/{pod['metadata']['annotations'][GROUP]}"


def configuration_of(case: Case) -> dict[str, Any]:
    """The configuration of a case. Pods are placed even if it has no action for that: only then they can preempt."""
    actions = case["actions"] if "allocate" in case["actions"] else f"allocate, backfill, {case['actions']}"
    tiers = []
    for tier in case["tiers"]:
        plugins = []
        for plugin in tier:
            option = {
                "name": plugin["name"],
                **dict.fromkeys(_FUNCTIONS, False),
                **dict.fromkeys(plugin["enabled"], True),
            }
            plugins.append(option | ({"arguments": plugin["arguments"]} if "arguments" in plugin else {}))
        tiers.append({"plugins": plugins})
    return {"actions": actions, "tiers": tiers}


@dataclass
class Session:
    """What a scheduler has done: pods bound, evicted, and nominated to nodes, by key, and phases of pod groups."""

    binds: dict[str, str] = field(default_factory=dict)
    evicted: list[str] = field(default_factory=list)
    nominated: dict[str, str] = field(default_factory=dict)
    phases: dict[str, str] = field(default_factory=dict)


@dataclass
class _SessionCluster(MemoryCluster):
    """A cluster whose evicted pods terminate, and do not go: as in a session of Volcano, no pod gets their place."""

    evicted: list[str] = field(default_factory=list)

    async def delete_pod(self, pod: ObjectReference) -> None:
        """Mark a pod as terminating."""
        await asyncio.sleep(0)
        found = self.pod(pod.name, pod.namespace)
        self.evicted.append(f"{pod.namespace}/{pod.name}")
        self.put(replace(found, metadata=replace(found.metadata, deletion_timestamp="2026-01-01T00:00:00Z")))


def session_of(case: Case) -> Session:
    """Run a scheduler on the objects of a case until nothing more happens."""
    found, cluster = Session(), _SessionCluster()

    async def scenario(harness: SchedulerHarness) -> None:
        await harness.advance(3)
        for later in case.get("later", ()):
            for one in _objects(later):
                cluster.put(one)
            await harness.advance(3)
        found.binds.update(cluster.bindings)
        found.evicted.extend(sorted(cluster.evicted))
        for pod in cluster.pods():
            if pod.status.nominated_node_name:
                found.nominated[f"{pod.metadata.namespace}/{pod.metadata.name}"] = pod.status.nominated_node_name
        for group in cluster.objects(PodGroup).values():
            found.phases[f"{group.metadata.namespace}/{group.metadata.name}"] = group.status.phase

    configured = to_scheduler_configuration(configuration_of(case))
    in_virtual_time(
        scenario,
        *_objects(case),
        cluster=cluster,
        plugins=[Volcano],
        pod_group_apis=[VOLCANO],
        profiles=configured["profiles"],
    )
    return found


def _objects(case: Case) -> list[Any]:
    kinds: dict[str, type[Any]] = {
        "nodes": Node,
        "queues": Queue,
        "podGroups": PodGroup,
        "priorityClasses": PriorityClass,
    }
    found: list[Any] = [convert(kind, one) for name, kind in kinds.items() for one in case.get(name, ())]
    return found + [convert(Pod, one) for one in _pods(case.get("pods", ()))]


def _pods(manifests: Sequence[Any]) -> list[Any]:
    """Pods with an identity; of one with a ``count`` there are so many."""
    found = []
    for one in manifests:
        for number in range(one.get("count", 1)):
            name = f"{one['metadata']['name']}-{number}" if "count" in one else one["metadata"]["name"]
            metadata = {**one["metadata"], "name": name, "uid": f"{one['metadata']['namespace']}-{name}"}
            found.append(
                {
                    "metadata": metadata,
                    "spec": {"schedulerName": "volcano", **one["spec"]},
                    "status": one.get("status", {}),
                }
            )
    return found
