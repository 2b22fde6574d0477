"""The pod groups of the co-scheduling plugin of scheduler-plugins, which GangScheduling schedules.

kubestow has no plugin of that name: a configuration enables GangScheduling, which reads these groups as it reads those
of Kubernetes. docs/gangs.md describes them.
"""

from __future__ import annotations

from typing import ClassVar

from kubestow.api.core import Pod
from kubestow.api.custom import CustomObject
from kubestow.api.meta import APIObject
from kubestow.cluster.pods.pod_groups import PodGroupAPI

_LABEL = "scheduling.x-k8s.io/pod-group"


class PodGroupSpec(APIObject, frozen=True):
    """``spec``; the timeout is in seconds."""

    min_member: int = 0
    schedule_timeout_seconds: int | None = None


class PodGroup(CustomObject, frozen=True):
    """The PodGroup of the co-scheduling plugin."""

    resource: ClassVar[str] = "podgroups.v1alpha1.scheduling.x-k8s.io"
    is_namespaced: ClassVar[bool] = True
    spec: PodGroupSpec = PodGroupSpec()


def _group_of(pod: Pod) -> str | None:
    return pod.metadata.labels.get(_LABEL)


def _gang_policy(group: PodGroup) -> tuple[int, float | None]:
    return group.spec.min_member, group.spec.schedule_timeout_seconds


COSCHEDULING = PodGroupAPI("scheduling.x-k8s.io", PodGroup, _group_of, _gang_policy)
