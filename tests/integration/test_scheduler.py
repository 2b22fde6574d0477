"""A running scheduler against an API server (semantics 11.1).

TestReScheduling is in test_retries, TestEndpointHandlers and TestSchedulerZPages are in test_endpoints. Of
TestTaintNodeByCondition the scheduler's part is here; the node lifecycle controller, which sets the taints, is tested
in tests/devcluster/controllers.
"""

from __future__ import annotations

from typing import Any

import pytest

from kubestow.errors import APIError
from kubestow.testing import node, pod
from tests.integration.fixture import ClusterFixture, Object


async def test_no_pod_is_bound_to_a_cordoned_node_until_it_is_uncordoned(cluster: ClusterFixture) -> None:
    cordoned = node("n", unschedulable=True)
    await cluster.create(cordoned, pod("a"))
    async with cluster.scheduler():
        assert await cluster.pending_messages("a") == [
            "0/1 nodes are available: 1 node(s) were unschedulable. no new claims to deallocate, preemption: "
            "0/1 nodes are available: 1 Preemption is not helpful for scheduling."
        ]
        await cluster.patch(cordoned, {"spec": {"unschedulable": None}})
        assert await cluster.bound("a") == ["n"]


async def test_a_pod_waits_for_the_scheduler_that_it_names(cluster: ClusterFixture) -> None:
    await cluster.create(node("n"), pod("ours"), pod("foreign", scheduler="other"))
    async with cluster.scheduler():
        await cluster.bound("ours")
        assert not cluster.node_of("foreign")
        async with cluster.scheduler(profiles=[{"schedulerName": "other"}]):
            await cluster.bound("foreign")


async def test_two_profiles_schedule_their_own_pods_and_report_their_own_events(cluster: ClusterFixture) -> None:
    await cluster.create(node("n"), pod("a", scheduler="one"), pod("b", scheduler="two"))
    async with cluster.scheduler(profiles=[{"schedulerName": "one"}, {"schedulerName": "two"}]):
        await cluster.bound("a", "b")
        await cluster.until(lambda: len(cluster.events("Scheduled")) == 2)
    signed = {event.regarding.name: event.reporting_controller for event in cluster.events("Scheduled")}
    assert signed == {"a": "one", "b": "two"}


async def test_allocatable_instead_of_capacity_limits_a_node(cluster: ClusterFixture) -> None:
    small = node("n", cpu="1", status={"capacity": {"cpu": "8", "memory": "16Gi", "pods": "10"}})
    await cluster.create(small, pod("fits", cpu="500m"), pod("big", cpu="4"))
    async with cluster.scheduler():
        await cluster.bound("fits")
        (message,) = await cluster.pending_messages("big")
        assert message.startswith("0/1 nodes are available: 1 Insufficient cpu.")


async def test_pods_of_other_schedulers_use_node_capacity(cluster: ClusterFixture) -> None:
    await cluster.create(node("n", cpu="2"), pod("theirs", cpu="2", node="n", scheduler="other"), pod("ours", cpu="1"))
    async with cluster.scheduler():
        (message,) = await cluster.pending_messages("ours")
        assert "1 Insufficient cpu" in message


async def test_a_pod_with_affinity_for_a_missing_node_name_is_unschedulable(cluster: ClusterFixture) -> None:
    term = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["missing"]}]}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}
    await cluster.create(node("n"), pod("a", affinity={"nodeAffinity": required}))
    async with cluster.scheduler():
        (message,) = await cluster.pending_messages("a")
        assert message.startswith("0/1 nodes are available: 1 node(s) didn't satisfy plugin(s) [NodeAffinity].")


async def test_a_tainted_node_is_not_used_until_its_taint_is_removed(cluster: ClusterFixture) -> None:
    await cluster.create(node("full", cpu="1"), pod("a", cpu="2"))
    async with cluster.scheduler() as probe:
        await cluster.pending_messages("a")
        tainted = node("large", cpu="4", taints=["dedicated=x:NoSchedule"])
        await cluster.create(tainted)
        await cluster.until(lambda: "1 node(s) had untolerated taint(s)" in cluster.message("a"))
        assert not cluster.node_of("a")
        await probe.observed(await cluster.patch(tainted, {"spec": {"taints": None}}))
        assert await cluster.bound("a") == ["large"]


