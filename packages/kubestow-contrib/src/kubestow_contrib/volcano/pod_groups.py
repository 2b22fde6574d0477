"""The pod groups of Volcano: GangScheduling schedules the gangs, and the plugin Volcano the jobs that they are."""

from __future__ import annotations

from typing import ClassVar

import msgspec

from kubestow.api.core import Pod
from kubestow.api.custom import CustomObject
from kubestow.api.formats.quantity import Quantity
from kubestow.api.meta import APIObject
from kubestow.cluster.pods.pod_groups import PodGroupAPI

GROUP_ANNOTATION = "scheduling.k8s.io/group-name"
TASK_ANNOTATION = "volcano.sh/task-spec"
KUBE_BATCH_NAME = "kube-batch"
"""The schedulerName of the pods that kube-batch schedules."""


class PodGroupSpec(APIObject, frozen=True):
    """``spec``; all but ``min_member`` is read by the plugin Volcano.

    ``min_task_member`` has the least number of pods by task, which a pod names by an annotation.
    """

    min_member: int = 0
    min_task_member: dict[str, int] = {}
    queue: str = ""
    min_resources: dict[str, Quantity] | None = None
    priority_class_name: str = ""


class PodGroupCondition(APIObject, frozen=True):
    """``status.conditions[]``."""

    type: str = ""
    status: str = ""
    transition_id: str = msgspec.field(default="", name="transitionID")
    last_transition_time: str = ""
    reason: str = ""
    message: str = ""


class PodGroupStatus(APIObject, frozen=True):
    """``status``, with numbers of pods; the plugin Volcano writes it."""

    phase: str = ""
    conditions: list[PodGroupCondition] = []
    running: int = 0
    succeeded: int = 0
    failed: int = 0


class PodGroup(CustomObject, frozen=True):
    """The PodGroup of Volcano."""

    resource: ClassVar[str] = "podgroups.v1beta1.scheduling.volcano.sh"
    is_namespaced: ClassVar[bool] = True
    spec: PodGroupSpec = PodGroupSpec()
    status: PodGroupStatus = PodGroupStatus()


def group_of(pod: Pod) -> str | None:
    """The name of the pod group that a pod names, None for a pod in none."""
    return pod.metadata.annotations.get(GROUP_ANNOTATION)


def _volcano_group_of(pod: Pod) -> str | None:
    return None if pod.spec.scheduler_name == KUBE_BATCH_NAME else group_of(pod)


def task_of(pod: Pod) -> str:
    """The task of its job that a pod names by an annotation, or else by a label; "" for none."""
    return pod.metadata.annotations.get(TASK_ANNOTATION) or pod.metadata.labels.get(TASK_ANNOTATION, "")


def _gang_policy(group: PodGroup) -> tuple[int, None]:
    return group.spec.min_member, None


def _min_by_task(group: PodGroup) -> dict[str, int]:
    """The least number of pods of each task, which counts only if the job needs as many pods in all."""
    by_task = group.spec.min_task_member
    return by_task if group.spec.min_member >= sum(by_task.values()) else {}


VOLCANO = PodGroupAPI(
    "scheduling.volcano.sh",
    PodGroup,
    _volcano_group_of,
    _gang_policy,
    min_by_role=_min_by_task,
    role_of=task_of,
)
