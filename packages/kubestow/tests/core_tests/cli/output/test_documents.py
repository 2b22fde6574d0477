"""Tables on a pipe and in files."""

from __future__ import annotations

from pathlib import Path

import pytest
from rich.table import Table

from kubestow.cli.output import print_result


def wide_table() -> Table:
    table = Table("pod", "reason", box=None)
    table.add_row("default/" + "a" * 200, "0/3 nodes are available: " + "3 Insufficient cpu " * 20)
    return table


def test_a_row_is_one_line_without_a_terminal(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    print_result(dict, wide_table(), "table")
    print_result(dict, wide_table(), "table", str(tmp_path / "table.txt"))
    for text in (capsys.readouterr().out, (tmp_path / "table.txt").read_text(encoding="utf-8")):
        (row,) = (line for line in text.splitlines() if "aaa" in line)
        assert row.count("Insufficient cpu") == 20
