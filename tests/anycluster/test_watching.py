"""Lists and watches, as the reflectors use them."""

from __future__ import annotations

from typing import Any

import pytest

from kubestow.errors import APIError
from tests.anycluster.place import Object, Place


async def first(place: Place, count: int, **query: str) -> list[Object]:
    """The first events of a watch of the place's pods."""
    events: list[Object] = []
    async for event in place.watch(f"{place.namespace}/pods", **query):
        events.append(event)
        if len(events) == count:
            break
    return events


async def test_a_streamed_list_ends_in_a_bookmark_that_says_so(place: Place) -> None:
    await place.pod("a")
    query = {"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan", "allowWatchBookmarks": "true"}
    added, end = await first(place, 2, **query)
    assert (added["type"], added["object"]["metadata"]["name"]) == ("ADDED", "a")
    assert end["type"] == "BOOKMARK"
    assert end["object"]["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}


async def test_a_watch_goes_on_from_the_version_of_a_list(place: Place) -> None:
    await place.pod("before")
    version = (await place.request("GET", f"{place.namespace}/pods"))["metadata"]["resourceVersion"]
    await place.pod("after")
    (event,) = await first(place, 1, resourceVersion=version)
    assert (event["type"], event["object"]["metadata"]["name"]) == ("ADDED", "after")


async def test_a_pod_that_ends_leaves_a_selection_as_if_deleted(place: Place) -> None:
    pod = await place.pod("a")
    version = pod["metadata"]["resourceVersion"]
    path, ended = f"{place.namespace}/pods/a/status", {"status": {"phase": "Succeeded"}}
    await place.request("PATCH", path, ended, content_type="application/merge-patch+json")
    selector = "status.phase!=Succeeded,status.phase!=Failed"
    (event,) = await first(place, 1, resourceVersion=version, fieldSelector=selector)
    assert (event["type"], event["object"]["metadata"]["name"]) == ("DELETED", "a")


async def test_a_version_that_is_long_gone_is_answered_with_expired(place: Place) -> None:
    with pytest.raises(APIError) as refused:
        await place.request("GET", f"{place.namespace}/pods?limit=1&continue=nonsense")
    assert refused.value.code in (400, 410)


async def test_a_list_is_the_same_in_pages(place: Place) -> None:
    for name in "abcde":
        await place.pod(name)
    whole = await place.request("GET", f"{place.namespace}/pods")
    page: dict[str, Any] = await place.request("GET", f"{place.namespace}/pods?limit=2")
    names = [item["metadata"]["name"] for item in page["items"]]
    while token := page["metadata"].get("continue"):
        page = await place.request("GET", f"{place.namespace}/pods?limit=2&continue={token}")
        names += [item["metadata"]["name"] for item in page["items"]]
    assert names == [item["metadata"]["name"] for item in whole["items"]] == list("abcde")
