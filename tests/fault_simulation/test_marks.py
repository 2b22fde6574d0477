"""Marks: which rare paths a run has reached, and the command that fails when one was not."""

from __future__ import annotations

import logging

import pytest
from click.testing import CliRunner

from kubestow_lab.fault_simulation import __main__ as command
from kubestow_lab.fault_simulation.marks import Mark, Marks
from kubestow_lab.fault_simulation.scenario import Part
from kubestow_lab.fault_simulation.scheduler.faulty_plugin import InjectedError
from kubestow_lab.fault_simulation.scheduler.lookout import LoggedMarks
from kubestow_lab.fault_simulation.simulation import Outcome, simulate


def _run(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(command.main, ["--jobs", "1", *arguments])
    return result.exit_code, result.output


def test_the_command_prints_every_mark_and_how_often_it_was_reached() -> None:
    code, output = _run("--seeds", "1", "--first", "2")
    assert code == 0
    assert all(str(mark) in output for mark in Mark)
    assert "1 seeds from 2: " in output


def test_the_command_fails_when_enough_seeds_have_not_reached_a_mark(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "_SEEDS_FOR_ALL_MARKS", 1)
    reached = Outcome(1, "", 600, 0, [], (), {Mark.FLUSHED: 2}, ())
    monkeypatch.setattr(command, "outcomes", lambda *_, **__: [reached])
    code, output = _run("--seeds", "1")
    assert code == 1
    assert "marks that no run has reached: " in output
    assert str(Mark.FLUSHED) not in output.partition("marks that no run has reached: ")[2]


def test_a_full_disk_of_a_flight_record_does_not_harm_the_scheduler() -> None:
    outcome = simulate(3, required=[Part.RECORDS])
    assert outcome.marks[Mark.RECORD_DISK_FULL] > 0
    assert outcome.violations == []


def test_a_failure_that_is_only_logged_is_marked() -> None:
    marks = Marks()
    error = InjectedError("Unreserve")
    record = logging.LogRecord("kubestow", logging.ERROR, __file__, 1, "failed", None, (InjectedError, error, None))
    LoggedMarks(marks).emit(record)
    assert marks.counts == {Mark.UNRESERVE_RAISED: 1}
