"""Event sequences that no API server should send: whatever arrives, cache, queue and pod store agree in the end."""

from __future__ import annotations

import logging
from random import Random
from typing import Any

import pytest
from msgspec.structs import replace

from kubestow.api.core import Pod
from kubestow.cluster.cache import Cluster
from kubestow.cluster.pods.shapes import PodInfo
from kubestow.scheduling.events.resources import NODES, PODS
from kubestow.scheduling.interfaces import Resource
from kubestow.scheduling.observer import Observer
from kubestow.scheduling.scheduler import Scheduler
from kubestow.testing import node, pod
from kubestow.testing.scheduler_harness import SchedulerHarness, in_virtual_time

_PROFILES = [{"schedulerName": "default-scheduler"}, {"schedulerName": "second"}]
_SCHEDULERS = ("default-scheduler", "default-scheduler", "second", "foreign")
_NODES = ("n0", "n1", "n2", "unknown")


def _random_pod(random: Random, version: int) -> Pod:
    """A pod of few names, uids, nodes and schedulers, so that every combination of them follows every other."""
    return pod(
        f"p{random.randrange(5)}",
        node=random.choice(_NODES) if random.random() < 0.35 else "",
        cpu=random.choice(["100m", "1", "2", "64"]),
        labels={"app": random.choice("ab")},
        priority=random.choice([None, 0, 10]),
        scheduler=random.choice(_SCHEDULERS),
        gates=("hold",) if random.random() < 0.1 else (),
        deleting=random.random() < 0.1,
        nominated=random.choice(_NODES) if random.random() < 0.15 else "",
        host_ports=(80,) if random.random() < 0.2 else (),
        affinity=_anti_affinity() if random.random() < 0.2 else None,
        spec={"schedulingGroup": {"podGroupName": "g"}} if random.random() < 0.2 else None,
        metadata={"uid": f"u{random.randrange(6)}", "resourceVersion": str(version)},
        status={"phase": random.choice(["Pending"] * 9 + ["Succeeded"])},
    )


def _anti_affinity() -> dict[str, Any]:
    term = {"labelSelector": {"matchLabels": {"app": "a"}}, "topologyKey": "kubernetes.io/hostname"}
    return {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}


def _check(scheduler: Scheduler) -> None:
    """The pod store, the cluster cache and the queue describe the same pods."""
    pods = {info.uid: info for info in scheduler.pods.pods()}
    assert len(pods) == len(scheduler.pods.names()), "one uid has one name"
    assert all(scheduler.pods.get(uid) is info for uid, info in pods.items())
    placed = {uid: p for uid, p in scheduler.cluster._placed_pods.by_uid.items() if not p.assumed}
    assert {uid: p.node_name for uid, p in placed.items()} == {
        uid: info.spec.node_name for uid, info in pods.items() if info.spec.node_name
    }
    ours = {
        uid
        for uid, info in pods.items()
        if not info.spec.node_name and info.spec.scheduler_name in scheduler.profiles and not info.terminating
    }
    assumed = {p.info.uid for p in scheduler.cluster.assumed()}
    queued = {uid for uid, queued in scheduler.queue.pods.items() if not queued.info.terminating}
    in_flight = set(scheduler.queue.in_flight.uids())
    assert queued | assumed | in_flight >= ours
    assert queued <= ours
    assert not set(scheduler.queue.pods) & assumed
    for uid, queued_pod in scheduler.queue.pods.items():
        assert queued_pod.info.uid == uid
        assert queued_pod.info.spec.scheduler_name == pods[uid].spec.scheduler_name
    on_rows = {uid for row in scheduler.cluster.nodes.pods for uid in row}
    rows = scheduler.cluster.nodes.rows
    everywhere = scheduler.cluster._placed_pods.by_uid
    assert on_rows == {uid for uid, p in everywhere.items() if p.node_name in rows}
    assert set(scheduler.cluster._nominations.node_names) <= ours | {
        uid for uid, info in pods.items() if info.terminating
    }


