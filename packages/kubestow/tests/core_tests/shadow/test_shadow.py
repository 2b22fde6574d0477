"""The shadow beside a scheduler whose decisions are known: kubestow's own, with the same or another configuration."""

from __future__ import annotations

import asyncio
import functools
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pytest

from core_tests.scheduling.gangs.groups import GATES, group, members, together
from core_tests.shadow.delayed_cluster import DelayedCluster, configuration, shadowed, wrongly_bound
from kubestow.api.core import Pod
from kubestow.reports.text import as_markdown
from kubestow.rules.minors import DEFAULT_MINOR, Minor
from kubestow.scheduling.events.watch_cache import WatchCache
from kubestow.scheduling.interfaces import Resource
from kubestow.shadow.comparison import Verdict
from kubestow.shadow.report import ShadowReport, document_of_decision, line_of
from kubestow.shadow.shadow import RACE, ComparedDecision
from kubestow.testing.builders import node, nodes, pod, pods

#: Packs pods onto few nodes, where the default configuration spreads them.
MOST_ALLOCATED: dict[str, Any] = {
    "profiles": [
        {
            "pluginConfig": [
                {
                    "name": "NodeResourcesFit",
                    "args": {"scoringStrategy": {"type": "MostAllocated", "resources": [{"name": "cpu", "weight": 1}]}},
                }
            ]
        }
    ]
}


def differing(results: list[ComparedDecision]) -> list[str]:
    return [line_of(found) for found in results if found.differs]


def verdicts(results: list[ComparedDecision]) -> dict[str, str]:
    """The last verdict about each pod."""
    return {found.pod.removeprefix("default/"): found.label for found in results}


async def _random_workload(cluster: DelayedCluster) -> None:
    """Bursts of pods with affinity, spreading and priorities; pods are deleted and nodes change in between."""
    random = cluster.random
    for number in range(18):
        kind = random.random()
        for position in range(random.randrange(1, 8) if kind < 0.6 else 0):
            when = random.choice(["DoNotSchedule", "ScheduleAnyway"])
            spread = {
                "maxSkew": 1,
                "topologyKey": "topology.kubernetes.io/zone",
                "whenUnsatisfiable": when,
                "labelSelector": {"matchLabels": {"app": "web"}},
            }
            shape = random.randrange(5)
            cluster.put(
                pod(
                    f"pod-{number}-{position}",
                    cpu=random.choice(["100m", "500m", "1"]),
                    priority=random.choice([0, 0, 0, 10]),
                    labels={"app": "web"},
                    spread=[spread] if shape == 0 else (),
                    node_selector={"disk": "ssd"} if shape == 1 else None,
                )
            )
        bound = [each for each in cluster.pods() if each.spec.node_name]
        if 0.6 <= kind < 0.8 and bound:
            cluster.remove(random.choice(bound))
        elif kind >= 0.8:
            changed, disk = random.randrange(8), random.choice(["ssd", "hdd"])
            cluster.put(
                node(
                    f"node-{changed}",
                    zone=f"zone-{changed % 2}",
                    labels={"disk": disk},
                    unschedulable=random.random() < 0.3,
                )
            )
        await asyncio.sleep(random.random() * 0.04)


@pytest.mark.parametrize(
    ("seed", "minor"), [*((seed, DEFAULT_MINOR) for seed in range(10)), (0, Minor(37)), (7, Minor(37))]
)
def test_an_identical_scheduler_never_differs_however_the_watches_are_interleaved(seed: int, minor: Minor) -> None:
    results = shadowed(_random_workload, nodes(8, zones=2), seed=seed, minor=minor)
    assert differing(results) == []
    assert len(results) > 20
    assert RACE in verdicts(results).values()


