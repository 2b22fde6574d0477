"""A cluster that exists already, with the scheduler that runs there."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path

from devcluster_tests.cli.up_process import up

#: Lists what is left in a cluster.
_LIST = ("namespaces", "nodes", "pods")


async def run(*arguments: str) -> tuple[int | None, str, str]:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "kubestow", "bench", *arguments),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    output, error = await process.communicate()
    return process.returncode, output.decode(), error.decode()


async def names(url: str, plural: str) -> list[str]:
    reader, writer = await asyncio.open_connection(*url.removeprefix("http://").rsplit(":", 1))
    writer.write(f"GET /api/v1/{plural} HTTP/1.0\r\nHost: localhost\r\n\r\n".encode())
    body = (await reader.read()).partition(b"\r\n\r\n")[2]
    writer.close()
    return [item["metadata"]["name"] for item in json.loads(body)["items"]]


async def test_the_scheduler_of_a_cluster_is_measured_and_the_cluster_left_as_it_was(tmp_path: Path) -> None:
    async with up(tmp_path, "--nodes", "0") as cluster:
        before = {plural: await names(cluster.url, plural) for plural in _LIST}
        options = ("--kubeconfig", str(cluster.kubeconfig), "--external-scheduler", "-o", "json")
        status, output, error = await run("SchedulingBasic/5Nodes", *options)
        assert status == 0, error
        [workload] = json.loads(output)["workloads"]
        assert (workload["scheduler"], workload["phases"][0]["pods"]) == ("external scheduler", 10)
        assert workload["phases"][0]["scheduler"] is None
        assert {plural: await names(cluster.url, plural) for plural in _LIST} == before
        status, _, error = await run("SchedulingBasic/5Nodes", *options, "--scheduler-pid", str(2**22 - 1))
        assert status == 1 and "there is no process" in error
