"""The scheduler as a whole (semantics 11.1).

TestReScheduling is in test_retries, TestEndpointHandlers and TestSchedulerZPages are in test_endpoints. Of
TestTaintNodeByCondition the scheduler's half is here; the controller that makes taints of conditions has its own tests
in tests/apiserver.
"""

from __future__ import annotations

from typing import Any

import pytest

from kubestow.errors import APIError
from kubestow.testing import node, pod
from tests.integration.fixture import Object, Stage


async def test_a_cordoned_node_takes_no_pods_until_it_is_uncordoned(stage: Stage) -> None:
    cordoned = node("n", unschedulable=True)
    await stage.create(cordoned, pod("a"))
    async with stage.scheduler():
        assert await stage.refused("a") == [
            "0/1 nodes are available: 1 node(s) were unschedulable. no new claims to deallocate, preemption: "
            "0/1 nodes are available: 1 Preemption is not helpful for scheduling."
        ]
        await stage.change(cordoned, {"spec": {"unschedulable": None}})
        assert await stage.bound("a") == ["n"]


async def test_a_pod_of_an_absent_scheduler_waits_for_it(stage: Stage) -> None:
    await stage.create(node("n"), pod("ours"), pod("foreign", scheduler="other"))
    async with stage.scheduler():
        await stage.bound("ours")
        assert not stage.node_of("foreign")
        async with stage.scheduler(profiles=[{"schedulerName": "other"}]):
            await stage.bound("foreign")


async def test_two_profiles_schedule_their_own_pods_and_sign_their_events(stage: Stage) -> None:
    await stage.create(node("n"), pod("a", scheduler="one"), pod("b", scheduler="two"))
    async with stage.scheduler(profiles=[{"schedulerName": "one"}, {"schedulerName": "two"}]):
        await stage.bound("a", "b")
        await stage.until(lambda: len(stage.events("Scheduled")) == 2)
    signed = {event.regarding.name: event.reporting_controller for event in stage.events("Scheduled")}
    assert signed == {"a": "one", "b": "two"}


async def test_allocatable_and_not_capacity_is_what_counts(stage: Stage) -> None:
    small = node("n", cpu="1", status={"capacity": {"cpu": "8", "memory": "16Gi", "pods": "10"}})
    await stage.create(small, pod("fits", cpu="500m"), pod("big", cpu="4"))
    async with stage.scheduler():
        await stage.bound("fits")
        (why,) = await stage.refused("big")
        assert why.startswith("0/1 nodes are available: 1 Insufficient cpu.")


async def test_pods_that_others_bind_use_up_nodes(stage: Stage) -> None:
    await stage.create(node("n", cpu="2"), pod("theirs", cpu="2", node="n", scheduler="other"), pod("ours", cpu="1"))
    async with stage.scheduler():
        (why,) = await stage.refused("ours")
        assert "1 Insufficient cpu" in why


async def test_a_pod_that_wants_a_missing_node_by_its_name_fits_nowhere(stage: Stage) -> None:
    term = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["missing"]}]}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}
    await stage.create(node("n"), pod("a", affinity={"nodeAffinity": required}))
    async with stage.scheduler():
        (why,) = await stage.refused("a")
        assert why.startswith("0/1 nodes are available: 1 node(s) didn't satisfy plugin(s) [NodeAffinity].")


async def test_a_tainted_node_helps_nobody_until_its_taint_is_gone(stage: Stage) -> None:
    await stage.create(node("full", cpu="1"), pod("a", cpu="2"))
    async with stage.scheduler() as troupe:
        await stage.refused("a")
        tainted = node("large", cpu="4", taints=["dedicated=x:NoSchedule"])
        await stage.create(tainted)
        await stage.until(lambda: "1 node(s) had untolerated taint(s)" in stage.message("a"))
        assert not stage.node_of("a")
        await troupe.has_seen(await stage.change(tainted, {"spec": {"taints": None}}))
        assert await stage.bound("a") == ["large"]


