"""CapacityScheduling, with the test tables of scheduler-plugins."""

from __future__ import annotations

from typing import Any

import pytest

from kubestow.api.core import Pod
from kubestow.api.meta import convert
from kubestow.scheduling.decision.result import Unschedulable
from kubestow.testing import PluginHarness, check_plugin, in_virtual_time, node, pod
from kubestow_contrib.capacity_scheduling import CapacityScheduling, ElasticQuota, ElasticQuotas, excess

PROFILE = {
    "plugins": {
        "preFilter": {"enabled": [{"name": "CapacityScheduling"}]},
        "postFilter": {"enabled": [{"name": "CapacityScheduling"}], "disabled": [{"name": "*"}]},
        "reserve": {"enabled": [{"name": "CapacityScheduling"}]},
    }
}
PROFILES = [{"schedulerName": "default-scheduler", **PROFILE}]
LOW, MID, HIGH = 0, 100, 1000


def quota(namespace: str, *, minimum: dict[str, str] | None, maximum: dict[str, str] | None) -> ElasticQuota:
    metadata = {"name": f"{namespace}-quota", "namespace": namespace, "uid": f"uid-{namespace}"}
    return convert(ElasticQuota, {"metadata": metadata, "spec": {"min": minimum, "max": maximum}})


def of_memory(namespace: str, minimum: int, maximum: int) -> ElasticQuota:
    return quota(namespace, minimum={"memory": str(minimum)}, maximum={"memory": str(maximum)})


def sized(name: str, namespace: str, memory: int, priority: int = 0, **fields: Any) -> Pod:
    return pod(name, namespace=namespace, memory=str(memory), priority=priority, **fields)


def harness(quotas: list[ElasticQuota], pods: list[Pod], memory: int = 10**6) -> PluginHarness:
    found = PluginHarness([node("n", memory=str(memory))], pods, profile=PROFILE, plugins=[CapacityScheduling])
    for each in quotas:
        found.cluster.catalog(ElasticQuota).put(each)
    return found


def rejection(found: PluginHarness, subject: Pod) -> str:
    reasons = [reason for _, texts in found.rejections(subject).values() for reason in texts]
    return reasons[0] if reasons else ""


MORE_THAN_MAX = "because ElasticQuota ns1 is more than Max"
MORE_THAN_MIN = "because total ElasticQuota used is more than min"


@pytest.mark.parametrize(
    ("quotas", "used", "subject", "expected"),
    [
        ([of_memory("ns1", 1000, 2000)], {"ns1": 300}, sized("p", "ns1", 500), ""),
        ([of_memory("ns1", 1000, 2000)], {"ns1": 300}, sized("p", "ns1", 1800), MORE_THAN_MAX),
        ([of_memory("ns1", 1000, 2000)], {"ns1": 300}, sized("p", "ns1", 800), MORE_THAN_MIN),
        (
            [of_memory("ns1", 1000, 2000), of_memory("ns2", 1000, 2000)],
            {"ns1": 1800, "ns2": 200},
            sized("p", "ns2", 500),
            MORE_THAN_MIN,
        ),
        ([of_memory("ns1", 1000, 2000), of_memory("ns2", 1000, 2000)], {"ns2": 200}, sized("p", "ns1", 1500), ""),
        ([], {"ns1": 10}, sized("p", "ns1", 500), ""),
        ([of_memory("ns2", 0, 0)], {"ns1": 10}, sized("p", "ns1", 500), ""),
        ([quota("ns1", minimum={"memory": "1000"}, maximum=None)], {}, sized("p", "ns1", 1000), ""),
        ([quota("ns1", minimum=None, maximum={"memory": "1000"})], {}, sized("p", "ns1", 1000), MORE_THAN_MIN),
        # A resource that a quota leaves out counts as 0.
        ([of_memory("ns1", 1000, 2000)], {}, pod("p", namespace="ns1", cpu="1"), MORE_THAN_MAX),
    ],
)
def test_pods_are_admitted_as_quotas_allow(
    quotas: list[ElasticQuota], used: dict[str, int], subject: Pod, expected: str
) -> None:
    running = [sized(f"{namespace}-pod", namespace, memory, node="n") for namespace, memory in used.items()]
    text = rejection(harness(quotas, running), subject)
    assert text.endswith(expected)
    assert bool(text) == bool(expected)


def test_nominated_pods_count() -> None:
    found = harness([of_memory("ns1", 1000, 1000), of_memory("ns2", 1000, 1000)], [])
    found.cluster.nominate(found.info(sized("nominated", "ns1", 800, HIGH)), "n")
    assert rejection(found, sized("p", "ns1", 500, MID)).endswith(MORE_THAN_MAX)
    assert rejection(found, sized("p", "ns1", 500, HIGH + 1)) == ""
    assert rejection(found, sized("p", "ns2", 1000)) == ""
    found.cluster.nominate(found.info(sized("another", "ns1", 200, HIGH)), "n")
    found.cluster.catalog(ElasticQuota).put(of_memory("ns2", 900, 1000))
    assert rejection(found, sized("p", "ns2", 950)).endswith(MORE_THAN_MIN)


