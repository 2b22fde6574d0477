"""The requests for ResourceClaims."""

from __future__ import annotations

import msgspec
import pytest

from core_tests.client.scripted_server import ScriptedServer, failure, response
from kubestow.api.core import ContainerExtendedResourceRequest, PodExtendedResourceClaimStatus
from kubestow.api.meta import ObjectMeta
from kubestow.api.resource import ResourceClaim
from kubestow.client.object_requests import ResourceClaimClient
from kubestow.client.rest.transport import Transport
from kubestow.client.served_versions import ServedVersions
from kubestow.cluster.pods.shapes import Shapes
from kubestow.errors import APIError
from kubestow.testing import pod

COLLECTION = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims"
CLAIM = ResourceClaim(metadata=ObjectMeta(name="c", namespace="default", uid="uid-c", resource_version="7"))


@pytest.fixture
def claims(transport: Transport) -> ResourceClaimClient:
    return ResourceClaimClient(transport, ServedVersions(transport))


async def test_a_claim_is_read(server: ScriptedServer, claims: ResourceClaimClient) -> None:
    server.respond("GET", f"{COLLECTION}/c", response(200, msgspec.to_builtins(CLAIM)))
    assert await claims.read("default", "c") == CLAIM


async def test_a_claim_is_created_from_the_manifest(server: ScriptedServer, claims: ResourceClaimClient) -> None:
    server.respond("POST", COLLECTION, response(201, msgspec.to_builtins(CLAIM)))
    manifest = {"metadata": {"generateName": "c-"}}
    assert await claims.create("default", manifest) == CLAIM
    assert server.requests[0].json == manifest


@pytest.mark.parametrize(("subresource", "path"), [("", f"{COLLECTION}/c"), ("status", f"{COLLECTION}/c/status")])
async def test_a_patch_is_a_strategic_merge(
    server: ScriptedServer, claims: ResourceClaimClient, subresource: str, path: str
) -> None:
    server.respond("PATCH", path, response(200, msgspec.to_builtins(CLAIM)))
    patch = {"metadata": {"uid": "uid-c"}, "status": {"reservedFor": None}}
    assert await claims.patch(CLAIM, patch, subresource=subresource) == CLAIM
    (request,) = server.requests
    assert request.headers["Content-Type"] == "application/strategic-merge-patch+json"
    assert request.json == patch


async def test_a_deletion_carries_the_uid(server: ScriptedServer, claims: ResourceClaimClient) -> None:
    server.respond("DELETE", f"{COLLECTION}/c", response())
    await claims.delete(CLAIM)
    assert server.requests[0].json == {
        "kind": "DeleteOptions",
        "apiVersion": "v1",
        "preconditions": {"uid": "uid-c"},
    }


@pytest.mark.parametrize("code", [404, 409])
async def test_deleting_a_claim_that_does_not_exist_is_not_an_error(
    server: ScriptedServer, claims: ResourceClaimClient, code: int
) -> None:
    server.respond("DELETE", f"{COLLECTION}/c", failure(code, "Gone"))
    await claims.delete(CLAIM)


async def test_a_forbidden_deletion_raises(server: ScriptedServer, claims: ResourceClaimClient) -> None:
    server.respond("DELETE", f"{COLLECTION}/c", failure(403, "Forbidden", "no"))
    with pytest.raises(APIError, match="no"):
        await claims.delete(CLAIM)


async def test_the_claim_for_extended_resources_is_written_to_the_pod_status(
    server: ScriptedServer, claims: ResourceClaimClient
) -> None:
    server.respond("PATCH", "/api/v1/namespaces/default/pods/p/status", response())
    mapping = ContainerExtendedResourceRequest(container_name="a", resource_name="example.com/gpu", request_name="r")
    status = PodExtendedResourceClaimStatus(resource_claim_name="c", request_mappings=[mapping])
    await claims.report_extended(Shapes().info(pod("p")), status)
    assert server.requests[0].json == {
        "metadata": {"uid": "uid-default-p"},
        "status": {
            "extendedResourceClaimStatus": {
                "resourceClaimName": "c",
                "requestMappings": [{"containerName": "a", "resourceName": "example.com/gpu", "requestName": "r"}],
            }
        },
    }
