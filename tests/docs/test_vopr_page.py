"""docs/vopr.md: its plugin breaks the rule that the page shows, and the command prints what it says."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from click.testing import CliRunner

from kubestow_lab.cli.vopr import vopr

PAGE = (Path(__file__).parents[2] / "docs" / "vopr.md").read_text(encoding="utf-8")


def test_the_example_finds_and_shrinks_what_the_page_shows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    [plugin] = re.findall(r"```python\n(.+?)```", PAGE, re.DOTALL)
    Path("teams.py").write_text(plugin)
    [(command, shown)] = re.findall(r"^\$ kubestow vopr (.+)\n((?:.+\n)+?)```", PAGE, re.MULTILINE)
    result = CliRunner().invoke(vopr, [*shlex.split(command), "--jobs", "1"], standalone_mode=False)
    assert result.return_value == 1, result.output
    lines = [line for line in shown.splitlines() if line != "…"]
    assert [line for line in result.output.splitlines() if line in lines] == lines
    assert "def test_nothing_unexpected_is_logged() -> None:" in result.output
    assert "  > user: create pod" in result.output
