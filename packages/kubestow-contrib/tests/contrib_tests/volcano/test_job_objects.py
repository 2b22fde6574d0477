"""What Volcano's Job controller creates for a Job, in offline commands."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from kubestow.cli import main
from kubestow.errors import InvalidObject
from kubestow_contrib.volcano.configuration import SCHEDULER_NAME
from kubestow_contrib.volcano.job_objects import objects_of


def no_references(kind: str, namespace: str, name: str) -> None:
    """The input has no other objects."""


def task(name: str, replicas: int, cpu: str, **fields: Any) -> dict[str, Any]:
    containers = [{"name": "c", "image": "x", "resources": {"requests": {"cpu": cpu}}}]
    return {"name": name, "replicas": replicas, "template": {"spec": {"containers": containers}}, **fields}


def job(*tasks: dict[str, Any], metadata: dict[str, Any] | None = None, **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "batch.volcano.sh/v1alpha1",
        "kind": "Job",
        "metadata": {"name": "train", "namespace": "default", **(metadata or {})},
        "spec": {"tasks": list(tasks), **spec},
    }


def group_of(manifest: dict[str, Any]) -> dict[str, Any]:
    group, *_ = objects_of(manifest, no_references)
    return group


def test_a_job_has_a_pod_group_and_the_pods_of_each_task() -> None:
    group, *pods = objects_of(job(task("ps", 1, "1"), task("worker", 2, "2"), queue="research"), no_references)
    assert group["apiVersion"] == "scheduling.volcano.sh/v1beta1"
    assert group["spec"] == {
        "minMember": 3,
        "minTaskMember": {"ps": 1, "worker": 2},
        "minResources": {"cpu": "5000m"},
        "queue": "research",
    }
    assert [each["metadata"]["name"] for each in pods] == ["train-ps-0", "train-worker-0", "train-worker-1"]
    annotations = pods[2]["metadata"]["annotations"]
    assert annotations["scheduling.k8s.io/group-name"] == group["metadata"]["name"]
    assert annotations["volcano.sh/task-spec"] == "worker"
    assert {each["spec"]["schedulerName"] for each in pods} == {SCHEDULER_NAME}


def test_minimum_resources_are_those_of_the_pods_that_the_job_needs() -> None:
    tasks = task("ps", 1, "1", minAvailable=1), task("worker", 4, "2", minAvailable=2)
    assert group_of(job(*tasks, minAvailable=3))["spec"]["minResources"] == {"cpu": "5000m"}
    assert group_of(job(*tasks, minAvailable=4))["spec"]["minResources"] == {"cpu": "7000m"}
    assert group_of(job(*tasks, minAvailable=2))["spec"]["minResources"] == {"cpu": "3000m"}


def test_pods_have_the_priority_class_and_the_scheduler_of_the_job_unless_they_name_others() -> None:
    own = task("own", 1, "1")
    own["template"]["spec"] |= {"schedulerName": "mine", "priorityClassName": "low"}
    _, first, second = objects_of(
        job(own, task("other", 1, "1"), schedulerName="s", priorityClassName="high"), no_references
    )
    found = [(each["spec"]["schedulerName"], each["spec"]["priorityClassName"]) for each in (first, second)]
    assert found == [("mine", "low"), ("s", "high")]


@pytest.mark.parametrize(
    ("manifest", "path"),
    [
        (job(), "spec.tasks"),
        (job({"name": "a"}), "spec.tasks[0].template"),
        (job(task("a", -1, "1")), "spec.tasks[0].replicas"),
        (job(task("a", 1, "1"), minAvailable="x"), "spec.minAvailable"),
    ],
)
def test_a_mistake_in_a_job_names_the_field(manifest: dict[str, Any], path: str) -> None:
    with pytest.raises(InvalidObject) as found:
        list(objects_of(manifest, no_references))
    assert found.value.path == path


CONFIGURATION = """
actions: "enqueue, allocate, backfill"
tiers:
- plugins: [{name: priority}, {name: gang}]
- plugins: [{name: drf}, {name: predicates}, {name: proportion}, {name: nodeorder}]
"""
NODE = {
    "apiVersion": "v1",
    "kind": "Node",
    "metadata": {"name": "n"},
    "status": {"allocatable": {"cpu": "6", "pods": "110"}, "capacity": {"cpu": "6", "pods": "110"}},
}


@pytest.mark.parametrize(("size", "placed"), [("2", 4), ("3", 3), ("5", 0)])
def test_a_simulation_starts_a_job_as_a_whole_or_not_at_all(
    size: str, placed: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("kubestow_lab")
    (tmp_path / "volcano.conf").write_text(CONFIGURATION)
    (tmp_path / "nodes.yaml").write_text(yaml.safe_dump(NODE))
    tasks = task("ps", 1, "0"), task("worker", 3, size, minAvailable=2)
    (tmp_path / "job.yaml").write_text(yaml.safe_dump(job(*tasks)))
    flags = [f"--{flag}={tmp_path / name}" for flag, name in (("config", "volcano.conf"), ("cluster", "nodes.yaml"))]
    with pytest.raises(SystemExit):
        main(["simulate", *flags, f"--workload={tmp_path / 'job.yaml'}"])
    found = capsys.readouterr()
    assert f"{placed} of 4 pods placed" in found.out
    assert "workload: read 1 Job" in found.err


def test_what_the_controller_has_created_already_is_created_anew(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("kubestow_lab")
    manifest = job(task("worker", 2, "1"), metadata={"uid": "7"})
    (tmp_path / "nodes.yaml").write_text(yaml.safe_dump(NODE))
    (tmp_path / "volcano.conf").write_text(CONFIGURATION)
    (tmp_path / "dump.yaml").write_text(yaml.safe_dump_all([manifest, *objects_of(manifest, no_references)]))
    flags = [f"--{flag}={tmp_path / name}" for flag, name in (("config", "volcano.conf"), ("cluster", "nodes.yaml"))]
    with pytest.raises(SystemExit):
        main(["simulate", *flags, f"--workload={tmp_path / 'dump.yaml'}"])
    found = capsys.readouterr()
    assert "2 of 2 pods placed" in found.out
    assert "PodGroup of a controller in the same input" in found.err
