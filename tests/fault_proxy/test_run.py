"""A short run with the embedded API server in place of a real one."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from kubestow.client.rest.credentials import Credentials
from kubestow_devcluster.cluster import DevCluster
from tests.fault_proxy.run import RunOptions, run
from tests.fault_proxy.schedulers import SchedulerProcess, running


async def test_two_schedulers_behind_the_proxy_bind_all_pods_and_break_no_rule(tmp_path: Path) -> None:
    async with DevCluster(kubelets=False) as server:
        options = RunOptions(seconds=3, nodes=3, directory=tmp_path / "logs", calm_seconds=600, pods_per_second=5)
        report = await run(Credentials(server.url), options)
        left = [len(server.store.collection(kind)) for kind in ("pods", "nodes")]
    assert report["violations"] == []
    assert report["pods created"] > 0 and report["seconds to bind everything after the faults"] is not None
    assert left == [0, 0]


async def test_a_scheduler_that_cannot_be_started_ends_the_run(tmp_path: Path) -> None:
    scheduler = SchedulerProcess("scheduler-0", "http://127.0.0.1:1", tmp_path / "missing")
    with pytest.raises(ExceptionGroup) as raised:
        async with running([scheduler]):
            await asyncio.Event().wait()
    assert raised.group_contains(FileNotFoundError)
