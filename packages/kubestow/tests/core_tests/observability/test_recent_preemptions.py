"""The preemptions that are kept of past attempts."""

from __future__ import annotations

import asyncio

from core_tests.observability.harness import Observed, observe
from core_tests.scheduling.gangs.groups import gang_scheduling, group, members
from kubestow.cluster.pods.shapes import Shapes
from kubestow.observability.recent_attempts import PreemptionRecord, RecentPreemptions
from kubestow.scheduling.observer import Disruption, Preemptor, Result
from kubestow.scheduling.queued_pod import QueuedPod
from kubestow.testing import node, pod, pods
from kubestow.testing.virtual_time import VirtualClock, run

CLUSTER = (
    *(node(name, cpu="4") for name in ("one-high", "two-low", "one-low")),
    pod("v1", cpu="3", priority=1, node="one-low"),
    *(pod(f"w{number}", cpu="2", priority=1, node="two-low") for number in (1, 2)),
    pod("x", cpu="3", priority=50, node="one-high"),
)


def record(observed: Observed, name: str, number: int = 1) -> PreemptionRecord:
    found = observed.observability.preemptions.of(f"uid-default-{name}", number)
    assert found is not None
    return found


def test_candidates_are_in_the_order_of_the_criteria_and_the_first_is_chosen() -> None:
    async def scenario(observed: Observed) -> None:
        observed.observability.preemptions.watch()
        observed.harness.cluster.put(pod("urgent", cpu="4", priority=100))
        await observed.harness.advance(5)
        assert observed.harness.node_of("urgent") == "one-low"
        found = record(observed, "urgent")
        assert (found.found, found.chosen) == (3, found.best[0])
        assert [(each.node, each.highest_priority, each.priority_sum, each.count) for each in found.best] == [
            ("one-low", 1, 1, 1),
            ("two-low", 1, 2, 2),
            ("one-high", 50, 50, 1),
        ]
        assert [victim.pod for victim in found.best[1].victims] == ["default/w1", "default/w2"]

    observe(scenario, *CLUSTER)


def test_without_viewers_only_the_chosen_candidate_is_kept() -> None:
    async def scenario(observed: Observed) -> None:
        observed.observability.preemptions.watch()
        await observed.harness.advance(1000)
        observed.harness.cluster.put(pod("urgent", cpu="4", priority=100))
        await observed.harness.advance(5)
        found = record(observed, "urgent")
        assert (found.chosen.node, found.best, found.found) == ("one-low", (), None)

    observe(scenario, *CLUSTER)


def test_an_attempt_that_evicts_nothing_has_no_preemption() -> None:
    async def scenario(observed: Observed) -> None:
        observed.observability.preemptions.watch()
        observed.harness.cluster.put(pod("small", cpu="1", priority=100))
        observed.harness.cluster.put(pod("big", cpu="100", priority=100))
        await observed.harness.settle()
        preemptions = observed.observability.preemptions
        assert [preemptions.of(f"uid-default-{name}", 1) for name in ("small", "big")] == [None, None]

    observe(scenario, *CLUSTER)


def test_all_members_of_a_gang_have_its_preemption() -> None:
    async def scenario(observed: Observed) -> None:
        for each in members(2, "train", cpu="2", priority=100):
            observed.harness.cluster.put(each)
        await observed.harness.advance(5)
        one, other = (record(observed, f"train-{number}") for number in range(2))
        assert one is other
        assert (one.chosen.node, one.chosen.violations, one.chosen.count) == ("cluster", None, 4)

    low = pods(4, prefix="low", cpu="1", priority=1, node="n")
    observe(scenario, node("n", cpu="4"), *low, group("train", 2), **gang_scheduling())


def test_the_preemptions_that_are_kept_are_bounded() -> None:
    async def scenario() -> None:
        preemptions = RecentPreemptions(VirtualClock(asyncio.get_running_loop()), max_records=2)
        shapes = Shapes()
        victims = [shapes.info(pod(f"low-{number}", priority=number)) for number in range(40)]
        for name in ("a", "b", "c"):
            queued = QueuedPod(shapes.info(pod(name)), 0.0, attempts=1)
            preemptions.preemption_started([queued.info], "n", victims, Disruption(Preemptor.POD))
            preemptions.attempt_ended(queued, Result.UNSCHEDULABLE, "", 0.1)
        kept = [preemptions.of(f"uid-default-{name}", 1) for name in ("a", "b", "c")]
        assert [found is None for found in kept] == [True, False, False]
        assert kept[2] is not None
        assert (kept[2].chosen.count, len(kept[2].chosen.victims)) == (40, 10)

    run(scenario())
