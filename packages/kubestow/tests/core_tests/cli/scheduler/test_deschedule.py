"""``kubestow deschedule`` on files: reports, and one clear line for bad input."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from core_tests.descheduling.objects import node, pod, policy
from kubestow.cli import main
from kubestow.cli.input.scheduler import SchedulerInput
from kubestow.errors import InputError
from kubestow.rules.minors import Minor

LOW = {"thresholds": {"cpu": 20}, "targetThresholds": {"cpu": 50}}
NOW = ("--now", "2026-07-01T00:00:00Z")


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a dump, whose first node is full, and a policy for it."""
    monkeypatch.chdir(tmp_path)
    write_dump(tmp_path, [pod(f"web-{i}", "n1", cpu="900m") for i in range(4)])
    write_policy(tmp_path, policy("LowNodeUtilization", LOW, point="balance"))
    return tmp_path


def write_dump(folder: Path, pods: list[dict[str, Any]], *others: dict[str, Any]) -> None:
    nodes = [{"apiVersion": "v1", "kind": "Node", **node(name)} for name in ("n1", "n2")]
    items = [*nodes, *({"apiVersion": "v1", "kind": "Pod", **p} for p in pods), *others]
    (folder / "dump.json").write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))


def write_policy(folder: Path, document: Any) -> None:
    (folder / "policy.yaml").write_text(yaml.safe_dump(document, sort_keys=False))


def run(capsys: pytest.CaptureFixture[str], *arguments: str, dump: bool = True) -> tuple[int | str | None, str, str]:
    given = ["--policy-config-file", "policy.yaml", *(["--cluster", "dump.json", "--dry-run"] if dump else [])]
    with pytest.raises(SystemExit) as ended:
        main(["deschedule", *given, *arguments])
    captured = capsys.readouterr()
    return ended.value.code, captured.out, captured.err


