"""Gangs of Kubernetes' PodGroups, and what a scenario observes of them."""

from __future__ import annotations

from typing import Any

from kubestow.api.core import Pod
from kubestow.api.meta import convert
from kubestow.api.scheduling import PodGroup
from kubestow.testing import SchedulerHarness, pod


def group(name: str, minimum: int, *, topology: str = "", **annotations: str) -> PodGroup:
    """A PodGroup that needs so many pods, in one topology domain if a key is given."""
    spec: dict[str, Any] = {"schedulingPolicy": {"gang": {"minCount": minimum}}}
    if topology:
        spec["schedulingConstraints"] = {"topology": [{"key": topology}]}
    metadata = {"name": name, "namespace": "default", "uid": f"uid-{name}", "annotations": annotations}
    return convert(PodGroup, {"metadata": metadata, "spec": spec})


def workers(of: str, *cpus: str, **spec: Any) -> list[Pod]:
    """A pod of a group for each amount of CPU; ``spec`` are further fields."""
    in_group = {"schedulingGroup": {"podGroupName": of}, **spec}
    return [pod(f"{of}-{number}", cpu=cpu, spec=in_group) for number, cpu in enumerate(cpus)]


def bound(harness: SchedulerHarness, of: str) -> dict[str, str]:
    """The nodes of the pods of a group that are bound, by name."""
    names = [each.metadata.name for each in harness.cluster.pods() if each.metadata.name.startswith(f"{of}-")]
    return {name: node_name for name in names if (node_name := harness.node_of(name))}


def message(harness: SchedulerHarness, name: str) -> str:
    """The message of a pod's PodScheduled condition, empty without one."""
    condition = harness.cluster.condition(name)
    return "" if condition is None else condition.message
