"""The requests for pods: bindings, reads, status patches, deletions; and merge patches."""

from __future__ import annotations

from typing import Any

import pytest

from core_tests.client.scripted_server import Responder, ScriptedServer, bound, failure, response
from core_tests.recordings import exchanges
from kubestow.api.core import PodCondition
from kubestow.client.object_requests import PodClient, merge_patch
from kubestow.client.rest.transport import Transport
from kubestow.errors import APIError, Unreachable
from kubestow.scheduling.interfaces import ObjectReference, PodStatusPatch, Resource

POD = ObjectReference("Pod", "default", "p1", "uid-1")
BINDING, STATUS, ITSELF = [f"/api/v1/namespaces/default/pods/p1{end}" for end in ("/binding", "/status", "")]
NOMINATED = PodStatusPatch(nominated_node_name="n1")


@pytest.fixture
def pods(transport: Transport) -> PodClient:
    return PodClient(transport)


async def test_a_binding_carries_the_uid(server: ScriptedServer, pods: PodClient) -> None:
    server.respond("POST", BINDING, bound())
    await pods.bind(POD, "n1")
    assert server.requests[0].json == {
        "kind": "Binding",
        "apiVersion": "v1",
        "metadata": {"name": "p1", "namespace": "default", "uid": "uid-1"},
        "target": {"kind": "Node", "name": "n1"},
    }


async def test_a_rejected_binding_is_not_retried(server: ScriptedServer, pods: PodClient) -> None:
    server.respond("POST", BINDING, failure(409, "Conflict", "pod p1 is already assigned"))
    with pytest.raises(APIError, match="already assigned"):
        await pods.bind(POD, "n1")
    assert len(server.requests) == 1


@pytest.mark.parametrize(
    "body",
    [{}, {"kind": "Status", "status": "Failure"}, {"kind": "Binding"}, "ok"],
    ids=["none", "failed", "other", "text"],
)
async def test_a_binding_without_a_status_of_success_is_in_doubt(
    server: ScriptedServer, pods: PodClient, body: Any
) -> None:
    server.respond("POST", BINDING, response(200, body))
    with pytest.raises(Unreachable, match="default/p1 was not answered with a Status of success") as raised:
        await pods.bind(POD, "n1")
    assert raised.value.in_doubt


async def test_a_merge_patch_carries_uid_and_resource_version(server: ScriptedServer, transport: Transport) -> None:
    server.respond("PATCH", "/api/v1/persistentvolumes/pv", response(body={"metadata": {"resourceVersion": "8"}}))
    volumes = Resource("/api/v1", "persistentvolumes", "PersistentVolume", object, namespaced=False)
    subject = ObjectReference("PersistentVolume", "", "pv", "uid-pv", resource_version="7")
    changes = {"metadata": {"annotations": {"a": "b"}}, "spec": {"claimRef": {"name": "c"}}}
    assert await merge_patch(transport, volumes, subject, changes) == "8"
    (request,) = server.requests
    assert request.headers["Content-Type"] == "application/merge-patch+json"
    metadata = {"annotations": {"a": "b"}, "uid": "uid-pv", "resourceVersion": "7"}
    assert request.json == {"metadata": metadata, "spec": {"claimRef": {"name": "c"}}}


async def test_a_pod_is_read_without_a_cache(server: ScriptedServer, pods: PodClient) -> None:
    server.respond(
        "GET", ITSELF, response(200, {"metadata": {"name": "p1", "uid": "uid-1"}, "spec": {"nodeName": "n1"}})
    )
    read = await pods.read_pod(POD)
    assert read is not None and read.spec.node_name == "n1"
    assert server.requests[0].query == {}


async def test_a_pod_that_is_deleted_or_replaced_reads_as_none(server: ScriptedServer, pods: PodClient) -> None:
    another = {"metadata": {"name": "p1", "uid": "uid-2"}}
    server.respond("GET", ITSELF, failure(404, "NotFound", "no such pod"), response(200, another))
    assert await pods.read_pod(POD) is None
    assert await pods.read_pod(POD) is None


