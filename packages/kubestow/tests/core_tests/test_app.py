"""Start and cancellation of a SchedulerApp."""

from __future__ import annotations

import asyncio
import logging
import subprocess
import sys

import pytest

from kubestow.cli.scheduler_app import SchedulerApp
from kubestow.config import API_VERSION, KIND


async def run_until_connected(*, feature_gates: str = "") -> asyncio.Task[None]:
    """Run an app until it connects to an API server that never responds, and cancel it."""
    connected = asyncio.Event()

    async def never_respond(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connected.set()
        await reader.read(-1)
        writer.close()

    async with await asyncio.start_server(never_respond, "127.0.0.1") as server:
        host, port = server.sockets[0].getsockname()
        source = {"apiVersion": API_VERSION, "kind": KIND, "leaderElection": {"leaderElect": False}}
        app = SchedulerApp.create(source=source, feature_gates=feature_gates)
        running = asyncio.create_task(app.run(kubeconfig="", master=f"http://{host}:{port}", on_ready=print))
        await connected.wait()
        running.cancel()
        await asyncio.wait([running])
        return running


async def test_cancellation_before_the_api_server_responds_leaves_no_task_behind() -> None:
    running = await run_until_connected()
    assert running.cancelled()
    assert [task for task in asyncio.all_tasks() if "kubestow/app.py" in repr(task)] == []


@pytest.mark.parametrize(
    ("feature_gates", "warnings"),
    [
        ("", []),
        (
            "NativeHistograms=true,CoordinatedLeaderElection=true",
            [
                "Feature gates are enabled but not implemented, so they have no effect: "
                "CoordinatedLeaderElection, NativeHistograms"
            ],
        ),
    ],
)
async def test_one_warning_names_the_enabled_gates_without_effect(
    feature_gates: str, warnings: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "kubestow.cli.scheduler_app"):
        await run_until_connected(feature_gates=feature_gates)
    assert [record.getMessage() for record in caplog.records if record.name == "kubestow.cli.scheduler_app"] == warnings


def test_a_scheduler_without_extenders_does_not_import_aiohttp() -> None:
    """Its import would take a quarter of the start."""
    program = "import sys, kubestow.cli.scheduler_app; print('aiohttp' in sys.modules)"
    output = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert output == "False\n"
