"""The rules that are checked from outside: planted violations are found."""

from __future__ import annotations

from typing import Any

from tests.fault_proxy import rules
from tests.fault_proxy.observation import BindingRequest, LeaseWrite, Observations


def node(name: str = "n", cpu: str = "2") -> dict[str, Any]:
    return {"metadata": {"name": name}, "status": {"allocatable": {"cpu": cpu, "pods": "10"}}}


def pod(name: str, node_name: str = "", cpu: str = "1") -> dict[str, Any]:
    container = {"name": "c", "resources": {"requests": {"cpu": cpu}}}
    spec = {"containers": [container], **({"nodeName": node_name} if node_name else {})}
    return {"metadata": {"name": name, "namespace": "default", "uid": name}, "spec": spec}


def observed(*pods: dict[str, Any]) -> Observations:
    observations = Observations(lambda: 0.0)
    observations.set_nodes([node(), node("other")])
    for each in pods:
        observations.put_pod(each)
    return observations


def binding(client: str, arrived: float, uid: str = "u", status: int = 201) -> BindingRequest:
    return BindingRequest(client, arrived, uid, uid, "n", status)


def test_a_node_above_its_allocatable_is_found() -> None:
    assert observed(pod("a", "n"), pod("b", "n")).violations == []
    (violation,) = observed(pod("a", "n"), pod("b", "n"), pod("c", "n")).violations
    assert violation == "no node is bound above its allocatable: c (c) on n: ['cpu']"


def test_pods_that_have_ended_or_are_gone_use_nothing() -> None:
    ended = {**pod("a", "n", cpu="2"), "status": {"phase": "Succeeded"}}
    observations = observed(ended, pod("b", "n", cpu="2"))
    observations.remove_pod(pod("b", "n", cpu="2"))
    observations.put_pod(pod("c", "n", cpu="2"))
    assert observations.violations == []


def test_a_pod_that_changes_its_node_is_found() -> None:
    (violation,) = observed(pod("a", "n"), pod("a", "other")).violations
    assert violation == "a pod is bound once: a (a) was on n and is on other"


def test_a_binding_that_takes_effect_twice_is_found() -> None:
    once = [binding("s", 1, "a"), binding("s", 2, "a", status=409), binding("s", 3, "b")]
    assert list(rules.bindings_take_effect_once(once)) == []
    assert list(rules.bindings_take_effect_once([*once, binding("s", 4, "b")])) == [
        "a pod is bound once: 2 bindings of b took effect"
    ]


def test_a_binding_of_a_process_that_has_lost_the_lease_is_found() -> None:
    writes = [LeaseWrite("s", 1, "s-id"), LeaseWrite("s", 5, "s-id"), LeaseWrite("t", 21, "t-id")]
    right = [binding("s", 6), binding("s", 20.5), binding("t", 21.5)]
    assert list(rules.only_the_leader_binds(right, writes)) == []
    (violation,) = rules.only_the_leader_binds([*right, binding("s", 24)], writes)
    assert violation == "only the leader binds: s binds u at 24.0 s, and t has renewed the lease at 21.0 s"
    (early,) = rules.only_the_leader_binds([binding("t", 9)], writes)
    assert "t binds u at 9.0 s" in early


def test_a_lease_that_is_taken_before_it_expires_is_found() -> None:
    renewed, taken = LeaseWrite("s", 5, "s-id"), LeaseWrite("t", 21, "t-id")
    assert list(rules.a_lease_expires_before_it_is_taken([renewed, taken], 15)) == []
    assert list(rules.a_lease_expires_before_it_is_taken([renewed, taken._replace(time=12)], 15)) == [
        "at most one leader by their clocks: t-id took the lease 7.0 s after s-id had renewed it"
    ]
    released = [renewed, LeaseWrite("s", 6, ""), taken._replace(time=7)]
    assert list(rules.a_lease_expires_before_it_is_taken(released, 15)) == []


def test_a_pending_pod_that_fits_is_found() -> None:
    observations = observed(pod("a", "n", cpu="2"), pod("b"), pod("c", cpu="3"))
    assert rules.missed_pods(observations) == ["b fits on other"]


def test_memory_that_grows_is_found_and_its_beginning_is_not() -> None:
    flat = [30 << 20] * 5 + [100 << 20] * 75
    assert list(rules.memory_is_flat("s", flat)) == []
    growing = [(100 + 2 * number) << 20 for number in range(80)]
    (violation,) = rules.memory_is_flat("s", growing)
    assert violation == "memory is flat: s grew from 159 MiB to 239 MiB"