def test_a_search_that_watch_events_interrupt_goes_on_from_the_state_that_it_had_reached(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def burst(cluster: DelayedCluster) -> None:
        for each in pods(5, cpu="500m"):
            cluster.put(each)
        await asyncio.sleep(2.5)  # they are being looked at
        for each in pods(2, cpu="100m", prefix="later"):
            cluster.put(each)

    applied = Counter[float]()
    labels: dict[float, list[tuple[str, str]]] = {}
    restore = WatchCache.restore
    for busy_seconds in (0.1, -1.0):  # in virtual time no search is interrupted, or each after every state

        def counted(cache: WatchCache, resource: Resource, key: Any, obj: Any, busy: float = busy_seconds) -> None:
            applied[busy] += 1
            restore(cache, resource, key, obj)

        monkeypatch.setattr(WatchCache, "restore", counted)
        monkeypatch.setattr("kubestow.shadow.shadow._BUSY_SECONDS", busy_seconds)
        objects = [*nodes(4, cpu="16"), pod("old", cpu="1", node="node-0")]
        found = shadowed(burst, objects, most_seconds=0.01, scheduler=configuration(**MOST_ALLOCATED))
        assert max(each.moments for each in found) > 20
        labels[busy_seconds] = sorted((each.pod, each.label) for each in found)
    assert labels[-1.0] == labels[0.1]
    assert applied[-1.0] < 1.5 * applied[0.1]


def test_without_delays_nothing_has_to_be_explained_by_a_race() -> None:
    async def one_by_one(cluster: DelayedCluster) -> None:
        for each in pods(40, cpu="500m"):
            cluster.put(each)
            await asyncio.sleep(0.05)
        cluster.put(pod("huge", cpu="100"))

    results = shadowed(one_by_one, nodes(6), most_seconds=0.001)
    counts = Counter(found.label for found in results)
    assert counts.keys() <= {Verdict.SAME_NODE.value, Verdict.EQUAL_NODE.value, Verdict.SAME_WORDS.value}
    assert counts[Verdict.SAME_WORDS.value] == 1
    assert len(results) == 41


def test_a_burst_that_is_decided_before_its_bindings_arrive_is_explained_by_a_race() -> None:
    async def burst(cluster: DelayedCluster) -> None:
        for each in pods(60, cpu="500m"):
            cluster.put(each)

    results = shadowed(burst, nodes(12), most_seconds=0.2)
    assert differing(results) == []
    raced = [found for found in results if found.race]
    assert raced
    assert any("the binding of Pod default/pod-" in circumstance for found in raced for circumstance in found.race)


def test_other_weights_are_found_with_both_nodes_side_by_side() -> None:
    async def one_by_one(cluster: DelayedCluster) -> None:
        for each in pods(10, cpu="500m"):
            cluster.put(each)
            await asyncio.sleep(0.2)

    objects = [*nodes(4), pod("old", cpu="1", node="node-0")]
    results = shadowed(one_by_one, objects, most_seconds=0.01, scheduler=configuration(**MOST_ALLOCATED))
    wrong = [found for found in results if found.differs]
    assert wrong
    first = wrong[0]
    assert first.nodes is not None
    assert (first.observed.node, first.nodes.one.node) == ("node-0", "node-0")
    assert first.nodes.one.total is not None and first.nodes.other.total is not None
    assert first.nodes.other.total > first.nodes.one.total
    assert "NodeResourcesFit" in {score.plugin for score in first.nodes.one.scores}
    report = ShadowReport()
    for found in wrong:
        report.add(found)
    assert list(report.document()["causes"]) == ["NodeResourcesFit"]
    document = document_of_decision(first)
    assert document["comparison"]["nodes"][0]["node"] == "node-0"
    assert document["differs"] is True


def test_differences_remain_differences_where_there_is_no_time_to_look_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kubestow.shadow.shadow.MOST_AHEAD", 2)

    async def burst(cluster: DelayedCluster) -> None:
        for each in pods(30, cpu="500m"):
            cluster.put(each)

    objects = [*nodes(4, cpu="16"), pod("old", cpu="1", node="node-0")]
    results = shadowed(burst, objects, most_seconds=0.01, scheduler=configuration(**MOST_ALLOCATED))
    assert len(results) == 30
    assert {found.label for found in results if found.reason} == {Verdict.OTHER_NODE.value}
    assert sum(found.differs for found in results) >= 20


def test_the_configuration_of_the_scheduler_agrees_with_it() -> None:
    async def burst(cluster: DelayedCluster) -> None:
        for each in pods(20, cpu="500m"):
            cluster.put(each)
            await asyncio.sleep(0.03)

    packing = configuration(**MOST_ALLOCATED)
    results = shadowed(burst, nodes(4), scheduler=packing, shadow=packing)
    assert differing(results) == []
    assert len(results) == 20


def test_a_wrong_binding_is_found_in_the_middle_of_a_burst() -> None:
    async def burst(cluster: DelayedCluster) -> None:
        for number, each in enumerate(pods(20, cpu="500m")):
            cluster.put(each)
            if number == 10:
                wrongly_bound(cluster, pod("wrong", cpu="500m", node_selector={"disk": "ssd"}), "node-1")

    results = shadowed(burst, [*nodes(4), node("ssd", labels={"disk": "ssd"})])
    assert [found.pod for found in results if found.differs] == ["default/wrong"]
    assert verdicts(results)["wrong"] == Verdict.OTHER_NODE.value


def test_a_binding_to_a_full_node_is_another_outcome() -> None:
    async def one(cluster: DelayedCluster) -> None:
        wrongly_bound(cluster, pod("wrong", cpu="8"), "node-0")

    (found,) = shadowed(one, nodes(1, cpu="4"))
    assert found.verdict is Verdict.REJECTED
    assert found.here.startswith("0/1 nodes are available: 1 Insufficient cpu.")


def test_rejections_are_compared_by_their_words() -> None:
    async def one(cluster: DelayedCluster) -> None:
        cluster.put(pod("huge", cpu="100"))
        cluster.put(pod("other"))
        await asyncio.sleep(0.1)
        condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "no room"}
        cluster.put(pod("lost", scheduler="default-scheduler", cpu="100"))
        cluster.put(pod("lost", cpu="100", status={"conditions": [condition]}))

    results = shadowed(one, nodes(2), most_seconds=0.01)
    assert verdicts(results)["huge"] == Verdict.SAME_WORDS.value
    words = [found for found in results if found.observed.message == "no room"]
    assert [found.verdict for found in words] == [Verdict.OTHER_WORDS]
    assert words[0].here.startswith("0/2 nodes are available: 2 Insufficient cpu.")


