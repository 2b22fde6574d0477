"""Admission over many cycles: what holds whatever arrives and ends, and the order of what waits."""

from __future__ import annotations

import math
from random import Random
from typing import Any

import pytest

from contrib_tests.kueue.kueue_objects import GPU, cluster_queue, flavor, local_queue, workload
from contrib_tests.kueue.table_cases import NOW, objects
from kubestow_contrib.kueue.admission import Admission, KueueObjects
from kubestow_contrib.kueue.admission_cycle import AdmissionSettings, Outcome
from kubestow_contrib.kueue.admission_state import AdmissionState
from kubestow_contrib.kueue.local_queue_usage import LocalQueueUsage
from kubestow_contrib.kueue.objects import ClusterQueue, LocalQueue, ResourceFlavor, Workload
from kubestow_contrib.kueue.pending_workloads import PendingQueue, Requeue
from kubestow_contrib.kueue.workload_info import WorkloadInfo


def _policies(random: Random) -> dict[str, Any]:
    policies: dict[str, Any] = {
        "preemption": {
            "withinClusterQueue": random.choice(["Never", "LowerPriority", "LowerOrNewerEqualPriority"]),
            "reclaimWithinCohort": random.choice(["Never", "LowerPriority", "Any"]),
        },
        "queueingStrategy": random.choice(["StrictFIFO", "BestEffortFIFO"]),
        "fairSharing": {"weight": random.choice([0, 1, 2])},
    }
    if random.random() < 0.3:
        policies["flavorFungibility"] = {"whenCanBorrow": "TryNextFlavor", "whenCanPreempt": "MayStopSearch"}
    return policies


def _admission(random: Random, settings: AdmissionSettings) -> Admission:
    flavors = ("h100", "a100")
    queues = [
        cluster_queue(
            f"q{number}",
            random.randrange(8),
            cohort=random.choice(["", "c", "c", "c"]),
            flavors=flavors,
            **_policies(random),
        )
        for number in range(4)
    ]
    return Admission(
        KueueObjects(
            objects(ClusterQueue, queues),
            flavors=objects(ResourceFlavor, [flavor(name) for name in flavors]),
            local_queues=objects(LocalQueue, [local_queue(f"q{number}") for number in range(4)]),
        ),
        {"default": {}},
        settings,
        NOW,
    )


def _arriving(random: Random, number: int) -> WorkloadInfo:
    pods = random.randrange(1, 4)
    minimum: dict[str, Any] = {"minCount": random.randrange(1, pods + 1)} if random.random() < 0.3 else {}
    created = f"2026-01-01T00:{number // 60:02d}:{number % 60:02d}Z"
    manifest = workload(
        f"w{number}",
        f"q{random.randrange(4)}",
        random.randrange(1, 4),
        pods=pods,
        priority=random.randrange(3),
        created=created,
        **minimum,
    )
    return WorkloadInfo.of(objects(Workload, [manifest])[0])


def _check(admission: Admission, present: set[str], no_debt: bool) -> None:
    """Usage is that of the Workloads with quota, within all quotas, and each Workload is in one place."""
    state = admission.state
    fresh: dict[Any, int] = {}
    for queue in state.cluster_queues.values():
        own: dict[Any, int] = {}
        for info in queue.workloads.values():
            for fr, used in info.usage().items():
                own[fr] = own.get(fr, 0) + used
        assert {fr: used for fr, used in queue.usage.items() if used} == own
        for fr, used in own.items():
            fresh[queue.parent, fr] = fresh.get((queue.parent, fr), 0) + used
            if queue.parent is None and no_debt:
                assert used <= queue.quotas[fr].nominal
    for (cohort, fr), used in fresh.items():
        if cohort is not None and no_debt:
            assert cohort.usage[fr] == used <= cohort.subtree_quota[fr]
    places = [key for queue in state.cluster_queues.values() for key in queue.workloads]
    places += [info.key for queue in admission.pending.values() for info in queue.waiting()]
    assert sorted(places) == sorted(present)


@pytest.mark.parametrize("fair", [None, ()])
@pytest.mark.parametrize("seed", range(12))
def test_nothing_is_lost_and_no_quota_exceeded(seed: int, fair: tuple[str, ...] | None) -> None:
    random = Random(seed)
    admission = _admission(random, AdmissionSettings(fair))
    present: set[str] = set()
    for number in range(25):
        now = NOW + number
        info = _arriving(random, number)
        present.add(info.key)
        admission.put(info, now)
        entries = list(admission.settle(now))
        assert all(entry.outcome in (Outcome.ADMITTED, Outcome.PREEMPTING) for entry in entries)
        _check(admission, present, no_debt=True)
        running = [one for queue in admission.state.cluster_queues.values() for one in queue.workloads.values()]
        if running and random.random() < 0.4:
            ended = random.choice(running)
            present.remove(ended.key)
            admission.release(ended, now)
            admission.retry(ended, now)


