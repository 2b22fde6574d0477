"""Builders of pod groups of Kubernetes, the co-scheduling plugin and Volcano, and of their member pods."""

from __future__ import annotations

from typing import Any

from core_tests.scheduling.gangs import groups
from core_tests.scheduling.gangs.groups import GATES
from kubestow.api.core import Pod
from kubestow.cluster.pods.pod_groups import KUBERNETES, PodGroupAPI
from kubestow.testing import pod
from kubestow_contrib.coscheduling import COSCHEDULING
from kubestow_contrib.volcano.pod_groups import VOLCANO

APIS = (KUBERNETES, COSCHEDULING, VOLCANO)


def gang_scheduling(*plugins: str) -> dict[str, Any]:
    """Feature gates and profiles that enable gang scheduling for all three APIs, and further plugins."""
    enabled = [{"name": name} for name in ("GangScheduling", *plugins)]
    return {"gates": GATES, "profiles": [{"plugins": {"multiPoint": {"enabled": enabled}}}]}


def group(name: str, minimum: int, *, api: PodGroupAPI = KUBERNETES, timeout: int | None = None, **spec: Any) -> Any:
    """A pod group with this minCount or minMember; ``spec`` are further fields. Volcano's has no timeout."""
    return groups.group(name, minimum, api=api, timeout=timeout, **spec)


def member(name: str, of: str, *, api: PodGroupAPI = KUBERNETES, **same: Any) -> Pod:
    """A pod that refers to a group."""
    if api is COSCHEDULING:
        return pod(name, labels={"scheduling.x-k8s.io/pod-group": of}, **same)
    if api is VOLCANO:
        return pod(name, metadata={"annotations": {"scheduling.k8s.io/group-name": of}}, **same)
    return groups.member(name, of, **same)


def members(count: int, of: str, **same: Any) -> list[Pod]:
    """Pods ``<group>-0``, ``<group>-1``, … of a group."""
    return [member(f"{of}-{number}", of, **same) for number in range(count)]
