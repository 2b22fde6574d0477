"""Tasks of a trace become pods with the rules of Kubernetes that stand for what the trace says."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kubestow.cli import main
from kubestow.errors import InputError
from kubestow_lab.simulation.arrivals import JointStart
from kubestow_lab.simulation.simulation import Simulation
from kubestow_lab.traces.loading import load_trace, parse_window
from kubestow_lab.traces.tables import object_name

HEADER = (
    "instance_sn,role,app_name,cpu_request,cpu_limit,gpu_request,gpu_limit,rdma_request,rdma_limit,memory_request,"
    "memory_limit,disk_request,disk_limit,max_instance_per_node,creation_time,scheduled_time,deletion_time\n"
)


def _dlrm(path: Path, *limits: int) -> Path:
    """Instances of one application with these limits per node."""
    row = "i_{},CN,app_0,1,1,0,0,0,0,1.0,1.0,0.0,0.0,{},{}.0,{}.0,\n"
    rows = (row.format(index, limit, index, index) for index, limit in enumerate(limits))
    (path / "disaggregated_DLRM_trace.csv").write_text(HEADER + "".join(rows))
    return path


@pytest.mark.parametrize(("limit", "running"), [(1, 2), (2, 4), (-1, 5)])
def test_no_more_pods_of_an_application_on_a_node_than_it_allows(limit: int, running: int, tmp_path: Path) -> None:
    folder = _dlrm(tmp_path, *[limit] * 5)
    cluster, arrivals = load_trace(f"alibaba-gpu2025={folder}", assumed=["cpu-nodes=2", "gpu-nodes=1"])
    outcomes = Simulation(cluster, arrivals).run().outcomes
    assert sum(1 for outcome in outcomes if outcome.node) == running
    assert {outcome.node for outcome in outcomes if outcome.node} == {"cn-0", "cn-1"}


def _swf(path: Path, *jobs: tuple[int, int, int]) -> Path:
    """Jobs with their submit time, run time and processors, on two nodes of four."""
    file = path / "log.swf"
    line = "{} {} 0 {} {} -1 -1 -1 -1 -1 1 1 1 -1 7 -1 -1 -1\n"
    jobs_of_file = (line.format(number, *job) for number, job in enumerate(jobs, start=1))
    file.write_text("; MaxNodes: 2\n; MaxProcs: 8\n" + "".join(jobs_of_file))
    return file


def test_times_count_from_the_first_arrival_or_from_the_window(tmp_path: Path) -> None:
    file = _swf(tmp_path, (100, 10, 1), (130, 10, 1), (160, 10, 1))
    assert [arrival.time for arrival in load_trace(f"swf={file}")[1].pods] == [0, 30, 60]
    _, arrivals = load_trace(f"swf={file}", window=(20, 60))
    assert [(arrival.pod.metadata.name, arrival.time) for arrival in arrivals.pods] == [("job-2", 10)]
    assert arrivals.summary.left_out == {"task outside the window": 2}
    with pytest.raises(InputError, match="has no pods in the window"):
        load_trace(f"swf={file}", window=(70, 80))


@pytest.mark.parametrize(("text", "window"), [("5:60", (5, 60)), (":60", (0, 60)), ("5:", (5, float("inf")))])
def test_a_window(text: str, window: tuple[float, float]) -> None:
    assert parse_window(text) == window


@pytest.mark.parametrize("text", ["60", "60:5", "a:b", "-1:5", "nan:"])
def test_what_is_no_window(text: str) -> None:
    with pytest.raises(InputError, match="expected START:END in seconds"):
        parse_window(text)


def test_gangs_and_namespaces_are_assumptions(tmp_path: Path) -> None:
    file = _swf(tmp_path, (0, 10, 8))
    _, arrivals = load_trace(f"swf={file}", assumed=["gangs=true", "namespaces=true"])
    assert {arrival.pod.metadata.namespace for arrival in arrivals.pods} == {"7"}
    assert {arrival.pod.metadata.labels["scheduling.x-k8s.io/pod-group"] for arrival in arrivals.pods} == {"job-1"}
    (group,) = arrivals.custom_resources
    assert (group.manifest["metadata"], group.manifest["spec"]) == (
        {"name": "job-1", "namespace": "7"},
        {"minMember": 2},
    )
    assert not load_trace(f"swf={file}")[1].custom_resources


def test_servers_with_different_gpus_are_one_gang(tmp_path: Path) -> None:
    servers = [{"ip": "m1", "gpus": ["gpu0", "gpu1"]}, {"ip": "m2", "gpus": ["gpu0"]}, {"ip": "m3", "gpus": ["gpu0"]}]
    attempt = {"start_time": "2017-10-07 01:12:09", "end_time": "2017-10-07 01:13:09", "detail": servers}
    job = {"jobid": "application_1", "submitted_time": "2017-10-07 01:11:39", "attempts": [attempt]}
    (tmp_path / "cluster_job_log").write_text(json.dumps([job, job]))
    (tmp_path / "cluster_machine_list").write_text("machineId,number of GPUs,single GPU mem\nm1,2,24GB\n")
    _, arrivals = load_trace(f"philly={tmp_path}", assumed=["gangs=true", "joint-start=true"])
    label = "scheduling.x-k8s.io/pod-group"
    of_group = [arrival.pod.metadata.labels[label] for arrival in arrivals.pods]
    groups = {each.manifest["metadata"]["name"]: each.manifest["spec"] for each in arrivals.custom_resources}
    # Two jobs of one name and time cannot be distinguished where they have several tasks.
    assert (of_group, groups) == (["job-1"] * 6, {"job-1": {"minMember": 6}})
    assert {arrival.joint_start for arrival in arrivals.pods} == {JointStart("default/job-1", 6)}


def test_the_run_time_that_was_requested_is_what_queues_plan_with(tmp_path: Path) -> None:
    file = tmp_path / "log.swf"
    file.write_text("1 0 0 60 1 -1 -1 -1 7200 -1 1 1 1 -1 7 -1 -1 -1\n2 0 0 60 1 -1 -1 -1 -1 -1 1 1 1 -1 7 -1 -1 -1\n")
    one, two = load_trace(f"swf={file}")[1].pods
    assert one.pod.metadata.annotations == one.manifest["metadata"]["annotations"] == {"kubestow.dev/run-time": "7200s"}
    assert not two.pod.metadata.annotations


def test_pods_with_a_joint_start_run_from_when_all_of_them_are_bound(tmp_path: Path) -> None:
    file = _swf(tmp_path, (0, 50, 4), (10, 20, 8))
    # Without one, the second pod of job-2 runs where the first did; with one, the first waits until job-1 has ended.
    for assumed, ends in ((), [30, 50, 50]), (("joint-start=true",), [50, 70, 70]):
        outcomes = Simulation(*load_trace(f"swf={file}", assumed=assumed)).run().outcomes
        assert sorted(round(outcome.ended or 0) for outcome in outcomes) == ends


def test_tasks_with_one_name_are_numbered(tmp_path: Path) -> None:
    (tmp_path / "jobs.csv").write_text("id,cores\na_1,1\na-1,1\nA 1,1\n")
    (tmp_path / "m.yaml").write_text("name: id\ncreated: {value: 0}\ncpu: cores\nnodes: {count: 1, cpu: 4}\n")
    _, arrivals = load_trace(f"csv={tmp_path / 'jobs.csv'}", mapping=tmp_path / "m.yaml")
    assert [arrival.pod.metadata.name for arrival in arrivals.pods] == ["a-1", "a-1-2", "a-1-3"]


@pytest.mark.parametrize(("text", "name"), [("A100-SXM4", "a100-sxm4"), ("_/", "unnamed"), ("x" * 99, "x" * 50)])
def test_object_names(text: str, name: str) -> None:
    assert object_name(text) == name


def test_the_command_says_what_it_assumed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = _swf(tmp_path, (0, 10, 4), (0, 10, 4), (0, 10, 4))
    with pytest.raises(SystemExit) as ended:
        main(["simulate", "--trace", f"swf={file}", "--assume", "cpu-per-node=4", "-o", "json"])
    assert ended.value.code == 0
    out, err = capsys.readouterr()
    assert "assumed where the trace says nothing: gangs=false, namespaces=false, joint-start=false, nodes=0" in err
    assert sorted(round(pod["bound"]) for pod in json.loads(out)["pods"]) == [0, 0, 10]
    with pytest.raises(SystemExit) as ended:
        main(["simulate", "--cluster", str(file), "--assume", "cpu=4"])
    assert ended.value.code == 2
    assert "--assume and --trace-window need --trace" in capsys.readouterr().err
