"""A running scheduler on an in-memory cluster in virtual time.

def test_a_pod_is_bound() -> None:
    async def scenario(harness: SchedulerHarness) -> None:
        harness.cluster.put(pod("a"))
        await harness.settle()
        assert harness.node_of("a") == "n"

    in_virtual_time(scenario, node("n"))
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from random import Random
from typing import Any

from kubestow import config
from kubestow.cluster.pods.pod_groups import PodGroupAPI
from kubestow.framework.interface import Plugin
from kubestow.framework.profile import implements
from kubestow.plugins import in_tree_registry
from kubestow.rules.minors import DEFAULT_MINOR, Minor
from kubestow.scheduling.environment import ComputingAtOnce, Environment
from kubestow.scheduling.extenders.stages import Extender
from kubestow.scheduling.interfaces import Computing
from kubestow.scheduling.observer import Observer
from kubestow.scheduling.scheduler import Scheduler
from kubestow.testing.memory_cluster import MemoryCluster
from kubestow.testing.virtual_time import VirtualClock, run


class SchedulerHarness:
    """A running scheduler and its cluster."""

    def __init__(self, cluster: MemoryCluster, scheduler: Scheduler) -> None:
        self.cluster = cluster
        self.scheduler = scheduler

    async def advance(self, seconds: float) -> None:
        """Advance virtual time."""
        await asyncio.sleep(seconds)

    async def settle(self) -> None:
        """Process everything that is due within 10 milliseconds."""
        await asyncio.sleep(0.01)

    def node_of(self, name: str) -> str:
        """The node of a pod, or "" if it is not bound."""
        return self.cluster.pod(name).spec.node_name


@asynccontextmanager
async def running_scheduler(
    objects: Iterable[Any] = (),
    *,
    cluster: MemoryCluster | None = None,
    plugins: Iterable[type[Plugin]] = (),
    extenders: Sequence[Extender] = (),
    gates: Mapping[str, bool] | None = None,
    minor: Minor = DEFAULT_MINOR,
    pod_group_apis: Iterable[PodGroupAPI] = (),
    observer: Observer | None = None,
    computing: Computing | None = None,
    **configured: Any,
) -> AsyncIterator[SchedulerHarness]:
    """Run a scheduler on a cluster with these objects, until the context ends.

    ``plugins`` are registered in addition to the in-tree ones, ``gates`` are feature gate overrides in the emulated
    ``minor`` version, ``pod_group_apis`` those of other projects whose pod groups count, and ``configured`` are fields
    of a KubeSchedulerConfiguration with their API names. ``computing`` runs long computations of plugins; by default
    they take no time. Raises ConfigurationError.
    """
    feature_gates = config.FeatureGates(gates, minor=minor)
    cluster = cluster or MemoryCluster()
    for obj in objects:
        cluster.put(obj)
    registry = in_tree_registry(minor) | {plugin.name: plugin for plugin in plugins}
    document: Mapping[str, Any] = {"apiVersion": config.API_VERSION, "kind": config.KIND, **configured}
    scheduler = Scheduler(
        config.load(document, subject="test", gates=feature_gates, implements=implements(registry)),
        registry=registry,
        environment=Environment(
            cluster,
            VirtualClock(asyncio.get_running_loop()),
            Random(1),
            observer or Observer(),
            computing=computing or ComputingAtOnce(),
        ),
        pod_group_apis=pod_group_apis,
        extenders=extenders,
        gates=feature_gates,
    )
    running = asyncio.create_task(scheduler.run())
    harness = SchedulerHarness(cluster, scheduler)
    await harness.settle()
    try:
        yield harness
    finally:
        running.cancel()
        await asyncio.wait((running,))
        if not running.cancelled():
            running.result()


def in_virtual_time(
    scenario: Callable[[SchedulerHarness], Awaitable[None]],
    *objects: Any,
    cluster: MemoryCluster | None = None,
    plugins: Iterable[type[Plugin]] = (),
    extenders: Sequence[Extender] = (),
    gates: Mapping[str, bool] | None = None,
    minor: Minor = DEFAULT_MINOR,
    pod_group_apis: Iterable[PodGroupAPI] = (),
    observer: Observer | None = None,
    computing: Computing | None = None,
    **configured: Any,
) -> None:
    """Run a scenario with a running scheduler (see :func:`running_scheduler`) in virtual time."""

    async def main() -> None:
        async with running_scheduler(
            objects,
            cluster=cluster,
            plugins=plugins,
            extenders=extenders,
            gates=gates,
            minor=minor,
            pod_group_apis=pod_group_apis,
            observer=observer,
            computing=computing,
            **configured,
        ) as harness:
            await scenario(harness)

    run(main())
