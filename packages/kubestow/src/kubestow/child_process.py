"""The end of a child process."""

from __future__ import annotations

import asyncio
import contextlib

__all__ = ["stop_process"]


async def stop_process(process: asyncio.subprocess.Process, seconds: float) -> bool:
    """Terminate a process and wait for its end; False if it had to be killed, because it took more than ``seconds``."""
    if process.returncode is None:
        with contextlib.suppress(ProcessLookupError):
            process.terminate()
    try:
        async with asyncio.timeout(seconds):
            await process.wait()
    except TimeoutError:
        process.kill()
        await process.wait()
        return False
    return True
