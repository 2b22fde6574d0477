"""Connections leave files for everything else that a process opens."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

from core_tests.hang_limit import HANG_LIMIT

pytest.importorskip("resource")


def run_limited(program: str, soft: int, hard: int) -> str:
    """What a program prints in a process that may open so many files."""
    limited = f"import resource; resource.setrlimit(resource.RLIMIT_NOFILE, ({soft}, {hard}))\n{program}"
    arguments: list[str] = [sys.executable, "-c", limited]
    options: dict[str, Any] = {"capture_output": True, "text": True, "check": True, "timeout": HANG_LIMIT}
    return str(subprocess.run(arguments, **options).stdout).strip()


_POOL = """
from kubestow.client.rest.connection_pool import ConnectionPool
print(ConnectionPool("http://localhost", tls=lambda: None)._limit)
"""
_LISTENER = """
import asyncio
from kubestow.http.listener import ConnectionLimits, HTTPListener

async def fill():
    table = HTTPListener(None, name="test", limits=ConnectionLimits())._connections._table
    closed = []
    for number in range(1000):
        table.add(str(number), lambda: closed.append(1))
    print(len(table), len(closed))

asyncio.run(fill())
"""
_RAISED = """
from kubestow.process import open_file_limit, raise_open_file_limit
raise_open_file_limit()
print(open_file_limit())
"""


@pytest.mark.parametrize(("files", "connections"), [(1024, 32), (128, 16)])
def test_a_pool_takes_up_an_eighth_of_the_files(files: int, connections: int) -> None:
    assert run_limited(_POOL, files, files) == str(connections)


@pytest.mark.parametrize(("files", "connections"), [(1024, 256), (128, 32)])
def test_a_port_takes_up_a_quarter_of_the_files(files: int, connections: int) -> None:
    assert run_limited(_LISTENER, files, files) == f"{connections} {1000 - connections}"


def test_the_limit_is_raised_as_far_as_the_process_may() -> None:
    assert run_limited(_RAISED, 100, 200) == "200"
