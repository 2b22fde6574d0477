"""What pods that wait keep in memory."""

from __future__ import annotations

import gc

from kubestow.cluster.pods.shapes import PodInfo
from kubestow.testing import node, pod
from kubestow.testing.scheduler_harness import SchedulerHarness, in_virtual_time


def versions_of(name: str) -> list[PodInfo]:
    """The versions of a pod that are in memory."""
    gc.collect()
    return [each for each in gc.get_objects() if isinstance(each, PodInfo) and each.name == name]


def test_a_rejected_pod_is_kept_in_its_last_version_only() -> None:
    async def scenario(harness: SchedulerHarness) -> None:
        harness.cluster.put(pod("rejected", cpu="8"))
        await harness.advance(60)
        (version,) = versions_of("rejected")
        assert [condition.status for condition in version.status.conditions] == ["False"]

    in_virtual_time(scenario, node("n", cpu="4"))


def test_pods_rejected_by_the_same_plugins_share_the_set_of_these() -> None:
    async def scenario(harness: SchedulerHarness) -> None:
        for name in "ab":
            harness.cluster.put(pod(name, cpu="8"))
        await harness.advance(60)
        one, other = harness.scheduler.queue.pods.values()
        assert one.rejectors == {"NodeResourcesFit"}
        assert one.rejectors is other.rejectors
        assert one.pending_plugins is other.pending_plugins

    in_virtual_time(scenario, node("n", cpu="4"))
