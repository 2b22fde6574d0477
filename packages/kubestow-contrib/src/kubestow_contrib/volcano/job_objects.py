"""The objects that Volcano's Job controller creates for a Job: a PodGroup, and the pods of every task.

Offline commands expand Jobs with it (entry point group ``kubestow.workload_kinds``). Policies, ``dependsOn``, retries
and the plugins of Jobs (``svc``, ``ssh``, …) are not applied; all pods are created at once.
"""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from kubestow.api.core import Pod
from kubestow.api.meta import convert
from kubestow.errors import InvalidObject
from kubestow.plugins.registry import References
from kubestow.rules.owners import controller_reference
from kubestow.rules.requests import requests_by_spec
from kubestow_contrib.volcano.configuration import SCHEDULER_NAME
from kubestow_contrib.volcano.pod_groups import GROUP_ANNOTATION, TASK_ANNOTATION, PodGroup
from kubestow_contrib.volcano.queues import DEFAULT_QUEUE

Object = dict[str, Any]

_INDEX, _JOB, _QUEUE, _NAMESPACE = (
    f"volcano.sh/{name}" for name in ("task-index", "job-name", "queue-name", "job-namespace")
)
_PREEMPTABLE = "volcano.sh/preemptable"
_MOST_PODS = 1_000_000


def objects_of(job: Object, references: References) -> Iterator[Object]:
    """The PodGroup and the pods of a Job with its namespace set. Raises InvalidObject."""
    metadata, spec = job["metadata"], job["spec"]
    name, namespace = metadata["name"], metadata["namespace"]
    uid = metadata.get("uid") or f"job.batch.volcano.sh/{namespace}/{name}".lower()
    reference = controller_reference(job["apiVersion"], job["kind"], name=name, uid=uid)
    group = f"{name}-{metadata['uid']}" if metadata.get("uid") else name
    tasks = [_Task(task, index) for index, task in enumerate(spec.get("tasks") or ())]
    if not tasks:
        raise InvalidObject("expected at least one task", path="spec.tasks")
    pods = [[_pod(job, task, index, group, reference) for index in range(task.replicas)] for task in tasks]
    needed = {task.name: task.min_available for task in tasks}
    minimum = _count(spec, "minAvailable", "spec", 0) or sum(needed.values())
    yield {
        "apiVersion": _API_VERSION,
        "kind": PodGroup.__name__,
        "metadata": {
            "name": group,
            "namespace": namespace,
            "ownerReferences": [reference],
            **{
                field: metadata[field]
                for field in ("labels", "annotations", "creationTimestamp")
                if metadata.get(field)
            },
        },
        "spec": {
            "minMember": minimum,
            "minTaskMember": needed,
            "minResources": _min_resources(tasks, pods, minimum),
            "queue": spec.get("queue") or DEFAULT_QUEUE,
            **({"priorityClassName": spec["priorityClassName"]} if spec.get("priorityClassName") else {}),
        },
    }
    for of_task in pods:
        yield from of_task


_GROUP_VERSION = PodGroup.resource.split(".", 2)
_API_VERSION = f"{_GROUP_VERSION[2]}/{_GROUP_VERSION[1]}"


class _Task:
    """A task of a Job."""

    def __init__(self, task: Object, index: int) -> None:
        path = f"spec.tasks[{index}]"
        self.name: str = task.get("name") or f"default{index}"
        self.replicas = _count(task, "replicas", path, 0)
        partitions = task.get("partitionPolicy") or {}
        partitioned = _count(partitions, "minPartitions", f"{path}.partitionPolicy", 0)
        least = partitioned * _count(partitions, "partitionSize", f"{path}.partitionPolicy", 0) or self.replicas
        self.min_available = _count(task, "minAvailable", path, least)
        template = task.get("template")
        if not isinstance(template, dict) or not isinstance(template.get("spec"), dict):
            raise InvalidObject("expected a pod template", path=f"{path}.template")
        self.template: Object = template


def _pod(job: Object, task: _Task, index: int, group: str, reference: Object) -> Object:
    metadata, spec = job["metadata"], job["spec"]
    template = task.template.get("metadata") or {}
    queue = spec.get("queue") or DEFAULT_QUEUE
    own = {_INDEX: str(index), TASK_ANNOTATION: task.name, _JOB: metadata["name"], _QUEUE: queue}
    annotations = {**(template.get("annotations") or {}), **own, GROUP_ANNOTATION: group}
    labels = {**(template.get("labels") or {}), **own, _NAMESPACE: metadata["namespace"]}
    for field, target in (("annotations", annotations), ("labels", labels)):
        if (value := (metadata.get(field) or {}).get(_PREEMPTABLE)) is not None:
            target[_PREEMPTABLE] = value
    pod_spec = copy.deepcopy(task.template["spec"])
    pod_spec.setdefault("schedulerName", spec.get("schedulerName") or SCHEDULER_NAME)
    if spec.get("priorityClassName"):
        pod_spec.setdefault("priorityClassName", spec["priorityClassName"])
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": f"{metadata['name']}-{task.name}-{index}",
            "namespace": metadata["namespace"],
            "labels": labels,
            "annotations": annotations,
            "ownerReferences": [reference],
        },
        "spec": pod_spec,
    }


def _min_resources(tasks: list[_Task], pods: list[list[Object]], minimum: int) -> Mapping[str, str]:
    """What the pods request that the Job needs: the least number of each task, and further ones in their order."""
    total, left = Counter[str](), minimum
    least = [min(task.min_available, task.replicas) for task in tasks]
    for counts in (least, [task.replicas - count for task, count in zip(tasks, least, strict=True)]):
        for of_task, count in zip(pods, counts, strict=True):
            taken = min(count, left)
            left -= taken
            if taken:
                for name, amount in requests_by_spec(convert(Pod, of_task[0])).items():
                    total[name] += amount * taken
    return {name: f"{amount}m" if name == "cpu" else str(amount) for name, amount in total.items()}


def _count(of: Object, field: str, path: str, default: int) -> int:
    value = of.get(field)
    if value is None:
        return default
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= _MOST_PODS:
        raise InvalidObject(f"expected a number from 0 to {_MOST_PODS:,}, got {value!r}", path=f"{path}.{field}")
    return value
