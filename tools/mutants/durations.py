"""A plugin of pytest that notes how long each test takes that passes: ``-p tools.mutants.durations``.

The file, ``build/mutants/durations.json``, keeps what former runs have noted of other tests. The times are those of the
processor, which do not depend on what else the machine does.
"""

from __future__ import annotations

import json
import time
from collections.abc import Generator
from pathlib import Path

import pytest

FILE = Path("build/mutants/durations.json")

_seconds: dict[str, float] = {}
_not_passed: set[str] = set()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    start = time.process_time()
    result = yield
    _seconds[item.nodeid] = round(time.process_time() - start, 4)
    return result


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if report.outcome != "passed":
        _not_passed.add(report.nodeid)


def pytest_sessionfinish() -> None:
    durations = {**read(), **_seconds}
    FILE.write_text(json.dumps({test: seconds for test, seconds in durations.items() if test not in _not_passed}))


def read() -> dict[str, float]:
    """Seconds by test."""
    return json.loads(FILE.read_text()) if FILE.exists() else {}
