"""The signals that end a command."""

from __future__ import annotations

import asyncio
import signal

__all__ = ["wait_for_signal"]


async def wait_for_signal() -> None:
    """Wait for SIGINT or SIGTERM."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    await stop.wait()
