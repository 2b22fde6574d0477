"""Writes of the status subresource: which metadata they change, by kind."""

from __future__ import annotations

from typing import Any

import pytest

from devcluster_tests.client import NODES, PODS, Client, node, pod

DEFAULT = "namespaces/default"
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
TRAINS = f"/apis/rail.example.com/v1/{DEFAULT}/trains"
OWNER = {"apiVersion": "v1", "kind": "Node", "name": "n", "uid": "11111111-2222-3333-4444-555555555555"}
OPEN_OBJECT = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}

BEFORE = {"labels": {"a": "1"}, "annotations": {"a": "1"}, "ownerReferences": [OWNER], "finalizers": ["x.com/a"]}
AFTER: dict[str, Any] = {"labels": {"b": "2"}, "annotations": {"b": "2"}, "ownerReferences": [], "finalizers": []}
DEPLOYMENT = {
    "selector": {"matchLabels": {"app": "a"}},
    "template": {"metadata": {"labels": {"app": "a"}}, "spec": pod()["spec"]},
}
ATTACHMENT = {"attacher": "x.com", "nodeName": "n", "source": {"persistentVolumeName": "v"}}


async def define_trains(client: Client) -> None:
    names = {"plural": "trains", "kind": "Train"}
    schema = {"openAPIV3Schema": {"type": "object", "properties": {"spec": OPEN_OBJECT, "status": OPEN_OBJECT}}}
    version = {"name": "v1", "served": True, "storage": True, "schema": schema, "subresources": {"status": {}}}
    spec = {"group": "rail.example.com", "scope": "Namespaced", "names": names, "versions": [version]}
    await client.post(DEFINITIONS, {"metadata": {"name": "trains.rail.example.com"}, "spec": spec})


@pytest.mark.parametrize(
    ("path", "spec"),
    [
        (TRAINS, {}),
        (f"/apis/scheduling.k8s.io/v1alpha2/{DEFAULT}/podgroups", {"schedulingPolicy": {"basic": {}}}),
        (f"/apis/scheduling.x-k8s.io/v1alpha1/{DEFAULT}/podgroups", {"minMember": 1}),
        ("/apis/scheduling.volcano.sh/v1beta1/queues", {"weight": 1}),
        (f"/apis/resource.k8s.io/v1/{DEFAULT}/resourceclaims", {}),
        ("/apis/storage.k8s.io/v1/volumeattachments", ATTACHMENT),
    ],
)
async def test_the_status_of_these_kinds_is_written_without_metadata(
    client: Client, path: str, spec: dict[str, Any]
) -> None:
    await define_trains(client)
    assert await write_status(client, path, {"metadata": {}, "spec": spec}) == BEFORE


@pytest.mark.parametrize(
    ("path", "new", "kept"),
    [
        (PODS, pod(), {"ownerReferences"}),
        (f"/apis/apps/v1/{DEFAULT}/deployments", {"metadata": {}, "spec": DEPLOYMENT}, {"labels"}),
        (NODES, node("n"), set()),
    ],
)
async def test_the_status_of_other_kinds_is_written_with_metadata(
    client: Client, path: str, new: dict[str, Any], kept: set[str]
) -> None:
    expected = {field: BEFORE[field] if field in kept else value for field, value in AFTER.items()}
    assert await write_status(client, path, new) == {field: value for field, value in expected.items() if value}


async def write_status(client: Client, path: str, new: dict[str, Any]) -> dict[str, Any]:
    """Create an object, write its status with other metadata, and return the metadata of clients."""
    created = await client.post(path, {**new, "metadata": {"name": "one", **BEFORE}})
    assert created.status == 201, created.content
    obj = created.json
    for field, value in AFTER.items():
        obj["metadata"][field] = value
    written = await client.put(f"{path}/one/status", obj)
    assert written.status == 200, written.content
    return {field: value for field, value in written.json["metadata"].items() if field in AFTER}
