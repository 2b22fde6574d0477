"""Start and cancellation of a SchedulerApp."""

from __future__ import annotations

import asyncio

from kubestow.app import SchedulerApp
from kubestow.config import API_VERSION, KIND


async def test_cancellation_before_the_api_server_responds_leaves_no_task_behind() -> None:
    connected = asyncio.Event()

    async def never_respond(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connected.set()
        await reader.read(-1)
        writer.close()

    async with await asyncio.start_server(never_respond, "127.0.0.1") as server:
        host, port = server.sockets[0].getsockname()
        app = SchedulerApp.create(
            source={"apiVersion": API_VERSION, "kind": KIND, "leaderElection": {"leaderElect": False}}
        )
        running = asyncio.create_task(app.run(kubeconfig="", master=f"http://{host}:{port}", on_ready=print))
        await connected.wait()
        running.cancel()
        await asyncio.wait([running])
        assert running.cancelled()
        assert [task for task in asyncio.all_tasks() if "kubestow/app.py" in repr(task)] == []
