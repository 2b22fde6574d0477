"""What Kueue would admit with other quotas, and with more or fewer nodes."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from contrib_tests.kueue.kueue_objects import (
    API_VERSION,
    GPU,
    Manifest,
    cluster_queue,
    flavor,
    job,
    local_queue,
    workload,
)
from core_tests.engine.input.manifests import node, write
from kubestow.cli import main

RACK = "rack"
RACKS = {
    "apiVersion": API_VERSION,
    "kind": "Topology",
    "metadata": {"name": "racks"},
    "spec": {"levels": [{"nodeLabel": RACK}, {"nodeLabel": "kubernetes.io/hostname"}]},
}
IN_ONE_RACK: dict[str, Any] = {"topologyRequest": {"required": RACK}}

Ask = Callable[..., dict[str, Any]]


def gpu_node(name: str, gpus: int = 8) -> Manifest:
    """A node of the flavor h100, whose rack is the first letter of its name."""
    made = node(name)
    made["metadata"]["labels"] = {"kubernetes.io/hostname": name, "gpu": "h100", RACK: name[0]}
    made["status"]["allocatable"][GPU] = str(gpus)
    return made


def queues(quota: int, *, topology: bool = False) -> list[Manifest]:
    """A queue of a team with so many GPUs, maybe placed in racks."""
    h100 = flavor("h100", gpu="h100")
    if topology:
        h100["spec"]["topologyName"] = "racks"
    return [h100, cluster_queue("team", quota), local_queue("team"), *([RACKS] if topology else [])]


def assigned(name: str, gpus: int, host: str) -> Manifest:
    """A Workload that was admitted on one host."""
    one = workload(name, "team", gpus, admitted="team", **IN_ONE_RACK)
    values = {"domains": [{"values": [host], "count": 1}], "levels": ["kubernetes.io/hostname"]}
    one["status"]["admission"]["podSetAssignments"][0]["topologyAssignment"] = values
    return one


@pytest.fixture
def ask(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Ask:
    """Asks with a dump of some objects; the answer as data."""

    def ask(command: str, *objects: Manifest, status: int = 0) -> dict[str, Any]:
        dump = write(tmp_path, *objects, name="dump.json")
        with pytest.raises(SystemExit) as exited:
            main(["what-if", *command.split(), "--cluster", str(dump), "--kueue", "-o", "json"])
        captured = capsys.readouterr()
        assert (exited.value.code or 0) == status, captured.err
        found: dict[str, Any] = json.loads(captured.out)
        return found

    return ask


def states(answer: dict[str, Any]) -> dict[str, tuple[str, str]]:
    """The state of each job, now and then."""
    return {each["name"]: (each["now"]["state"], each["then"]["state"]) for each in answer["jobs"]}


def then(answer: dict[str, Any], name: str) -> dict[str, Any]:
    [found] = [each["then"] for each in answer["jobs"] if each["name"] == name]
    return dict(found)


# -- another quota -----------------------------------------------------------------------------------------------------


def test_more_quota_admits_a_waiting_job_and_places_its_pods(ask: Ask) -> None:
    objects = [gpu_node("a0"), gpu_node("a1"), *queues(8), workload("runs", "team", 8, admitted="team")]
    objects += [workload("waits", "team", 4)]

    answer = ask(f"quota team/h100/{GPU}=12", *objects)

    assert states(answer) == {"runs": ("Admitted", "Admitted"), "waits": ("Waiting", "Admitted")}
    assert then(answer, "waits") == {
        "state": "Admitted",
        "message": "",
        "flavors": ["h100"],
        "podsPlaced": 1,
        "podsPending": 0,
    }


def test_a_quota_without_nodes_admits_pods_that_find_none(ask: Ask) -> None:
    answer = ask(f"quota team/h100/{GPU}=16", gpu_node("a0", 4), *queues(0), workload("large", "team", 4, pods=2))

    found = then(answer, "large")
    assert (found["state"], found["podsPlaced"], found["podsPending"]) == ("Admitted", 1, 1)
    assert "Insufficient nvidia.com/gpu" in found["message"]


def test_less_quota_says_why_a_job_would_wait(ask: Ask) -> None:
    answer = ask(f"quota team/h100/{GPU}=2", gpu_node("a0"), *queues(8), workload("new", "team", 4))

    assert states(answer) == {"new": ("Admitted", "Waiting")}
    assert then(answer, "new")["message"] == (
        "ClusterQueue team never has more than 2 of nvidia.com/gpu in flavor h100, and 4 are needed"
    )


def test_applied_objects_and_further_jobs_count(ask: Ask, tmp_path: Path) -> None:
    changed = write(tmp_path, cluster_queue("team", 8, namespaceSelector=None), name="changed.json")
    jobs = write(tmp_path, job("new", "team", 4), name="jobs.json")

    answer = ask(f"quota --apply {changed} --workload {jobs}", gpu_node("a0"), *queues(8))

    assert states(answer) == {"new": ("Admitted", "Waiting")}
    assert "does not select namespace default" in then(answer, "new")["message"]


@pytest.mark.parametrize(
    ("quota", "status", "problem"),
    [
        (f"other/h100/{GPU}=1", 1, "ClusterQueue other: no such ClusterQueue in the cluster"),
        ("team/a100/cpu=1", 1, "ClusterQueue team: has no quota of cpu in flavor a100"),
        (f"team/h100/{GPU}=many", 1, "nominalQuota"),
        ("team/h100=1", 2, "expected CLUSTERQUEUE/FLAVOR/RESOURCE=AMOUNT"),
    ],
)
def test_quotas_that_make_no_sense_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], quota: str, status: int, problem: str
) -> None:
    dump = write(tmp_path, gpu_node("a0"), *queues(8), name="dump.json")

    with pytest.raises(SystemExit) as exited:
        main(["what-if", "quota", quota, "--cluster", str(dump), "--kueue"])

    assert exited.value.code == status
    assert problem in capsys.readouterr().err


# -- more and fewer nodes ----------------------------------------------------------------------------------------------


def test_more_nodes_admit_a_job_that_needs_a_rack(ask: Ask) -> None:
    objects = [gpu_node("a0"), *queues(64, topology=True), workload("wide", "team", 8, pods=2, **IN_ONE_RACK)]

    answer = ask("add-nodes --like a0 --count 1", *objects)

    assert answer["nodes"] == {"like-a0": 1}
    assert states(answer) == {"wide": ("Waiting", "Admitted")}
    assert then(answer, "wide")["podsPlaced"] == 2


def test_nodes_are_added_for_the_pods_of_admitted_jobs(ask: Ask) -> None:
    answer = ask("add-nodes --like a0", gpu_node("a0"), *queues(64), workload("large", "team", 8, pods=3))

    assert answer["mix"] == {"like-a0": 2}
    [large] = answer["jobs"]
    assert (large["now"]["podsPending"], large["then"]["podsPending"]) == (2, 0)


def test_a_job_that_loses_its_node_waits_for_another_place(ask: Ask) -> None:
    objects = [gpu_node("a0"), gpu_node("b0", 4), *queues(64, topology=True)]
    objects += [assigned("one", 4, "a0"), assigned("other", 4, "a0")]

    answer = ask("lose a0", *objects)

    found = states(answer)
    assert sorted(found.values()) == [("Admitted", "Admitted"), ("Admitted", "Waiting")]
    assert answer["cause"] == "loss"


def test_a_job_without_places_keeps_its_quota_when_a_node_is_drained(ask: Ask) -> None:
    objects = [gpu_node("a0"), gpu_node("a1"), *queues(8), workload("runs", "team", 8, admitted="team")]

    assert states(ask("drain a0", *objects)) == {"runs": ("Admitted", "Admitted")}


def test_the_table_shows_what_changes_and_what_still_waits(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    objects = [gpu_node("a0"), *queues(0), workload("first", "team", 4), workload("second", "team", 8)]
    dump = write(tmp_path, *objects, name="dump.json")

    with pytest.raises(SystemExit):
        main(["what-if", "quota", f"team/h100/{GPU}=4", "--cluster", str(dump), "--kueue"])

    lines = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    assert lines[0] == "2 jobs in queues: 1 more would be admitted, 0 would no longer be, 1 would wait"
    assert "default/first team 1 Waiting Admitted h100" in lines


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["quota", f"team/h100/{GPU}=1"], "quotas are those of --kueue"),
        (["quota", "--kueue", "--cluster", "x"], "expected quotas or --apply"),
        (["quota", f"team/h100/{GPU}=1", "--kueue"], "--kueue needs --cluster with a dump"),
        (["add-nodes", "--like", "a", "--count", "2"], "--count is about the jobs of --kueue"),
        (["drain", "a", "--kueue"], "--kueue needs --cluster with a dump"),
    ],
)
def test_options_that_need_others_are_refused(
    capsys: pytest.CaptureFixture[str], arguments: list[str], problem: str
) -> None:
    with pytest.raises(SystemExit) as exited:
        main(["what-if", *arguments])

    assert exited.value.code == 2
    assert problem in capsys.readouterr().err