@pytest.mark.parametrize("seed", range(40))
def test_any_sequence_of_events_leaves_a_consistent_state(seed: int, caplog: pytest.LogCaptureFixture) -> None:
    random = Random(seed)

    async def scenario(harness: SchedulerHarness) -> None:
        handlers = harness.scheduler.handlers
        for version in range(2, 150):
            kind = random.random()
            if kind < 0.2:
                name = random.choice(_NODES[:3])
                cordoned = random.random() < 0.3
                obj = node(name, cpu=random.choice(["1", "4"]), unschedulable=cordoned)
                handlers.apply(NODES, random.choice(["ADDED", "MODIFIED", "DELETED"]), obj)
            elif kind < 0.27:
                handlers.replace(PODS, [_random_pod(random, version) for _ in range(random.randrange(4))])
            else:
                event = random.choice(["ADDED", "MODIFIED", "MODIFIED", "DELETED"])
                handlers.apply(PODS, event, _random_pod(random, version))
            if random.random() < 0.5:
                await harness.advance(random.choice([0.0, 0.0, 0.01, 1.0, 11.0]))
            if random.random() < 0.03:
                await harness.advance(400.0)
        await harness.settle()
        _check(harness.scheduler)

    in_virtual_time(scenario, node("n0", cpu="4"), node("n1", cpu="1"), profiles=_PROFILES)
    assert [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR] == []


class _FailureCounts(Observer):
    def __init__(self) -> None:
        self.kinds: list[str] = []

    def event_handler_failed(self, kind: str) -> None:
        self.kinds.append(kind)


def test_a_handler_that_fails_costs_no_other_object_anything(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The queue fails once for each event about one pod, in the middle of its handler."""
    put = Cluster.put_pod

    def put_and_fail(self: Cluster, info: PodInfo) -> None:
        put(self, info)
        if info.name == "culprit" and info.uid not in failed:
            failed.add(info.uid)
            raise KeyError("something inside")

    failed: set[str] = set()
    monkeypatch.setattr(Cluster, "put_pod", put_and_fail)
    counts = _FailureCounts()

    async def scenario(harness: SchedulerHarness) -> None:
        harness.cluster.put(pod("waits", cpu="3"))
        harness.cluster.put(pod("culprit", node="n", cpu="2"))
        await harness.settle()
        assert harness.scheduler.cluster.is_assumed("uid-default-culprit") is False
        assert harness.scheduler.cluster.placed_pod("uid-default-culprit") is not None
        harness.cluster.put(pod("next", cpu="1"))
        await harness.settle()
        assert harness.node_of("waits") == "n"
        assert harness.node_of("next") == ""
        harness.cluster.remove(harness.cluster.pod("culprit"))
        await harness.advance(2.0)
        assert harness.node_of("next") == "n"
        _check(harness.scheduler)

    in_virtual_time(scenario, node("n", cpu="5"), observer=counts)
    assert counts.kinds == ["Pod"]
    assert "the event handler failed for Pod default/culprit" in caplog.text


@pytest.mark.parametrize(("kind", "method", "broken"), [(NODES, "add_node", node("n1")), (PODS, "put_pod", pod("x"))])
def test_a_handler_that_always_fails_does_not_end_the_watch(
    kind: Resource, method: str, broken: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = getattr(Cluster, method)

    def fail_for_one(self: Cluster, obj: Any) -> None:
        if obj.metadata.name == broken.metadata.name:
            raise KeyError(obj.metadata.name)
        original(self, obj)

    monkeypatch.setattr(Cluster, method, fail_for_one)

    async def scenario(harness: SchedulerHarness) -> None:
        placed = replace(broken, spec=replace(broken.spec, node_name="n0")) if kind is PODS else broken
        harness.cluster.put(placed)
        harness.scheduler.handlers.replace(kind, [placed, *([node("n0")] if kind is NODES else [])])
        harness.cluster.put(pod("a", cpu="1"))
        await harness.advance(1.0)
        assert harness.node_of("a") == "n0"

    in_virtual_time(scenario, node("n0"))
