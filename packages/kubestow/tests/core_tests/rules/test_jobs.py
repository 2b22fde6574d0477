"""The jobs that a pod is part of."""

from __future__ import annotations

from kubestow.rules.jobs import JobName, jobs_of, names_job
from kubestow.testing import pod

OWNERS = [{"kind": "Job", "name": "set-workers-0", "uid": "u", "controller": True}]
LABELS = {
    "ray.io/originated-from-crd": "RayJob",
    "leaderworkerset.sigs.k8s.io/name": "leader",
    "leaderworkerset.sigs.k8s.io/group-index": "3",
}
ANNOTATIONS = {"jobset.sigs.k8s.io/jobset-name": "set"}
POD = pod(labels=LABELS, metadata={"annotations": ANNOTATIONS, "ownerReferences": OWNERS})


def test_the_jobs_of_labels_and_annotations_come_before_the_controller() -> None:
    assert list(jobs_of(POD)) == [
        JobName("JobSet", "default", "set"),
        JobName("LeaderWorkerSet", "default", "leader", "3"),
        JobName("Job", "default", "set-workers-0"),
    ]
    ray = pod(labels={**LABELS, "ray.io/originated-from-cr-name": "ray"})
    assert next(jobs_of(ray)) == JobName("RayJob", "default", "ray")
    assert list(jobs_of(pod())) == []


def test_a_job_is_named_by_its_own_kind_and_name() -> None:
    assert names_job(POD, "jobsets", "set")
    assert names_job(POD, "TrainJob", "set")
    assert names_job(POD, "job", "set-workers-0")
    assert not names_job(POD, "job", "set")
    assert not names_job(POD, "trainjob", "leader")
