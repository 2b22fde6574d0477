"""ResourceClaims in memory: names, preconditions, and which parts a patch changes."""

from __future__ import annotations

import pytest

from kubestow.api.resource import ResourceClaim
from kubestow.engine.cluster_api.memory_api import MemoryAPI
from kubestow.engine.cluster_api.resource_claims import InMemoryResourceClaims
from kubestow.errors import APIError
from kubestow.testing.devices import claim, exactly

MANIFEST = {"metadata": {"generateName": "pod-gpu-"}, "spec": {"devices": {"requests": []}}}


@pytest.fixture
def writer() -> InMemoryResourceClaims:
    return MemoryAPI().resource_claims


async def test_generated_names_are_numbered(writer: InMemoryResourceClaims) -> None:
    first, second = [await writer.create("n", MANIFEST) for _ in range(2)]
    named = await writer.create("n", MANIFEST | {"metadata": {"name": "own"}})
    assert [each.metadata.name for each in (first, second, named)] == ["pod-gpu-00001", "pod-gpu-00002", "own"]
    assert (second.metadata.namespace, second.metadata.uid) == ("n", "uid-n-pod-gpu-00002")
    assert await writer.read("n", "own") == named


async def test_a_claim_that_does_not_exist_is_an_error(writer: InMemoryResourceClaims) -> None:
    with pytest.raises(APIError, match=r'resourceclaims.resource.k8s.io "gpu" not found') as error:
        await writer.read("n", "gpu")
    assert error.value.code == 404
    with pytest.raises(APIError, match="not found"):
        await writer.patch(claim("gpu", exactly()), {})


async def test_a_patch_of_a_subresource_leaves_the_rest(writer: InMemoryResourceClaims) -> None:
    created = await writer.create("n", MANIFEST)
    consumers = [{"resource": "pods", "name": name, "uid": name} for name in "ab"]
    change = {"metadata": {"uid": created.metadata.uid}, "spec": {"devices": {"requests": [{"name": "r"}]}}}

    for consumer in consumers:
        patched = await writer.patch(created, change | {"status": {"reservedFor": [consumer]}}, subresource="status")
    assert {each.name for each in patched.status.reserved_for} == {"a", "b"}
    assert patched.spec.devices.requests == []

    patched = await writer.patch(created, change | {"status": {"reservedFor": None}})
    assert [each.name for each in patched.spec.devices.requests] == ["r"]
    assert len(patched.status.reserved_for) == 2
    with pytest.raises(APIError) as error:
        await writer.patch(created, {"metadata": {"uid": "of-another"}})
    assert error.value.code == 409


async def test_a_claim_is_deleted() -> None:
    api = MemoryAPI()
    created = await api.resource_claims.create("n", MANIFEST)
    await api.resource_claims.delete(created)
    await api.resource_claims.delete(created)
    assert dict(api.objects(ResourceClaim)) == {}
