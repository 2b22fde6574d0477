"""Invalid input ends a command with an error line, never with a traceback."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from kubestow.cli import main


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str]:
    """Run a command; its exit status and standard error."""
    with pytest.raises(SystemExit) as exited:
        main(list(arguments))
    error = capsys.readouterr().err
    assert "Traceback" not in error
    return int(exited.value.code or 0), error.strip()


@pytest.mark.parametrize("arguments", [["fly"], ["demo", "--nodes", "many"], ["verify"]])
def test_invalid_usage_exits_with_status_2(capsys: pytest.CaptureFixture[str], arguments: list[str]) -> None:
    status, error = run(capsys, *arguments)
    assert status == 2
    assert error.startswith("kubestow: ")
    assert error.endswith("--help'.")


def test_a_missing_kubeconfig_is_named(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    status, error = run(capsys, "run", "--secure-port=0", "--kubeconfig", str(tmp_path / "none.yaml"))
    assert (status, "none.yaml" in error, "\n" in error) == (1, True, False)


def test_an_invalid_kubeconfig_is_named(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    broken = tmp_path / "broken.yaml"
    broken.write_text("clusters: [\n  - {")
    status, error = run(capsys, "run", "--secure-port=0", "--kubeconfig", str(broken))
    assert (status, "broken.yaml" in error) == (1, True)


def test_every_error_of_a_configuration_is_reported(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.yaml"
    wrong.write_text(
        "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\nparallelism: 0\n"
        "podInitialBackoffSeconds: -1\n"
    )
    status, error = run(capsys, "run", "--config", str(wrong))
    assert status == 1
    assert error.splitlines() == [
        f"kubestow: {wrong}: parallelism: Invalid value: 0: should be an integer value greater than zero (line 3)",
        f"kubestow: {wrong}: podInitialBackoffSeconds: Invalid value: -1: must be greater than 0 (line 4)",
    ]


def test_a_file_of_another_kind_is_rejected(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    other = tmp_path / "pod.yaml"
    other.write_text("apiVersion: v1\nkind: Pod\n")
    status, error = run(capsys, "run", "--config", str(other))
    assert (status, "pod.yaml" in error, "Pod" in error) == (1, True, True)


@pytest.mark.parametrize(
    ("spelling", "problem"),
    [
        ("nonsense", "expected module:Class"),
        ("no.such.module:X", "cannot be imported"),
        ("json:Nope", "module json has no Nope"),
        ("json:JSONDecoder", "is not a class derived from"),
        ("kubestow.plugins.node_name:NodeName", "the name 'NodeName' is taken"),
        ("kubestow.framework.interface:ScorePlugin", "has no name"),
    ],
)
def test_an_invalid_plugin_is_named(capsys: pytest.CaptureFixture[str], spelling: str, problem: str) -> None:
    status, error = run(capsys, "run", "--plugin", spelling)
    assert (status, problem in error, spelling in error) == (1, True, True)


def test_an_unknown_feature_gate_is_rejected(capsys: pytest.CaptureFixture[str]) -> None:
    status, error = run(capsys, "run", "--feature-gates", "Telepathy=true")
    assert (status, "Telepathy" in error) == (1, True)


def test_a_truncated_recording_is_named_with_its_line(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    cut = tmp_path / "cut.jsonl.gz"
    with gzip.open(cut, "wt") as stream:
        stream.write(json.dumps({"name": "a/1", "expect": []}) + "\n{oops\n")
    status, error = run(capsys, "verify", str(cut))
    assert (status, "cut.jsonl.gz: line 2" in error) == (1, True)


def test_a_missing_recording_is_named(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    status, error = run(capsys, "verify", str(tmp_path / "none.jsonl.gz"))
    assert (status, "none.jsonl.gz" in error) == (1, True)


def test_a_folder_without_recordings_is_named(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    status, error = run(capsys, "verify", str(tmp_path))
    expected = f"kubestow: {tmp_path}: has no recordings; expected files that end with .jsonl.gz"
    assert (status, error) == (1, expected)


def test_names_control_no_terminal(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    hostile = tmp_path / "dump.json"
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p\x1b]0;x\x07\u009b2J"}, "spec": {"nodeName": "n"}}
    hostile.write_text(json.dumps({"apiVersion": "v1", "kind": "\x1b[2J", "metadata": {}}) + json.dumps(pod))
    with pytest.raises(SystemExit):
        main(["simulate", "--cluster", str(hostile), "--workload", str(hostile)])
    shown = capsys.readouterr()
    assert not {"\x1b", "\x07", "\u009b"} & set(shown.out + shown.err)
    assert "\\x1b" in shown.out + shown.err


def test_a_long_text_is_not_quoted_in_full(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    long = tmp_path / "long.yaml"
    long.write_text("x" * 100_000)
    status, error = run(capsys, "run", "--config", str(long))
    assert status == 1 and "long.yaml" in error and len(error) < 3000
