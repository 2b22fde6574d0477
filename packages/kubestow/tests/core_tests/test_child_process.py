"""The end of child processes: by SIGTERM, or by SIGKILL if they do not obey it."""

from __future__ import annotations

import asyncio
import signal
import sys

from kubestow.process import stop_process

_STUBBORN = (
    "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('ready', flush=True); time.sleep(3600)"
)


async def started(program: str) -> asyncio.subprocess.Process:
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", program, stdout=asyncio.subprocess.PIPE)
    assert process.stdout is not None
    assert await process.stdout.readline() == b"ready\n"
    return process


async def test_a_process_is_terminated() -> None:
    process = await started("import time; print('ready', flush=True); time.sleep(3600)")
    assert await stop_process(process, 600)
    assert process.returncode == -signal.SIGTERM


async def test_a_process_that_ignores_it_is_killed() -> None:
    process = await started(_STUBBORN)
    assert not await stop_process(process, 0.1)
    assert process.returncode == -signal.SIGKILL


async def test_a_process_that_has_ended_stays_as_it_is() -> None:
    process = await started("print('ready', flush=True); raise SystemExit(3)")
    await process.wait()
    assert await stop_process(process, 600)
    assert process.returncode == 3
