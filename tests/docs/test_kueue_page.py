"""The examples of docs/kueue.md print what the page shows."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from kubestow.cli import main

PAGE = (Path(__file__).parents[2] / "docs" / "kueue.md").read_text(encoding="utf-8")


def printed(capsys: pytest.CaptureFixture[str], *arguments: str) -> list[str]:
    """The lines that a command prints, without spaces at their ends."""
    with pytest.raises(SystemExit) as exited:
        main(list(arguments))
    assert not exited.value.code
    return [line.rstrip() for line in capsys.readouterr().out.splitlines()]


@pytest.mark.parametrize("command", ["why", "simulate", "what-if"])
def test_example(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for text in re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL):
        (tmp_path / text.partition("\n")[0].removeprefix("# ")).write_text(text)
    monkeypatch.chdir(tmp_path)
    shown = next(
        text for text in re.findall(r"```console\n\$ kubestow (.*?)```", PAGE, re.DOTALL) if text.startswith(command)
    )
    arguments, *lines = shown.splitlines()
    assert printed(capsys, *arguments.split()) == lines


def test_the_table_of_cases_is_that_of_the_tests() -> None:
    tables = Path(__file__).parents[2] / "packages/kubestow-contrib/tests/contrib_tests/kueue/tables"
    rows = re.findall(r"^\| [^|]+ \| (\d+) \| (\d+) \|", PAGE, re.MULTILINE)
    numbers = sum(len(re.findall(r'^\{"number":', path.read_text(), re.MULTILINE)) for path in tables.glob("*.json"))
    assert sum(int(cases) for cases, _ in rows) == numbers
