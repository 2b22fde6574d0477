"""The command ``kubestow apiserver``, run as a process."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp

from core_tests.hang_limit import HANG_LIMIT
from kubestow_devcluster.apiserver.storage.database import Database

COMMAND = [sys.executable, "-c", "from kubestow.cli import main; main()", "apiserver"]


@asynccontextmanager
async def running_server(*arguments: str) -> AsyncIterator[list[str]]:
    """Start the command, and yield the lines that it prints up to ``ready``."""
    process = await asyncio.create_subprocess_exec(*COMMAND, *arguments, stdout=asyncio.subprocess.PIPE)
    assert process.stdout is not None
    lines: list[str] = []
    try:
        async with asyncio.timeout(HANG_LIMIT):
            while not lines or lines[-1] != "ready":
                lines.append((await process.stdout.readline()).decode().strip())
                assert lines[-1] or process.returncode is None
        yield lines
    finally:
        process.terminate()
        assert await process.wait() == 0


async def test_it_prints_its_url_writes_a_kubeconfig_and_prints_ready(tmp_path: Path) -> None:
    config = tmp_path / "config"
    async with running_server("--port", "0", "--nodes", "3", "--kubeconfig-out", str(config)) as lines:
        url = lines[0].split()[-1]
        assert json.loads(config.read_text())["clusters"][0]["cluster"]["server"] == url
        async with aiohttp.ClientSession() as session, session.get(f"{url}/api/v1/nodes") as response:
            assert len((await response.json())["items"]) == 3
    assert lines[-1] == "ready"


async def run(*arguments: str, command: Sequence[str] = COMMAND) -> tuple[int | None, str]:
    """The exit status and the standard error of the command."""
    process = await asyncio.create_subprocess_exec(
        *command, *arguments, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    _, err = await asyncio.wait_for(process.communicate(), HANG_LIMIT)
    return process.returncode, err.decode()


async def test_a_port_in_use_is_reported_on_one_line_with_status_1() -> None:
    async with running_server("--port", "0") as lines:
        port = lines[0].rpartition(":")[2]
        status, err = await run("--port", port)
    assert (status, err) == (1, f"kubestow: 127.0.0.1:{port} is in use by another process; choose another --port\n")


async def test_an_invalid_token_file_is_reported_with_its_line(tmp_path: Path) -> None:
    tokens = tmp_path / "tokens"
    tokens.write_text("a,b,c\njust-a-token\n")
    status, err = await run("--port", "0", "--token-file", str(tokens))
    assert status == 1
    assert err == f"kubestow: {tokens}: line 2: expected token,user,uid[,groups]\n"


async def test_a_full_disk_stops_the_server_and_loses_no_acknowledged_write(tmp_path: Path) -> None:
    limited = ("sh", "-c", 'ulimit -f 1500; exec "$@"', "sh", *COMMAND, "--port", "0", "--data-dir", str(tmp_path))
    process = await asyncio.create_subprocess_exec(
        *limited, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    async with asyncio.timeout(HANG_LIMIT), aiohttp.ClientSession() as session:
        url = (await process.stdout.readline()).decode().split()[-1]
        acknowledged = 0
        while True:
            body = {"metadata": {"name": f"c{acknowledged}"}, "data": {"ballast": "x" * 20_000}}
            async with session.post(f"{url}/api/v1/namespaces/default/configmaps", json=body) as response:
                if response.status == 500:
                    break
                acknowledged += 1
        message = (await process.communicate())[1].decode()
    assert process.returncode == 1
    assert message.startswith(f"kubestow: {tmp_path / 'kubestow.db'}: write failed") and message.count("\n") == 1
    database = Database(tmp_path)
    assert database.load({}).counts()["configmaps"] == acknowledged > 0
    database.close()


async def test_a_server_that_is_reachable_from_other_machines_prints_a_warning() -> None:
    process = await asyncio.create_subprocess_exec(
        *COMMAND,
        "--port",
        "0",
        "--bind-address",
        "0.0.0.0",
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    assert process.stderr is not None
    async with asyncio.timeout(HANG_LIMIT):
        warning = await process.stderr.readline()
    process.terminate()
    await process.communicate()
    assert warning == b"warning: reachable from other machines: all clients have full access\n"


async def test_a_component_that_ends_is_logged_and_ends_the_process_with_status_1() -> None:
    program = "from kubestow_devcluster.kubelets.kubelets import Kubelets; Kubelets.relist = lambda self: 1 / 0; "
    command = [*COMMAND[:2], program + COMMAND[2], COMMAND[3]]
    status, err = await run("--port", "0", command=command)
    assert status == 1
    assert "kubelets ended unexpectedly\nTraceback" in err
    assert err.endswith("kubestow: kubelets ended: ZeroDivisionError('division by zero')\n")