def _ported(*ports: Object, sidecar: bool = False, init: bool = False) -> Object:
    """A pod's spec with host ports in a container, in a sidecar or in an ordinary init container."""
    plain: Object = {"name": "main", "image": "app"}
    container = {"name": "ported", "image": "app", "ports": [{"containerPort": 80, **port} for port in ports]}
    if sidecar:
        return {"containers": [plain], "initContainers": [container | {"restartPolicy": "Always"}]}
    return {"containers": [plain], "initContainers": [container]} if init else {"containers": [container]}


_PORT: Object = {"hostPort": 8080}


@pytest.mark.parametrize(
    ("there", "new", "conflict"),
    [
        pytest.param(_ported(_PORT), _ported(_PORT), True, id="the same port of two containers"),
        pytest.param(_ported(_PORT), _ported({"hostPort": 8081}), False, id="different ports"),
        pytest.param(_ported(_PORT), _ported({"hostPort": 8080, "protocol": "UDP"}), False, id="different protocols"),
        pytest.param(
            _ported({"hostPort": 8080, "hostIP": "10.0.0.1"}),
            _ported({"hostPort": 8080, "hostIP": "10.0.0.2"}),
            False,
            id="different addresses",
        ),
        pytest.param(
            _ported({"hostPort": 8080, "hostIP": "10.0.0.1"}), _ported(_PORT), True, id="one on every address"
        ),
        pytest.param(
            _ported({"hostPort": 8080, "hostIP": "10.0.0.1"}),
            _ported({"hostPort": 8080, "hostIP": "10.0.0.1"}),
            True,
            id="the same address",
        ),
        pytest.param(_ported(_PORT), _ported(_PORT, sidecar=True), True, id="container and sidecar"),
        pytest.param(_ported(_PORT, sidecar=True), _ported(_PORT), True, id="sidecar and container"),
        pytest.param(_ported(_PORT, sidecar=True), _ported(_PORT, sidecar=True), True, id="two sidecars"),
        pytest.param(_ported(_PORT), _ported(_PORT, init=True), False, id="container and init container"),
        pytest.param(_ported(_PORT, init=True), _ported(_PORT), False, id="init container and container"),
        pytest.param(_ported(_PORT, init=True), _ported(_PORT, init=True), False, id="two init containers"),
        pytest.param(_ported({}), _ported({}), False, id="ports of the container alone"),
        pytest.param(_ported(_PORT), _ported({}), False, id="a port of the host and one of the container"),
        pytest.param(_ported(_PORT, {"hostPort": 9090}), _ported({"hostPort": 9090}), True, id="one of several"),
    ],
)
async def test_host_ports(stage: Stage, there: Object, new: Object, conflict: bool) -> None:
    await stage.create(node("n"), pod("there", spec=there))
    async with stage.scheduler():
        await stage.bound("there")
        await stage.create(pod("new", spec=new))
        if conflict:
            (why,) = await stage.refused("new")
            assert "1 node(s) didn't have free ports for the requested pod ports" in why
        else:
            assert await stage.bound("new") == ["n"]


_CONDITIONS = {
    "not-ready": "node.kubernetes.io/not-ready",
    "memory pressure": "node.kubernetes.io/memory-pressure",
    "disk pressure": "node.kubernetes.io/disk-pressure",
    "pid pressure": "node.kubernetes.io/pid-pressure",
    "network unavailable": "node.kubernetes.io/network-unavailable",
}


@pytest.mark.parametrize("tolerated", [False, True], ids=["not tolerated", "tolerated"])
@pytest.mark.parametrize("taint", _CONDITIONS.values(), ids=_CONDITIONS.keys())
async def test_taints_of_conditions_keep_out_who_does_not_tolerate_them(
    stage: Stage, taint: str, tolerated: bool
) -> None:
    tolerations = [{"key": taint, "operator": "Exists", "effect": "NoSchedule"}] if tolerated else []
    await stage.create(node("n", taints=[f"{taint}:NoSchedule"]), pod("a", tolerations=tolerations))
    async with stage.scheduler():
        if tolerated:
            await stage.bound("a")
        else:
            (why,) = await stage.refused("a")
            assert "1 node(s) had untolerated taint(s)" in why


