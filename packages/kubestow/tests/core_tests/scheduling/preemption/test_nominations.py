"""Nominated nodes, and which pods are requeued when a nomination ends."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest
from msgspec.structs import replace

from core_tests.scheduling.fixture import SlowlyTerminatingCluster
from kubestow.api.core import Pod
from kubestow.cluster.pods.shapes import PodInfo
from kubestow.errors import APIError
from kubestow.scheduling.interfaces import ObjectReference
from kubestow.scheduling.observer import Disruption, Observer
from kubestow.testing import MemoryCluster, node, pod
from kubestow.testing.scheduler_harness import SchedulerHarness, in_virtual_time

DEDICATED = {"key": "dedicated", "operator": "Exists"}


class UnkillableCluster(MemoryCluster):
    """Its deleted pods terminate for ever; rejects nominations unless ``accepts_nominations``."""

    accepts_nominations = True

    async def delete_pod(self, pod: ObjectReference) -> None:
        current = self._current(pod)
        self.put(replace(current, metadata=replace(current.metadata, deletion_timestamp="2026-01-01T00:00:00Z")))

    async def patch_pod_status(self, pod: ObjectReference, patch: Any) -> None:
        if not self.accepts_nominations and patch.nominated_node_name:
            raise APIError(500, "InternalError", "etcd is down")
        await super().patch_pod_status(pod, patch)


def high(cluster: MemoryCluster | None = None, **changes: Any) -> Pod:
    return pod("high", cpu="4", priority=100, **changes)


@pytest.mark.parametrize("accepts_nominations", [True, False])
def test_a_pod_that_is_bound_elsewhere_releases_its_nominated_node(accepts_nominations: bool) -> None:
    cluster = UnkillableCluster()
    cluster.accepts_nominations = accepts_nominations

    async def scenario(harness: SchedulerHarness) -> None:
        harness.cluster.put(high())
        await harness.advance(5)
        assert harness.scheduler.cluster.nomination("uid-default-high") == "n"
        harness.cluster.put(pod("low", cpu="1", priority=1))
        await harness.advance(5)
        assert harness.node_of("low") == ""  # the free capacity of the node is nominated
        nominated = harness.cluster.pod("high").status.nominated_node_name
        harness.cluster.put(high(tolerations=[DEDICATED], nominated=nominated))
        await harness.advance(20)
        assert (harness.node_of("high"), harness.node_of("low")) == ("special", "n")

    in_virtual_time(
        scenario,
        node("n", cpu="4"),
        node("special", cpu="4", taints=["dedicated=yes:NoSchedule"]),
        pod("victim", node="n", cpu="3"),
        cluster=cluster,
    )


class DeletesThePreemptor(Observer):
    """Deletes the pod that preempts, before its victims are evicted."""

    cluster: MemoryCluster

    def preemption_started(
        self, preemptors: Sequence[PodInfo], node_name: str, victims: Sequence[PodInfo], disruption: Disruption
    ) -> None:
        for preemptor in preemptors:
            asyncio.get_running_loop().call_soon(self.cluster.remove, preemptor.pod)


def test_a_pod_that_is_deleted_before_its_evictions_is_not_nominated_while_they_are_awaited() -> None:
    observer, cluster = DeletesThePreemptor(), SlowlyTerminatingCluster()
    observer.cluster = cluster

    async def scenario(harness: SchedulerHarness) -> None:
        cluster.put(high())
        await harness.advance(5)
        assert not harness.scheduler.cluster.has_nominations
        await harness.advance(60)
        assert not harness.scheduler.cluster.has_nominations

    objects = (node("n", cpu="4"), pod("victim", node="n", cpu="3"))
    gates = {"SchedulerAsyncPreemption": False}
    in_virtual_time(scenario, *objects, cluster=cluster, observer=observer, gates=gates)


def test_a_nomination_that_the_api_server_rejected_counts_with_the_updated_pod() -> None:
    cluster = UnkillableCluster()
    cluster.accepts_nominations = False

    async def scenario(harness: SchedulerHarness) -> None:
        harness.cluster.put(high())
        await harness.advance(5)
        assert harness.scheduler.cluster.nomination("uid-default-high") == "n"
        harness.cluster.put(high(labels={"app": "web"}))
        await harness.settle()
        assert [info.labels for info in harness.scheduler.cluster.nominated_pods("n")] == [{"app": "web"}]

    in_virtual_time(scenario, node("n", cpu="4"), pod("victim", node="n", cpu="3"), cluster=cluster)
