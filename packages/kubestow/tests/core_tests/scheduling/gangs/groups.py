"""Builders of pod groups of the three APIs and of their member pods."""

from __future__ import annotations

from typing import Any

from kubestow.api.core import Pod
from kubestow.api.meta import convert
from kubestow.api.scheduling import CoschedulingPodGroup, PodGroup, VolcanoPodGroup
from kubestow.cluster.pods.pod_groups import PodGroupAPI
from kubestow.testing import pod

APIS = tuple(PodGroupAPI)
#: The feature gates of gang scheduling with Kubernetes' own PodGroup.
GATES = {"GenericWorkload": True, "GangScheduling": True}


def gang_scheduling(*plugins: str) -> dict[str, Any]:
    """Arguments of the scheduler harness that enable gang scheduling for all three APIs, and further plugins."""
    enabled = [{"name": name} for name in ("GangScheduling", *plugins)]
    return {"gates": GATES, "profiles": [{"plugins": {"multiPoint": {"enabled": enabled}}}]}


def group(
    name: str,
    minimum: int,
    *,
    api: PodGroupAPI = PodGroupAPI.KUBERNETES,
    timeout: int | None = None,
    **spec: Any,
) -> PodGroup | CoschedulingPodGroup | VolcanoPodGroup:
    """A pod group with this minCount; 0 gives the basic policy. ``spec`` are further fields of its spec."""
    metadata = {"name": name, "namespace": "default", "uid": f"uid-{name}"}
    if api is PodGroupAPI.COSCHEDULING:
        spec |= {"minMember": minimum, "scheduleTimeoutSeconds": timeout}
        return convert(CoschedulingPodGroup, {"metadata": metadata, "spec": spec})
    if api is PodGroupAPI.VOLCANO:
        return convert(VolcanoPodGroup, {"metadata": metadata, "spec": {"minMember": minimum}})
    policy = {"gang": {"minCount": minimum}} if minimum else {"basic": {}}
    return convert(PodGroup, {"metadata": metadata, "spec": {"schedulingPolicy": policy} | spec})


def together(name: str, minimum: int, key: str) -> PodGroup:
    """A PodGroup with a topology constraint: all pods are placed on nodes with the same value of a label."""
    made = group(name, minimum, schedulingConstraints={"topology": [{"key": key}]})
    assert isinstance(made, PodGroup)
    return made


def member(name: str, of: str, *, api: PodGroupAPI = PodGroupAPI.KUBERNETES, **same: Any) -> Pod:
    """A pod that refers to a group."""
    if api is PodGroupAPI.COSCHEDULING:
        return pod(name, labels={"scheduling.x-k8s.io/pod-group": of}, **same)
    if api is PodGroupAPI.VOLCANO:
        return pod(name, metadata={"annotations": {"scheduling.k8s.io/group-name": of}}, **same)
    return pod(name, spec={"schedulingGroup": {"podGroupName": of}}, **same)


def members(count: int, of: str, **same: Any) -> list[Pod]:
    """Pods ``<group>-0``, ``<group>-1``, … of a group."""
    return [member(f"{of}-{number}", of, **same) for number in range(count)]
