"""The pods that the controllers of JobSet, LeaderWorkerSet, RayCluster, RayJob and TrainJob create."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import pytest
from msgspec import Raw

from kubestow.api.core import Pod
from kubestow.engine.input.cluster_objects import ClusterObjects
from kubestow.engine.input.documents import Problems, SourceObject
from kubestow.errors import InputError
from kubestow.rules.jobs import jobs_of
from kubestow_contrib import job_objects
from kubestow_lab.simulation.arrivals import Arrivals

Object = dict[str, Any]


def template(cpu: str = "1", name: str = "main") -> Object:
    container = {"name": name, "image": "app", "resources": {"requests": {"cpu": cpu}}}
    return {"metadata": {"annotations": {"kubestow.dev/queue": "q"}}, "spec": {"containers": [container]}}


def batch(parallelism: int, cpu: str = "1", **metadata: Any) -> Object:
    return {"metadata": metadata, "spec": {"parallelism": parallelism, "template": template(cpu, "node")}}


def ray_cluster(*workers: Object) -> Object:
    return {"headGroupSpec": {"template": template("2")}, "workerGroupSpecs": list(workers)}


def runtime(*replicated: Object) -> Object:
    spec = {"mlPolicy": {"numNodes": 1}, "template": {"spec": {"replicatedJobs": list(replicated)}}}
    found = workload("trainer.kubeflow.org/v1alpha1", "ClusterTrainingRuntime", **spec)
    return {**found, "metadata": {"name": "torch"}}


def workload(api_version: str, kind: str, **spec: Any) -> Object:
    return {"apiVersion": api_version, "kind": kind, "metadata": {"name": "train"}, "spec": spec}


JOB_SET = workload(
    "jobset.x-k8s.io/v1alpha2",
    "JobSet",
    replicatedJobs=[{"name": "driver", "template": batch(1)}, {"name": "worker", "replicas": 2, "template": batch(3)}],
)
LEADER_WORKER_SET = workload(
    "leaderworkerset.x-k8s.io/v1",
    "LeaderWorkerSet",
    replicas=2,
    leaderWorkerTemplate={"size": 3, "leaderTemplate": template("2"), "workerTemplate": template()},
)
RAY_JOB = workload(
    "ray.io/v1",
    "RayJob",
    rayClusterSpec=ray_cluster({"groupName": "gpu", "replicas": 2, "numOfHosts": 2, "template": template("4")}),
)
RAY_CLUSTER = workload("ray.io/v1", "RayCluster", **RAY_JOB["spec"]["rayClusterSpec"])
TRAIN_JOB = workload(
    "trainer.kubeflow.org/v1alpha1",
    "TrainJob",
    runtimeRef={"name": "torch"},
    trainer={"numNodes": 4, "resourcesPerNode": {"requests": {"cpu": "8"}}},
)
STEP = {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}
TORCH = runtime(
    {"name": "dataset-initializer", "template": batch(1)}, {"name": "node", "template": batch(1, labels=STEP)}
)


def pods_of(*objects: Object) -> list[Pod]:
    """The pods that arrive in a simulation of these workloads."""
    sources = [
        SourceObject(each["apiVersion"], each["kind"], Raw(json.dumps(each).encode()), "input", f"items[{number}]")
        for number, each in enumerate(objects)
    ]
    arrivals = Arrivals.of_sources(sources, Problems(strict=True), cluster=ClusterObjects(), subject="input")
    return [arrival.pod for arrival in arrivals.pods]


@pytest.mark.parametrize(
    ("objects", "kind", "jobs", "cpus"),
    [
        ([JOB_SET], "JobSet", {("train", ""): 7}, {1000: 7}),
        ([LEADER_WORKER_SET], "LeaderWorkerSet", {("train", "0"): 3, ("train", "1"): 3}, {2000: 2, 1000: 4}),
        ([RAY_JOB], "RayJob", {("train", ""): 6}, {2000: 1, 4000: 4, 500: 1}),
        ([RAY_CLUSTER], "RayCluster", {("train", ""): 5}, {2000: 1, 4000: 4}),
        ([TRAIN_JOB, TORCH], "JobSet", {("train", ""): 5}, {1000: 1, 8000: 4}),
    ],
    ids=["jobset", "lws", "rayjob", "raycluster", "trainjob"],
)
def test_a_workload_arrives_as_the_pods_of_one_job(
    objects: list[Object], kind: str, jobs: dict[tuple[str, str], int], cpus: dict[int, int]
) -> None:
    pods = pods_of(*objects)
    found = [next(jobs_of(pod)) for pod in pods]
    assert {job.kind for job in found} == {kind}
    assert Counter((job.name, job.part) for job in found) == jobs
    requested = (pod.spec.containers[0].resources.requests["cpu"] for pod in pods)
    assert Counter({"500m": 500}.get(cpu) or int(cpu) * 1000 for cpu in map(str, requested)) == cpus
    assert len({pod.metadata.name for pod in pods}) == len(pods)
    assert all(pod.metadata.annotations["kubestow.dev/queue"] == "q" for pod in pods)
    assert all(pod.metadata.controller is not None for pod in pods)


def test_a_suspended_workload_has_no_pods() -> None:
    made = {
        **JOB_SET,
        "metadata": {"name": "train", "namespace": "default"},
        "spec": JOB_SET["spec"] | {"suspend": True},
    }
    assert list(job_objects.objects_of_job_set(made, lambda *names: None)) == []


def test_pods_of_a_job_set_know_their_job_and_index() -> None:
    first, *_, last = pods_of(JOB_SET)
    assert first.metadata.name.startswith("train-driver-0-0-")
    assert last.metadata.labels["batch.kubernetes.io/job-name"] == "train-worker-1"
    assert last.metadata.labels["batch.kubernetes.io/job-completion-index"] == "2"


@pytest.mark.parametrize(
    ("objects", "message"),
    [
        ([TRAIN_JOB], "spec.runtimeRef: there is no ClusterTrainingRuntime torch in the input"),
        ([workload("ray.io/v1", "RayCluster")], "spec.headGroupSpec.template: expected a pod template"),
        ([workload("jobset.x-k8s.io/v1alpha2", "JobSet")], "spec.replicatedJobs: expected at least one"),
        (
            [workload("leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet", replicas=-1)],
            "spec.replicas: expected a number from 0 to 1,000,000, got -1",
        ),
    ],
)
def test_what_is_wrong_is_named(objects: list[Object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        pods_of(*objects)
