"""The writes of a scheduler: bindings, status patches, deletions and leases, and their preconditions."""

from __future__ import annotations

import pytest

from kubestow.api.core import PodCondition
from kubestow.client.object_requests import PodClient, merge_patch
from kubestow.client.rest.transport import MERGE_PATCH
from kubestow.errors import APIError
from kubestow.scheduling.events.resources import NODES
from kubestow.scheduling.interfaces import ObjectReference, PodStatusPatch
from tests.anycluster.sandbox import ClusterSandbox, reference

OTHER_UID = "00000000-0000-0000-0000-000000000000"


@pytest.fixture
def pods(sandbox: ClusterSandbox) -> PodClient:
    return PodClient(sandbox.transport)


async def test_a_binding_sets_the_node_and_the_condition(sandbox: ClusterSandbox, pods: PodClient) -> None:
    node, pod = await sandbox.node("a"), await sandbox.pod("p")
    await pods.bind(reference(pod), node)
    bound = await sandbox.read("p")
    assert bound["spec"]["nodeName"] == node
    assert ("PodScheduled", "True") in {(c["type"], c["status"]) for c in bound["status"]["conditions"]}


async def test_a_pod_is_bound_once(sandbox: ClusterSandbox, pods: PodClient) -> None:
    node, pod = await sandbox.node("a"), await sandbox.pod("p")
    await pods.bind(reference(pod), node)
    with pytest.raises(APIError) as error:
        await pods.bind(reference(pod), node)
    assert (error.value.code, error.value.reason) == (409, "Conflict")


async def test_a_pod_of_another_uid_is_not_bound(sandbox: ClusterSandbox, pods: PodClient) -> None:
    node, pod = await sandbox.node("a"), await sandbox.pod("p")
    with pytest.raises(APIError) as error:
        await pods.bind(reference(pod, uid=OTHER_UID), node)
    assert error.value.code == 409
    assert "nodeName" not in (await sandbox.read("p"))["spec"]


async def test_a_deleted_pod_is_not_bound(sandbox: ClusterSandbox, pods: PodClient) -> None:
    with pytest.raises(APIError) as error:
        await pods.bind(ObjectReference("Pod", sandbox.name, "none", OTHER_UID), "anywhere")
    assert error.value.code == 404


async def test_a_pod_with_gates_is_not_bound(sandbox: ClusterSandbox, pods: PodClient) -> None:
    node, pod = await sandbox.node("a"), await sandbox.pod("p", schedulingGates=[{"name": "example.com/wait"}])
    with pytest.raises(APIError) as error:
        await pods.bind(reference(pod), node)
    assert error.value.code in (400, 409, 422)
    assert "nodeName" not in (await sandbox.read("p"))["spec"]


async def test_conditions_are_merged_by_type(sandbox: ClusterSandbox, pods: PodClient) -> None:
    pod = await sandbox.pod("p")
    for message in ("first", "second"):
        condition = PodCondition(type="PodScheduled", status="False", reason="Unschedulable", message=message)
        await pods.patch_pod_status(reference(pod), PodStatusPatch((condition,), nominated_node_name="n"))
    status = (await sandbox.read("p"))["status"]
    assert [(c["type"], c["message"]) for c in status["conditions"]] == [("PodScheduled", "second")]
    assert status["nominatedNodeName"] == "n"


async def test_a_nomination_is_cleared(sandbox: ClusterSandbox, pods: PodClient) -> None:
    pod = await sandbox.pod("p")
    await pods.patch_pod_status(reference(pod), PodStatusPatch(nominated_node_name="n"))
    await pods.patch_pod_status(reference(pod), PodStatusPatch(nominated_node_name=""))
    assert "nominatedNodeName" not in (await sandbox.read("p"))["status"]


async def test_the_status_of_a_recreated_pod_is_not_patched(sandbox: ClusterSandbox, pods: PodClient) -> None:
    pod = await sandbox.pod("p")
    with pytest.raises(APIError) as error:
        await pods.patch_pod_status(reference(pod, uid=OTHER_UID), PodStatusPatch(nominated_node_name="n"))
    assert error.value.code in (409, 422)
    assert "nominatedNodeName" not in (await sandbox.read("p"))["status"]


async def test_a_recreated_pod_is_not_deleted(sandbox: ClusterSandbox, pods: PodClient) -> None:
    pod = await sandbox.pod("p")
    await pods.delete_pod(reference(pod, uid=OTHER_UID))
    assert (await sandbox.read("p"))["metadata"]["uid"] == pod["metadata"]["uid"]


async def test_a_pod_that_never_ran_is_removed_at_once(sandbox: ClusterSandbox, pods: PodClient) -> None:
    pod = await sandbox.pod("p")
    await pods.delete_pod(reference(pod))
    assert await pods.read_pod(reference(pod)) is None


async def test_a_patch_of_an_older_version_conflicts(sandbox: ClusterSandbox) -> None:
    name = await sandbox.node("a")
    path = f"/api/v1/nodes/{name}"
    old = (await sandbox.request("GET", path))["metadata"]
    await sandbox.request("PATCH", path, {"metadata": {"annotations": {"a": "1"}}}, content_type=MERGE_PATCH)
    stale = ObjectReference("Node", "", name, old["uid"], resource_version=old["resourceVersion"])
    with pytest.raises(APIError) as error:
        await merge_patch(sandbox.transport, NODES, stale, {"metadata": {"annotations": {"a": "2"}}})
    assert error.value.code == 409


async def test_a_lease_has_one_holder(sandbox: ClusterSandbox) -> None:
    leases = f"/apis/coordination.k8s.io/v1/namespaces/{sandbox.name}/leases"
    lease = {"kind": "Lease", "metadata": {"name": "l"}, "spec": {"holderIdentity": "a", "leaseDurationSeconds": 15}}
    first = await sandbox.create(leases, lease)
    await sandbox.request("PUT", f"{leases}/l", first | {"spec": {"holderIdentity": "b"}})
    with pytest.raises(APIError) as error:
        await sandbox.request("PUT", f"{leases}/l", first | {"spec": {"holderIdentity": "c"}})
    assert (error.value.code, error.value.reason) == (409, "Conflict")
