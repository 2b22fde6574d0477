"""The real kubectl as a function."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path

import pytest

__all__ = ["NEEDS_KUBECTL", "Kubectl"]

KUBECTL = shutil.which("kubectl")

NEEDS_KUBECTL = [
    pytest.mark.kubectl,
    pytest.mark.skipif(KUBECTL is None, reason="there is no kubectl on this machine"),
]


class Kubectl:
    """kubectl against the server at ``url``, with a home of its own."""

    def __init__(self, url: str, home: Path) -> None:
        self._url, self._home = url, home

    async def __call__(self, *arguments: str, stdin: str = "", editor: str = "", fails: bool = False) -> str:
        """What the command prints; on standard error where it ``fails``. ``editor`` is what ``edit`` calls."""
        out, err = await self._run(arguments, stdin=stdin, editor=editor, fails=fails)
        return err if fails else out

    async def output(self, *arguments: str, fails: bool = False) -> str:
        """All that the command prints, warnings first."""
        out, err = await self._run(arguments, fails=fails)
        return err + out

    async def _run(
        self, arguments: tuple[str, ...], *, stdin: str = "", editor: str = "", fails: bool = False
    ) -> tuple[str, str]:
        assert KUBECTL is not None
        process = await asyncio.create_subprocess_exec(
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
        async with asyncio.timeout(60):
            out, err = await process.communicate(stdin.encode())
        assert bool(process.returncode) == fails, err.decode()
        return out.decode(), err.decode()
