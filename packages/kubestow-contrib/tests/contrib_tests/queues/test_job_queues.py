"""The plugin JobQueues on a running scheduler in virtual time."""

from __future__ import annotations

from contrib_tests.queues.jobs_of_pods import finish, job, profile, put, run, running
from kubestow.api.core import Pod
from kubestow.api.meta import convert
from kubestow.testing import SchedulerHarness, in_virtual_time, node, pod
from kubestow_contrib.coscheduling import COSCHEDULING, PodGroup
from kubestow_contrib.queues.job_queues import JobQueues


def test_a_job_starts_whole_or_not_at_all() -> None:
    async def scenario(harness: SchedulerHarness) -> None:
        put(harness, job("large", "q", 3), job("small", "q", 2))
        await harness.advance(5)
        assert running(harness) == {"large": 3}
        finish(harness, "large")
        await harness.advance(5)
        assert running(harness) == {"small": 2}

    run(scenario, node("n", cpu="4"))


def test_pods_without_a_queue_are_not_affected() -> None:
    async def scenario(harness: SchedulerHarness) -> None:
        harness.cluster.put(pod("plain", cpu="3"))
        await harness.settle()
        assert harness.node_of("plain") == "n"

    run(scenario, node("n"))


def test_backfill_never_delays_the_reserved_start_of_the_first_job() -> None:
    async def scenario(harness: SchedulerHarness) -> None:
        put(harness, job("first", "q", 2, run="100s"))
        await harness.advance(5)
        put(harness, job("whole", "q", 4, run="100s"))
        await harness.advance(5)
        put(harness, job("long", "q", 1, run="200s"), job("short", "q", 1, run="50s"))
        await harness.advance(5)
        # The whole cluster is reserved for when "first" ends: "short" has ended by then, "long" would not have.
        assert running(harness) == {"first": 2, "short": 1}
        finish(harness, "first")
        finish(harness, "short")
        await harness.advance(5)
        assert running(harness) == {"whole": 4}

    run(scenario, node("n", cpu="4"))


def test_without_backfill_nothing_passes_the_first_job() -> None:
    async def scenario(harness: SchedulerHarness) -> None:
        put(harness, job("first", "q", 2))
        await harness.advance(5)
        put(harness, job("whole", "q", 4))
        await harness.advance(5)
        put(harness, job("short", "q", 1, run="5s"))
        await harness.advance(5)
        assert running(harness) == {"first": 2}

    run(scenario, node("n", cpu="4"), backfill={"mode": "none"})


def test_a_limit_keeps_only_its_own_queue_waiting() -> None:
    async def scenario(harness: SchedulerHarness) -> None:
        put(harness, job("a", "limited", 2), job("b", "limited", 1), job("c", "q", 3))
        await harness.advance(5)
        assert running(harness) == {"a": 2, "c": 3}
        condition = harness.cluster.condition("b-0")
        assert condition is None or "limits of its queue" in (condition.message or "")
        finish(harness, "a")
        await harness.advance(5)
        assert running(harness) == {"b": 1, "c": 3}

    limited = {"name": "limited", "amounts": [{"limit": {"cpu": "2"}}]}
    for mode in ("none", "easy", "conservative"):
        run(scenario, node("n", cpu="8"), queues=[limited, "q"], backfill={"mode": mode})


def test_the_queue_with_the_lowest_part_of_its_share_is_next() -> None:
    async def scenario(harness: SchedulerHarness) -> None:
        put(harness, *(job(f"a{n}", "a") for n in range(8)), *(job(f"b{n}", "b") for n in range(8)))
        await harness.advance(5)
        found = running(harness)
        assert sum(name.startswith("a") for name in found) == 2
        assert sum(name.startswith("b") for name in found) == 6

    run(scenario, node("n", cpu="8"), queues=["a", {"name": "b", "weight": 3}])


