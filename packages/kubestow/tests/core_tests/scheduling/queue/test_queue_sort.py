"""The order of the queue with an unreliable QueueSort plugin."""

from __future__ import annotations

from typing import Any

import pytest

from kubestow.framework.interface import Queued, QueueSortPlugin
from kubestow.testing import node, pod
from kubestow.testing.scheduler_harness import SchedulerHarness, in_virtual_time


class ByRank(QueueSortPlugin):
    """Sorts by a label that some pods lack."""

    name = "ByRank"
    events_to_register = ()

    def sort_key(self, queued: Queued) -> Any:
        return queued.info.labels.get("rank")


def test_pods_with_incomparable_sort_keys_are_still_scheduled(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scenario(harness: SchedulerHarness) -> None:
        for number in range(100):
            harness.cluster.put(pod(f"p{number}", labels={"rank": str(-number)} if number % 3 else {}))
        await harness.settle()
        assert len(harness.cluster.bindings) == 100

    by_rank = {"enabled": [{"name": "ByRank"}], "disabled": [{"name": "*"}]}
    in_virtual_time(scenario, node("n"), plugins=[ByRank], profiles=[{"plugins": {"queueSort": by_rank}}])
    assert caplog.text.count("keys of the QueueSort plugin cannot be compared") == 1


def test_pods_with_equal_sort_keys_are_scheduled_in_order_of_creation() -> None:
    async def scenario(harness: SchedulerHarness) -> None:
        names = [f"p{number}" for number in (3, 1, 2, 5, 4)]
        for name in names:
            harness.cluster.put(pod(name))
        await harness.settle()
        assert [key for key, _ in harness.cluster.bindings] == [f"default/{name}" for name in names]

    in_virtual_time(scenario, node("n"))
