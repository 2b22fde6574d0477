"""Discovery documents in the media types that clients accept."""

from __future__ import annotations

import pytest

from devcluster_tests.client import Client
from kubestow_devcluster.apiserver.serialization import protobuf

PATHS = ("/api", "/apis", "/apis/apps", "/apis/apps/v1", "/api/v1", "/apis/batch/v1")


@pytest.mark.parametrize("path", PATHS)
async def test_a_client_that_accepts_only_protobuf_gets_the_same_document(client: Client, path: str) -> None:
    in_json = await client.get(path)
    in_protobuf = await client.get(path, accept="application/vnd.kubernetes.protobuf")
    assert (in_protobuf.status, in_protobuf.content_type) == (200, "application/vnd.kubernetes.protobuf")
    assert protobuf.decode(in_protobuf.content) == {"apiVersion": "v1", **in_json.json}


async def test_the_verbs_of_a_resource_are_a_message_as_in_go(client: Client) -> None:
    content = (await client.get("/api/v1", accept="application/vnd.kubernetes.protobuf")).content
    # Field 4 of APIResource is a message, whose field 1 has the verbs.
    assert b"\x22\x08\x0a\x06create" in content


@pytest.mark.parametrize("path", PATHS)
async def test_a_client_that_accepts_no_form_gets_406(client: Client, path: str) -> None:
    response = await client.get(path, accept="text/plain")
    assert (response.status, response.json["reason"]) == (406, "NotAcceptable")


async def test_the_first_accepted_form_is_served(client: Client) -> None:
    accept = "application/vnd.kubernetes.protobuf,application/json"
    assert (await client.get("/apis/apps/v1", accept=accept)).content_type == "application/vnd.kubernetes.protobuf"
    assert (await client.get("/apis/apps/v1", accept="application/yaml")).content.startswith(b"apiVersion: v1\n")
    assert (await client.get("/apis/apps/v1", accept="*/*")).json["kind"] == "APIResourceList"