def _low(count: int) -> list[Pod]:
    return [pod(f"low-{n}", cpu="3", node=f"node-{n}", priority=0) for n in range(count)]


def test_preemption_is_compared_by_victims_and_equal_victims_are_equal() -> None:
    async def one(cluster: DelayedCluster) -> None:
        cluster.put(pod("high", cpu="3", priority=10))

    preempting = [found for found in shadowed(one, [*nodes(3), *_low(3)]) if found.observed.nominated]
    assert [found.verdict.agrees for found in preempting] == [True]
    assert len(preempting[0].observed.victims) == 1


def test_other_victims_are_found() -> None:
    async def one(cluster: DelayedCluster) -> None:
        evicted = {"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler"}
        rejected = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/2"}
        cluster.put(pod("high", cpu="3", priority=10, scheduler="other"))
        cluster.put(
            pod(
                "high",
                cpu="3",
                priority=10,
                scheduler="other",
                nominated="node-0",
                status={"conditions": [rejected], "nominatedNodeName": "node-0"},
            )
        )
        cluster.put(pod("low-0", cpu="3", node="node-0", priority=5, status={"conditions": [evicted]}))

    objects = [*nodes(2), pod("low-0", cpu="3", node="node-0", priority=5), pod("low-1", cpu="3", node="node-1")]
    watched = configuration(profiles=[{"schedulerName": "other"}])
    (found,) = shadowed(one, objects, shadow=watched)
    assert found.verdict is Verdict.OTHER_VICTIMS
    assert found.observed.text == "preempts default/low-0 on node-0"
    assert found.here == "preempts default/low-1 on node-1"


_EVICTED = {"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler"}
_REJECTED = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/1"}