def test_a_job_keeps_the_pods_that_its_controller_replaces() -> None:
    async def scenario(harness: SchedulerHarness) -> None:
        pods = job("train", "q", 3)
        put(harness, pods)
        await harness.advance(5)
        put(harness, job("next", "q", 2))
        await harness.advance(5)
        harness.cluster.remove(pods[0])
        harness.cluster.put(job("train", "q", 4)[3])
        await harness.advance(5)
        assert running(harness) == {"train": 3}

    run(scenario, node("n", cpu="3"))


def test_jobs_of_higher_priority_evict_whole_jobs_of_their_queue_that_lose_least() -> None:
    async def scenario(harness: SchedulerHarness) -> None:
        put(harness, job("old", "q", 2))
        await harness.advance(100)
        put(harness, job("young", "q", 2))
        await harness.advance(5)
        put(harness, job("urgent", "q", 2, priority=10))
        await harness.advance(30)
        assert running(harness) == {"old": 2, "urgent": 2}

    run(scenario, node("n", cpu="4"), preemption={"withinQueue": True})


def test_no_job_is_evicted_before_its_minimum_run_time() -> None:
    async def scenario(harness: SchedulerHarness) -> None:
        put(harness, job("young", "q", 2))
        await harness.advance(5)
        put(harness, job("urgent", "q", 2, priority=10))
        await harness.advance(20)
        assert running(harness) == {"young": 2}
        await harness.advance(40)
        assert running(harness) == {"urgent": 2}

    run(scenario, node("n", cpu="2"), preemption={"withinQueue": True, "minRunTime": "60s"})


def test_a_queue_reclaims_what_it_is_guaranteed() -> None:
    async def scenario(harness: SchedulerHarness) -> None:
        put(harness, *(job(f"a{n}", "a", 2) for n in range(4)))
        await harness.advance(10)
        put(harness, job("b0", "b", 4), job("b1", "b", 4))
        await harness.advance(30)
        found = running(harness)
        # b is guaranteed 4 and gets half of the rest, 6 of 8: enough for one of its jobs.
        assert found["b0"] == 4
        assert sum(count for name, count in found.items() if name.startswith("a")) == 4

    guaranteed = {"name": "b", "amounts": [{"guaranteed": {"cpu": "4"}}]}
    run(scenario, node("n", cpu="8"), queues=["a", guaranteed], preemption={"reclaim": True})


def test_a_job_gets_nodes_of_one_flavor() -> None:
    async def scenario(harness: SchedulerHarness) -> None:
        put(harness, job("train", "q", 3))
        await harness.advance(5)
        nodes = {each.spec.node_name for each in harness.cluster.pods()}
        assert nodes == {"b"}

    def flavored(name: str, cpu: str) -> object:
        return node(name, cpu=cpu, labels={"gpu": name})

    flavors = [{"name": name, "nodeLabels": {"gpu": name}} for name in ("a", "b")]
    run(scenario, flavored("a", "2"), flavored("b", "4"), flavors=flavors)


def test_pods_of_an_unknown_queue_say_so() -> None:
    async def scenario(harness: SchedulerHarness) -> None:
        put(harness, job("train", "nowhere"))
        await harness.advance(10)
        assert running(harness) == {}
        condition = harness.cluster.condition("train-0")
        assert condition is None or "queue nowhere does not exist" in (condition.message or "")

    run(scenario, node("n"))


def test_no_job_is_evicted_in_vain() -> None:
    async def scenario(harness: SchedulerHarness) -> None:
        put(harness, job("old", "q", 2))
        await harness.advance(5)
        wanted = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": "absent"}}}
        affinity = {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [wanted]}}
        put(harness, job("urgent", "q", 2, priority=10, affinity=affinity))
        await harness.advance(30)
        assert running(harness) == {"old": 2}
        # The plan does not know the affinity. Once "urgent" is gone, "old" counts as running again.
        finish(harness, "urgent")
        await harness.advance(5)
        put(harness, job("next", "q", 1))
        await harness.advance(5)
        assert running(harness) == {"old": 2}
        finish(harness, "old")
        await harness.advance(5)
        assert running(harness) == {"next": 1}

    labelled = node("n", cpu="2", labels={"kubernetes.io/hostname": "n"})
    run(scenario, labelled, preemption={"withinQueue": True}, placementTimeout="60s")


