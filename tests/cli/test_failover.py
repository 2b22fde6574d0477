"""Several ``kubestow run`` on one cluster: one leads, and when it goes another takes its place."""

from __future__ import annotations

import asyncio
from pathlib import Path

from tests.cli.schedulers import LEASE, field


async def test_when_the_leader_is_killed_the_standby_binds_the_rest_and_moves_nothing(tmp_path: Path) -> None:
    async with field(tmp_path, nodes=20) as there:
        leader, standby = await there.candidate(), await there.candidate()
        creating = asyncio.create_task(there.create(0, 400))
        before = await there.bound(50)
        leader.process.kill()
        await creating
        await standby.says("Scheduling")
        after = await there.bound(400)
        assert len(after) == 400
        moved = {name for name, node_name in before.items() if node_name and after[name] != node_name}
        assert moved == set()
        assert (await there.lease())["spec"]["leaseTransitions"] == 1


async def test_a_leader_that_is_asked_to_end_hands_over(tmp_path: Path) -> None:
    async with field(tmp_path, nodes=1) as there:
        leader, standby = await there.candidate(), await there.candidate()
        leader.process.terminate()
        status, said = await leader.ended()
        assert (status, '"Stopped"' in said) == (0, True)
        await standby.says("Scheduling")
        await there.create(0, 1)
        await there.bound(1)


async def test_a_standby_that_is_asked_to_end_does_so_and_leaves_the_lease_alone(tmp_path: Path) -> None:
    async with field(tmp_path, nodes=1) as there:
        await there.candidate()
        standby = await there.candidate()
        holder = (await there.lease())["spec"]["holderIdentity"]
        standby.process.terminate()
        status, said = await standby.ended()
        assert (status, '"Stopped"' in said) == (0, True)
        assert (await there.lease())["spec"]["holderIdentity"] == holder


async def test_a_leader_whose_lease_is_taken_ends_with_an_error(tmp_path: Path) -> None:
    async with field(tmp_path, nodes=1) as there:
        leader = await there.candidate()
        taken = {"spec": {"holderIdentity": "thief", "leaseDurationSeconds": 600}}
        assert (await there.ask.patch(LEASE, taken)).status == 200
        status, said = await leader.ended()
        assert status == 1
        assert said == "kubestow: leader election lost: the lease kube-system/kube-scheduler is now held by thief"
