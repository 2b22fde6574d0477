"""How a command ends: its exit status, and the signals that end it.

A command ends with 0 when the work is done, 1 for bad input and for a threshold that was crossed, 2 for wrong usage.
"""

from __future__ import annotations

import logging
import signal
from collections.abc import Coroutine
from typing import Any


class DropIn:
    """The context object of a console script that follows the conventions of the program that it replaces."""


def flush_logs() -> None:
    """Write the log before what is printed about the end; a reader that reads neither delays neither."""
    for handler in logging.getLogger().handlers:
        handler.flush()


async def wait_for_signal() -> None:
    """Wait for SIGINT or SIGTERM."""
    import asyncio

    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    await stop.wait()


async def run_until(
    running: Coroutine[Any, Any, None], *endings: Coroutine[Any, Any, object], seconds: float | None = None
) -> None:
    """Run a coroutine until it ends, another one does, or for some seconds; then all are cancelled.

    Raises what the coroutine raises.
    """
    import asyncio

    task, *others = (asyncio.create_task(program) for program in (running, *endings))
    try:
        await asyncio.wait((task, *others), timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            task.result()
    finally:
        for one in (task, *others):
            one.cancel()
        await asyncio.gather(task, *others, return_exceptions=True)
