"""docs/compare.md: the changes and thresholds exist, and the Python example runs."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from core_tests.engine.input.manifests import node, workload, write
from kubestow_lab.cli.compare import compare as command
from kubestow_lab.comparison.pod_differences import PodChange
from kubestow_lab.comparison.thresholds import Threshold

PAGE = (Path(__file__).parents[2] / "docs" / "compare.md").read_text(encoding="utf-8")


def block(heading: str) -> str:
    """The first code block below a heading."""
    return PAGE.partition(f"## {heading}\n")[2].split("```")[1].partition("\n")[2]


def test_all_changes_are_listed() -> None:
    changes = PAGE.partition("## Pods that differ")[2].partition("## Metrics")[0]
    assert set(re.findall(r"\w+", " ".join(re.findall(r"^\| ([a-z, ]+) \|", changes, re.MULTILINE)))) == {*PodChange}


def test_all_thresholds_parse() -> None:
    for text in (*block("Thresholds").splitlines(), *re.findall(r"--fail-if '(.+?)'", PAGE)):
        Threshold.parse(text)


def test_all_commands_are_spelled_right() -> None:
    text = PAGE.replace("\\\n", " ")
    for line in re.findall(r"kubestow compare (--.+)$", text, re.MULTILINE):
        command.make_context("compare", shlex.split(line))


def test_the_python_example_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write(tmp_path, node("a"), node("b"), name="dump.json")
    write(tmp_path, workload("Deployment", "web", replicas=3), name="deploy.yaml")
    for name in ("a.yaml", "b.yaml"):
        header = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"
        (tmp_path / name).write_text(header)
    names: dict[str, object] = {}
    exec(block("In Python"), names)
    assert repr(names["comparison"]).startswith("<Comparison: 0 lost")
