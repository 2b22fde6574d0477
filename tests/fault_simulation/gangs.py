"""Gangs: jobs whose pods are of use only together, and what must hold of them.

Groups are of any of the three APIs; some of Kubernetes' own have to stay together in one zone. To which job a pod
belongs, how many pods that had and how many it needs is written on labels of its own, which no scheduler reads.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from random import Random
from typing import Any, NoReturn

import msgspec

from kubestow.api.core import Pod
from kubestow.cluster.pods.pod_groups import PodGroupAPI
from kubestow.scheduling.events.resources import CATALOGUED
from kubestow.testing import pod
from kubestow.workloads.feasibility import check_feasibility
from tests.fault_simulation.process import Process
from tests.fault_simulation.server import Server, ended, with_spec
from tests.scheduling.gangs.groups import group

__all__ = ["Jobs", "half_gangs", "is_torn_apart", "missed_gangs", "waits_for_siblings"]

_GROUPS = [resource for resource in CATALOGUED if resource.kind == "PodGroup"]


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

    async def live(self) -> NoReturn:
        """Until cancelled."""
        while True:
            await asyncio.sleep(self._random.expovariate(1.0 / self._pace))
            await self._start()
            if self._random.random() < 0.15:
                await self._renew_a_group()

    async def _start(self) -> None:
        """A group and its pods, one after the other, the group not always first."""
        draw = self._random
        self._started += 1
        name, size = f"job-{self._started}", draw.randint(2, 5)
        needs, timeout, api = draw.randint(1, size), draw.choice((1, 60)), draw.choice(tuple(PodGroupAPI))
        wanted = self._wanted() if api is PodGroupAPI.KUBERNETES else {}
        pods = self._pods(name, size, needs=needs, api=api, stay_together="schedulingConstraints" in wanted)
        objects = [group(name, needs, api=api, timeout=timeout, **wanted), *pods]
        if draw.random() < 0.3:
            draw.shuffle(objects)
        for obj in objects:
            self._server.put(obj)
            if draw.random() < 0.3:
                await asyncio.sleep(draw.uniform(0.0, 0.5))

    def _wanted(self) -> dict[str, Any]:
        """What a group of Kubernetes' own may ask for."""
        draw = self._random
        wanted = {"priority": draw.choice((0, 10, 100)), "disruptionMode": draw.choice(("Pod", "PodGroup"))}
        return wanted | ({"schedulingConstraints": {"topology": [{"key": "zone"}]}} if draw.random() < 0.3 else {})

    async def _renew_a_group(self) -> None:
        """Delete a group, and make it anew after a while."""
        there = self._random.choice(_groups(self._server))
        self._server.remove(there)
        await asyncio.sleep(self._random.uniform(0.0, 2.0))
        self._server.put(there)

    def _pods(self, job: str, size: int, *, needs: int, api: PodGroupAPI, stay_together: bool) -> list[Pod]:
        draw, names = self._random, self._scheduler_names
        same: dict[str, Any] = {"cpu": draw.choice(("100m", "1", "2")), "priority": draw.choice((0, 10, 100))}
        scheduler = draw.choice(names)
        wish = draw.choice(self._wishes) if scheduler == names[0] and draw.random() < 0.3 else dict
        labels = {"app": "job", "job": job, "size": str(size), "needs": str(needs)}
        labels |= {"together": "yes"} if stay_together else {}
        spec: dict[str, Any] = {}
        annotations = {}
        if api is PodGroupAPI.KUBERNETES:
            spec["schedulingGroup"] = {"podGroupName": job}
        elif api is PodGroupAPI.COSCHEDULING:
            labels["scheduling.x-k8s.io/pod-group"] = job
        else:
            annotations["scheduling.k8s.io/group-name"] = job
        return [
            pod(
                f"{job}-{number}",
                labels=labels,
                scheduler=scheduler,
                gates=("quota",) if draw.random() < 0.05 else (),
                metadata={"uid": f"uid-{job}-{number}", "generation": 1, "annotations": annotations},
                spec=spec | wish(),
                status={"phase": "Pending"},
                **same,
            )
            for number in range(size)
        ]