def test_a_nomination_of_the_pod_itself_does_not_count() -> None:
    found, subject = harness([of_memory("ns1", 1000, 1000)], []), sized("p", "ns1", 600)
    found.cluster.nominate(found.info(subject), "n")
    assert rejection(found, subject) == ""
    assert rejection(found, sized("another", "ns1", 600)).endswith(MORE_THAN_MAX)


def test_nominations_count_when_a_pod_is_tried_again() -> None:
    found = harness([of_memory("ns1", 1000, 1000)], [])
    subject = found.info(sized("p", "ns1", 500, MID))
    found.cluster.nominate(found.info(sized("nominated", "ns1", 300, HIGH)), "n")
    assert found.pipeline.decide_by_plugins(subject).node_name == "n"
    found.cluster.nominate(found.info(sized("another", "ns1", 300, HIGH)), "n")
    assert found.pipeline.decide_by_plugins(subject).node_name is None


def test_usage_follows_pods() -> None:
    found = harness([of_memory("ns1", 1000, 1000)], [sized("old", "ns1", 600, node="n")])
    subject = sized("p", "ns1", 500)
    assert rejection(found, subject)
    found.cluster.remove_pod("uid-ns1-old")
    assert not rejection(found, subject)
    with found.cluster.simulate():
        found.cluster.assume(found.info(sized("trial", "ns1", 600)), "n")
        assert rejection(found, subject)
    assert not rejection(found, subject)


def victims(quotas: list[ElasticQuota], running: list[Pod], subject: Pod, memory: int = 150) -> set[str]:
    """The pods that are evicted for a pod on a node that is full."""
    evicted: set[str] = set()

    async def scenario(running_scheduler: Any) -> None:
        running_scheduler.cluster.put(subject)
        await running_scheduler.advance(60)
        left = {each.metadata.name for each in running_scheduler.cluster.pods()}
        evicted.update({each.metadata.name for each in running} - left)

    in_virtual_time(
        scenario, node("n", memory=str(memory)), *quotas, *running, plugins=[CapacityScheduling], profiles=PROFILES
    )
    return evicted


def on_node(name: str, namespace: str, priority: int = MID) -> Pod:
    return sized(name, namespace, 50, priority, node="n")


@pytest.mark.parametrize(
    ("quotas", "running", "evicted"),
    [
        (
            [of_memory("ns1", 50, 200), of_memory("ns2", 200, 200)],
            [on_node("p1", "ns1"), on_node("p2", "ns2"), on_node("p3", "ns2")],
            {"p1"},
        ),
        (
            [of_memory("ns1", 150, 200), of_memory("ns2", 50, 200)],
            [on_node("p1", "ns1"), on_node("p2", "ns2", HIGH), on_node("p3", "ns2")],
            {"p3"},
        ),
        # Whatever the priority, those that borrow give back.
        (
            [of_memory("ns1", 150, 200), of_memory("ns2", 50, 200)],
            [on_node("p1", "ns1"), on_node("p2", "ns2", HIGH + 2), on_node("p3", "ns2", HIGH + 1)],
            {"p3"},
        ),
        ([], [on_node("p1", "ns1"), on_node("p2", "ns2"), on_node("p3", "ns2", LOW)], {"p3"}),
        # Pods without quota are not evicted for one with a quota, nor the other way round.
        ([of_memory("ns1", 150, 200)], [on_node("p1", "ns1", HIGH), on_node("p2", "ns2"), on_node("p3", "ns2")], set()),
        ([of_memory("ns2", 50, 200)], [on_node("p1", "ns2"), on_node("p2", "ns2"), on_node("p3", "ns2")], set()),
        # No namespace borrows, and this one has no pod of lower priority.
        (
            [of_memory("ns1", 50, 200), of_memory("ns2", 100, 200)],
            [on_node("p1", "ns1", HIGH), on_node("p2", "ns2"), on_node("p3", "ns2")],
            set(),
        ),
    ],
)
def test_preemption(quotas: list[ElasticQuota], running: list[Pod], evicted: set[str]) -> None:
    assert victims(quotas, running, sized("preemptor", "ns1", 50, HIGH)) == evicted


def test_a_namespace_at_its_maximum_evicts_its_own_pods() -> None:
    quotas = [of_memory("ns1", 100, 100), of_memory("ns2", 100, 100)]
    running = [on_node("p1", "ns1"), on_node("p2", "ns1", LOW)]
    assert victims(quotas, running, sized("preemptor", "ns1", 50, HIGH), memory=10**6) == {"p2"}


def test_a_resource_that_a_pod_does_not_request_does_not_keep_it_from_getting_its_minimum_back() -> None:
    amounts = {"memory": "100", "example.com/gpu": "1"}
    quotas = [
        quota("ns1", minimum=amounts, maximum={"memory": "200"}),
        quota("ns2", minimum={"memory": "50", "example.com/gpu": "2"}, maximum={"memory": "200"}),
    ]
    with_gpus = pod("p1", namespace="ns1", node="n", requests={"example.com/gpu": "2"})
    running = [with_gpus, on_node("p2", "ns2"), on_node("p3", "ns2"), on_node("p4", "ns2", LOW)]
    assert victims(quotas, running, sized("preemptor", "ns1", 50, LOW)) == {"p4"}


