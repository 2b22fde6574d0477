"""Runs kubectl against a server."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path

import pytest

from core_tests.hang_limit import HANG_LIMIT

KUBECTL = shutil.which("kubectl")

NEEDS_KUBECTL = [
    pytest.mark.kubectl,
    pytest.mark.skipif(KUBECTL is None, reason="kubectl is not installed"),
]


class Kubectl:
    """kubectl with the server at ``url`` and the home directory ``home``."""

    def __init__(self, url: str, home: Path) -> None:
        self._url, self._home = url, home

    async def __call__(self, *arguments: str, stdin: str = "", editor: str = "", fails: bool = False) -> str:
        """Standard output, or standard error if the command ``fails``. ``editor`` is the command that ``edit`` runs."""
        out, err = await self._run(arguments, stdin=stdin, editor=editor, statuses=(1,) if fails else (0,))
        return err if fails else out

    async def output(self, *arguments: str, fails: bool = False) -> str:
        """Standard error followed by standard output."""
        out, err = await self._run(arguments, statuses=(1,) if fails else (0,))
        return err + out

    async def differences(self, *arguments: str, stdin: str) -> str:
        """The output of ``diff``, which exits with status 1 when it finds differences."""
        return (await self._run(arguments, stdin=stdin, statuses=(1,)))[0]

    async def until(self, word: str, *arguments: str) -> list[str]:
        """The output lines of a command that does not exit, up to the first line that contains ``word``."""
        process = await self._start(arguments)
        assert process.stdout is not None
        lines: list[str] = []
        try:
            async with asyncio.timeout(HANG_LIMIT):
                while not lines or word not in lines[-1]:
                    lines.append((await process.stdout.readline()).decode())
        finally:
            process.terminate()
            await process.communicate()
        return lines

    async def _run(
        self, arguments: tuple[str, ...], *, stdin: str = "", editor: str = "", statuses: tuple[int, ...]
    ) -> tuple[str, str]:
        process = await self._start(arguments, editor)
        async with asyncio.timeout(HANG_LIMIT):
            out, err = await process.communicate(stdin.encode())
        assert process.returncode in statuses, f"{arguments}: {err.decode()}"
        return out.decode(), err.decode()

    async def _start(self, arguments: tuple[str, ...], editor: str = "") -> asyncio.subprocess.Process:
        assert KUBECTL is not None
        return await asyncio.create_subprocess_exec(
            KUBECTL,
            f"--server={self._url}",
            f"--cache-dir={self._home}",
            *arguments,
            env={
                "HOME": str(self._home),
                "PATH": "/usr/bin:/bin",
                "KUBECONFIG": "/dev/null",
                "KUBE_EDITOR": editor,
            },
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