def _groups(server: Server) -> list[Any]:
    return [there for resource in _GROUPS for there in server.listed(resource)]


def _jobs(server: Server) -> dict[str, list[Pod]]:
    """The pods of each job whose group is there, without those that are on their way out."""
    grouped = {there.metadata.name for there in _groups(server)}
    jobs: dict[str, list[Pod]] = {}
    for there in server.pods():
        is_leaving = ended(there) or there.metadata.deletion_timestamp is not None
        job = there.metadata.labels.get("job", "")
        if job in grouped and not is_leaving:
            jobs.setdefault(job, []).append(there)
    return jobs


def _needs(pod: Pod) -> int:
    """How many pods the job of a pod needs."""
    return int(pod.metadata.labels["needs"])


def half_gangs(server: Server, process: Process, uid: str) -> Iterator[str]:
    """A pod is about to be bound of whose gang too few are bound, placed or promised a node.

    Who has been bound counts, whatever became of it: that cannot be taken back.
    """
    asked = next((pod for pod in server.pods() if pod.metadata.uid == uid), None)
    if asked is None or "job" not in asked.metadata.labels:
        return
    cluster, labels = process.scheduler.cluster, asked.metadata.labels
    uids = [f"uid-{labels['job']}-{number}" for number in range(int(labels["size"]))]
    placed = [each for each in uids if each in server.bound_by or cluster.placed_pod(each)]
    promised = [each for each in uids if each not in placed and cluster.nomination(each) in cluster.nodes.rows]
    if len(placed) + len(promised) < _needs(asked):
        yield f"{process.name} binds {uid}, {len(placed)} placed and {len(promised)} promised of {_needs(asked)}"


def is_torn_apart(server: Server, pod: Pod) -> bool:
    """Whether a pod is to be in one zone with siblings that are in several: an error, tried again now and then."""
    if "together" not in pod.metadata.labels:
        return False
    members, nodes = _jobs(server).get(pod.metadata.labels["job"], []), server.nodes()
    return len({nodes[m.spec.node_name].metadata.labels["zone"] for m in members if m.spec.node_name in nodes}) > 1


def waits_for_siblings(server: Server, pod: Pod) -> bool:
    """Whether a pod can do nothing by itself, because too few of its gang are bound, or because of where they are."""
    if "job" not in pod.metadata.labels:
        return False
    if "together" in pod.metadata.labels:
        return True
    members = _jobs(server).get(pod.metadata.labels["job"], [])
    return sum(bool(member.spec.node_name) for member in members) < _needs(pod)


def missed_gangs(server: Server, scheduler_names: Sequence[str]) -> Iterator[str]:
    """Gangs that wait although enough of their pods would fit, one after the other, beside all that are bound.

    Those that have volumes or devices to share, or have to stay together, are not judged.
    """
    for job, members in _jobs(server).items():
        pending = [pod for pod in members if not pod.spec.node_name and pod.spec.scheduler_name in scheduler_names]
        needed = _needs(members[0]) - (len(members) - len(pending))
        if any(pod.spec.volumes or pod.spec.resource_claims or "together" in pod.metadata.labels for pod in members):
            continue
        if pending and needed > 0 and len(_placed_in_turn(server, pending)) >= needed:
            yield f"{job} waits, and {needed} of its pods would fit"


def _placed_in_turn(server: Server, pending: Sequence[Pod]) -> list[Pod]:
    """Those of some pods that find a node which nobody else has been promised."""
    nodes = [msgspec.to_builtins(node) for node in server.nodes().values()]
    others = [pod for pod in server.pods() if not ended(pod)]
    there = [msgspec.to_builtins(pod) for pod in others if pod.spec.node_name]
    promised = {pod.status.nominated_node_name for pod in others if pod not in pending}
    placed = []
    for waiting in pending:
        verdict = check_feasibility([msgspec.to_builtins(waiting)], nodes, there)[0]
        free = [name for name in verdict.nodes if name not in promised]
        if verdict.is_feasible and free:
            placed.append(with_spec(waiting, node_name=free[0]))
            there.append(msgspec.to_builtins(placed[-1]))
    return placed
