"""The API of kube-batch, scheduling.incubator.k8s.io: its queues and pod groups, which have some of Volcano's fields.

A pod names its group by the same annotation, so the name of its scheduler decides which API is meant.
"""

from __future__ import annotations

from typing import ClassVar

from kubestow.api.core import Pod
from kubestow.cluster.pods.pod_groups import PodGroupAPI
from kubestow_contrib.volcano import pod_groups, queues


class Queue(queues.Queue, frozen=True):
    """A queue, which has ``weight`` and ``capability``."""

    resource: ClassVar[str] = "queues.v1alpha1.scheduling.incubator.k8s.io"


class PodGroup(pod_groups.PodGroup, frozen=True):
    """A pod group, which has ``minMember``, ``queue`` and ``priorityClassName``."""

    resource: ClassVar[str] = "podgroups.v1alpha1.scheduling.incubator.k8s.io"


def _group_of(pod: Pod) -> str | None:
    return pod_groups.group_of(pod) if pod.spec.scheduler_name == pod_groups.KUBE_BATCH_NAME else None


KUBE_BATCH = PodGroupAPI("scheduling.incubator.k8s.io", PodGroup, _group_of, pod_groups.VOLCANO.gang_policy)
