"""Which job a pod is part of, by the labels that the controllers of jobs give to pods, or else by its controller.

Some jobs have pods by way of other objects: a JobSet has Jobs, a TrainJob a JobSet, a RayJob a RayCluster. Their
controllers label the pods, so that no other object has to be read.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from kubestow.api.core import Pod


class JobName(NamedTuple):
    """The kind and name of a job, in the namespace of its pods.

    ``part`` tells parts of a job apart that start independently of each other, such as groups of a LeaderWorkerSet.
    """

    kind: str
    namespace: str
    name: str
    part: str = ""

    def __str__(self) -> str:
        """``job/default/train``, with the part at the end."""
        return "/".join(filter(None, (self.kind.lower(), self.namespace, self.name, self.part)))


#: The kinds of jobs, the label or annotation that has the name of a pod's job, and the label that has its part.
_LABELS = (
    ("JobSet", "jobset.sigs.k8s.io/jobset-name", ""),
    ("LeaderWorkerSet", "leaderworkerset.sigs.k8s.io/name", "leaderworkerset.sigs.k8s.io/group-index"),
    ("RayCluster", "ray.io/cluster", ""),
    ("Job.batch.volcano.sh", "volcano.sh/job-name", ""),
    ("TrainingJob", "training.kubeflow.org/job-name", ""),
)
_RAY_KIND, _RAY_NAME = "ray.io/originated-from-crd", "ray.io/originated-from-cr-name"
_TRAIN_JOB = "TrainJob"


def jobs_of(pod: Pod) -> Iterator[JobName]:
    """The jobs that a pod is part of, the outermost first: those of its labels, then its controller."""
    metadata = pod.metadata
    if (kind := metadata.labels.get(_RAY_KIND)) and (name := metadata.labels.get(_RAY_NAME)):
        yield JobName(kind, metadata.namespace, name)
    for kind, key, part in _LABELS:
        if name := metadata.labels.get(key) or metadata.annotations.get(key):
            yield JobName(kind, metadata.namespace, name, metadata.labels.get(part, "") if part else "")
    controller = metadata.controller
    if controller is not None:
        yield JobName(controller.kind, metadata.namespace, controller.name)


def names_job(pod: Pod, kind: str, name: str) -> bool:
    """Whether a pod is part of the job of a kind (in any case, maybe in the plural) and name, in its own namespace."""
    wanted = kind.lower()
    for job in jobs_of(pod):
        known = {job.kind.lower(), f"{job.kind.lower()}s", job.kind.lower().partition(".")[0]}
        if job.kind == "JobSet":  # that of a TrainJob has its name
            known |= {_TRAIN_JOB.lower(), f"{_TRAIN_JOB.lower()}s"}
        if job.name == name and wanted in known:
            return True
    return False
