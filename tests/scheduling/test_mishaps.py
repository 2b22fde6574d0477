"""What the living scheduler survives: mishaps that the simulation of a hostile world has met."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from kubestow.cluster.pods import Shapes
from kubestow.scheduling.evictions import Evictions
from kubestow.scheduling.ports import ObjectReference, Resource, Subscriber
from kubestow.scheduling.status_writer import StatusWriter
from kubestow.scheduling.waiting import WaitingPods
from kubestow.testing import MemoryCluster, pod
from kubestow.testing.virtual_time import VirtualClock, run
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


class SlowCluster(MemoryCluster):
    """Takes as many seconds to delete a pod as its name says."""

    async def delete_pod(self, pod: ObjectReference) -> None:
        await asyncio.sleep(float(pod.name))
        await super().delete_pod(pod)


def test_a_pod_that_preempts_again_is_gated_until_the_newest_evictions_are_done() -> None:
    async def told() -> None:
        cluster, shapes = SlowCluster(), Shapes()
        high, first, second = (shapes.info(pod(name, node="n")) for name in ("high", "1", "3"))
        for victim in (first, second):
            cluster.put(victim.pod)
        evictions = Evictions(
            cluster,
            statuses=StatusWriter(cluster),
            waiting=WaitingPods(),
            clock=VirtualClock(asyncio.get_running_loop()),
            known=lambda uid: second,
            activate=lambda uid: None,
        )
        evictions.start(high, "n", victims=[first], outranked=())
        evictions.start(high, "n", victims=[second], outranked=())
        await asyncio.sleep(2)
        assert evictions.is_preempting(high.uid)
        await evictions.drain()
        assert not evictions.is_preempting(high.uid)

    run(told())
