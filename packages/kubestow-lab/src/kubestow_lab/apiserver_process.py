"""The embedded API server in a separate process, so that scheduler and server do not share an interpreter."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from importlib.util import find_spec

from kubestow.errors import KubestowError
from kubestow.process import stop_process

_COMMAND = ("kubestow", "apiserver", "--port=0")
_SERVING = "serving the Kubernetes API on "
_START_TIMEOUT = 30.0
_STOP_TIMEOUT = 5.0


@asynccontextmanager
async def apiserver_process(command: Sequence[str] = _COMMAND) -> AsyncIterator[str]:
    """Start an API server on a free port, yield its URL, and stop it on exit. Raises KubestowError.

    ``command`` is a Python module and its arguments; it prints what ``kubestow apiserver`` does.
    """
    if find_spec("kubestow_devcluster") is None:
        raise KubestowError(
            "the embedded API server is not installed; install it with: pip install kubestow-devcluster"
        )
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        *command,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        try:
            async with asyncio.timeout(_START_TIMEOUT):
                url = await _url(process)
        except TimeoutError:
            raise KubestowError(f"the embedded API server is not ready after {_START_TIMEOUT:.0f} s") from None
        yield url
    finally:
        await stop_process(process, _STOP_TIMEOUT)


async def _url(process: asyncio.subprocess.Process) -> str:
    assert process.stdout is not None and process.stderr is not None
    url = ""
    async for line in process.stdout:
        text = line.decode().strip()
        if text.startswith(_SERVING):
            url = text.removeprefix(_SERVING)
        if text == "ready":
            return url
    error = (await process.stderr.read()).decode().strip()
    raise KubestowError(f"the embedded API server failed to start: {error or 'no error output'}")