def _preempts(name: str, node: str, message: str = "0/1", **same: Any) -> Pod:
    """A pod of another scheduler that waits for its victims on a node."""
    status = {"conditions": [{**_REJECTED, "message": message}], "nominatedNodeName": node}
    return pod(name, priority=10, scheduler="other", status=status, **same)


def _preemption(scenario: Callable[[DelayedCluster], Awaitable[None]], *objects: Any) -> list[ComparedDecision]:
    watched = configuration(profiles=[{"schedulerName": "other"}])
    return shadowed(scenario, objects, shadow=watched, most_seconds=0.01)


def test_preemption_is_judged_once_its_last_victim_is_evicted() -> None:
    low = [pod(f"low-{n}", cpu="2", node="node-0", priority=0) for n in range(2)]

    async def slow_evictions(cluster: DelayedCluster) -> None:
        cluster.put(pod("high", cpu="4", priority=10, scheduler="other"))
        await asyncio.sleep(0.1)
        cluster.put(_preempts("high", "node-0", cpu="4"))
        for each in low:
            cluster.put(pod(each.metadata.name, cpu="2", node="node-0", priority=0, status={"conditions": [_EVICTED]}))
            await asyncio.sleep(3)

    (found,) = _preemption(slow_evictions, *nodes(1), *low)
    assert found.verdict is Verdict.SAME_VICTIMS
    assert found.observed.text == "preempts default/low-0, default/low-1 on node-0"


@pytest.mark.parametrize(("started", "verdict"), [(0, Verdict.EQUAL_VICTIMS), (1, Verdict.OTHER_VICTIMS)])
def test_victims_that_started_in_the_same_second_are_equal(started: int, verdict: Verdict) -> None:
    """The pod that is evicted started so many seconds before the other one, which is less important then."""

    def low(number: int, **status: Any) -> Pod:
        start = f"2026-01-01T00:00:0{0 if number == 0 else started}Z"
        return pod(f"low-{number}", cpu="2", node="node-0", priority=0, status={"startTime": start, **status})

    async def evicted_is(cluster: DelayedCluster, number: int) -> None:
        cluster.put(pod("high", cpu="2", priority=10, scheduler="other"))
        await asyncio.sleep(0.1)
        cluster.put(_preempts("high", "node-0", cpu="2"))
        cluster.put(low(number, conditions=[_EVICTED]))

    objects = (*nodes(1), low(0), low(1))
    either = [_preemption(functools.partial(evicted_is, number=n), *objects)[0].verdict for n in range(2)]
    assert sorted(either) == sorted([Verdict.SAME_VICTIMS, verdict])
    assert either[0] is verdict or not started


def test_a_nominated_pod_that_preempts_again_on_its_node_is_no_rejection() -> None:
    async def again(cluster: DelayedCluster) -> None:
        cluster.put(_preempts("high", "node-0", cpu="2"))
        await asyncio.sleep(0.1)
        cluster.put(_preempts("high", "node-0", message="0/2", cpu="2"))
        cluster.put(pod("low", cpu="4", node="node-0", priority=0, status={"conditions": [_EVICTED]}))

    (found,) = _preemption(
        again, *nodes(1), pod("low", cpu="4", node="node-0", priority=0), _preempts("high", "node-0")
    )
    assert found.verdict is Verdict.SAME_VICTIMS