@pytest.mark.parametrize(
    ("operator", "than", "tolerated"),
    [("Gt", "5", True), ("Gt", "10", False), ("Lt", "20", True), ("Lt", "10", False), ("Gt", "-3", True)],
)
async def test_taints_are_compared_as_numbers_with_the_alpha_gate(
    stage: Stage, operator: str, than: str, tolerated: bool
) -> None:
    toleration = {"key": "level", "operator": operator, "value": than, "effect": "NoSchedule"}
    await stage.create(node("n", taints=["level=10:NoSchedule"]), pod("a", tolerations=[toleration]))
    async with stage.scheduler(gates={"TaintTolerationComparisonOperators": True}):
        await (stage.bound("a") if tolerated else stage.refused("a"))


@pytest.mark.parametrize(("uid", "is_bound"), [("stale", False), ("", True)])
async def test_a_binding_names_the_pod_by_its_uid(stage: Stage, uid: str, is_bound: bool) -> None:
    await stage.create(node("n"), pod("a"))
    await stage.until(lambda: stage.pod("a").metadata.uid)
    binding: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": "a", "uid": uid or stage.pod("a").metadata.uid},
        "target": {"kind": "Node", "name": "n"},
    }
    path = "/api/v1/namespaces/default/pods/a/binding"
    if is_bound:
        await stage.request("POST", path, binding)
        await stage.bound("a")
    else:
        with pytest.raises(APIError, match="UID in precondition: stale"):
            await stage.request("POST", path, binding)


async def test_an_update_of_labels_and_taints_at_once_reaches_those_who_wait_for_either(stage: Stage) -> None:
    there = node("n", taints=["dedicated=x:NoSchedule"])
    await stage.create(there, pod("label", node_selector={"disk": "ssd"}), pod("taint"))
    async with stage.scheduler():
        await stage.refused("label", "taint")
        await stage.change(there, {"metadata": {"labels": {"disk": "ssd"}}, "spec": {"taints": None}})
        assert await stage.bound("label", "taint") == ["n", "n"]


async def test_who_waits_behind_a_nomination_is_scheduled_when_it_is_cleared(stage: Stage) -> None:
    promised = pod("promised", cpu="2", priority=100, gates=["wait"], nominated="n")
    await stage.create(node("n", cpu="2"), promised)
    async with stage.scheduler() as troupe:
        await troupe.until(lambda: troupe.scheduler.cluster.has_nominations)
        await stage.create(pod("behind", cpu="1", priority=1))
        await stage.refused("behind")
        await stage.change(promised, {"status": {"nominatedNodeName": None}}, subresource="status")
        assert await stage.bound("behind") == ["n"]


async def test_who_waits_behind_a_nomination_is_scheduled_when_a_higher_priority_takes_its_place(stage: Stage) -> None:
    leaving = pod("leaving", cpu="1", priority=1, node="n", metadata={"finalizers": ["example.org/keep"]})
    await stage.create(node("n", cpu="2"), leaving)
    async with stage.scheduler():
        await stage.create(pod("promised", cpu="2", priority=50))
        await stage.until(lambda: stage.nomination("promised") == "n")
        await stage.create(pod("behind", cpu="1", priority=10))
        await stage.refused("behind")
        await stage.create(pod("highest", cpu="1", priority=100))
        await stage.bound("highest")
        await stage.delete(leaving)
        await stage.change(leaving, {"metadata": {"finalizers": None}})
        assert await stage.bound("behind") == ["n"]
        assert not stage.node_of("promised")
