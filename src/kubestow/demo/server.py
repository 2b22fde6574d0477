"""The embedded API server as a process of its own, so that scheduler and server do not share one interpreter."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from kubestow.errors import KubestowError

__all__ = ["running_server"]

_SERVING = "serving the Kubernetes API on "
_START_TIMEOUT = 30.0
_STOP_TIMEOUT = 5.0


@asynccontextmanager
async def running_server() -> AsyncIterator[str]:
    """Start an API server on a free port, give its URL, and stop it in the end. Raises KubestowError."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "kubestow",
        "apiserver",
        "--port=0",
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        try:
            async with asyncio.timeout(_START_TIMEOUT):
                url = await _url(process)
        except TimeoutError:
            raise KubestowError("the embedded API server does not become ready") from None
        yield url
    finally:
        await _stop(process)


async def _url(process: asyncio.subprocess.Process) -> str:
    assert process.stdout is not None and process.stderr is not None
    url = ""
    async for line in process.stdout:
        text = line.decode().strip()
        if text.startswith(_SERVING):
            url = text.removeprefix(_SERVING)
        if text == "ready":
            return url
    problem = (await process.stderr.read()).decode().strip()
    raise KubestowError(f"the embedded API server does not start: {problem or 'it says nothing'}")


async def _stop(process: asyncio.subprocess.Process) -> None:
    if process.returncode is None:
        process.terminate()
        try:
            async with asyncio.timeout(_STOP_TIMEOUT):
                await process.wait()
        except TimeoutError:
            process.kill()
            await process.wait()