@pytest.mark.parametrize(("preemptor", "verdict"), [("one", Verdict.SAME_VICTIMS), ("two", Verdict.OTHER_VICTIMS)])
def test_events_name_the_preemptor_of_each_victim_on_a_shared_node(preemptor: str, verdict: Verdict) -> None:
    """Two pods of another scheduler preempt on one node; ``preemptor`` is the one that the cheaper victim is for."""

    async def both(cluster: DelayedCluster) -> None:
        evicted = {"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler"}
        rejected = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/1"}
        for name in ("one", "two"):
            cluster.put(pod(name, cpu="2", priority=10, scheduler="other"))
        await asyncio.sleep(0.1)
        waiting = {"conditions": [rejected], "nominatedNodeName": "node-0"}
        for name in ("one", "two"):
            cluster.put(pod(name, cpu="2", priority=10, scheduler="other", status=waiting))
        for name, priority in (("cheap", 0), ("dear", 5)):
            victim = pod(name, cpu="2", node="node-0", priority=priority, status={"conditions": [evicted]})
            cluster.put(victim)
            other = {"one": "two", "two": "one"}[preemptor]
            cluster.report_preempted(victim, f"uid-default-{preemptor if name == 'cheap' else other}")

    objects = [
        *nodes(1),
        pod("cheap", cpu="2", node="node-0", priority=0),
        pod("dear", cpu="2", node="node-0", priority=5),
    ]
    results = shadowed(both, objects, shadow=configuration(profiles=[{"schedulerName": "other"}]), most_seconds=0.01)
    assert next(found.verdict for found in results if found.pod == "default/one") is verdict


def test_a_pod_may_be_the_victim_of_two_preemptors() -> None:
    """The second one has preempted before the eviction for the first one reached the scheduler."""
    low = pod("low", cpu="4", node="node-0", priority=0)

    async def both(cluster: DelayedCluster) -> None:
        for name in ("one", "two"):
            cluster.put(pod(name, cpu="1", priority=10, scheduler="other"))
        await asyncio.sleep(0.1)
        victim = pod("low", cpu="4", node="node-0", priority=0, status={"conditions": [_EVICTED]})
        for name in ("one", "two"):
            cluster.put(_preempts(name, "node-0", cpu="1"))
            cluster.put(victim)
            cluster.report_preempted(victim, f"uid-default-{name}")

    results = _preemption(both, *nodes(1), low)
    assert [(found.pod, found.verdict) for found in results] == [
        ("default/one", Verdict.SAME_VICTIMS),
        ("default/two", Verdict.SAME_VICTIMS),
    ]


@pytest.mark.parametrize("seed", range(2))
def test_the_best_of_a_sample_is_no_difference_with_300_nodes(seed: int) -> None:
    async def bursts(cluster: DelayedCluster) -> None:
        for number in range(60):
            cluster.put(pod(f"pod-{number}", cpu=cluster.random.choice(["100m", "1"])))
            await asyncio.sleep(0.01)

    objects = [node(f"node-{n}", cpu=f"{4000 + 40 * n}m", zone=f"zone-{n % 3}") for n in range(300)]
    # What kube-scheduler scores of 300 nodes where the percentage is not set.
    adaptive = configuration(percentageOfNodesToScore=48)
    results = shadowed(bursts, objects, seed=seed, scheduler=adaptive, shadow=configuration())
    assert differing(results) == []
    assert Verdict.SAMPLED_NODE in {found.verdict for found in results}


def test_the_worst_node_of_300_is_the_best_of_no_sample() -> None:
    async def one(cluster: DelayedCluster) -> None:
        wrongly_bound(cluster, pod("wrong", cpu="1"), "node-0")

    objects = [node(f"node-{n}", cpu="4" if n < 100 else "64") for n in range(300)]
    (found,) = shadowed(one, objects)
    assert found.verdict is Verdict.OTHER_NODE


def test_pods_of_other_schedulers_are_only_part_of_the_state() -> None:
    async def one(cluster: DelayedCluster) -> None:
        wrongly_bound(cluster, pod("foreign", cpu="3", scheduler="other"), "node-0")
        await asyncio.sleep(0.2)
        cluster.put(pod("own", cpu="3"))

    results = shadowed(one, nodes(2))
    assert verdicts(results) == {"own": Verdict.SAME_NODE.value}
    assert results[0].observed.node == "node-1"


