"""The writes of a scheduler: what succeeds, what is refused, and what stays as it was."""

from __future__ import annotations

import pytest

from kubestow.api.core import PodCondition
from kubestow.client.merge_patch import merge_patch
from kubestow.client.pod_client import PodClient
from kubestow.client.rest.transport import MERGE_PATCH
from kubestow.errors import APIError
from kubestow.scheduling.events.resources import NODES
from kubestow.scheduling.ports import ObjectReference, PodStatusPatch
from tests.anycluster.place import Place, reference

OTHER_UID = "00000000-0000-0000-0000-000000000000"


@pytest.fixture
def pods(place: Place) -> PodClient:
    return PodClient(place.transport)


async def test_a_binding_sets_the_node_and_the_condition(place: Place, pods: PodClient) -> None:
    node, pod = await place.node("a"), await place.pod("p")
    await pods.bind(reference(pod), node)
    bound = await place.read("p")
    assert bound["spec"]["nodeName"] == node
    assert ("PodScheduled", "True") in {(c["type"], c["status"]) for c in bound["status"]["conditions"]}


async def test_a_pod_is_bound_once(place: Place, pods: PodClient) -> None:
    node, pod = await place.node("a"), await place.pod("p")
    await pods.bind(reference(pod), node)
    with pytest.raises(APIError) as refused:
        await pods.bind(reference(pod), node)
    assert (refused.value.code, refused.value.reason) == (409, "Conflict")


async def test_a_pod_of_another_uid_is_not_bound(place: Place, pods: PodClient) -> None:
    node, pod = await place.node("a"), await place.pod("p")
    with pytest.raises(APIError) as refused:
        await pods.bind(reference(pod, uid=OTHER_UID), node)
    assert refused.value.code == 409
    assert "nodeName" not in (await place.read("p"))["spec"]


async def test_a_pod_that_is_gone_is_not_bound(place: Place, pods: PodClient) -> None:
    with pytest.raises(APIError) as refused:
        await pods.bind(ObjectReference("Pod", place.name, "none", OTHER_UID), "anywhere")
    assert refused.value.code == 404


async def test_a_pod_with_gates_is_not_bound(place: Place, pods: PodClient) -> None:
    node, pod = await place.node("a"), await place.pod("p", schedulingGates=[{"name": "example.com/wait"}])
    with pytest.raises(APIError) as refused:
        await pods.bind(reference(pod), node)
    assert refused.value.code in (400, 409, 422)
    assert "nodeName" not in (await place.read("p"))["spec"]


async def test_a_condition_is_merged_by_its_type(place: Place, pods: PodClient) -> None:
    pod = await place.pod("p")
    for message in ("first", "second"):
        condition = PodCondition(type="PodScheduled", status="False", reason="Unschedulable", message=message)
        await pods.patch_pod_status(reference(pod), PodStatusPatch((condition,), nominated_node_name="n"))
    status = (await place.read("p"))["status"]
    assert [(c["type"], c["message"]) for c in status["conditions"]] == [("PodScheduled", "second")]
    assert status["nominatedNodeName"] == "n"


async def test_a_nomination_is_taken_back(place: Place, pods: PodClient) -> None:
    pod = await place.pod("p")
    await pods.patch_pod_status(reference(pod), PodStatusPatch(nominated_node_name="n"))
    await pods.patch_pod_status(reference(pod), PodStatusPatch(nominated_node_name=""))
    assert "nominatedNodeName" not in (await place.read("p"))["status"]


async def test_the_status_of_a_namesake_is_left_alone(place: Place, pods: PodClient) -> None:
    pod = await place.pod("p")
    with pytest.raises(APIError) as refused:
        await pods.patch_pod_status(reference(pod, uid=OTHER_UID), PodStatusPatch(nominated_node_name="n"))
    assert refused.value.code in (409, 422)
    assert "nominatedNodeName" not in (await place.read("p"))["status"]


async def test_a_namesake_is_not_deleted(place: Place, pods: PodClient) -> None:
    pod = await place.pod("p")
    await pods.delete_pod(reference(pod, uid=OTHER_UID))
    assert (await place.read("p"))["metadata"]["uid"] == pod["metadata"]["uid"]


async def test_a_deleted_pod_that_never_ran_is_gone(place: Place, pods: PodClient) -> None:
    pod = await place.pod("p")
    await pods.delete_pod(reference(pod))
    assert await pods.read_pod(reference(pod)) is None


async def test_a_patch_of_an_older_version_is_refused(place: Place) -> None:
    name = await place.node("a")
    path = f"/api/v1/nodes/{name}"
    old = (await place.request("GET", path))["metadata"]
    await place.request("PATCH", path, {"metadata": {"annotations": {"a": "1"}}}, content_type=MERGE_PATCH)
    stale = ObjectReference("Node", "", name, old["uid"], resource_version=old["resourceVersion"])
    with pytest.raises(APIError) as refused:
        await merge_patch(place.transport, NODES, stale, {"metadata": {"annotations": {"a": "2"}}})
    assert refused.value.code == 409


async def test_a_lease_has_one_holder(place: Place) -> None:
    leases = f"/apis/coordination.k8s.io/v1/namespaces/{place.name}/leases"
    lease = {"kind": "Lease", "metadata": {"name": "l"}, "spec": {"holderIdentity": "a", "leaseDurationSeconds": 15}}
    first = await place.create(leases, lease)
    await place.request("PUT", f"{leases}/l", first | {"spec": {"holderIdentity": "b"}})
    with pytest.raises(APIError) as refused:
        await place.request("PUT", f"{leases}/l", first | {"spec": {"holderIdentity": "c"}})
    assert (refused.value.code, refused.value.reason) == (409, "Conflict")
