"""The plugin Volcano: scenarios of Volcano's and kube-batch's documents and tests, on a running scheduler."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from msgspec import structs

from contrib_tests.volcano.objects import member, pod_group, profile, queue, single
from kubestow.scheduling.interfaces import ObjectReference
from kubestow.testing import PluginHarness, SchedulerHarness, check_plugin, in_virtual_time, node, pod
from kubestow_contrib.preemption_toleration import PriorityClass
from kubestow_contrib.volcano.accounts import Accounts, Shares
from kubestow_contrib.volcano.configuration import read_configuration
from kubestow_contrib.volcano.jobs import JobOrder
from kubestow_contrib.volcano.pod_groups import VOLCANO, PodGroup
from kubestow_contrib.volcano.queues import Queue
from kubestow_contrib.volcano.victims import Eviction, EvictionRules
from kubestow_contrib.volcano.volcano import Volcano

ALL = "enqueue, allocate, preempt, reclaim, backfill"
#: Single pods may be evicted, though no gang is left without them.
SINGLE = {"gang": {"enablePreemptable": False, "enableReclaimable": False}}


#: As a converted configuration has it.
WITH_PERMIT = profile()
WITH_PERMIT[0]["plugins"]["permit"] = {"enabled": [{"name": "Volcano"}]}


def run(
    scenario: Callable[[SchedulerHarness], Awaitable[None]], *objects: Any, profiles: list[dict[str, Any]] | None = None
) -> None:
    in_virtual_time(scenario, *objects, plugins=[Volcano], pod_group_apis=[VOLCANO], profiles=profiles or profile())


def placed(harness: SchedulerHarness) -> list[str]:
    return [name.removeprefix("default/") for name, _ in harness.cluster.bindings]


def running(harness: SchedulerHarness) -> Counter[str]:
    """How many pods are on nodes, by the first part of their names."""
    return Counter(p.metadata.name.split("-")[0] for p in harness.cluster.pods() if p.spec.node_name)


def message(harness: SchedulerHarness, name: str) -> str:
    condition = harness.cluster.condition(name)
    return "" if condition is None else condition.message or ""


# -- order -----------------------------------------------------------------------------------------------------------


def test_the_queue_with_the_lowest_share_comes_first() -> None:
    async def scenario(harness: SchedulerHarness) -> None:
        for name in ("a", "b"):
            for number in range(6):
                harness.cluster.put(single(f"{name}-{number}", name, cpu="1"))
        harness.cluster.put(node("n", cpu="8"))
        await harness.advance(20)
        assert running(harness) == {"a": 2, "b": 6}
        # b deserves three times as much as a, and is served as often.
        assert sorted(name.split("-")[0] for name in placed(harness)[:4]) == ["a", "b", "b", "b"]

    run(scenario, queue("a"), queue("b", 3))


def test_the_queue_of_higher_priority_comes_first() -> None:
    async def scenario(harness: SchedulerHarness) -> None:
        for name in ("low", "high"):
            for number in range(2):
                harness.cluster.put(single(f"{name}-{number}", name, cpu="1"))
        harness.cluster.put(node("n", cpu="8"))
        await harness.advance(20)
        assert [name.split("-")[0] for name in placed(harness)] == ["high", "high", "low", "low"]

    run(scenario, queue("low"), queue("high", priority=5))


def test_jobs_of_a_queue_take_turns_by_dominant_share() -> None:
    async def scenario(harness: SchedulerHarness) -> None:
        for number in range(4):
            harness.cluster.put(member(f"big-{number}", "big", cpu="2"))
        for number in range(8):
            harness.cluster.put(member(f"small-{number}", "small", cpu="1"))
        harness.cluster.put(node("n", cpu="12"))
        await harness.advance(20)
        assert running(harness)["big"] == 3
        assert running(harness)["small"] == 6

    run(scenario, pod_group("big"), pod_group("small"), profiles=profile(gangs=False))


def test_jobs_of_higher_priority_come_first() -> None:
    async def scenario(harness: SchedulerHarness) -> None:
        for name in ("low", "high"):
            harness.cluster.put(member(f"{name}-0", name, cpu="3"))
        harness.cluster.put(node("n", cpu="4"))
        await harness.advance(20)
        assert placed(harness) == ["high-0"]

    urgent = PriorityClass(value=100)
    urgent = type(urgent)(metadata=queue("urgent").metadata, value=100)
    groups = [pod_group("low"), pod_group("high", priorityClassName="urgent")]
    run(scenario, urgent, *groups)


def test_pods_without_queue_are_not_affected() -> None:
    async def scenario(harness: SchedulerHarness) -> None:
        harness.cluster.put(pod("plain", cpu="3"))
        await harness.settle()
        assert harness.node_of("plain") == "n"

    run(scenario, node("n"), queue("default", capability={"cpu": "1"}))


# -- enqueue ---------------------------------------------------------------------------------------------------------


def test_a_job_waits_until_its_minimum_fits_the_queue() -> None:
    async def scenario(harness: SchedulerHarness) -> None:
        harness.cluster.put(member("first-0", "first", cpu="1"))
        await harness.settle()
        harness.cluster.put(member("second-0", "second", cpu="1"))
        await harness.advance(30)
        assert harness.node_of("first-0") == "n"
        assert harness.node_of("second-0") == ""
        harness.cluster.remove(harness.cluster.pod("first-0"))
        await harness.advance(30)
        assert harness.node_of("second-0") == "n"

    least = {"minResources": {"cpu": "2"}}
    groups = [pod_group("first", "q", **least), pod_group("second", "q", **least)]
    run(scenario, node("n", cpu="8"), queue("q", capability={"cpu": "3"}), *groups)


def test_jobs_are_admitted_up_to_the_overcommit_factor() -> None:
    async def scenario(harness: SchedulerHarness) -> None:
        for name in ("a", "b", "c"):
            harness.cluster.put(member(f"{name}-0", name, cpu="1"))
        await harness.advance(30)
        # 1.2 x 10 CPUs have room for two jobs of 6.
        assert running(harness) == {"a": 1, "b": 1}

    groups = [pod_group(name, minResources={"cpu": "6"}) for name in ("a", "b", "c")]
    no_limit = {"proportion": {"enableJobEnqueued": False}}
    run(scenario, node("n", cpu="10"), *groups, profiles=profile(options=no_limit))


def test_without_the_action_every_job_is_admitted() -> None:
    async def scenario(harness: SchedulerHarness) -> None:
        harness.cluster.put(member("a-0", "a", cpu="1"))
        await harness.advance(5)
        assert harness.node_of("a-0") == "n"

    run(scenario, node("n"), pod_group("a", minResources={"cpu": "100"}), profiles=profile("allocate"))


def test_no_share_lies_idle_for_jobs_that_are_not_admitted() -> None:
    async def scenario(harness: SchedulerHarness) -> None:
        for number in range(8):
            harness.cluster.put(single(f"b-{number}", "b", cpu="1"))
        await harness.advance(20)
        assert running(harness) == {"b": 8}

    large = [member(f"large-{number}", "large", cpu="4") for number in range(5)]
    objects = [queue("a"), queue("b"), pod_group("large", "a", minResources={"cpu": "20"})]
    run(scenario, node("n", cpu="8"), *objects, *large)


@pytest.mark.parametrize(
    ("objects", "expected"),
    [
        ([], "Queue q of PodGroup default/a does not exist"),
        ([queue("q", 0)], "Queue q: spec.weight: is 0, expected 1 to 65535"),
        ([queue("q", capability={"cpu": "much"})], "Queue q: spec.capability.cpu: "),
        ([queue("q", capability={"cpu": "-1"})], "Queue q: spec.capability.cpu: is -1, expected at least 0"),
        (
            [queue("q", capability={"cpu": "1"}, guarantee={"resource": {"cpu": "2"}})],
            "Queue q: spec.guarantee.resource.cpu: is above spec.capability.cpu",
        ),
        (
            [queue("q", deserved={"cpu": "3"}, capability={"cpu": "2"})],
            "Queue q: spec.deserved.cpu: is above spec.capability.cpu",
        ),
        ([queue("q", parent="p"), queue("p", parent="q")], "Queue q: spec.parent: is a cycle: q -> p -> q"),
        ([queue("q", parent="q")], "Queue q: spec.parent: is a cycle: q -> q"),
        ([queue("q", state="Closed")], "Queue q: status.state: is Closed, so the queue admits no pods"),
    ],
)
def test_a_queue_with_a_mistake_admits_no_pods_until_it_is_corrected(objects: list[Any], expected: str) -> None:
    async def scenario(harness: SchedulerHarness) -> None:
        harness.cluster.put(member("a-0", "a", cpu="1"))
        await harness.advance(10)
        queued = harness.scheduler.queue.pods.get("uid-default-a-0")
        assert queued is not None
        assert queued.gated_by == "Volcano"
        profiles = harness.scheduler.profiles
        status = profiles["default-scheduler"].queueing.run_pre_enqueue_plugins(queued.info)
        assert status.message.startswith(expected)
        harness.cluster.put(queue("q"))
        await harness.advance(10)
        assert harness.node_of("a-0") == "n"

    run(scenario, node("n"), *objects, pod_group("a", "q"))


# -- shares ----------------------------------------------------------------------------------------------------------


def test_a_queue_is_limited_to_what_it_deserves() -> None:
    async def scenario(harness: SchedulerHarness) -> None:
        for number in range(6):
            harness.cluster.put(single(f"b-{number}", "b", cpu="1"))
        await harness.advance(20)
        assert running(harness) == {"b": 2}
        assert "Queue b has used its share of cpu" in " ".join(message(harness, f"b-{n}") for n in range(6))
        # The pods that wait in queue a are withdrawn, so b deserves what they would have got.
        for number in range(8):
            harness.cluster.remove(harness.cluster.pod(f"a-{number}"))
        await harness.advance(30)
        assert running(harness) == {"b": 6}

    waiting = [single(f"a-{number}", "a", cpu="1", node_selector={"no": "node"}) for number in range(8)]
    run(scenario, node("n", cpu="8"), queue("a", 3), queue("b"), *waiting)


def test_a_capability_limits_a_queue() -> None:
    async def scenario(harness: SchedulerHarness) -> None:
        for number in range(4):
            harness.cluster.put(single(f"a-{number}", "a", cpu="1"))
        await harness.advance(20)
        assert running(harness) == {"a": 2}
        harness.cluster.put(queue("a", capability={"pods": "3"}))
        await harness.advance(20)
        assert running(harness) == {"a": 3}

    run(scenario, node("n", cpu="8"), queue("a", capability={"cpu": "2"}))


def test_a_guarantee_is_kept_free() -> None:
    async def scenario(harness: SchedulerHarness) -> None:
        for number in range(6):
            harness.cluster.put(single(f"a-{number}", "a", cpu="1"))
        await harness.advance(20)
        assert running(harness) == {"a": 3}

    run(scenario, node("n", cpu="4"), queue("a"), queue("b", guarantee={"resource": {"cpu": "1"}}))


def test_pods_without_requests_are_backfilled() -> None:
    async def scenario(harness: SchedulerHarness) -> None:
        harness.cluster.put(single("best-effort", "a"))
        harness.cluster.put(single("other", "a", cpu="1"))
        await harness.advance(10)
        assert harness.node_of("best-effort") == "n"
        assert harness.node_of("other") == ""

    objects = [node("n", cpu="2"), queue("a", capability={"cpu": "500m"})]
    run(scenario, *objects)

    async def without(harness: SchedulerHarness) -> None:
        harness.cluster.put(single("best-effort", "a"))
        await harness.advance(10)
        assert "backfill is missing" in message(harness, "best-effort")

    run(without, *objects, profiles=profile("enqueue, allocate"))


def test_a_gang_waits_for_its_share_as_a_whole() -> None:
    async def scenario(harness: SchedulerHarness) -> None:
        for number in range(3):
            harness.cluster.put(member(f"a-{number}", "a", cpu="1"))
        await harness.advance(20)
        assert running(harness) == {}
        harness.cluster.put(queue("q", capability={"cpu": "3"}))
        await harness.advance(20)
        assert running(harness) == {"a": 3}

    run(scenario, node("n", cpu="8"), queue("q", capability={"cpu": "2"}), pod_group("a", "q", minMember=3))


def sla(waiting_time: str, *, first: bool = True) -> list[dict[str, Any]]:
    """A profile with the plugin sla before overcommit, or in its tier."""
    profiles = profile()
    tiers = profiles[0]["pluginConfig"][0]["args"]["tiers"]
    tiers[0 if first else 1]["plugins"].append({"name": "sla", "arguments": {"sla-waiting-time": waiting_time}})
    return profiles


@pytest.mark.parametrize(
    ("first", "annotations", "seconds"), [(True, {}, 60), (True, {"sla-waiting-time": "20s"}, 20), (False, {}, 0)]
)
def test_a_job_is_admitted_once_it_has_waited_as_long_as_it_may(
    first: bool, annotations: dict[str, str], seconds: int
) -> None:
    """Where no plugin of the tier of sla, or of one before, has a say."""
    group = pod_group("a", minResources={"cpu": "9"})
    metadata = structs.replace(group.metadata, creation_timestamp="2026-01-01T00:00:00Z", annotations=annotations)

    async def scenario(harness: SchedulerHarness) -> None:
        harness.cluster.put(member("a-0", "a", cpu="1"))
        await harness.advance(max(seconds - 3, 0))
        assert running(harness) == {}
        await harness.advance(6)
        assert running(harness) == ({"a": 1} if seconds else {})

    run(scenario, node("n", cpu="2"), structs.replace(group, metadata=metadata), profiles=sla("1m", first=first))


def test_the_job_with_the_first_deadline_comes_first() -> None:
    groups = []
    for name, seconds in (("none", ""), ("late", "2h"), ("soon", "1h")):
        group = pod_group(name)
        annotations = {"volcano.sh/sla-waiting-time": seconds} if seconds else {}
        metadata = structs.replace(group.metadata, creation_timestamp="2026-01-01T00:00:00Z", annotations=annotations)
        groups.append(structs.replace(group, metadata=metadata))
    profiles = sla("3h")
    del profiles[0]["pluginConfig"][0]["args"]["tiers"][0]["plugins"][-1]["arguments"]

    async def scenario(harness: SchedulerHarness) -> None:
        for name in ("none", "late", "soon"):
            harness.cluster.put(member(f"{name}-0", name, cpu="1"))
        harness.cluster.put(node("n", cpu="2"))
        await harness.advance(20)
        assert running(harness) == {"soon": 1, "late": 1}

    run(scenario, *groups, profiles=profiles)


def task(name: str, of: str, group: str, **fields: Any) -> Any:
    """A pod of a task of a job."""
    annotations = {"scheduling.k8s.io/group-name": group, "volcano.sh/task-spec": of}
    return pod(name, metadata={"annotations": annotations}, **fields)


def test_no_pod_of_a_job_starts_while_a_task_of_it_cannot() -> None:
    async def scenario(harness: SchedulerHarness) -> None:
        # Three workers would be enough pods, but the master does not fit.
        for number in range(3):
            harness.cluster.put(task(f"worker-{number}", "worker", "a", cpu="1"))
        harness.cluster.put(task("master-0", "master", "a", cpu="8"))
        await harness.advance(20)
        assert running(harness) == {}
        assert "default/a needs 1 of master, 2 of worker, which do not fit together" in message(harness, "worker-0")
        harness.cluster.put(node("large", cpu="8"))
        await harness.advance(20)
        assert running(harness) == {"worker": 3, "master": 1}

    group = pod_group("a", minMember=3, minTaskMember={"master": 1, "worker": 2})
    run(scenario, node("n", cpu="4"), group, profiles=WITH_PERMIT)


def test_a_job_waits_for_the_pods_of_each_task() -> None:
    async def scenario(harness: SchedulerHarness) -> None:
        for number in range(3):
            harness.cluster.put(task(f"worker-{number}", "worker", "a", cpu="1"))
        await harness.advance(20)
        assert running(harness) == {}
        found = harness.scheduler.cluster.catalog(PodGroup).get("default", "a")
        assert found is not None
        assert "task master of PodGroup default/a needs 1 pods, 0 are there" in found.status.conditions[0].message
        harness.cluster.put(task("master-0", "master", "a", cpu="1"))
        await harness.advance(20)
        assert running(harness) == {"worker": 3, "master": 1}

    group = pod_group("a", minMember=3, minTaskMember={"master": 1, "worker": 2})
    run(scenario, node("n", cpu="4"), group, profiles=WITH_PERMIT)


@pytest.mark.parametrize("minimum", [{}, {"master": 1, "worker": 2}])
def test_tasks_do_not_count_where_the_job_needs_fewer_pods(minimum: dict[str, int]) -> None:
    async def scenario(harness: SchedulerHarness) -> None:
        for number in range(2):
            harness.cluster.put(task(f"worker-{number}", "worker", "a", cpu="1"))
        await harness.advance(20)
        assert running(harness) == {"worker": 2}

    run(scenario, node("n", cpu="4"), pod_group("a", minMember=2, minTaskMember=minimum), profiles=WITH_PERMIT)


# -- preempt ---------------------------------------------------------------------------------------------------------


def evictions(objects: list[Any], newcomers: list[Any], profiles: list[dict[str, Any]]) -> set[str]:
    """The pods that are evicted when further pods come."""
    evicted: set[str] = set()

    async def scenario(harness: SchedulerHarness) -> None:
        await harness.advance(10)
        before = {p.metadata.name for p in harness.cluster.pods()}
        for each in newcomers:
            harness.cluster.put(each)
        await harness.advance(60)
        evicted.update(before - {p.metadata.name for p in harness.cluster.pods()})

    run(scenario, *objects, profiles=profiles)
    return evicted


def high(name: str, group: str, **fields: Any) -> Any:
    return member(name, group, priority=100, **fields)


def test_a_job_preempts_others_of_its_queue_by_priority() -> None:
    objects = [node("n", cpu="2"), pod_group("low", "q"), pod_group("high", "q"), queue("q")]
    objects += [member(f"low-{number}", "low", cpu="1", node="n") for number in range(2)]
    newcomers = [high("high-0", "high", cpu="1")]
    gone = evictions(objects, newcomers, profile("allocate, preempt"))
    assert len(gone) == 1
    assert gone < {"low-0", "low-1"}
    assert evictions(objects, newcomers, profile("allocate, reclaim")) == set()
    assert evictions(objects, [member("high-0", "high", cpu="1")], profile("allocate, preempt", NO_DRF)) == set()


NO_DRF = {"drf": {"enablePreemptable": False}}


@pytest.mark.parametrize(("minimum", "count"), [(1, 1), (2, 0)])
def test_no_job_is_left_with_fewer_pods_than_its_minimum(minimum: int, count: int) -> None:
    objects = [node("n", cpu="2"), pod_group("low", "q", minMember=minimum), pod_group("high", "q"), queue("q")]
    objects += [member(f"low-{number}", "low", cpu="1", node="n") for number in range(2)]
    gone = evictions(objects, [high("high-0", "high", cpu="1")], profile("allocate, preempt"))
    assert len(gone) == count


def test_a_gang_preempts_for_all_of_its_pods_or_none() -> None:
    objects = [node("n", cpu="2"), pod_group("low", "q"), pod_group("high", "q", minMember=2), queue("q")]
    objects += [member(f"low-{number}", "low", cpu="1", node="n") for number in range(2)]
    gang = [high(f"high-{number}", "high", cpu="1") for number in range(2)]
    # One pod of the other job has to stay, so the gang would have one pod only.
    assert evictions(objects, gang, profile("allocate, preempt")) == set()
    assert evictions(objects, gang, profile("allocate, preempt", SINGLE)) == {"low-0", "low-1"}


def test_a_queue_at_its_share_preempts_its_own_jobs() -> None:
    objects = [node("n", cpu="8"), pod_group("low", "q"), pod_group("high", "q"), queue("q", capability={"cpu": "2"})]
    objects += [member(f"low-{number}", "low", cpu="1", node="n") for number in range(2)]
    assert len(evictions(objects, [high("high-0", "high", cpu="1")], profile("allocate, preempt"))) == 1


@pytest.mark.parametrize(
    "protected",
    [
        {"spec": {"priorityClassName": "system-cluster-critical"}},
        {"namespace": "kube-system"},
        {"labels": {"volcano.sh/preemptable": "false"}},
        {"labels": {"volcano.sh/preemptable": "nonsense"}},
    ],
)
def test_protected_pods_are_never_victims(protected: dict[str, Any]) -> None:
    objects = [node("n", cpu="1"), single("victim", "a", cpu="1", node="n", **protected), queue("a"), queue("b")]
    for actions, name in (("allocate, preempt", "a"), ("allocate, reclaim", "b")):
        newcomers = [single("high", name, cpu="1", priority=100)]
        assert evictions(objects, newcomers, profile(actions, SINGLE)) == set()
    if "labels" not in protected:
        off = {"conformance": {"enablePreemptable": False}}
        newcomers = [single("high", "a", cpu="1", priority=100)]
        assert evictions(objects, newcomers, profile("allocate, preempt", {**SINGLE, **off})) == {"victim"}


def test_drf_evicts_from_the_job_with_the_larger_share() -> None:
    objects = [node("n", cpu="4"), pod_group("large", "q"), pod_group("small", "q"), queue("q")]
    objects += [member(f"large-{number}", "large", cpu="1", node="n") for number in range(4)]
    newcomers = [member(f"small-{number}", "small", cpu="1") for number in range(4)]
    starving = {"gang": {"enableJobStarving": False}}
    assert len(evictions(objects, newcomers, profile("allocate, preempt", starving))) == 2


# -- reclaim ---------------------------------------------------------------------------------------------------------


def reclaimed(newcomers: int, *, profiles: list[dict[str, Any]], weight: int = 1, **spec: Any) -> int:
    """How many of four pods of queue a, which fills the cluster, are evicted for pods of queue b."""
    objects = [node("n", cpu="4"), queue("a", **spec), queue("b", weight)]
    objects += [single(f"a-{number}", "a", cpu="1", node="n") for number in range(4)]
    pods = [single(f"b-{number}", "b", cpu="1") for number in range(newcomers)]
    return len(evictions(objects, pods, profiles))


def test_a_new_queue_gets_its_share_back() -> None:
    profiles = profile("allocate, reclaim", SINGLE)
    assert reclaimed(1, profiles=profiles) == 1
    assert reclaimed(6, profiles=profiles) == 2
    assert reclaimed(6, weight=3, profiles=profiles) == 3
    assert reclaimed(6, weight=3, profiles=profile("allocate, preempt", SINGLE)) == 0


@pytest.mark.parametrize("nodes", [("n", "n"), ("n", "m")])
def test_victims_are_taken_from_the_queue_of_the_lowest_priority(nodes: tuple[str, str]) -> None:
    queues = [queue("low", capability={"cpu": "2"}), queue("high", priority=5, capability={"cpu": "2"}), queue("new")]
    size = "2" if nodes[0] == nodes[1] else "1"
    machines = [node(name, cpu="4" if size == "2" else "2") for name in sorted(set(nodes))]
    # The pods of the queue of higher priority are less important, so they would be the victims without queues.
    pods = [single(f"low-{n}", "low", cpu="1", node=nodes[0], priority=50) for n in range(2)]
    pods += [single(f"high-{n}", "high", cpu="1", node=nodes[1]) for n in range(2)]
    gone = evictions(
        [*machines, *queues, *pods], [single("new-0", "new", cpu="1")], profile("allocate, reclaim", SINGLE)
    )
    assert len(gone) == 1
    assert gone < {"low-0", "low-1"}


def end_slowly(harness: SchedulerHarness, seconds: float) -> None:
    """Have pods be terminating for some seconds when they are deleted."""
    cluster = harness.cluster

    async def delete_pod(pod: ObjectReference) -> None:
        current = cluster.pod(pod.name, pod.namespace)
        terminating = structs.replace(current.metadata, deletion_timestamp="2026-01-01T00:00:00Z")
        cluster.put(structs.replace(current, metadata=terminating))
        asyncio.get_running_loop().call_later(seconds, cluster.remove, current)

    cluster.delete_pod = delete_pod  # type: ignore[method-assign]


@pytest.mark.parametrize("actions", ["allocate, reclaim", "allocate, preempt"])
@pytest.mark.parametrize("newcomers", [2, 3])
def test_as_many_pods_are_evicted_as_make_room_while_others_are_still_leaving(actions: str, newcomers: int) -> None:
    """A pod that is being evicted is not in the way of the next newcomer, which does not evict another in its place."""
    of_newcomers = "b" if actions.endswith("reclaim") else "a"
    objects = [node("n", cpu="4"), queue("a"), queue("b", 99), *(pod_group(f"a-{n}", "a") for n in range(4))]
    objects += [member(f"a-{n}", f"a-{n}", cpu="1", node="n") for n in range(4)]
    objects += [pod_group(f"b-{n}", of_newcomers) for n in range(newcomers)]
    left: Counter[str] = Counter()

    async def scenario(harness: SchedulerHarness) -> None:
        end_slowly(harness, 30)
        await harness.advance(10)
        for number in range(newcomers):
            harness.cluster.put(high(f"b-{number}", f"b-{number}", cpu="1"))
        await harness.advance(120)
        left.update(running(harness))

    run(scenario, *objects, profiles=profile(actions, {**SINGLE, **NO_DRF}))
    assert left == Counter({"a": 4 - newcomers, "b": newcomers})


@pytest.mark.parametrize("ending", [1, 2])
def test_a_newcomer_evicts_none_if_it_fits_once_pods_have_left(ending: int) -> None:
    """It is nominated, so the next one sees that the room is taken."""
    objects = [node("n", cpu="4"), queue("a"), queue("b", 99)]
    objects += [single(f"a-{n}", "a", cpu="1", node="n", deleting=n < ending) for n in range(4)]
    nominated: list[str] = []

    async def scenario(harness: SchedulerHarness) -> None:
        await harness.advance(10)
        for number in range(2):
            harness.cluster.put(single(f"b-{number}", "b", cpu="1"))
        await harness.advance(5)
        nominated.extend(p.status.nominated_node_name or "" for p in harness.cluster.pods() if "b-" in p.key)
        for number in range(ending):
            harness.cluster.remove(harness.cluster.pod(f"a-{number}"))
        await harness.advance(60)
        assert running(harness) == Counter({"a": 2, "b": 2})

    run(scenario, *objects, profiles=profile("allocate, reclaim", SINGLE))
    assert nominated.count("n") == 2 if ending == 2 else "n" in nominated


def test_a_queue_that_is_not_reclaimable_keeps_what_it_has() -> None:
    assert reclaimed(6, reclaimable=False, profiles=profile("allocate, reclaim", SINGLE)) == 0


def test_gang_protects_single_pods_from_reclaim() -> None:
    assert reclaimed(6, profiles=profile("allocate, reclaim")) == 0


def test_pods_that_are_ending_are_not_reclaimed_for() -> None:
    """A pod that is terminating, or is being evicted for another pod already, is not in the way of a share."""
    nodes = [node("n", cpu="4"), node("m", cpu="4")]
    ending = single("a-0", "a", cpu="1", node="n", deleting=True)
    pods = [ending, *(single(f"a-{number}", "a", cpu="1", node="n") for number in range(1, 4))]
    harness = PluginHarness(nodes, pods, profile=profile("allocate, reclaim", SINGLE)[0], plugins=[Volcano])
    for each in (queue("a", capability={"cpu": "2"}), queue("b")):
        harness.cluster.catalog(Queue).put(each)
    configuration = read_configuration({"actions": "reclaim", "tiers": TIERS})
    accounts = Accounts(harness.cluster, Shares.FAIR)
    accounts.refresh()
    rules = EvictionRules(configuration, accounts, JobOrder(configuration, accounts))
    info = harness.info(single("b-0", "b", cpu="1"))
    accounts.pod_observed(info)
    job = accounts.job(info)
    assert job is not None
    on_node = list(harness.cluster.nodes.pods[0].values())
    # Three pods use three CPUs, of which the queue deserves two.
    first = rules.permitted(Eviction.OTHER_QUEUES, info, job, [on_node])
    assert len(first) == 1
    assert rules.permitted(Eviction.OTHER_QUEUES, info, job, [on_node], leaving=first) == set()
    assert accounts.queues.accounts["a"].allocated["cpu"] == 3000


TIERS = [{"plugins": [{"name": "conformance"}, {"name": "proportion"}]}]


def test_the_contract_is_kept() -> None:
    pods = [single("a", "a", cpu="1"), member("b", "g", cpu="1"), pod("plain"), single("c", "none", cpu="1")]
    check_plugin(Volcano, pods=pods, objects=[queue("a"), pod_group("g", "a"), queue("b", capability={"cpu": "1"})])