def _spec_with_ports(*ports: Object, sidecar: bool = False, init: bool = False) -> Object:
    """A pod spec with host ports in a container, in a sidecar or in an ordinary init container."""
    plain: Object = {"name": "main", "image": "app"}
    container = {"name": "with-ports", "image": "app", "ports": [{"containerPort": 80, **port} for port in ports]}
    if sidecar:
        return {"containers": [plain], "initContainers": [container | {"restartPolicy": "Always"}]}
    return {"containers": [plain], "initContainers": [container]} if init else {"containers": [container]}


_PORT: Object = {"hostPort": 8080}


@pytest.mark.parametrize(
    ("existing", "new", "conflict"),
    [
        pytest.param(_spec_with_ports(_PORT), _spec_with_ports(_PORT), True, id="the same port of two containers"),
        pytest.param(_spec_with_ports(_PORT), _spec_with_ports({"hostPort": 8081}), False, id="different ports"),
        pytest.param(
            _spec_with_ports(_PORT),
            _spec_with_ports({"hostPort": 8080, "protocol": "UDP"}),
            False,
            id="different protocols",
        ),
        pytest.param(
            _spec_with_ports({"hostPort": 8080, "hostIP": "10.0.0.1"}),
            _spec_with_ports({"hostPort": 8080, "hostIP": "10.0.0.2"}),
            False,
            id="different addresses",
        ),
        pytest.param(
            _spec_with_ports({"hostPort": 8080, "hostIP": "10.0.0.1"}),
            _spec_with_ports(_PORT),
            True,
            id="one on every address",
        ),
        pytest.param(
            _spec_with_ports({"hostPort": 8080, "hostIP": "10.0.0.1"}),
            _spec_with_ports({"hostPort": 8080, "hostIP": "10.0.0.1"}),
            True,
            id="the same address",
        ),
        pytest.param(_spec_with_ports(_PORT), _spec_with_ports(_PORT, sidecar=True), True, id="container and sidecar"),
        pytest.param(_spec_with_ports(_PORT, sidecar=True), _spec_with_ports(_PORT), True, id="sidecar and container"),
        pytest.param(
            _spec_with_ports(_PORT, sidecar=True), _spec_with_ports(_PORT, sidecar=True), True, id="two sidecars"
        ),
        pytest.param(
            _spec_with_ports(_PORT), _spec_with_ports(_PORT, init=True), False, id="container and init container"
        ),
        pytest.param(
            _spec_with_ports(_PORT, init=True), _spec_with_ports(_PORT), False, id="init container and container"
        ),
        pytest.param(
            _spec_with_ports(_PORT, init=True), _spec_with_ports(_PORT, init=True), False, id="two init containers"
        ),
        pytest.param(_spec_with_ports({}), _spec_with_ports({}), False, id="ports of the container alone"),
        pytest.param(
            _spec_with_ports(_PORT), _spec_with_ports({}), False, id="a port of the host and one of the container"
        ),
        pytest.param(
            _spec_with_ports(_PORT, {"hostPort": 9090}), _spec_with_ports({"hostPort": 9090}), True, id="one of several"
        ),
    ],
)
async def test_conflicting_host_ports_are_rejected(
    cluster: ClusterFixture, existing: Object, new: Object, conflict: bool
) -> None:
    await cluster.create(node("n"), pod("existing", spec=existing))
    async with cluster.scheduler():
        await cluster.bound("existing")
        await cluster.create(pod("new", spec=new))
        if conflict:
            (message,) = await cluster.pending_messages("new")
            assert "1 node(s) didn't have free ports for the requested pod ports" in message
        else:
            assert await cluster.bound("new") == ["n"]


_CONDITIONS = {
    "not-ready": "node.kubernetes.io/not-ready",
    "memory pressure": "node.kubernetes.io/memory-pressure",
    "disk pressure": "node.kubernetes.io/disk-pressure",
    "pid pressure": "node.kubernetes.io/pid-pressure",
    "network unavailable": "node.kubernetes.io/network-unavailable",
}


