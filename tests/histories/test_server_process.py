"""Histories of the server as a process, which is killed for real."""

from __future__ import annotations

from pathlib import Path

from tests.histories.history import Crash
from tests.histories.server_process import record


async def test_a_server_that_ends_in_all_ways_breaks_no_rule(tmp_path: Path) -> None:
    history, violations = await record(tmp_path / "data", 5, ["kill", "full disk", "power"])
    assert violations == []
    assert sum(isinstance(step, Crash) for step in history.steps) == 3
    assert any(operation.answer is not None for operation in history.operations)
