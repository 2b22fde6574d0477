"""Failover between several ``kubestow run`` processes on one cluster."""

from __future__ import annotations

import asyncio
from pathlib import Path

from core_tests.cli.scheduler.scheduler_processes import LEASE, election_harness


async def test_when_the_leader_is_killed_the_standby_binds_the_remaining_pods(tmp_path: Path) -> None:
    async with election_harness(tmp_path, nodes=20) as harness:
        leader, standby = await harness.candidate(), await harness.candidate()
        creating = asyncio.create_task(harness.create(0, 400))
        before = await harness.bound(50)
        leader.process.kill()
        await creating
        await standby.logs("Scheduling")
        after = await harness.bound(400)
        assert len(after) == 400
        moved = {name for name, node_name in before.items() if node_name and after[name] != node_name}
        assert moved == set()
        assert (await harness.lease())["spec"]["leaseTransitions"] == 1


async def test_a_terminated_leader_releases_the_lease(tmp_path: Path) -> None:
    async with election_harness(tmp_path, nodes=1) as harness:
        leader, standby = await harness.candidate(), await harness.candidate()
        leader.process.terminate()
        status, last_line = await leader.ended()
        assert (status, '"Stopped"' in last_line) == (0, True)
        await standby.logs("Scheduling")
        await harness.create(0, 1)
        await harness.bound(1)


async def test_a_terminated_standby_does_not_change_the_lease(tmp_path: Path) -> None:
    async with election_harness(tmp_path, nodes=1) as harness:
        await harness.candidate()
        standby = await harness.candidate()
        holder = (await harness.lease())["spec"]["holderIdentity"]
        standby.process.terminate()
        status, last_line = await standby.ended()
        assert (status, '"Stopped"' in last_line) == (0, True)
        assert (await harness.lease())["spec"]["holderIdentity"] == holder


async def test_a_leader_that_loses_the_lease_exits_with_an_error(tmp_path: Path) -> None:
    async with election_harness(tmp_path, nodes=1) as harness:
        leader = await harness.candidate()
        other_holder = {"spec": {"holderIdentity": "other", "leaseDurationSeconds": 600}}
        assert (await harness.client.patch(LEASE, other_holder)).status == 200
        status, last_line = await leader.ended()
        assert status == 1
        assert last_line == "kubestow: leader election lost: the lease kube-system/kube-scheduler is now held by other"
