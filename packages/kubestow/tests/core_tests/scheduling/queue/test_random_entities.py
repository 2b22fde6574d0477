"""Pod groups in the queue under random events: they wait exactly while one of their pods fails PreEnqueue."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from random import Random

import msgspec
import pytest

from core_tests.scheduling.gangs.groups import group
from core_tests.scheduling.queue.test_entities import queue_of, run
from kubestow.api.core import Pod
from kubestow.api.meta import convert
from kubestow.api.resource import ResourceClaim
from kubestow.api.scheduling import PodGroup
from kubestow.scheduling.queue.entities import QueuedGroup
from kubestow.scheduling.queued_pod import Place
from kubestow.testing import node, pod
from kubestow.testing.scheduler_harness import SchedulerHarness

GROUPS, CLAIMS = ("a", "b", "c"), ("x", "y")


class RandomCluster:
    """Creates and deletes pods of groups, removes their gates, and creates the claims and groups that they wait for."""

    def __init__(self, harness: SchedulerHarness, random: Random) -> None:
        self._harness, self._random = harness, random
        self._created = 0

    def step(self) -> None:
        random, cluster = self._random, self._harness.cluster
        pending = [one for one in cluster.pods() if not one.spec.node_name]
        match random.choice(["create", "create", "create", "ungate", "ungate", "delete", "claim", "group", "node"]):
            case "create":
                self._create_pod()
            case "ungate" if gated := [one for one in pending if one.spec.scheduling_gates]:
                for one in random.sample(gated, random.randint(1, len(gated))):
                    cluster.put(msgspec.structs.replace(one, spec=_without_gates(one)))
            case "delete" if pending:
                cluster.remove(random.choice(pending))
            case "claim" if random.random() < 0.3:
                metadata = {"name": random.choice(CLAIMS), "namespace": "default", "uid": "claim"}
                cluster.put(convert(ResourceClaim, {"metadata": metadata, "spec": {}}))
            case "group":
                self._put_group(random.choice(GROUPS))
            case "node":
                cluster.put(node("n", cpu=random.choice("12"), labels={"changed": str(random.random())}))

    def _create_pod(self) -> None:
        random = self._random
        self._created += 1
        claims = [{"name": "r", "resourceClaimName": random.choice(CLAIMS)}] if random.random() < 0.3 else []
        spec = {"schedulingGroup": {"podGroupName": random.choice(GROUPS)}, "resourceClaims": claims}
        gates = ["wait"] if random.random() < 0.3 else []
        made = pod(f"p{self._created}", cpu=random.choice(["1m", "9"]), gates=gates, spec=spec)
        self._harness.cluster.put(made)

    def _put_group(self, name: str) -> None:
        """Create a group, or have a gang need one pod less."""
        known = self._harness.cluster.objects(PodGroup).get(("default", name))
        gang = None if known is None else known.spec.scheduling_policy.gang
        if known is None:
            self._harness.cluster.put(group(name, self._random.choice([0, 2, 4, 6])))
        elif gang is not None and gang.min_count > 1:
            self._harness.cluster.put(group(name, gang.min_count - 1))


def _without_gates(pod: Pod) -> object:
    return msgspec.structs.replace(pod.spec, scheduling_gates=[])


def violations(harness: SchedulerHarness) -> Iterator[str]:
    """Where the queue differs from what a look at all pods of all groups says."""
    queue = queue_of(harness)
    unschedulable = queue.places.unschedulable
    for waiting in queue.places.groups.values():
        assert isinstance(waiting, QueuedGroup)
        members = waiting.members.values()
        own = {queued.info.uid: queue.gating._own_status(queued).ok for queued in members}
        is_gated = not all(own.values()) or not queue.gating._status_of_group(waiting).ok
        if is_gated is not (waiting.place is Place.GATED):
            yield f"group {waiting.name} is in {waiting.place}, its pods pass PreEnqueue: {own}"
        if not waiting.blockers.keys() <= {uid for uid, passes in own.items() if not passes}:
            yield f"group {waiting.name} is gated by pods that pass PreEnqueue: {list(waiting.blockers)}"
        for queued in members:
            if queued.place is not waiting.place:
                yield f"{queued.info.name} is in {queued.place}, its group in {waiting.place}"
            if (queued.info.uid in unschedulable) is not (waiting.place is Place.GATED):
                yield f"{queued.info.name} waits for an event, or not, unlike its group in {waiting.place}"
    for uid, queued in queue.pods.items():
        group_name = queue.gating.group_name(queued.info)
        its = queue.places.group_of(uid)
        if (None if its is None else its.name) != group_name:
            yield f"{queued.info.name} is queued with {its}, but belongs to {group_name}"


@pytest.mark.parametrize("seed", range(12))
def test_a_group_waits_exactly_while_one_of_its_pods_fails_pre_enqueue(seed: int) -> None:
    places = Counter[Place]()

    async def scenario(harness: SchedulerHarness) -> None:
        cluster = RandomCluster(harness, Random(seed))
        for _ in range(120):
            cluster.step()
            if cluster._random.random() < 0.7:  # else the next event comes in the same moment
                await harness.advance(cluster._random.choice([0.01, 0.01, 0.5, 2]))
                assert not list(violations(harness))
                places.update(waiting.place for waiting in queue_of(harness).places.groups.values())

    run(scenario, node("n"))
    assert places[Place.GATED] > 10
    assert places[Place.BACKOFF] > 5
