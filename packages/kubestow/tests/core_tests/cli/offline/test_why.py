"""``kubestow why`` on a dump: one pod, and pods by cause as kubectl's options select them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from core_tests.cli.offline.test_explain import Run, run
from core_tests.engine.input.manifests import Object, node, pod, write
from kubestow.api.core import Pod
from kubestow.api.meta import convert
from kubestow.cli.commands.why import Workload, workload_state

__all__ = ["run"]


def owned(name: str, kind: str, owner: str, *, namespace: str = "default", **fields: Any) -> Object:
    """A pod with a controller and the label ``app``."""
    reference = {"apiVersion": "v1", "kind": kind, "name": owner, "uid": owner, "controller": True}
    metadata = {"name": name, "namespace": namespace, "labels": {"app": owner}, "ownerReferences": [reference]}
    return pod(name, **fields) | {"metadata": metadata}


@pytest.fixture
def dump(tmp_path: Path) -> Path:
    """Two nodes; a Job, a Deployment with a ReplicaSet, and a RayJob, which have pods; one pod is bound."""
    deployment = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web", "uid": "web", "controller": True}
    return write(
        tmp_path,
        node("a", cpu="2"),
        node("b", cpu="2"),
        {"apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": {"name": "web-1", "ownerReferences": [deployment]}},
        *(owned(f"train-{number}", "Job", "train", cpu="3") for number in range(3)),
        owned("train-bound", "Job", "train", nodeName="a"),
        owned("web-1-x", "ReplicaSet", "web-1", cpu="3", nodeSelector={"disk": "ssd"}),
        owned("ray", "RayJob", "ray", namespace="ml", cpu="3"),
    )


def test_all_pending_pods_are_listed_by_cause(run: Callable[..., Run], dump: Path) -> None:
    result = run("why", "-A", "--cluster", dump)
    assert (result.status, result.err) == (0, "")
    assert result.out.startswith("5 pods are pending for 2 causes, the most common remedy first\n")
    rows = [line.split()[0] for line in result.out.splitlines()[3:]]
    assert [row for row in rows if row.isdigit()] == ["4", "1"]
    found = json.loads(run("why", "-A", "--cluster", dump, "-o", "json").out)
    assert (found["kind"], found["pending"], found["emulatedVersion"]) == ("PendingPods", 5, "1.36")
    assert sorted(pod for cause in found["causes"] for pod in cause["pods"]) == [
        *(f"default/train-{number}" for number in range(3)),
        *("default/web-1-x", "ml/ray"),
    ]


@pytest.mark.parametrize(
    ("arguments", "pods"),
    [
        ((), ["default/train-0", "default/train-1", "default/train-2", "default/web-1-x"]),
        (("-n", "ml"), ["ml/ray"]),
        (("-l", "app=web-1"), ["default/web-1-x"]),
        (("-A", "-l", "app in (ray,web-1)"), ["default/web-1-x", "ml/ray"]),
        (("job/train",), ["default/train-0", "default/train-1", "default/train-2"]),
        (("jobs.batch/train",), ["default/train-0", "default/train-1", "default/train-2"]),
        (("deploy/web",), ["default/web-1-x"]),
        (("rs/web-1",), ["default/web-1-x"]),
        (("rayjobs.ray.io/ray", "-n", "ml"), ["ml/ray"]),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_pods_are_selected_as_by_kubectl(
    run: Callable[..., Run], dump: Path, arguments: tuple[str, ...], pods: list[str]
) -> None:
    result = run("why", *arguments, "--cluster", dump, "-o", "json")
    found = json.loads(result.out)
    assert sorted(pod for cause in found["causes"] for pod in cause["pods"]) == pods


def test_the_pods_of_a_workload_have_a_headline(run: Callable[..., Run], dump: Path) -> None:
    lines = run("why", "job/train", "--cluster", dump).out.splitlines()
    assert lines[0] == "job/train in namespace default: 4 pods, 3 of them pending"
    assert lines[2] == "3 pods are pending for 1 cause, the most common remedy first"


def labelled(name: str, labels: dict[str, str], annotations: dict[str, str] | None = None) -> Object:
    """A pod whose job is named by labels or annotations."""
    metadata = {"name": name, "namespace": "default", "labels": labels, "annotations": annotations or {}}
    return pod(name, cpu="3") | {"metadata": metadata}


@pytest.mark.parametrize(
    ("argument", "pods"),
    [
        ("jobset/set", ["default/set-0"]),
        ("trainjob/set", ["default/set-0"]),
        ("lws/leader", ["default/leader-0"]),
        ("rayjob/ray", ["default/ray-head"]),
        ("raycluster/ray-x1", ["default/ray-head"]),
        ("job.batch.volcano.sh/volcano", ["default/volcano-0"]),
        ("podgroup/group", ["default/native-0"]),
        ("podgroups/scheduled", ["default/volcano-0"]),
        ("workload/job-train-1a2b", ["default/train-0"]),
    ],
)
def test_pods_of_jobs_of_other_projects_are_found_by_their_labels(
    run: Callable[..., Run], tmp_path: Path, argument: str, pods: list[str]
) -> None:
    reference = {"apiVersion": "batch/v1", "kind": "Job", "name": "train", "uid": "u", "controller": True}
    condition = {"type": "QuotaReserved", "status": "False", "reason": "Pending", "message": "full"}
    workload = {
        "apiVersion": "kueue.x-k8s.io/v1beta1",
        "kind": "Workload",
        "metadata": {"name": "job-train-1a2b", "namespace": "default", "ownerReferences": [reference]},
        "status": {"conditions": [condition]},
    }
    native = labelled("native-0", {})
    native["spec"]["schedulingGroup"] = {"podGroupName": "group"}
    ray = {
        "ray.io/cluster": "ray-x1",
        "ray.io/originated-from-crd": "RayJob",
        "ray.io/originated-from-cr-name": "ray",
    }
    dump = write(
        tmp_path,
        node("a", cpu="2"),
        workload,
        owned("train-0", "Job", "train", cpu="3"),
        labelled("set-0", {"jobset.sigs.k8s.io/jobset-name": "set"}),
        labelled("leader-0", {"leaderworkerset.sigs.k8s.io/name": "leader"}),
        labelled("ray-head", ray),
        labelled("volcano-0", {"volcano.sh/job-name": "volcano"}, {"scheduling.k8s.io/group-name": "scheduled"}),
        native,
        labelled("other", {}),
    )
    result = run("why", argument, "--cluster", dump, "-o", "json")
    found = json.loads(result.out)
    assert [each for cause in found["causes"] for each in cause["pods"]] == pods
    if argument.startswith("workload"):
        assert "not QuotaReserved (Pending: full)" in run("why", argument, "--cluster", dump).out


def test_a_workload_that_is_not_there_or_stands_for_nothing_is_one_line(
    run: Callable[..., Run], tmp_path: Path
) -> None:
    workload = {
        "apiVersion": "kueue.x-k8s.io/v1beta1",
        "kind": "Workload",
        "metadata": {"name": "alone", "namespace": "default"},
    }
    dump = write(tmp_path, node("a"), workload)
    for name, problem in (("alone", "has no owner, expected the job that it stands for"), ("other", "not found")):
        result = run("why", f"workload/{name}", "--cluster", dump)
        assert (result.status, result.err) == (1, f"kubestow: workload/{name} in namespace default: {problem}\n")


@pytest.mark.parametrize("name", ["default/train-0", "train-0", "pod/train-0", "po/train-0"])
def test_one_pod_is_explained_in_a_few_lines(run: Callable[..., Run], dump: Path, name: str) -> None:
    result = run("why", name, "--cluster", dump)
    assert result.out.startswith("pod default/train-0, profile default-scheduler: fits on 0 of 2 nodes\n")
    assert "smallest change: request 2 cpu instead of 3" in result.out
    assert result.err == "remark: computed from the files of the cluster\n"


@pytest.mark.parametrize(
    ("arguments", "status", "error"),
    [
        (("job/other",), 1, "job/other in namespace default: has no pod, finished pods aside"),
        (("-l", "app in"), 1, "--selector: "),
        (("train-0", "-A"), 2, "a name excludes --selector and --all-namespaces."),
        (("-n", "ml", "-A"), 2, "--namespace excludes --all-namespaces."),
        (("job/a/b",), 1, "pod job/a/b"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_what_cannot_be_answered_is_one_line(
    run: Callable[..., Run], dump: Path, arguments: tuple[str, ...], status: int, error: str
) -> None:
    result = run("why", *arguments, "--cluster", dump)
    assert (result.status, result.out) == (status, "")
    assert result.err.startswith(f"kubestow: {error}") and result.err.count("\n") == 1


def test_a_chain_of_controllers_ends_at_one_that_is_not_known() -> None:
    controlled = convert(Pod, owned("p", "ReplicaSet", "web-1"))
    web = Workload.parse("deployment/web")
    assert web is not None
    assert not web.owns(controlled, {})
    assert web.owns(controlled, {("ReplicaSet", "default", "web-1"): ("Deployment", "web")})
    assert not web.owns(controlled, {("ReplicaSet", "other", "web-1"): ("Deployment", "web")})
    assert not web.owns(controlled, {("ReplicaSet", "default", "web-1"): ("ReplicaSet", "web-1")})


def test_a_workload_reports_its_numbers_and_its_conditions() -> None:
    job = {
        "spec": {"completions": 8, "parallelism": 4, "suspend": True},
        "status": {
            "active": 2,
            "failed": 1,
            "conditions": [{"type": "Suspended", "status": "True", "reason": "Quota"}],
        },
    }
    assert workload_state("Job", job) == (
        "wants 8 completions with parallelism 4; 2 active, 0 ready, 0 succeeded, 1 failed; "
        "suspended, so it creates no pods; Suspended (Quota)"
    )
    conditions = [{"type": "Available", "status": "False", "reason": "Min", "message": "too few"}]
    deployment = {"spec": {"replicas": 2}, "status": {"replicas": 2, "conditions": conditions}}
    assert workload_state("Deployment", deployment) == (
        "wants 2 replicas; 2 exist, 0 ready, 0 available; not Available (Min: too few)"
    )
    daemon_set = {"spec": {}, "status": {"desiredNumberScheduled": 3}}
    assert workload_state("DaemonSet", daemon_set).endswith("3 desired, 0 scheduled, 0 ready")