@pytest.mark.parametrize("tolerated", [False, True], ids=["not tolerated", "tolerated"])
@pytest.mark.parametrize("taint", _CONDITIONS.values(), ids=_CONDITIONS.keys())
async def test_node_condition_taints_reject_pods_without_a_toleration(
    cluster: ClusterFixture, taint: str, tolerated: bool
) -> None:
    tolerations = [{"key": taint, "operator": "Exists", "effect": "NoSchedule"}] if tolerated else []
    await cluster.create(node("n", taints=[f"{taint}:NoSchedule"]), pod("a", tolerations=tolerations))
    async with cluster.scheduler():
        if tolerated:
            await cluster.bound("a")
        else:
            (message,) = await cluster.pending_messages("a")
            assert "1 node(s) had untolerated taint(s)" in message


@pytest.mark.parametrize(
    ("operator", "than", "tolerated"),
    [("Gt", "5", True), ("Gt", "10", False), ("Lt", "20", True), ("Lt", "10", False), ("Gt", "-3", True)],
)
async def test_numeric_toleration_operators_work_with_their_feature_gate(
    cluster: ClusterFixture, operator: str, than: str, tolerated: bool
) -> None:
    toleration = {"key": "level", "operator": operator, "value": than, "effect": "NoSchedule"}
    await cluster.create(node("n", taints=["level=10:NoSchedule"]), pod("a", tolerations=[toleration]))
    async with cluster.scheduler(gates={"TaintTolerationComparisonOperators": True}):
        await (cluster.bound("a") if tolerated else cluster.pending_messages("a"))


@pytest.mark.parametrize(("uid", "is_bound"), [("stale", False), ("", True)])
async def test_a_binding_is_rejected_for_another_uid(cluster: ClusterFixture, uid: str, is_bound: bool) -> None:
    await cluster.create(node("n"), pod("a"))
    await cluster.until(lambda: cluster.pod("a").metadata.uid)
    binding: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": "a", "uid": uid or cluster.pod("a").metadata.uid},
        "target": {"kind": "Node", "name": "n"},
    }
    path = "/api/v1/namespaces/default/pods/a/binding"
    if is_bound:
        await cluster.request("POST", path, binding)
        await cluster.bound("a")
    else:
        with pytest.raises(APIError, match="UID in precondition: stale"):
            await cluster.request("POST", path, binding)


async def test_one_update_of_labels_and_taints_requeues_pods_waiting_for_either(cluster: ClusterFixture) -> None:
    existing = node("n", taints=["dedicated=x:NoSchedule"])
    await cluster.create(existing, pod("label", node_selector={"disk": "ssd"}), pod("taint"))
    async with cluster.scheduler():
        await cluster.pending_messages("label", "taint")
        await cluster.patch(existing, {"metadata": {"labels": {"disk": "ssd"}}, "spec": {"taints": None}})
        assert await cluster.bound("label", "taint") == ["n", "n"]


async def test_a_pod_blocked_by_a_nomination_is_scheduled_when_it_is_cleared(cluster: ClusterFixture) -> None:
    nominated = pod("nominated", cpu="2", priority=100, gates=["wait"])
    await cluster.create(node("n", cpu="2"), nominated)
    async with cluster.scheduler() as probe:
        await cluster.patch(nominated, {"status": {"nominatedNodeName": "n"}}, subresource="status")
        await probe.until(lambda: probe.scheduler.cluster.has_nominations)
        await cluster.create(pod("behind", cpu="1", priority=1))
        await cluster.pending_messages("behind")
        await cluster.patch(nominated, {"status": {"nominatedNodeName": None}}, subresource="status")
        assert await cluster.bound("behind") == ["n"]


async def test_a_pod_blocked_by_a_nomination_is_scheduled_when_a_higher_priority_replaces_it(
    cluster: ClusterFixture,
) -> None:
    terminating = pod("terminating", cpu="1", priority=1, node="n", metadata={"finalizers": ["example.org/keep"]})
    await cluster.create(node("n", cpu="2"), terminating)
    async with cluster.scheduler():
        await cluster.create(pod("nominated", cpu="2", priority=50))
        await cluster.until(lambda: cluster.nomination("nominated") == "n")
        await cluster.create(pod("behind", cpu="1", priority=10))
        await cluster.pending_messages("behind")
        await cluster.create(pod("highest", cpu="1", priority=100))
        await cluster.bound("highest")
        await cluster.delete(terminating)
        await cluster.patch(terminating, {"metadata": {"finalizers": None}})
        assert await cluster.bound("behind") == ["n"]
        assert not cluster.node_of("nominated")
