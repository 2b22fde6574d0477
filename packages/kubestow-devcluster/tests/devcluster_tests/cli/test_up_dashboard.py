"""The dashboard of ``kubestow up``, from either process of the scheduler."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from devcluster_tests.cli.up_process import Up, up


def address_of(cluster: Up) -> str:
    return next(line.split()[-1] for line in cluster.lines if line.startswith("dashboard: "))


async def snapshot(session: aiohttp.ClientSession, address: str) -> dict[str, Any]:
    async with session.get(f"{address}/events", headers={"Accept-Encoding": "identity"}) as response:
        assert response.status == 200
        assert await response.content.readline() == b"event: snapshot\n"
        found: dict[str, Any] = json.loads((await response.content.readline()).removeprefix(b"data: "))
        return found


@pytest.mark.parametrize("own_process", ["true", "false"])
async def test_it_is_served_by_the_scheduler_at_the_printed_address(own_process: str, tmp_path: Path) -> None:
    async with up(tmp_path, "--nodes", "2", "--scheduler-process", own_process) as cluster:
        assert address_of(cluster) == f"{cluster.url}/dashboard"
        async with aiohttp.ClientSession() as session:
            async with session.get(address_of(cluster)) as response:
                assert "<title>kubestow</title>" in await response.text()
            assert (await snapshot(session, address_of(cluster)))["nodes"]["names"] == ["node-0", "node-1"]


async def test_with_authentication_its_data_needs_a_token(tmp_path: Path) -> None:
    tokens = tmp_path / "tokens"
    tokens.write_text("secret,developer,1\n")
    async with up(tmp_path, "--nodes", "1", "--token-file", str(tokens)) as cluster:
        address = address_of(cluster)
        async with aiohttp.ClientSession() as session:
            async with session.get(f"{address}/events") as response:
                assert response.status == 401
            async with session.get(address) as response:
                assert response.status == 200
        async with aiohttp.ClientSession(headers={"Authorization": "Bearer secret"}) as session:
            assert (await snapshot(session, address))["nodes"]["names"] == ["node-0"]


async def test_it_can_be_left_out(tmp_path: Path) -> None:
    async with up(tmp_path, "--nodes", "1", "--no-dashboard") as cluster:
        assert not any("dashboard" in line for line in cluster.lines)
        async with aiohttp.ClientSession() as session, session.get(f"{cluster.url}/dashboard") as response:
            assert response.status == 404
