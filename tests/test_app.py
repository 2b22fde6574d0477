"""The scheduler put together, and taken apart again."""

from __future__ import annotations

import asyncio

from kubestow.app import SchedulerApp
from kubestow.config import API_VERSION, KIND


async def test_a_scheduler_that_is_cancelled_before_it_begins_leaves_nothing_running() -> None:
    asked = asyncio.Event()

    async def say_nothing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.set()
        await reader.read(-1)
        writer.close()

    async with await asyncio.start_server(say_nothing, "127.0.0.1") as server:
        host, port = server.sockets[0].getsockname()
        live = SchedulerApp.create(
            source={"apiVersion": API_VERSION, "kind": KIND, "leaderElection": {"leaderElect": False}}
        )
        running = asyncio.create_task(live.run(kubeconfig="", master=f"http://{host}:{port}", on_ready=print))
        await asked.wait()
        running.cancel()
        await asyncio.wait([running])
        assert running.cancelled()
        assert [task for task in asyncio.all_tasks() if "kubestow/live.py" in repr(task)] == []
