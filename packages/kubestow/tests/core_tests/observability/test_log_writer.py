"""Logging to a reader that stalls: nothing waits for it, and what is dropped is counted and mentioned."""

from __future__ import annotations

import logging
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from io import StringIO
from typing import TextIO

import pytest

from core_tests.hang_limit import HANG_LIMIT
from kubestow.observability.log_writer import QueuedHandler, dropped_lines


def record(message: str) -> logging.LogRecord:
    return logging.makeLogRecord({"msg": message, "levelno": logging.INFO})


@pytest.fixture
def pipe() -> Iterator[tuple[int, TextIO]]:
    """A pipe that is read only by the test, and its other end as a stream."""
    reading, writing = os.pipe()
    with os.fdopen(writing, "w") as stream:
        yield reading, stream
    os.close(reading)


def read_until(file: int, end: str) -> str:
    text = ""
    while end not in text:
        text += os.read(file, 2**16).decode()
    return text


def test_lines_are_written_in_order(pipe: tuple[int, TextIO]) -> None:
    handler = QueuedHandler(pipe[1])
    for number in range(1000):
        handler.emit(record(f"line {number}"))
    handler.flush()
    lines = read_until(pipe[0], "line 999\n").splitlines()
    assert lines == [f"line {number}" for number in range(1000)]
    assert handler.dropped == 0


def test_a_reader_that_stalls_costs_lines_and_no_time(pipe: tuple[int, TextIO]) -> None:
    before = dropped_lines()
    handler = QueuedHandler(pipe[1], max_queued=2**16)
    for _ in range(1000):
        handler.emit(record("x" * 1000))
    dropped = handler.dropped
    assert 700 < dropped < 1000
    assert dropped_lines() - before == dropped
    # The reader goes on.
    # The mention may precede the last lines of the queue.
    text, mentioned = "", 0
    while mentioned < dropped or text.count("x" * 1000 + "\n") < 1000 - dropped:
        text += os.read(pipe[0], 2**16).decode()
        mentioned = sum(map(int, re.findall(r"^(\d+) log lines were dropped", text, re.MULTILINE)))
    assert mentioned == dropped
    assert text.count("x" * 1000 + "\n") == 1000 - dropped


def test_a_stream_that_is_not_a_file_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = StringIO()
    handler = QueuedHandler(stream)
    handler.emit(record("hello"))
    handler.flush()
    assert stream.getvalue() == "hello\n"


def test_lines_for_a_reader_that_has_gone_count_as_dropped() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "w") as stream:
        handler = QueuedHandler(stream)
        handler.emit(record("lost"))
        handler.flush()
        assert handler.dropped == 1


_PROGRAM = """
import logging, sys
from kubestow.cli import main
from kubestow.observability import logs
logs.set_up(verbosity=0, json_format=False)
for number in range(50_000):
    logging.getLogger("kubestow").info("%d %s", number, "x" * 400)
print("alive", flush=True)
main(["why", "no-pod"])
"""


def test_a_process_whose_log_is_not_read_goes_on_and_ends() -> None:
    """It prints an error at its end, which must not wait for the reader either."""
    program = subprocess.Popen([sys.executable, "-c", _PROGRAM], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    try:
        assert program.stdout is not None
        assert program.stdout.readline() == b"alive\n"
        assert program.wait(HANG_LIMIT) == 1
    finally:
        program.kill()
        program.communicate()


_FORKS = """
import logging, os
from kubestow.observability import logs
logs.set_up(verbosity=0, json_format=False)
logging.getLogger("kubestow").info("parent")
child = os.fork()
if not child:
    logging.getLogger("kubestow").info("child")
    logging.shutdown()
    os._exit(0)
os.waitpid(child, 0)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this platform has no fork")
def test_a_forked_process_has_a_writer_of_its_own() -> None:
    ended = subprocess.run(
        [sys.executable, "-c", _FORKS], capture_output=True, text=True, timeout=HANG_LIMIT, check=True
    )
    assert ended.stderr.count('"parent"') == 1
    assert ended.stderr.count('"child"') == 1