@pytest.mark.parametrize("minimum", [50, 200])
def test_a_pod_waits_for_a_terminating_pod_of_its_namespace_before_it_evicts_others(minimum: int) -> None:
    quotas = [of_memory("ns1", minimum, 200), of_memory("ns2", 0, 200)]
    leaving = sized("p1", "ns1", 50, LOW, node="n", deleting=True)
    found = harness(quotas, [leaving, on_node("p2", "ns2")], memory=100)
    subject = sized("preemptor", "ns1", 50, HIGH, status={"nominatedNodeName": "n"})
    decision = found.decide(subject)
    assert isinstance(decision, Unschedulable)
    assert "not eligible due to a terminating pod on the nominated node." in decision.message


def test_pods_wait_until_quota_is_free() -> None:
    async def scenario(running: Any) -> None:
        running.cluster.put(sized("waiting", "ns1", 80))
        await running.advance(10)
        assert running.node_of("first") == "n"
        assert running.cluster.pod("waiting", "ns1").spec.node_name == ""
        running.cluster.put(of_memory("ns1", 200, 200))
        await running.advance(10)
        assert running.cluster.pod("waiting", "ns1").spec.node_name == "n"

    first = sized("first", "default", 80)
    placed = sized("placed", "ns1", 80, node="n")
    objects = [node("n"), of_memory("ns1", 100, 100), first, placed]
    in_virtual_time(scenario, *objects, plugins=[CapacityScheduling], profiles=PROFILES)


@pytest.mark.parametrize(
    ("objects", "message"),
    [
        ([of_memory("ns1", 300, 200)], "ElasticQuota ns1/ns1-quota: spec.min.memory is above spec.max.memory"),
        (
            [quota("ns1", minimum={"memory": "-1"}, maximum=None)],
            "is ignored: spec.min.memory: is -1, expected at least 0",
        ),
        ([quota("ns1", minimum={"memory": "much"}, maximum=None)], "is ignored: spec.min.memory: "),
    ],
)
def test_quotas_with_problems_are_reported(
    objects: list[ElasticQuota], message: str, caplog: pytest.LogCaptureFixture
) -> None:
    assert rejection(harness(objects, []), sized("p", "ns1", 100)) == ""
    assert any(message in record.message for record in caplog.records)


def test_the_first_quota_of_a_namespace_counts(caplog: pytest.LogCaptureFixture) -> None:
    second = convert(ElasticQuota, {"metadata": {"name": "zz", "namespace": "ns1"}, "spec": {"max": {"memory": "1"}}})
    assert rejection(harness([second, of_memory("ns1", 1000, 1000)], []), sized("p", "ns1", 500)) == ""
    assert "ns1/zz: is ignored" in caplog.records[0].message


def test_comparison() -> None:
    assert excess({"cpu": 1}, {"cpu": 1}) == {}
    assert excess({"cpu": 1}, {"cpu": 1}, beside={"cpu": 2}) == {"cpu": 2}
    assert excess({}, {"cpu": 1}, beside={"cpu": 2}) == {"cpu": 1}
    assert excess({"gpu": 1}, {}) == {"gpu": 1}
    assert excess({"gpu": 1}, {}, otherwise=5) == {}
    assert excess({}, {}, beside={"gpu": 1}) == {}


def test_usage_is_kept_only_for_namespaces_with_pods() -> None:
    found = harness([], [])
    quotas = ElasticQuotas(found.cluster)
    for number in range(100):
        info = found.info(sized("p", f"ns-{number}", 50))
        found.cluster.assume(info, "n")
        assert quotas.used(info.namespace)["memory"] == 50
        found.cluster.forget(info.uid)
    assert not quotas._used


def test_the_contract_is_kept() -> None:
    pods = [sized("a", "ns1", 100), sized("b", "ns2", 100, HIGH), pod("none")]
    check_plugin(CapacityScheduling, pods=pods, objects=[of_memory("ns1", 1000, 5000), of_memory("ns2", 500, 900)])


def test_what_namespaces_use_together_follows_pods_and_quotas() -> None:
    found = harness([of_memory("a", 10, 100), of_memory("b", 10, 100)], [sized("one", "a", 8, node="n")])
    quotas = ElasticQuotas(found.cluster)

    def exceeds(memory: int) -> bool:
        return bool(quotas.above_min_in_total({"memory": memory}))

    assert (exceeds(12), exceeds(13)) == (False, True)
    placed = found.info(sized("two", "b", 5))
    found.cluster.assume(placed, "n")
    assert (exceeds(7), exceeds(8)) == (False, True)
    # A namespace that has no quota any more neither adds to the guarantees nor uses any of them.
    found.cluster.catalog(ElasticQuota).remove("b", "b-quota")
    assert (exceeds(2), exceeds(3)) == (False, True)
    found.cluster.catalog(ElasticQuota).put(of_memory("b", 10, 100))
    found.cluster.forget(placed.uid)
    assert (exceeds(12), exceeds(13)) == (False, True)