def test_the_report_as_json_yaml_and_table(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, out, err = run(capsys, *NOW, "-o", "json")
    assert (status, err) == (0, "")
    report = json.loads(out)
    assert [(entry["pod"], entry["comesBack"]["node"]) for entry in report["evicted"]] == [
        ("default/web-0", "n2"),
        ("default/web-1", "n2"),
    ]
    assert yaml.safe_load(run(capsys, *NOW, "-o", "yaml")[1]) == report
    table = run(capsys, *NOW)[1]
    assert table.startswith("2 pods evicted, 0 refused; of the evicted, 2 move to another node\n")
    assert "default/web-0" in table


def test_without_the_scheduler_nothing_is_predicted(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    report = json.loads(run(capsys, *NOW, "--rescheduling", "off", "-o", "json")[1])
    assert len(report["evicted"]) == 2
    assert all("comesBack" not in entry for entry in report["evicted"])


def test_finished_pods_of_a_dump_count(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_dump(files, [pod("failed", "n1", status={"phase": "Failed"})])
    write_policy(files, policy("RemoveFailedPods"))
    report = json.loads(run(capsys, *NOW, "-o", "json")[1])
    assert [entry["pod"] for entry in report["evicted"]] == ["default/failed"]


def test_objects_that_cannot_be_used_are_named_and_left_out(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    broken = {"apiVersion": "v1", "kind": "Pod", **pod("broken", "n1")}
    broken["status"] = {"containerStatuses": "none"}
    write_dump(files, [pod("web", "n1")], broken)
    status, _, err = run(capsys, *NOW)
    assert status == 0
    assert "dump.json: items[3]: invalid Pod: status.containerStatuses: " in err


@pytest.mark.parametrize("time", ["yesterday", "2026-06-30T00:00:00"])
def test_a_pod_with_an_invalid_time_is_left_out(files: Path, capsys: pytest.CaptureFixture[str], time: str) -> None:
    unknown_since = {"type": "Ready", "status": "False", "lastTransitionTime": time}
    broken = [
        pod("created", "n1", metadata={"creationTimestamp": time}),
        pod("unready", "n1", status={"conditions": [unknown_since]}),
    ]
    write_dump(files, [pod("web", "n1"), *broken])
    conditions = [{"minTimeSinceLastTransitionSeconds": 1}, {"type": "Ready"}]
    write_policy(files, policy("PodLifeTime", {"maxPodLifeTimeSeconds": 60, "conditions": conditions}))
    status, _, err = run(capsys, *NOW)
    assert status == 0
    assert f'items[3]: invalid Pod: metadata.creationTimestamp is "{time}", expected a time such as ' in err
    assert f'items[4]: invalid Pod: status.conditions[].lastTransitionTime is "{time}", expected' in err


def test_a_pod_with_an_invalid_amount_is_left_out(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_dump(files, [pod("web", "n1"), pod("broken", "n1", cpu="lots")])
    write_policy(files, policy("PodLifeTime", {"maxPodLifeTimeSeconds": 60}))
    status, out, err = run(capsys, *NOW, "-o", "json", "--rescheduling", "report")
    assert status == 0
    assert [entry["pod"] for entry in json.loads(out)["evicted"]] == ["default/web"]
    assert "items[3]: invalid Pod default/broken: " in err


@pytest.mark.parametrize(
    ("document", "line"),
    [
        (
            policy("LowNodeUtilization", LOW | {"thresholds": {"cpu": 60}}, point="balance"),
            "policy.yaml: profiles[0].pluginConfig[0].args.thresholds.cpu: thresholds' cpu percentage is greater than"
            " targetThresholds' (line 9)",
        ),
        (
            policy("Nope"),
            "policy.yaml: profiles[0].pluginConfig[0].name: plugin Nope in pluginConfig not registered (line 6)",
        ),
        (
            policy("PodLifeTime", {"maxPodLifeTimeSeconds": "x"}),
            "policy.yaml: profiles[0].pluginConfig[0].args.maxPodLifeTimeSeconds: expected an integer (int64), got"
            ' string "x" (line 8)',
        ),
        (
            policy("PodLifeTime", {"maxPodLifeTimeSeconds": 1}, evictor={"priorityThreshold": {"name": "gone"}}),
            "policy.yaml: profiles[0].pluginConfig[1].args.priorityThreshold.name: unable to get priority value from"
            ' the priority class: priorityclasses.scheduling.k8s.io "gone" not found',
        ),
    ],
)
def test_a_mistake_in_the_policy_is_one_line(
    files: Path, capsys: pytest.CaptureFixture[str], document: Any, line: str
) -> None:
    write_policy(files, document)
    assert run(capsys, *NOW) == (1, "", f"kubestow: {line}\n")


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (("--now", "yesterday"), '--now: expected a time such as 2026-07-01T00:00:00Z, got "yesterday"'),
        (("--seed", "x"), '--seed: expected an integer, got "x"'),
        (("--cluster", "gone.json"), "gone.json: cannot be read: No such file or directory"),
        (
            ("--rescheduling", "maybe"),
            '--rescheduling: invalid argument "maybe": expected one of auto, refuse, refuse-pending, report, off',
        ),
        (("--descheduling-interval=-5m",), "--descheduling-interval: must not be negative, got -5m0s"),
        (
            ("--descheduling-interval", "5m"),
            "--cluster: a cluster of a file does not change, so there is no --descheduling-interval",
        ),
        (("--plugin", "json:loads"), "--plugin json:loads: is not a class derived from "),
    ],
)
def test_a_mistake_in_the_flags_is_one_line(
    files: Path, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], line: str
) -> None:
    status, out, err = run(capsys, *arguments)
    assert (status, out) == (1, "")
    assert err.startswith(f"kubestow: {line}")
    assert err.count("\n") == 1


def test_gates_are_checked_in_the_version_of_the_server_when_that_is_known() -> None:
    options = SchedulerInput(None, (), "CSIMigrationPortworx=true", "").read_for_server()
    assert options.gates.emulating(Minor(33)).enabled("CSIMigrationPortworx")
    with pytest.raises(InputError, match=r"CSIMigrationPortworx, removed in 1\.36"):
        options.gates.emulating(Minor(36))
    with pytest.raises(InputError, match="unrecognized feature gate: Nonsense"):
        SchedulerInput(None, (), "Nonsense=true", "").read_for_server()


def test_a_dump_is_not_descheduled_for_real(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, _, err = run(capsys, "--cluster", "dump.json", dump=False)
    assert (status, err) == (1, "kubestow: --cluster: a cluster of a file can only be descheduled with --dry-run\n")


def test_a_broken_policy_file_is_one_line(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (files / "policy.yaml").write_text("profiles: [")
    status, _, err = run(capsys)
    assert status == 1
    assert err.startswith("kubestow: policy.yaml: invalid YAML: ")
    assert err.count("\n") == 1


# -- plans of defragmentation ------------------------------------------------------------------------------------------


def write_plan(folder: Path, **changes: Any) -> None:
    move = {
        "step": 1,
        "pod": "default/web-0",
        "uid": "uid-web-0",
        "controller": "ReplicaSet/web",
        "from": "n1",
        "to": "n2",
    }
    plan = {"kind": "DefragmentationPlan", "gang": "train", "cordon": ["n1"], "moves": [move], **changes}
    (folder / "plan.json").write_text(json.dumps(plan))


def run_plan(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int | str | None, str, str]:
    with pytest.raises(SystemExit) as ended:
        main(["deschedule", "--plan", "plan.json", *arguments])
    captured = capsys.readouterr()
    return ended.value.code, captured.out, captured.err


def test_a_plan_is_rehearsed_on_a_dump(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_dump(files, [pod("web-0", "n1")])
    write_plan(files)

    status, out, _ = run_plan(capsys, "--cluster", "dump.json", "--dry-run", "--cordon", "-o", "json")
    table = run_plan(capsys, "--cluster", "dump.json", "--dry-run", "--cordon")[1]

    report = json.loads(out)
    assert status == 0
    assert (report["kind"], report["dryRun"], report["complete"]) == ("DefragmentationExecution", True, False)
    assert [(move["pod"], move["state"], move["node"]) for move in report["moves"]] == [
        ("default/web-0", "Remains", "n2")
    ]
    assert table.startswith("train: 0 of 1 move done\nthe rest of the plan holds; nothing was evicted\n")


def test_a_plan_that_does_not_hold_on_a_dump_has_status_1(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_dump(files, [pod("web-0", "n1"), pod("stranger", "n1")])
    write_plan(files)

    status, out, _ = run_plan(capsys, "--cluster", "dump.json", "--dry-run", "--cordon")

    assert status == 1
    assert "stopped: default/stranger is on n1, which is to be free\n" in out


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (("--cluster", "dump.json"), "--cluster: a plan can only be carried out on a live cluster; use --dry-run"),
        (("--policy-config-file", "policy.yaml"), "--policy-config-file: is for a policy, not for a plan"),
        (("--descheduling-interval", "1m"), "--descheduling-interval: is for a policy, not for a plan"),
        (("--move-timeout=-1s",), "--move-timeout: must not be negative, got -1s"),
    ],
)
def test_flags_that_make_no_sense_with_a_plan_are_refused(
    files: Path, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], problem: str
) -> None:
    write_plan(files)

    assert run_plan(capsys, *arguments) == (1, "", f"kubestow: {problem}\n")


def test_flags_of_plans_are_refused_with_a_policy(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(capsys, "--cordon") == (1, "", "kubestow: --cordon: is for a plan (--plan)\n")
