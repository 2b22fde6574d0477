"""Lists and watches, as reflectors use them."""

from __future__ import annotations

from typing import Any

import pytest

from kubestow.errors import APIError
from tests.anycluster.sandbox import ClusterSandbox, Object


async def first(sandbox: ClusterSandbox, count: int, **query: str) -> list[Object]:
    """The first events of a watch of the sandbox's pods."""
    events: list[Object] = []
    async for event in sandbox.watch(f"{sandbox.namespace}/pods", **query):
        events.append(event)
        if len(events) == count:
            break
    return events


async def test_a_streaming_list_ends_with_an_annotated_bookmark(sandbox: ClusterSandbox) -> None:
    await sandbox.pod("a")
    query = {"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan", "allowWatchBookmarks": "true"}
    added, end = await first(sandbox, 2, **query)
    assert (added["type"], added["object"]["metadata"]["name"]) == ("ADDED", "a")
    assert end["type"] == "BOOKMARK"
    assert end["object"]["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}


async def test_a_watch_continues_from_the_version_of_a_list(sandbox: ClusterSandbox) -> None:
    await sandbox.pod("before")
    version = (await sandbox.request("GET", f"{sandbox.namespace}/pods"))["metadata"]["resourceVersion"]
    await sandbox.pod("after")
    (event,) = await first(sandbox, 1, resourceVersion=version)
    assert (event["type"], event["object"]["metadata"]["name"]) == ("ADDED", "after")


async def test_a_completed_pod_leaves_a_field_selector_with_a_deleted_event(sandbox: ClusterSandbox) -> None:
    pod = await sandbox.pod("a")
    version = pod["metadata"]["resourceVersion"]
    path, ended = f"{sandbox.namespace}/pods/a/status", {"status": {"phase": "Succeeded"}}
    await sandbox.request("PATCH", path, ended, content_type="application/merge-patch+json")
    selector = "status.phase!=Succeeded,status.phase!=Failed"
    (event,) = await first(sandbox, 1, resourceVersion=version, fieldSelector=selector)
    assert (event["type"], event["object"]["metadata"]["name"]) == ("DELETED", "a")


async def test_an_invalid_continue_token_is_rejected(sandbox: ClusterSandbox) -> None:
    with pytest.raises(APIError) as error:
        await sandbox.request("GET", f"{sandbox.namespace}/pods?limit=1&continue=nonsense")
    assert error.value.code in (400, 410)


async def test_a_paginated_list_equals_a_full_list(sandbox: ClusterSandbox) -> None:
    for name in "abcde":
        await sandbox.pod(name)
    whole = await sandbox.request("GET", f"{sandbox.namespace}/pods")
    page: dict[str, Any] = await sandbox.request("GET", f"{sandbox.namespace}/pods?limit=2")
    names = [item["metadata"]["name"] for item in page["items"]]
    while token := page["metadata"].get("continue"):
        page = await sandbox.request("GET", f"{sandbox.namespace}/pods?limit=2&continue={token}")
        names += [item["metadata"]["name"] for item in page["items"]]
    assert names == [item["metadata"]["name"] for item in whole["items"]] == list("abcde")