def test_pods_that_an_extender_manages_are_not_compared() -> None:
    async def two(cluster: DelayedCluster) -> None:
        cluster.put(pod("plain"))
        cluster.put(pod("managed", requests={"example.com/fpga": "1"}))

    managed = [{"name": "example.com/fpga"}]
    extender = {"urlPrefix": "http://127.0.0.1:1", "filterVerb": "filter", "managedResources": managed}
    objects = nodes(2, allocatable={"example.com/fpga": "1"})
    results = shadowed(two, objects, shadow=configuration(extenders=[extender]))
    found = {each.pod: each for each in results}
    assert found["default/plain"].verdict.agrees
    assert found["default/managed"].verdict is Verdict.NOT_COMPARED
    assert found["default/managed"].reason == "an extender takes part in decisions about this pod"


def test_an_extender_that_only_binds_changes_no_decision() -> None:
    async def one(cluster: DelayedCluster) -> None:
        cluster.put(pod("plain"))

    extender = {"urlPrefix": "http://127.0.0.1:1", "bindVerb": "bind"}
    results = shadowed(one, nodes(2), shadow=configuration(extenders=[extender]))
    assert [found.verdict.agrees for found in results] == [True]


def test_each_profile_is_compared_with_its_own_configuration() -> None:
    async def one_by_one(cluster: DelayedCluster) -> None:
        for number in range(12):
            cluster.put(pod(f"pod-{number}", cpu="500m", scheduler=("spread", "pack")[number % 2]))
            await asyncio.sleep(0.1)

    packing = {"schedulerName": "pack", **MOST_ALLOCATED["profiles"][0]}
    both = configuration(profiles=[{"schedulerName": "spread"}, packing])
    swapped = configuration(profiles=[{"schedulerName": "pack"}, {**packing, "schedulerName": "spread"}])
    assert differing(shadowed(one_by_one, nodes(4), scheduler=both, shadow=both, most_seconds=0.01)) == []
    wrong = shadowed(one_by_one, nodes(4), scheduler=both, shadow=swapped, most_seconds=0.01, names=["pack"])
    assert {int(found.pod.removeprefix("default/pod-")) % 2 for found in wrong} == {1}
    assert differing(wrong)


def _gang_results(group_of_four: Any, objects: Sequence[Any]) -> list[ComparedDecision]:
    return shadowed(_putting(group_of_four, *members(4, "train", cpu="3")), objects, enabled=GATES)


def test_the_nodes_of_a_gang_are_compared_each_after_those_before_it() -> None:
    results = _gang_results(group("train", 4), nodes(5))
    assert len(results) == 4
    assert [found for found in results if not found.verdict.agrees] == []


def test_what_is_decided_for_a_gang_as_a_whole_is_not_compared() -> None:
    rejected = _gang_results(group("train", 4), nodes(3))
    assert {found.reason for found in rejected} == {"the pods of a group are rejected, and preempt, together"}
    racks = [node(f"node-{n}", labels={"rack": str(n // 4)}) for n in range(8)]
    gates = GATES | {"TopologyAwareWorkloadScheduling": True}
    placed = shadowed(_putting(together("train", 4, "rack"), *members(4, "train", cpu="3")), racks, enabled=gates)
    reason = "its group is placed in one topology domain, which is chosen for all of its pods"
    assert [found.reason for found in placed] == [reason] * 4


def _putting(*objects: Any) -> Callable[[DelayedCluster], Awaitable[None]]:
    async def put(cluster: DelayedCluster) -> None:
        for each in objects:
            cluster.put(each)

    return put


def test_the_report_counts_and_shows_differences() -> None:
    async def one(cluster: DelayedCluster) -> None:
        cluster.put(pod("right"))
        wrongly_bound(cluster, pod("wrong", node_selector={"disk": "ssd"}), "node-0")

    report = ShadowReport("decisions of default-scheduler")
    for found in shadowed(one, [*nodes(1), node("ssd", labels={"disk": "ssd"})]):
        report.add(found)
    assert report.headline() == "50.00 % of 2 decisions agree, 1 differs"
    assert report.document()["verdicts"][Verdict.OTHER_NODE.value] == 1
    assert "default/wrong" in as_markdown(report.blocks())
    page = report.page()
    assert "default/wrong" in page and "node(s) didn&#x27;t match Pod&#x27;s node affinity/selector" in page