@pytest.mark.parametrize("seed", range(6))
def test_a_cycle_that_admits_nothing_changes_no_usage(seed: int) -> None:
    random = Random(seed)
    admission = _admission(random, AdmissionSettings(()))
    for number in range(20):
        admission.put(_arriving(random, number), NOW + number)
    for _ in admission.settle(NOW + 30):
        pass

    def usage(state: AdmissionState) -> dict[str, dict[Any, int]]:
        nodes = (*state.cluster_queues.values(), *state.cohorts.values())
        return {repr(node): {fr: used for fr, used in node.usage.items() if used} for node in nodes}

    before = usage(admission.state)
    entries = admission.run_cycle(NOW + 31)
    assert not any(entry.outcome is Outcome.ADMITTED for entry in entries)
    assert usage(admission.state) == before


# -- queues ------------------------------------------------------------------------------------------------------------


def _waiting(name: str, gpus: int = 1, *, priority: int = 0, second: int = 0, queue: str = "q") -> WorkloadInfo:
    created = f"2026-01-01T00:00:{second:02d}Z"
    manifest = workload(name, queue, gpus, priority=priority, created=created)
    return WorkloadInfo.of(objects(Workload, [manifest])[0])


def test_higher_priority_comes_first_then_the_older() -> None:
    queue = PendingQueue()
    for info in (_waiting("young", second=2), _waiting("old", second=1), _waiting("high", priority=5, second=3)):
        queue.push(info, NOW)
    assert [info.key for info in queue.active()] == ["default/job-high", "default/job-old", "default/job-young"]
    assert queue.pop() is not None
    assert [info.key for info in queue.active()] == ["default/job-old", "default/job-young"]


@pytest.mark.parametrize("strict", [True, False])
def test_only_strict_queues_try_the_head_again(strict: bool) -> None:
    queue = PendingQueue(strict)
    for info in (_waiting("large", 8), _waiting("equal", 8, second=1), _waiting("small", second=2)):
        queue.push(info, NOW)
    head = queue.pop()
    assert head is not None
    queue.requeue(head, Requeue.NO_FIT, NOW)
    after = queue.pop()
    assert after is not None
    assert after.key == ("default/job-large" if strict else "default/job-small")
    assert sorted(queue.inadmissible) == ([] if strict else ["default/job-equal", "default/job-large"])
    assert queue.retry_inadmissible(NOW) == (0 if strict else 2)


def test_a_preemptor_stays_first() -> None:
    queue = PendingQueue()
    queue.push(_waiting("preemptor"), NOW)
    head = queue.pop()
    assert head is not None
    queue.push(_waiting("high", priority=9), NOW)
    queue.requeue(head, Requeue.PENDING_PREEMPTION, NOW)
    assert queue.pop() is head


def test_local_queues_that_used_less_come_first() -> None:
    used = {"a": 5.0, "b": 1.0}
    queue = PendingQueue(usage=lambda name: used[name[1]])
    queue.push(_waiting("first", queue="a"), NOW)
    queue.push(_waiting("second", second=1, queue="b"), NOW)
    assert [info.local_queue[1] for info in queue.active()] == ["b", "a"]
    used["b"] = 9.0
    head = queue.pop()
    assert head is not None
    assert head.local_queue[1] == "a"


# -- usage of LocalQueues ----------------------------------------------------------------------------------------------


def test_usage_halves_in_each_half_life() -> None:
    usage = LocalQueueUsage(half_life=10.0, sampling_interval=0.0)
    usage.open_account(("default", "a"), 2.0, {GPU: 8}, NOW)
    assert usage.usage(("default", "a"), NOW) == 4.0
    assert usage.usage(("default", "a"), NOW + 10) == pytest.approx(2.0)
    assert usage.usage(("default", "a"), NOW + 30) == pytest.approx(0.5)


def test_usage_approaches_what_is_used_and_counts_a_sample_at_once() -> None:
    usage = LocalQueueUsage(half_life=10.0, sampling_interval=10.0, resource_weights={GPU: 3.0})
    usage.open_account(("default", "a"), 1.0, {}, NOW)
    usage.admit(("default", "a"), {GPU: 4, "cpu": 2000}, NOW)
    assert usage.usage(("default", "a"), NOW) == pytest.approx(3 * 2 + 1)
    assert usage.usage(("default", "a"), NOW + 1000) == pytest.approx(3 * 4 + 2)
    usage.release(("default", "a"), {GPU: 4, "cpu": 2000}, NOW + 1000)
    assert usage.usage(("default", "a"), NOW + 2000) == pytest.approx(0.0, abs=1e-6)


def test_what_ran_before_counts_from_now_on() -> None:
    usage = LocalQueueUsage(half_life=10.0, sampling_interval=10.0)
    usage.open_account(("default", "a"), 1.0, {GPU: 1}, NOW)
    usage.run(("default", "a"), {GPU: 4}, NOW)
    assert usage.usage(("default", "a"), NOW) == 1.0
    assert usage.usage(("default", "a"), NOW + 10) == pytest.approx(2.5)


def test_a_weight_of_zero_comes_last() -> None:
    usage = LocalQueueUsage(half_life=10.0, sampling_interval=1.0)
    usage.open_account(("default", "a"), 0.0, {}, NOW)
    assert usage.usage(("default", "a"), NOW) == math.inf