def test_a_job_whose_pods_find_no_nodes_waits_again() -> None:
    async def scenario(harness: SchedulerHarness) -> None:
        wanted = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": "absent"}}}
        affinity = {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [wanted]}}
        put(harness, job("odd", "q", 2, priority=10, affinity=affinity))
        await harness.advance(5)
        put(harness, job("plain", "q", 2))
        await harness.advance(10)
        assert running(harness) == {}  # what is planned for "odd" is kept for it
        harness.cluster.put(node("m", cpu="2"))
        await harness.advance(10)
        assert running(harness) == {"plain": 2}

    run(scenario, node("n", cpu="2", labels={"kubernetes.io/hostname": "n"}), placementTimeout="60s")


def test_pods_of_other_schedulers_are_not_planned() -> None:
    async def scenario(harness: SchedulerHarness) -> None:
        put(harness, job("theirs", "q", 2, scheduler="other"))
        await harness.advance(5)
        put(harness, job("ours", "q", 2))
        await harness.advance(5)
        assert running(harness) == {"ours": 2}

    run(scenario, node("n", cpu="2"))


def test_a_pod_group_is_placed_as_a_gang_on_the_nodes_of_the_plan() -> None:
    async def scenario(harness: SchedulerHarness) -> None:
        put(harness, job("first", "q", 2, run="100s"))
        await harness.advance(5)
        put(harness, job("whole", "q", 6, run="100s"))
        await harness.advance(5)
        put(harness, [member("gang", index, run="1000s") for index in range(2)])
        await harness.advance(5)
        assert running(harness) == {"first": 2}
        put(harness, [member("quick", index, run="50s") for index in range(4)])
        await harness.advance(5)
        assert running(harness) == {"first": 2, "quick": 4}

    profiles = profile()
    profiles[0]["plugins"]["multiPoint"]["enabled"].append({"name": "GangScheduling"})
    in_virtual_time(
        scenario,
        node("n", cpu="3"),
        node("m", cpu="3"),
        group("gang", 2),
        group("quick", 4),
        plugins=[JobQueues],
        pod_group_apis=[COSCHEDULING],
        profiles=profiles,
    )


def member(name: str, index: int, *, run: str) -> Pod:
    annotations = {"kubestow.dev/queue": "q", "kubestow.dev/run-time": run}
    labels = {"scheduling.x-k8s.io/pod-group": name}
    return pod(f"{name}-{index}", cpu="1", labels=labels, metadata={"annotations": annotations})


def group(name: str, minimum: int) -> PodGroup:
    metadata = {"name": name, "namespace": "default", "uid": f"group-{name}"}
    return convert(PodGroup, {"metadata": metadata, "spec": {"minMember": minimum}})


def test_pods_with_scheduling_gates_are_waited_for() -> None:
    async def scenario(harness: SchedulerHarness) -> None:
        put(harness, job("train", "q", 2, gates=["wait"])[:1], job("train", "q", 2)[1:])
        await harness.advance(10)
        assert running(harness) == {}
        put(harness, job("train", "q", 2)[:1])
        await harness.advance(10)
        assert running(harness) == {"train": 2}

    run(scenario, node("n", cpu="2"))


def test_a_cordoned_node_is_not_planned_until_it_is_uncordoned() -> None:
    async def scenario(harness: SchedulerHarness) -> None:
        put(harness, job("train", "q", 2))
        await harness.advance(10)
        assert running(harness) == {}
        harness.cluster.put(node("n", cpu="2"))
        await harness.advance(10)
        assert running(harness) == {"train": 2}

    run(scenario, node("n", cpu="2", unschedulable=True))
