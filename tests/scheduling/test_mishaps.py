"""What the living scheduler survives: mishaps that the simulation of a hostile world has met."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from kubestow.scheduling.ports import Resource, Subscriber
from kubestow.testing import MemoryCluster
from kubestow.testing.virtual_time import run
from tests.scheduling.living import living


class SilentCluster(MemoryCluster):
    """Never answers a list."""

    async def subscribe(self, resources: Sequence[Resource], subscriber: Subscriber) -> None:
        await asyncio.get_running_loop().create_future()


def test_a_scheduler_stopped_before_it_has_seen_the_cluster_leaves_nothing_running() -> None:
    async def told() -> None:
        async with living(cluster=SilentCluster()):
            pass
        await asyncio.sleep(1)
        assert asyncio.all_tasks() == {asyncio.current_task()}

    run(told())
