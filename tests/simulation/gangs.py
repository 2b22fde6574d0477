"""Gangs: jobs whose pods are of use only together, and what must hold of them.

How many pods a job had is written on its group, so that those which are gone are known too.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from random import Random
from typing import Any

import msgspec

from kubestow.api.core import Pod
from kubestow.api.meta import ObjectMeta
from kubestow.api.scheduling import CoschedulingPodGroup, CoschedulingPodGroupSpec
from kubestow.scheduling.resources import CATALOGUED
from kubestow.testing import pod
from kubestow.workloads.placeability import placeable
from tests.simulation.process import Process
from tests.simulation.server import Server, ended, with_spec

__all__ = ["Jobs", "half_gangs", "missed_gangs", "waits_for_siblings"]

_LABEL = "scheduling.x-k8s.io/pod-group"
_GROUPS = next(resource for resource in CATALOGUED if resource.type is CoschedulingPodGroup)


class Jobs:
    """Whoever starts jobs; ``wishes`` make parts of specs, for some jobs of the first scheduler."""

    def __init__(
        self,
        server: Server,
        random: Random,
        *,
        scheduler_names: Sequence[str],
        wishes: Sequence[Callable[[], dict[str, Any]]],
    ) -> None:
        self._server, self._random = server, random
        self._scheduler_names, self._wishes = scheduler_names, wishes
        self._pace = random.choice((2.0, 4.0))  # seconds between two jobs
        self._started = 0

    async def live(self) -> None:
        """Until cancelled."""
        while True:
            await asyncio.sleep(self._random.expovariate(1.0 / self._pace))
            await self._start()

    async def _start(self) -> None:
        """A group and its pods, one after the other, the group not always first."""
        draw = self._random
        self._started += 1
        name, size = f"job-{self._started}", draw.randint(2, 5)
        metadata = ObjectMeta(name=name, namespace="default", uid=f"uid-{name}", annotations={"size": str(size)})
        spec = CoschedulingPodGroupSpec(min_member=draw.randint(1, size), schedule_timeout_seconds=draw.choice((1, 60)))
        same: dict[str, Any] = {"cpu": draw.choice(("100m", "1", "2")), "priority": draw.choice((0, 10, 100))}
        scheduler = draw.choice(self._scheduler_names)
        wish = draw.choice(self._wishes) if scheduler == self._scheduler_names[0] and draw.random() < 0.3 else dict
        made = [
            pod(
                f"{name}-{number}",
                labels={"app": "job", _LABEL: name},
                scheduler=scheduler,
                metadata={"uid": f"uid-{name}-{number}", "generation": 1},
                spec=wish(),
                status={"phase": "Pending"},
                **same,
            )
            for number in range(size)
        ]
        objects = [CoschedulingPodGroup(metadata=metadata, spec=spec), *made]
        if draw.random() < 0.3:
            draw.shuffle(objects)
        for obj in objects:
            self._server.put(obj)
            if draw.random() < 0.3:
                await asyncio.sleep(draw.uniform(0.0, 0.5))


def _group_of(server: Server, pod: Pod) -> CoschedulingPodGroup | None:
    named = pod.metadata.labels.get(_LABEL)
    return next((group for group in server.listed(_GROUPS) if group.metadata.name == named), None)


def _members(server: Server, group: CoschedulingPodGroup) -> list[Pod]:
    return [
        pod
        for pod in server.pods()
        if pod.metadata.labels.get(_LABEL) == group.metadata.name
        and not ended(pod)
        and pod.metadata.deletion_timestamp is None
    ]


def half_gangs(server: Server, process: Process, uid: str) -> Iterator[str]:
    """A pod is about to be bound of whose gang too few are bound, placed or promised a node.

    Who has been bound counts, whatever became of it: that cannot be taken back.
    """
    asked = next((pod for pod in server.pods() if pod.metadata.uid == uid), None)
    group = _group_of(server, asked) if asked is not None else None
    if group is None:
        return
    cluster = process.scheduler.cluster
    uids = [f"{group.metadata.uid}-{number}" for number in range(int(group.metadata.annotations["size"]))]
    have = [each for each in uids if each in server.bound_by or cluster.placement(each) or cluster.nomination(each)]
    if len(have) < group.spec.min_member:
        yield f"{process.name} binds {uid} with nodes for {len(have)} of {group.spec.min_member} pods of its gang"


def waits_for_siblings(server: Server, pod: Pod) -> bool:
    """Whether a pod can do nothing by itself, because too few of its gang are bound."""
    if _LABEL not in pod.metadata.labels:
        return False
    group = _group_of(server, pod)
    return group is None or sum(bool(m.spec.node_name) for m in _members(server, group)) < group.spec.min_member


def missed_gangs(server: Server, scheduler_names: Sequence[str]) -> Iterator[str]:
    """Gangs that wait although enough of their pods would fit, one after the other, beside all that are bound.

    Those that have volumes or devices to share are not judged.
    """
    for group in server.listed(_GROUPS):
        members = _members(server, group)
        pending = [pod for pod in members if not pod.spec.node_name and pod.spec.scheduler_name in scheduler_names]
        needed = group.spec.min_member - (len(members) - len(pending))
        if any(pod.spec.volumes or pod.spec.resource_claims for pod in members):
            continue
        if pending and needed > 0 and len(_placed_in_turn(server, pending)) >= needed:
            yield f"{group.metadata.name} waits, and {needed} of its pods would fit"


def _placed_in_turn(server: Server, pending: Sequence[Pod]) -> list[Pod]:
    """Those of some pods that find a node which nobody else has been promised."""
    nodes = [msgspec.to_builtins(node) for node in server.nodes().values()]
    others = [pod for pod in server.pods() if not ended(pod)]
    there = [msgspec.to_builtins(pod) for pod in others if pod.spec.node_name]
    promised = {pod.status.nominated_node_name for pod in others if pod not in pending}
    placed = []
    for waiting in pending:
        verdict = placeable([msgspec.to_builtins(waiting)], nodes, there)[0]
        free = [name for name in verdict.nodes if name not in promised]
        if verdict.could_run and free:
            placed.append(with_spec(waiting, node_name=free[0]))
            there.append(msgspec.to_builtins(placed[-1]))
    return placed
