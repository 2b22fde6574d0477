"""A cluster whose watches have delays of their own, so that a scheduler and its shadow see different states."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from random import Random
from typing import Any

import msgspec

from kubestow import config
from kubestow.api.core import Pod
from kubestow.api.meta import convert
from kubestow.engine.cluster_api.memory_api import MemoryAPI
from kubestow.framework.profile import implements
from kubestow.plugins import in_tree_registry
from kubestow.rules.minors import DEFAULT_MINOR, Minor
from kubestow.scheduling.environment import Environment
from kubestow.scheduling.interfaces import ObjectReference, PodStatusPatch, Resource, Subscriber
from kubestow.scheduling.scheduler import Scheduler
from kubestow.shadow.preemptions import PREEMPTED_EVENTS, PreemptedEvent
from kubestow.shadow.shadow import ComparedDecision, Shadow
from kubestow.testing.virtual_time import VirtualClock, run

Scenario = Callable[["DelayedCluster"], Awaitable[None]]


class DelayedCluster(MemoryAPI):
    """Every subscriber gets the events of each resource in order, after random delays; writes take a while."""

    def __init__(self, random: Random, most_seconds: float) -> None:
        super().__init__()
        self.random, self.most_seconds = random, most_seconds
        self._delivered: dict[tuple[int, str], float] = {}

    def _notify(self, resource: Resource, event_type: str, obj: Any) -> None:
        loop = asyncio.get_running_loop()
        for number, subscriber in enumerate(self._subscribers):
            key = number, resource.plural
            time = max(loop.time() + self._delay(), self._delivered.get(key, 0.0) + 1e-6)
            self._delivered[key] = time
            loop.call_at(time, subscriber.apply, resource, event_type, obj)

    def _delay(self) -> float:
        return self.random.random() * self.most_seconds

    def report_preempted(self, victim: Pod, preemptor: str) -> None:
        """The event that a pod was evicted for the one with this UID; only a shadow watches events."""
        note = f"Preempted by pod {preemptor} on node {victim.spec.node_name}"
        event = convert(PreemptedEvent, {"regarding": {"uid": victim.metadata.uid}, "note": note})
        for subscriber in self._subscribers:
            if isinstance(subscriber, Shadow):
                subscriber.apply(PREEMPTED_EVENTS, "ADDED", event)

    async def bind(self, pod: ObjectReference, node_name: str) -> None:
        await asyncio.sleep(self._delay())
        await super().bind(pod, node_name)

    async def patch_pod_status(self, pod: ObjectReference, patch: PodStatusPatch) -> None:
        await asyncio.sleep(self._delay())
        await super().patch_pod_status(pod, patch)

    async def delete_pod(self, pod: ObjectReference) -> None:
        await asyncio.sleep(self._delay())
        await super().delete_pod(pod)


def configuration(
    minor: Minor = DEFAULT_MINOR, /, *, gates: Mapping[str, bool] | None = None, **fields: Any
) -> config.KubeSchedulerConfiguration:
    """A KubeSchedulerConfiguration with these fields, with their API names."""
    document = {"apiVersion": config.API_VERSION, "kind": config.KIND, **fields}
    return config.load(
        document,
        subject="test",
        gates=config.FeatureGates(gates, minor=minor),
        implements=implements(in_tree_registry(minor)),
    )


def shadowed(
    scenario: Scenario,
    objects: Sequence[Any],
    *,
    seed: int = 0,
    most_seconds: float = 0.05,
    scheduler: config.KubeSchedulerConfiguration | None = None,
    shadow: config.KubeSchedulerConfiguration | None = None,
    minor: Minor = DEFAULT_MINOR,
    enabled: Mapping[str, bool] | None = None,
    names: Sequence[str] = (),
) -> list[ComparedDecision]:
    """Run a scheduler on a cluster with its shadow beside it, and return what the shadow found.

    Both have the feature gates that are ``enabled``; ``names`` are the schedulers whose decisions are compared.
    """
    gates, registry, random = config.FeatureGates(enabled, minor=minor), in_tree_registry(minor), Random(seed)
    results: list[ComparedDecision] = []

    async def main() -> None:
        loop = asyncio.get_running_loop()
        cluster = DelayedCluster(random, most_seconds)
        for obj in objects:
            cluster.put(obj)
        observer = Shadow(
            shadow or configuration(minor, gates=enabled),
            registry,
            gates,
            monotonic=loop.time,
            on_result=results.append,
            scheduler_names=names,
        )
        environment = Environment(cluster, VirtualClock(loop), Random(seed))
        program = Scheduler(
            scheduler or configuration(minor, gates=enabled), registry=registry, environment=environment, gates=gates
        )
        tasks = [
            asyncio.create_task(cluster.subscribe(observer.resources, observer)),
            asyncio.create_task(program.run()),
        ]
        await asyncio.sleep(0.01)
        await scenario(cluster)
        for _ in range(120):
            await asyncio.sleep(0.1)
            while observer.judge():  # noqa: ASYNC110 - as the command does it
                await asyncio.sleep(0.001)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        observer.judge(everything=True)

    run(main())
    return results


def wrongly_bound(cluster: MemoryAPI, pod: Any, node: str) -> None:
    """Create a pod and bind it at once, as a scheduler that decides badly."""
    cluster.put(pod)
    cluster.put(msgspec.structs.replace(pod, spec=msgspec.structs.replace(pod.spec, node_name=node)))


__all__ = ["DelayedCluster", "Subscriber", "configuration", "shadowed", "wrongly_bound"]
