"""Jobs: which pods are one, and how long they are expected to run."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from contrib_tests.queues.jobs_of_pods import JOB
from kubestow.api.meta import ObjectMeta
from kubestow.cluster.cache import Cluster
from kubestow.testing import pod
from kubestow_contrib.coscheduling import COSCHEDULING
from kubestow_contrib.queues import batch_jobs
from kubestow_contrib.queues.batch_jobs import deadline_of
from kubestow_contrib.queues.jobs import Job, Jobs, RunTimes, loss_of


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


def jobs_on(cluster: Cluster, clock: Clock, **fields: Any) -> tuple[Jobs, list[Job]]:
    """The jobs of a cluster, and those that have ended."""
    ended: list[Job] = []
    settings: dict[str, Any] = {
        "queues": ["q"],
        "queue_keys": [],
        "namespace_queues": {},
        "default_queue": "",
        "is_ours": lambda info: True,
        "run_times": RunTimes(3600.0, partial(deadline_of, cluster.catalog(batch_jobs.Job))),
    }
    settings |= {"on_end": ended.append, "on_run": lambda run: None}
    return Jobs(cluster, clock, **settings | fields), ended


def observed(cluster: Cluster, name: str, **metadata: Any) -> Any:
    annotations = {"kubestow.dev/queue": "q", **metadata.pop("annotations", {})}
    spec = metadata.pop("spec", None)
    labels = metadata.pop("labels", None)
    info = cluster.shapes.info(pod(name, labels=labels, spec=spec, metadata={"annotations": annotations, **metadata}))
    cluster.observe_pod(info)
    return info


def owner(kind: str, name: str) -> list[dict[str, Any]]:
    return [{"apiVersion": JOB, "kind": kind, "name": name, "uid": name, "controller": True}]


@pytest.mark.parametrize(
    ("fields", "name"),
    [
        ({}, "pod/default/p"),
        ({"ownerReferences": owner("Job", "train")}, "job/default/train"),
        ({"labels": {"jobset.sigs.k8s.io/jobset-name": "s"}, "ownerReferences": owner("Job", "x")}, "jobset/default/s"),
        (
            {"labels": {"leaderworkerset.sigs.k8s.io/name": "l", "leaderworkerset.sigs.k8s.io/group-index": "2"}},
            "leaderworkerset/default/l/2",
        ),
        ({"labels": {"ray.io/cluster": "r"}}, "raycluster/default/r"),
        ({"labels": {"scheduling.x-k8s.io/pod-group": "g"}, "ownerReferences": owner("J", "x")}, "podgroup/default/g"),
        ({"annotations": {"kubestow.dev/job": "own"}, "ownerReferences": owner("Job", "x")}, "job/default/own"),
    ],
)  # fmt: skip
def test_a_job_is_named_by_the_first_that_applies(fields: dict[str, Any], name: str) -> None:
    cluster = Cluster([COSCHEDULING])
    jobs, _ = jobs_on(cluster, Clock())
    found = jobs.of(observed(cluster, "p", **fields))
    assert found is not None
    assert found.name == name


def test_the_queue_is_a_label_an_annotation_or_the_default() -> None:
    cluster = Cluster()
    jobs, _ = jobs_on(cluster, Clock(), queues=["q", "r"], default_queue="r")
    by_label = cluster.shapes.info(pod("a", labels={"kubestow.dev/queue": "q"}))
    by_default, unknown = (
        cluster.shapes.info(pod("b")),
        cluster.shapes.info(pod("c", labels={"kubestow.dev/queue": "x"})),
    )
    assert [jobs.queue_of(info) for info in (by_label, by_default, unknown)] == ["q", "r", "x"]
    assert jobs.problem(unknown) == "queue x does not exist, or is the parent of others"
    assert jobs.problem(by_default) == ""


def test_the_expected_run_time_is_declared_limited_learned_or_assumed() -> None:
    cluster, clock = Cluster(), Clock()
    jobs, ended = jobs_on(cluster, clock)

    def expected(**fields: Any) -> tuple[float, str]:
        job = jobs.of(observed(cluster, "asked", **fields))
        assert job is not None
        found = jobs.run_times.of(job)
        cluster.end_pod(job.example.uid)
        return found.seconds, found.source

    run_time = {"kubestow.dev/run-time": "10m"}
    assert expected() == (3600, "assumed")
    assert expected(annotations=run_time) == (600, "annotation kubestow.dev/run-time")
    assert expected(annotations={"kubestow.dev/duration": "30"}) == (30, "annotation kubestow.dev/duration")
    assert expected(annotations={"kubestow.dev/run-time": "soon"}) == (3600, "assumed")
    assert expected(annotations=run_time, spec={"activeDeadlineSeconds": 90}) == (
        90,
        "activeDeadlineSeconds of its pods",
    )
    assert expected(annotations=run_time, spec={"activeDeadlineSeconds": 900})[0] == 600
    for seconds in range(10, 110, 10):
        job = jobs.of(observed(cluster, f"done-{seconds}"))
        assert job is not None
        job.started = clock.now
        clock.now += seconds
        cluster.end_pod(job.example.uid)
    learned, source = expected()
    assert learned == pytest.approx(91)
    assert source == "learned from 10 jobs of queue q"
    assert len(ended) == 17


def test_the_expected_run_time_is_limited_by_the_job_that_controls_the_pods() -> None:
    cluster, clock = Cluster(), Clock()
    jobs, _ = jobs_on(cluster, clock)
    catalog = cluster.catalog(batch_jobs.Job)
    annotations = {"kubestow.dev/run-time": "2h"}
    job = jobs.of(observed(cluster, "p", annotations=annotations, ownerReferences=owner("Job", "train")))
    assert job is not None
    assert jobs.run_times.of(job).seconds == 7200

    def put(name: str, seconds: int | None) -> None:
        catalog.put(batch_jobs.Job(ObjectMeta(name=name, namespace="default"), batch_jobs.JobSpec(seconds)))

    put("train", 90)
    found = jobs.run_times.of(job)
    assert (found.seconds, found.source) == (90, "activeDeadlineSeconds of Job train")
    put("train", None)
    assert jobs.run_times.of(job).seconds == 7200
    # The Jobs of a JobSet: as long as the one that may run longest.
    labels = {"jobset.sigs.k8s.io/jobset-name": "s"}
    for name in ("s-a-0", "s-b-0"):
        whole = jobs.of(observed(cluster, name, labels=labels, ownerReferences=owner("Job", name)))
    assert whole is not None
    put("s-a-0", 60)
    assert jobs.run_times.of(whole).source == "assumed"
    put("s-b-0", 80)
    found = jobs.run_times.of(whole)
    assert (found.seconds, found.source) == (80, "activeDeadlineSeconds of its 2 Jobs")


def test_a_job_that_outlives_its_run_time_is_expected_to_run_twice_as_long() -> None:
    cluster, clock = Cluster(), Clock()
    jobs, _ = jobs_on(cluster, clock)
    job = jobs.of(observed(cluster, "p", annotations={"kubestow.dev/run-time": "100s"}))
    assert job is not None
    job.started = 1000.0
    assert [jobs.run_times.end(job, now) for now in (1000, 1099, 1100, 1199, 1200, 1450)] == [
        *(1100, 1100, 1200, 1200, 1400, 1800)
    ]


def test_the_loss_of_a_job_is_what_its_pods_have_done_and_what_restarting_them_costs() -> None:
    cluster, clock = Cluster(), Clock()
    jobs, _ = jobs_on(cluster, clock)
    for name in ("a", "b"):
        info = observed(
            cluster, name, ownerReferences=owner("Job", "t"), annotations={"kubestow.dev/restart-cost": "1m"}
        )
    job = jobs.of(info)
    assert job is not None
    assert loss_of(job, 1000.0) == 120
    job.started = 900.0
    for info in job.pods.values():
        job.place(info, "n")
    assert loss_of(job, 1000.0) == 2 * 100 + 120
    assert job.declared.is_preemptible
    observed(cluster, "c", ownerReferences=owner("Job", "t"), annotations={"kubestow.dev/preemptible": "false"})
    assert not job.declared.is_preemptible