async def test_a_status_patch_is_a_strategic_merge_with_the_uid(server: ScriptedServer, pods: PodClient) -> None:
    server.respond("PATCH", STATUS, response())
    await pods.patch_pod_status(POD, NOMINATED)
    (request,) = server.requests
    assert request.headers["Content-Type"] == "application/strategic-merge-patch+json"
    assert request.json == {"metadata": {"uid": "uid-1"}, "status": {"nominatedNodeName": "n1"}}


async def test_an_empty_node_name_clears_the_nomination(server: ScriptedServer, pods: PodClient) -> None:
    server.respond("PATCH", STATUS, response())
    await pods.patch_pod_status(POD, PodStatusPatch(nominated_node_name=""))
    assert server.requests[0].json["status"] == {"nominatedNodeName": None}


@pytest.mark.parametrize(
    "rejection", [failure(409, "Conflict"), failure(503, "ServiceUnavailable"), failure(404, "NotFound")]
)
async def test_a_rejected_status_patch_is_not_retried(
    server: ScriptedServer, pods: PodClient, rejection: Responder
) -> None:
    server.respond("PATCH", STATUS, rejection)
    with pytest.raises(APIError):
        await pods.patch_pod_status(POD, NOMINATED)
    assert len(server.requests) == 1


async def test_a_deletion_carries_the_uid_as_a_precondition(server: ScriptedServer, pods: PodClient) -> None:
    server.respond("DELETE", ITSELF, response())
    await pods.delete_pod(POD)
    options = {"kind": "DeleteOptions", "apiVersion": "v1", "preconditions": {"uid": "uid-1"}}
    assert server.requests[0].json == options


@pytest.mark.parametrize("failed", [failure(404, "NotFound"), failure(409, "Conflict", "the UID does not match")])
async def test_deleting_a_pod_that_is_deleted_or_replaced_is_not_an_error(
    server: ScriptedServer, pods: PodClient, failed: Responder
) -> None:
    server.respond("DELETE", ITSELF, failed)
    await pods.delete_pod(POD)
    assert len(server.requests) == 1


async def test_a_forbidden_deletion_raises(server: ScriptedServer, pods: PodClient) -> None:
    server.respond("DELETE", ITSELF, failure(403, "Forbidden"))
    with pytest.raises(APIError, match="no"):
        await pods.delete_pod(POD)


async def test_bindings_equal_those_of_kube_scheduler(server: ScriptedServer, pods: PodClient) -> None:
    for recorded in exchanges("scheduler-bind", "POST", "/binding"):
        body = recorded["reqBody"]
        server.respond("POST", recorded["path"], response(201, recorded["respBody"]))
        meta = body["metadata"]
        await pods.bind(ObjectReference("Pod", meta["namespace"], meta["name"], meta["uid"]), body["target"]["name"])
        assert server.requests[-1].json == body


@pytest.mark.parametrize("scenario", ["scheduler-unschedulable", "scheduler-preemption", "scheduler-volume-binding"])
async def test_status_patches_equal_those_of_kube_scheduler(
    server: ScriptedServer, pods: PodClient, scenario: str
) -> None:
    for recorded in exchanges(scenario, "PATCH", "/status"):
        server.respond("PATCH", recorded["path"], response())
        *_, namespace, _, name, _ = recorded["path"].split("/")
        status = recorded["reqBody"]["status"]
        patch = PodStatusPatch(_conditions(status), status.get("nominatedNodeName"))
        await pods.patch_pod_status(ObjectReference("Pod", namespace, name, "u"), patch)
        assert server.requests[-1].json["status"] == status


def _conditions(status: dict[str, list[dict[str, str]]]) -> tuple[PodCondition, ...]:
    return tuple(
        PodCondition(
            type=written["type"],
            status=written["status"],
            reason=written["reason"],
            message=written["message"],
            observed_generation=int(written["observedGeneration"]),
            last_transition_time=written["lastTransitionTime"],
        )
        for written in status.get("conditions", [])
    )
