"""Folders with jobs of any kind and their pod groups of any API: each job starts whole, and the second when it fits."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from contrib_tests.queues.jobs_of_pods import profile
from contrib_tests.test_job_objects import JOB_SET, LEADER_WORKER_SET, RAY_JOB, TORCH, TRAIN_JOB, template, workload
from core_tests.engine.input.manifests import Object, node, write
from kubestow.cli import main

COSCHEDULING, VOLCANO = "scheduling.x-k8s.io/pod-group", "scheduling.k8s.io/group-name"
QUEUES = profile(("q",), defaultQueue="q")
GANGS = [{"plugins": {"multiPoint": {"enabled": [{"name": "GangScheduling"}]}}}]
GATES = ["--feature-gates", "GenericWorkload=true,GangScheduling=true"]


def templates_in(part: Any) -> Iterator[Object]:
    """The pod templates in a workload."""
    if isinstance(part, list):
        for each in part:
            yield from templates_in(each)
    elif isinstance(part, dict):
        if "containers" in (part.get("spec") or {}):
            yield part
        for each in part.values():
            yield from templates_in(each)


def simulated(path: Path, objects: list[Object], cpu: int, profiles: Any, options: list[str], output: Any) -> Object:
    """The result for a folder with a file for each object, on one node."""
    kind = {"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration"}
    (path / "config.yaml").write_text(json.dumps({**kind, "profiles": profiles}))
    cluster = write(path, node("n", cpu=str(cpu)), name="cluster.json")
    (path / "jobs").mkdir()
    for number, each in enumerate(objects):
        (path / "jobs" / f"{number}.json").write_text(json.dumps(each))
    arguments = ["--cluster", str(cluster), "--workload", str(path / "jobs"), "--config", str(path / "config.yaml")]
    with pytest.raises(SystemExit) as exited:
        main(["simulate", *arguments, *options, "-o", "json"])
    captured = output.readouterr()
    assert not exited.value.code, captured.err
    document: Object = json.loads(captured.out)
    return document


def job(
    name: str, labels: Object | None = None, annotations: Object | None = None, spec: Object | None = None
) -> Object:
    """A Job of three pods that run for 100 s."""
    made = template()
    made["metadata"] = {
        "labels": labels or {},
        "annotations": {"kubestow.dev/duration": "100s", **(annotations or {})},
    }
    made["spec"] |= spec or {}
    of_job = {"parallelism": 3, "completions": 3, "template": made}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name}, "spec": of_job}


def group(api_version: str, kind: str, name: str, spec: Object) -> Object:
    return {"apiVersion": api_version, "kind": kind, "metadata": {"name": name}, "spec": spec}


GANG = {"gang": {"minCount": 3}}
#: What in the template of a pod names its group, the group, and the options that its API needs.
APIS: dict[str, Any] = {
    "coscheduling": (
        lambda name: {"labels": {COSCHEDULING: name}},
        lambda name: group("scheduling.x-k8s.io/v1alpha1", "PodGroup", name, {"minMember": 3}),
        [],
    ),
    "volcano": (
        lambda name: {"annotations": {VOLCANO: name}},
        lambda name: group("scheduling.volcano.sh/v1beta1", "PodGroup", name, {"minMember": 3}),
        [],
    ),
    "kubernetes": (
        lambda name: {"spec": {"schedulingGroup": {"podGroupName": name}}},
        lambda name: group("scheduling.k8s.io/v1alpha2", "PodGroup", name, {"schedulingPolicy": GANG}),
        GATES,
    ),
    "kubernetes 1.37": (
        lambda name: {"spec": {"schedulingGroup": {"podGroupName": name}}},
        lambda name: group("scheduling.k8s.io/v1beta1", "PodGroup", name, {"schedulingPolicy": GANG}),
        ["--emulated-version", "1.37", "--feature-gates", "GenericWorkload=true"],
    ),
    "workload": (
        lambda name: {"spec": {"workloadRef": {"name": name, "podGroup": "g"}}},
        lambda name: group(
            "scheduling.k8s.io/v1alpha1", "Workload", name, {"podGroups": [{"name": "g", "policy": GANG}]}
        ),
        ["--emulated-version", "1.35", *GATES],
    ),
}


@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize("profiles", [QUEUES, GANGS], ids=["queues", "gangs"])
def test_pod_groups_beside_the_jobs_are_those_of_their_pods(
    api: str, profiles: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    names, made, options = APIS[api]
    objects = [each for name in ("one", "two") for each in (made(name), job(name, **names(name)))]
    document = simulated(tmp_path, objects, 4, profiles, options, capsys)
    bound: dict[str, list[float]] = {}
    for each in document["pods"]:
        bound.setdefault(each["owner"], []).append(each["bound"])
    assert {owner: len(times) for owner, times in bound.items()} == {"Job/one": 3, "Job/two": 3}
    assert all(max(times) - min(times) < 1 for times in bound.values())
    assert min(bound["Job/two"]) >= max(bound["Job/one"]) + 100
    if profiles is QUEUES:
        jobs = [each["job"] for each in document["plugins"]["JobQueues"]["ended"]]
        assert [name.split("/")[:3] for name in jobs] == [["podgroup", "default", name] for name in ("one", "two")]


@pytest.mark.parametrize("api", APIS)
def test_a_group_that_is_larger_than_its_job_keeps_it_waiting(
    api: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    names, made, options = APIS[api]
    larger = json.loads(json.dumps(made("one")).replace(": 3}", ": 4}"))
    document = simulated(tmp_path, [larger, job("one", **names("one"))], 8, QUEUES, options, capsys)
    assert [each["bound"] for each in document["pods"]] == [None] * 3


VOLCANO_JOB = workload(
    "batch.volcano.sh/v1alpha1",
    "Job",
    schedulerName="default-scheduler",
    minAvailable=3,
    tasks=[
        {"name": "master", "replicas": 1, "template": template()},
        {"name": "w", "replicas": 2, "template": template()},
    ],
)


@pytest.mark.parametrize(
    ("kind", "pods", "cpu"),
    [(JOB_SET, 7, 7), (LEADER_WORKER_SET, 6, 8), (RAY_JOB, 5, 19), (TRAIN_JOB, 5, 33), (VOLCANO_JOB, 3, 3)],
    ids=lambda value: value["kind"] if isinstance(value, dict) else "",
)
def test_workloads_of_any_kind_start_whole(
    kind: Object, pods: int, cpu: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    objects = [copy.deepcopy(TORCH)]
    for name in ("one", "two"):
        made = copy.deepcopy(kind)
        made["metadata"]["name"] = name
        objects.append(made)
        if kind is not VOLCANO_JOB:  # its controller makes one
            objects.append(group("scheduling.x-k8s.io/v1alpha1", "PodGroup", name, {"minMember": pods}))
        for each in (made, *objects[:1]):
            for of_pods in templates_in(each):
                of_pods["metadata"] = {"annotations": {"kubestow.dev/duration": "100s", "kubestow.dev/queue": "q"}}
                if kind not in (VOLCANO_JOB, TRAIN_JOB):
                    of_pods["metadata"]["labels"] = {COSCHEDULING: name}
        if kind is TRAIN_JOB:
            made["spec"]["labels"] = {COSCHEDULING: name}
    document = simulated(tmp_path, objects, cpu, QUEUES, [], capsys)
    assert document["pending"] == []
    ended = document["plugins"]["JobQueues"]["ended"]
    whole = [each for each in ended if each["job"].startswith("podgroup/")]  # but the pod that submits a RayJob
    assert [each["pods"] for each in whole] == [pods] * 2
    assert whole[1]["started"] >= whole[0]["ended"]
