"""Signals to a real process."""

from __future__ import annotations

import asyncio
import json
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from core_tests.cli.scheduler.test_run import free_port, running, status
from core_tests.hang_limit import HANG_LIMIT
from devcluster_tests.client import Client, pod
from kubestow.config import API_VERSION, KIND
from kubestow_devcluster.cluster import DevCluster

PODS = "/api/v1/namespaces/default/pods"


@pytest.fixture
def default_sighup() -> Iterator[None]:
    """Processes started meanwhile do not ignore SIGHUP, though they inherit that of tests that nohup has started."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


async def records(process: asyncio.subprocess.Process, until: str) -> list[dict[str, Any]]:
    """The records of the log up to one with this message."""
    assert process.stderr is not None
    found = [json.loads(await process.stderr.readline())]
    while found[-1]["msg"] != until:
        found.append(json.loads(await process.stderr.readline()))
    return found


async def test_sigusr2_dumps_the_cache_and_compares_it_with_the_api_server() -> None:
    async with DevCluster(nodes=2) as api, asyncio.timeout(HANG_LIMIT):
        client = Client(api)
        await client.post(PODS, pod("fits"))
        pending = pod("pending")
        pending["spec"]["nodeSelector"] = {"none": "yes"}
        await client.post(PODS, pending)
        flags = [f"--master={api.url}", "--secure-port=0", "--leader-elect=false", "--logging-format=json", "-v=2"]
        async with running(*flags) as process:
            await records(process, "Unable to schedule pod; no fit; waiting")
            process.send_signal(signal.SIGUSR2)
            log = await records(process, "Pending pod")
            process.terminate()
            assert await process.wait() == 0
    by_message = {record["msg"]: record for record in log}
    assert "Cache comparer finished" in by_message and "Cache mismatch" not in by_message
    assert by_message["Dump of cached NodeInfo"]["nodes"] == 2
    nodes = [record for record in log if record["msg"] == "Cached node"]
    assert sorted(node["node"] for node in nodes) == ["node-0", "node-1"]
    assert [one["name"] for node in nodes for one in node["scheduledPods"]] == ["fits"]
    assert nodes[0]["allocatable"]["cpu"] == 32000
    assert (log[-1]["pod"]["name"], log[-1]["place"]) == ("pending", "unschedulable")


async def test_sigusr2_before_the_api_server_is_available_is_answered_in_the_log() -> None:
    port = free_port()
    flags = ["--master=http://127.0.0.1:1", f"--secure-port={port}", "--bind-address=127.0.0.1", "--leader-elect=false"]
    async with running(*flags) as process, asyncio.timeout(HANG_LIMIT):
        assert process.stderr is not None
        await process.stderr.readuntil(b"retrying in")
        process.send_signal(signal.SIGUSR2)
        await process.stderr.readuntil(b"Unable to debug the cache: the scheduler is still starting")
        assert await status(port, "/livez") == 200


@pytest.mark.usefixtures("default_sighup")
async def test_sigpipe_is_ignored_and_sighup_ends_the_process() -> None:
    port = free_port()
    flags = ["--master=http://127.0.0.1:1", f"--secure-port={port}", "--bind-address=127.0.0.1", "--leader-elect=false"]
    async with running(*flags) as process, asyncio.timeout(HANG_LIMIT):
        assert process.stderr is not None
        await process.stderr.readuntil(b"retrying in")
        process.send_signal(signal.SIGPIPE)
        assert await status(port, "/livez") == 200
        process._transport.get_pipe_transport(2).close()  # type: ignore[attr-defined]
        process.send_signal(signal.SIGUSR2)  # which is logged
        assert await status(port, "/livez") == 200
        process.send_signal(signal.SIGHUP)
        assert await process.wait() == -signal.SIGHUP


async def test_a_second_sigterm_ends_a_process_that_still_binds_pods(tmp_path: Path) -> None:
    config = tmp_path / "scheduler.json"
    enabled = {"multiPoint": {"enabled": [{"name": "Slow"}]}}
    document = {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "leaderElection": {"leaderElect": False},
        "profiles": [{"schedulerName": "default-scheduler", "plugins": enabled}],
    }
    config.write_text(json.dumps(document))
    async with DevCluster(nodes=1) as api, asyncio.timeout(HANG_LIMIT):
        await Client(api).post(PODS, pod("slow"))
        flags = [
            "--plugin=core_tests.cli.scheduler.slow_plugin:Slow",
            f"--config={config}",
            f"--master={api.url}",
            "--secure-port=0",
        ]
        async with running(*flags, "--logging-format=json", "-v=4") as process:
            await records(process, "PreBind begins")
            process.terminate()
            await records(process, "received SIGTERM, shutting down")
            process.terminate()
            assert await process.wait() == 1
