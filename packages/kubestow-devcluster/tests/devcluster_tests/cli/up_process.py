"""``kubestow up`` as a process."""

from __future__ import annotations

import asyncio
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from core_tests.cli import ended_command
from core_tests.hang_limit import HANG_LIMIT

COMMAND = (sys.executable, "-c", "from kubestow.cli import main; main()", "up", "--port", "0")


@dataclass
class Up:
    """A running cluster: the output of the command up to ``ready``, and its kubeconfig."""

    lines: list[str]
    kubeconfig: Path
    pid: int

    @property
    def url(self) -> str:
        return next(line.split()[-1] for line in self.lines if line.startswith("serving"))


@asynccontextmanager
async def up(directory: Path, *arguments: str) -> AsyncIterator[Up]:
    """Start a cluster, and end it with SIGTERM and exit status 0."""
    kubeconfig = directory / "kubeconfig"
    process = await asyncio.create_subprocess_exec(
        *COMMAND, "--kubeconfig-out", str(kubeconfig), *arguments, stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    lines: list[str] = []
    try:
        async with asyncio.timeout(HANG_LIMIT):
            while not lines or lines[-1] != "ready":
                line = await process.stdout.readline()
                assert line, "the process ended before it was ready"
                lines.append(line.decode().strip())
        yield Up(lines, kubeconfig, process.pid)
    finally:
        process.terminate()
        assert await process.wait() == 0


async def ended(*arguments: str) -> tuple[int, str]:
    """The exit status and standard error of a command that fails to start."""
    status, _, error = await ended_command.ended("up", "--port", "0", *arguments)
    return status, error


async def started(*arguments: str) -> Process:
    """The process of a command that is ready; the caller ends it."""
    process = await asyncio.create_subprocess_exec(*COMMAND, *arguments, stdout=PIPE, stderr=PIPE)
    assert process.stdout is not None
    async with asyncio.timeout(HANG_LIMIT):
        while (line := await process.stdout.readline()) != b"ready\n":
            assert line, "the process ended before it was ready"
    return process


def children_of(pid: int) -> list[int]:
    """The child processes of a process."""
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False
