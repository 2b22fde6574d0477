"""``kubestow bench`` from the command line."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import yaml

from kubestow.cli import main
from kubestow.errors import InputError
from kubestow_lab.scheduler_perf.scheduler_process import scheduler_configuration, supported_gates

FILE = """\
- name: Case
  schedulerConfigPath: scheduler.yaml
  featureGates: {SchedulerQueueingHints: false, GangScheduling: true, GenericWorkload: true}
  workloadTemplate:
  - {opcode: createNodes, count: 2}
  - {opcode: createPods, countParam: $measurePods, collectMetrics: true}
  workloads:
  - {name: small, params: {measurePods: 4}}
"""
CONFIGURATION = """\
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
parallelism: 3
leaderElection: {leaderElect: true}
"""


def run(*arguments: str) -> int:
    with pytest.raises(SystemExit) as exited:
        main(["bench", *arguments])
    return int(exited.value.code or 0)


def workload_file(folder: Path) -> str:
    (folder / "scheduler.yaml").write_text(CONFIGURATION)
    (folder / "workloads.yaml").write_text(FILE)
    return str(folder / "workloads.yaml")


def test_a_workload_runs_with_server_and_scheduler_as_processes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(workload_file(tmp_path), "--param", "pods=3", "-o", "json") == 0
    captured = capsys.readouterr()
    result = json.loads(captured.out)
    [workload] = result["workloads"]
    [phase] = workload["phases"]
    assert (workload["name"], workload["parameters"], phase["pods"]) == ("Case/small", {"measurePods": 3}, 3)
    assert workload["cluster"] == "embedded API server"
    [left_out] = workload["leftOutFeatureGates"]
    assert "SchedulerQueueingHints" in left_out
    assert phase["scheduler"]["peakMemory"] > 2**20
    assert {"Filter", "Bind"} <= {row["name"] for row in phase["durations"]}


def test_an_installed_workload_runs_by_its_name_and_writes_a_page(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "page.html"
    assert run("SchedulingBasic/5Nodes", "--core", "-o", f"html={page}") == 0
    assert "SchedulingBasic/5Nodes" in capsys.readouterr().out
    assert "<svg" in page.read_text()


def test_workloads_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("SchedulingBasic", "--list", "--param", "nodes=7") == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "SchedulingBasic/5Nodes  [short]  initNodes=7 initPods=5 measurePods=10"


def test_lists_results_and_comparisons_are_data_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("SchedulingBasic", "--list", "--param", "nodes=7", "-o", "yaml") == 0
    first = yaml.safe_load(capsys.readouterr().out)[0]
    assert first["name"] == "SchedulingBasic/5Nodes" and first["parameters"]["initNodes"] == 7
    assert run("SchedulingBasic/5Nodes", "--core", "-o", "yaml") == 0
    result = yaml.safe_load(capsys.readouterr().out)
    assert [workload["name"] for workload in result["workloads"]] == ["SchedulingBasic/5Nodes"]
    file = tmp_path / "result.json"
    file.write_text(json.dumps(result))
    assert run("--compare", str(file), str(file), "-o", "json") == 0
    comparison = json.loads(capsys.readouterr().out)
    assert comparison["rows"] and {row["ratio"] for row in comparison["rows"]} <= {1.0, None}
    assert comparison["unmatched"] == []


def test_a_workload_runs_as_another_minor_version(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = workload_file(tmp_path)
    assert run(file, "--param", "pods=3", "--emulated-version", "1.32", "-o", "json") == 0
    assert run(file, "--param", "pods=3", "--emulated-version", "1.32", "--core", "-o", "json") == 0
    [of_process, of_engine] = map(
        json.loads, re.findall(r"^\{.*?^\}", capsys.readouterr().out, re.DOTALL | re.MULTILINE)
    )
    assert of_process["workloads"][0]["scheduler"].endswith(" as Kubernetes 1.32")
    assert of_engine["workloads"][0]["scheduler"].endswith(" as Kubernetes 1.32, engine alone")
    for result in (of_process, of_engine):
        left_out = " ".join(result["workloads"][0]["leftOutFeatureGates"])
        assert "GangScheduling, known since 1.35" in left_out
        assert "SchedulerQueueingHints" not in left_out, "it is not locked in 1.32"


@pytest.mark.parametrize(
    ("arguments", "status", "problem"),
    [
        ((), 2, "expected a workload, such as SchedulingBasic/500Nodes"),
        (("SchedulingBasic", "--core", "--external-scheduler"), 2, "--core cannot be used together with"),
        (("SchedulingBasic", "--external-scheduler"), 2, "--external-scheduler requires --kubeconfig"),
        (("SchedulingBasic", "--emulated-version", "1.99"), 1, "version 1.99 is not supported"),
        (("SchedulingBasic", "--scheduler-pid", "1"), 2, "require --external-scheduler"),
        (("SchedulingBasic", "--fail-above", "10%"), 2, "--fail-above requires --compare"),
        (("SchedulingBasic", "-o", "xml"), 1, "expected table, json, yaml or html=FILE, got 'xml'"),
        (("NoSuchCase",), 1, "no such file or installed workload"),
        (("missing.yaml",), 1, "missing.yaml: cannot be read: No such file or directory"),
    ],
)
def test_invalid_usage_is_one_error(
    arguments: tuple[str, ...], status: int, problem: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(*arguments) == status
    error = capsys.readouterr().err
    assert problem in error and "Traceback" not in error


def test_a_failed_workload_is_reported_and_the_others_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    failing = workload_file(tmp_path)
    broken = FILE.replace("{opcode: createNodes, count: 2}", "{opcode: barrier, namespaces: [none]}")
    Path(failing).write_text(broken.replace("Case", "Broken"))
    assert run(failing, "SchedulingBasic/5Nodes", "--core", "-o", "json") == 1
    result = json.loads(capsys.readouterr().out)
    assert [workload["name"] for workload in result["workloads"]] == ["SchedulingBasic/5Nodes"]
    assert "barrier: unknown namespace none" in result["failures"]["Broken/small"]


def test_the_configuration_of_a_workload_is_used_without_leader_election(tmp_path: Path) -> None:
    file = tmp_path / "scheduler.yaml"
    file.write_text(CONFIGURATION)
    configuration = scheduler_configuration(file, "/kubeconfig")
    assert configuration["parallelism"] == 3
    assert configuration["leaderElection"] == {"leaderElect": False}
    assert configuration["clientConnection"] == {"kubeconfig": "/kubeconfig", "qps": 5000, "burst": 5000}
    with pytest.raises(InputError, match=r"none.yaml: cannot be read"):
        scheduler_configuration(tmp_path / "none.yaml")


def test_a_gate_may_depend_on_one_that_follows_it() -> None:
    gates = {"GangScheduling": True, "GenericWorkload": True}
    assert supported_gates(gates) == (dict(reversed(gates.items())), [])


def test_gates_that_cannot_be_set_are_left_out_with_the_reason() -> None:
    gates, left_out = supported_gates(
        {"SchedulerQueueingHints": False, "DRAPartitionableDevices": True, "NoGate": True}
    )
    assert gates == {"DRAPartitionableDevices": True}
    assert any("SchedulerQueueingHints" in problem for problem in left_out)
    assert any("NoGate" in problem for problem in left_out)
