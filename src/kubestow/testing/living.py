"""A scheduler that lives on a cluster in memory, in virtual time, for tests to tell stories with.

def test_a_pod_is_bound() -> None:
    async def story(world: Living) -> None:
        world.cluster.put(pod("a"))
        await world.settles()
        assert world.node_of("a") == "n"

    in_virtual_time(story, node("n"))
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from random import Random
from typing import Any

from kubestow import config
from kubestow.framework.interface import Plugin
from kubestow.framework.profile import implements
from kubestow.plugins import in_tree_registry
from kubestow.scheduling.environment import Environment
from kubestow.scheduling.extenders.port import Extender
from kubestow.scheduling.observer import Observer
from kubestow.scheduling.scheduler import Scheduler
from kubestow.testing.memory_cluster import MemoryCluster
from kubestow.testing.virtual_time import VirtualClock, run

__all__ = ["Living", "in_virtual_time", "living"]


class Living:
    """The scheduler and its cluster."""

    def __init__(self, cluster: MemoryCluster, scheduler: Scheduler) -> None:
        self.cluster = cluster
        self.scheduler = scheduler

    async def passes(self, seconds: float) -> None:
        """Let time pass."""
        await asyncio.sleep(seconds)

    async def settles(self) -> None:
        """Let everything happen that is about to happen, in next to no time."""
        await asyncio.sleep(0.01)

    def node_of(self, name: str) -> str:
        """Where a pod is bound, "" when it is not."""
        return self.cluster.pod(name).spec.node_name


@asynccontextmanager
async def living(
    objects: Iterable[Any] = (),
    *,
    cluster: MemoryCluster | None = None,
    plugins: Iterable[type[Plugin]] = (),
    extenders: Sequence[Extender] = (),
    gates: Mapping[str, bool] | None = None,
    observer: Observer | None = None,
    **configured: Any,
) -> AsyncIterator[Living]:
    """A scheduler on a cluster that holds some objects, until the block ends.

    ``plugins`` are classes beside the in-tree ones, ``extenders`` take part as they are, ``gates`` are feature gates,
    ``configured`` are fields of a KubeSchedulerConfiguration as the API spells them. Raises ConfigurationError.
    """
    feature_gates = config.FeatureGates(gates)
    cluster = cluster or MemoryCluster()
    for obj in objects:
        cluster.put(obj)
    registry = in_tree_registry() | {plugin.name: plugin for plugin in plugins}
    document: Mapping[str, Any] = {"apiVersion": config.API_VERSION, "kind": config.KIND, **configured}
    scheduler = Scheduler(
        config.load(document, subject="test", gates=feature_gates, implements=implements(registry)),
        registry=registry,
        environment=Environment(cluster, VirtualClock(asyncio.get_running_loop()), Random(1), observer or Observer()),
        extenders=extenders,
        gates=feature_gates,
    )
    running = asyncio.create_task(scheduler.run())
    world = Living(cluster, scheduler)
    await world.settles()
    try:
        yield world
    finally:
        running.cancel()
        await asyncio.wait((running,))
        if not running.cancelled():
            running.result()


def in_virtual_time(
    story: Callable[[Living], Awaitable[None]],
    *objects: Any,
    cluster: MemoryCluster | None = None,
    plugins: Iterable[type[Plugin]] = (),
    extenders: Sequence[Extender] = (),
    gates: Mapping[str, bool] | None = None,
    observer: Observer | None = None,
    **configured: Any,
) -> None:
    """Run a story on a living scheduler (see :func:`living`) to its end, without waiting."""

    async def told() -> None:
        async with living(
            objects,
            cluster=cluster,
            plugins=plugins,
            extenders=extenders,
            gates=gates,
            observer=observer,
            **configured,
        ) as world:
            await story(world)

    run(told())
