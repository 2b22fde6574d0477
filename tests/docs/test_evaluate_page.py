"""docs/evaluate.md: its policy, evaluator and commands work, and its tables are complete."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from kubestow_lab.cli.evaluate import evaluate as command
from kubestow_lab.evaluation.evaluation import Status
from kubestow_lab.evaluation.suites import SUITES

PAGE = (Path(__file__).parents[2] / "docs" / "evaluate.md").read_text(encoding="utf-8")
POLICY, EVALUATOR = re.findall(r"```python\n(.+?)```", PAGE, re.DOTALL)


def test_the_evaluator_scores_the_policy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "policy.py").write_text(POLICY)
    names: dict[str, object] = {}
    exec(EVALUATOR, names)
    found = names["evaluate"]("policy.py")  # type: ignore[operator]
    assert found["combined_score"] > 0.9


def test_the_tables_are_complete() -> None:
    assert all(f"`{status.value}`" in PAGE for status in Status)
    for suite in SUITES.values():
        nodes, seeds = f"{suite.sample.nodes:,} nodes", suite.held_out_seeds
        [row] = re.findall(rf"^\| `{suite.name}` \| .+$", PAGE, re.MULTILINE)
        assert nodes in row
        assert f"{suite.sample.load:.0%}".replace("%", " %") in row
        assert f"{seeds[0]}–{seeds[-1]} | `{suite.objective}`" in row


def test_the_commands_are_spelled_right() -> None:
    for arguments in re.findall(r"^\$ kubestow evaluate (.+)$", PAGE, re.MULTILINE):
        command.make_context("evaluate", shlex.split(arguments))
