"""Builders of pod groups of Kubernetes and of another project, and of their member pods."""

from __future__ import annotations

from typing import Any, ClassVar

from kubestow.api.core import Pod
from kubestow.api.custom import CustomObject
from kubestow.api.meta import APIObject, convert
from kubestow.api.scheduling import CompositePodGroup, PodGroup
from kubestow.cluster.pods.pod_groups import KUBERNETES, PodGroupAPI
from kubestow.testing import pod


class TeamSpec(APIObject, frozen=True):
    min_member: int = 0
    schedule_timeout_seconds: int | None = None


class Team(CustomObject, frozen=True):
    """A pod group of another project, which a pod names by the label ``team``."""

    resource: ClassVar[str] = "teams.v1.example.com"
    is_namespaced: ClassVar[bool] = True
    spec: TeamSpec = TeamSpec()


TEAMS = PodGroupAPI(
    "example.com",
    Team,
    lambda pod: pod.metadata.labels.get("team"),
    lambda team: (team.spec.min_member, team.spec.schedule_timeout_seconds),
)
APIS = (KUBERNETES, TEAMS)
#: The feature gates of gang scheduling with Kubernetes' own PodGroup.
GATES = {"GenericWorkload": True, "GangScheduling": True}


def gang_scheduling(*plugins: str) -> dict[str, Any]:
    """Arguments of the scheduler harness that enable gang scheduling for both APIs, and further plugins."""
    enabled = [{"name": name} for name in ("GangScheduling", *plugins)]
    return {"gates": GATES, "profiles": [{"plugins": {"multiPoint": {"enabled": enabled}}}], "pod_group_apis": [TEAMS]}


def group(
    name: str,
    minimum: int,
    *,
    api: PodGroupAPI = KUBERNETES,
    timeout: int | None = None,
    **spec: Any,
) -> Any:
    """A pod group with this minCount or minMember; 0 gives Kubernetes' basic policy. ``spec`` are further fields."""
    metadata = {"name": name, "namespace": "default", "uid": f"uid-{name}"}
    if api is KUBERNETES:
        spec["schedulingPolicy"] = {"gang": {"minCount": minimum}} if minimum else {"basic": {}}
    else:
        spec |= {"minMember": minimum, "scheduleTimeoutSeconds": timeout}
    return convert(api.kind, {"metadata": metadata, "spec": spec})


def composite(name: str, minimum: int, *, parent: str = "", **spec: Any) -> CompositePodGroup:
    """A composite group with this minGroupCount, or of the basic policy with 0."""
    policy = {"gang": {"minGroupCount": minimum}} if minimum else {"basic": {}}
    spec = {"schedulingPolicy": policy} | spec
    if parent:
        spec["parentCompositePodGroupName"] = parent
    metadata = {"name": name, "namespace": "default", "uid": f"uid-composite-{name}"}
    return convert(CompositePodGroup, {"metadata": metadata, "spec": spec})


def together(name: str, minimum: int, key: str) -> PodGroup:
    """A PodGroup with a topology constraint: all pods are placed on nodes with the same value of a label."""
    made = group(name, minimum, schedulingConstraints={"topology": [{"key": key}]})
    assert isinstance(made, PodGroup)
    return made


def member(name: str, of: str, *, api: PodGroupAPI = KUBERNETES, **same: Any) -> Pod:
    """A pod that refers to a group."""
    if api is TEAMS:
        return pod(name, labels={"team": of}, **same)
    return pod(name, spec={"schedulingGroup": {"podGroupName": of}}, **same)


def members(count: int, of: str, **same: Any) -> list[Pod]:
    """Pods ``<group>-0``, ``<group>-1``, … of a group."""
    return [member(f"{of}-{number}", of, **same) for number in range(count)]
