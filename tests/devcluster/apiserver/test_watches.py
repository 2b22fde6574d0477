"""Watches: every change in order, as each watcher's selector lets it see them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from random import Random
from typing import Any

from kubestow.devcluster.apiserver.registry.registry import Registry
from kubestow.devcluster.apiserver.request_handler import API
from kubestow.devcluster.apiserver.storage.store import Store
from kubestow.devcluster.cluster import DevCluster
from tests.devcluster.client import PODS, Client, pod


async def take(events: AsyncIterator[dict[str, Any]], count: int) -> list[dict[str, Any]]:
    async with asyncio.timeout(10):
        return [await anext(events) for _ in range(count)]


def shown(events: list[dict[str, Any]]) -> list[tuple[str, str]]:
    return [(event["type"], event["object"]["metadata"].get("name", "")) for event in events]


async def test_a_watch_from_a_version_replays_what_came_after_it(client: Client) -> None:
    version = client.server.store.resource_version
    await client.post(PODS, pod("a"))
    await client.patch(f"{PODS}/a", {"metadata": {"labels": {"x": "y"}}})
    await client.delete(f"{PODS}/a")
    events = await take(client.watch(f"{PODS}?watch=1&resourceVersion={version}"), 4)
    assert shown(events) == [("ADDED", "a"), ("MODIFIED", "a"), ("MODIFIED", "a"), ("DELETED", "a")]
    versions = [int(event["object"]["metadata"]["resourceVersion"]) for event in events]
    assert versions == sorted(set(versions))


async def test_a_watch_without_a_version_begins_with_what_there_is(client: Client) -> None:
    await client.post(PODS, pod("a"))
    events = client.watch(f"{PODS}?watch=1")
    assert shown(await take(events, 1)) == [("ADDED", "a")]
    await client.post(PODS, pod("b"))
    assert shown(await take(events, 1)) == [("ADDED", "b")]


async def test_objects_enter_and_leave_a_selectors_view(client: Client) -> None:
    events = client.watch(f"{PODS}?watch=1&resourceVersion={client.server.store.resource_version}&labelSelector=in=yes")
    await client.post(PODS, pod("a"))
    for value in ("yes", "still", "yes"):
        await client.patch(f"{PODS}/a", {"metadata": {"labels": {"in": value, "seen": value}}})
    await client.delete(f"{PODS}/a")
    seen = await take(events, 5)
    assert [event["type"] for event in seen] == ["ADDED", "DELETED", "ADDED", "MODIFIED", "DELETED"]
    left = seen[1]["object"]["metadata"]
    assert left["labels"]["in"] == "yes", "an object leaves in the state it was last seen in"


async def test_a_field_selector_follows_a_pod_to_its_node(client: Client) -> None:
    events = client.watch(
        f"{PODS}?watch=1&resourceVersion={client.server.store.resource_version}&fieldSelector=spec.nodeName=n"
    )
    await client.post(PODS, pod("a"))
    await client.post(f"{PODS}/a/binding", {"metadata": {"name": "a"}, "target": {"name": "n"}})
    assert shown(await take(events, 1)) == [("ADDED", "a")]


async def test_a_streaming_list_ends_with_a_bookmark(client: Client) -> None:
    await client.post(PODS, pod("a"))
    query = "watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"
    added, bookmark = await take(client.watch(f"{PODS}?{query}"), 2)
    assert shown([added, bookmark]) == [("ADDED", "a"), ("BOOKMARK", "")]
    assert bookmark["object"]["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}
    assert bookmark["object"]["metadata"]["resourceVersion"] == str(client.server.store.resource_version)


async def test_a_watch_of_a_forgotten_version_is_told_it_expired() -> None:
    client = forgetful()
    for name in "abcdefgh":
        await client.post(PODS, pod(name))
    (event,) = await take(client.watch(f"{PODS}?watch=1&resourceVersion=1"), 1)
    assert (event["type"], event["object"]["code"], event["object"]["reason"]) == ("ERROR", 410, "Expired")


async def test_a_watcher_that_falls_behind_is_told_it_expired() -> None:
    client = forgetful()
    events = client.watch(f"{PODS}?watch=1")
    await client.post(PODS, pod("a"))
    await take(events, 1)
    for name in "bcdefghi":
        await client.post(PODS, pod(name))
    assert (await take(events, 1))[0]["type"] == "ERROR"


async def test_an_expired_list_and_an_expired_page_are_gone() -> None:
    client = forgetful()
    for name in "abcd":
        await client.post(PODS, pod(name))
    page = (await client.get(f"{PODS}?limit=2")).json["metadata"]
    for name in "efgh":
        await client.post(PODS, pod(name))
    gone = await client.get(f"{PODS}?resourceVersion={page['resourceVersion']}&resourceVersionMatch=Exact")
    assert (gone.status, gone.json["reason"]) == (410, "Expired")
    late = await client.get(f"{PODS}?limit=2&continue={page['continue']}")
    assert late.status == 410
    rest = await client.get(f"{PODS}?continue={late.json['metadata']['continue']}")
    assert [item["metadata"]["name"] for item in rest.json["items"]] == list("cdefgh")


async def test_rows_of_a_watch_carry_the_columns_once(client: Client) -> None:
    accept = "application/json;as=Table;v=v1;g=meta.k8s.io"
    for name in "ab":
        await client.post(PODS, pod(name))
    first, second = await take(client.watch(f"{PODS}?watch=1", accept=accept), 2)
    assert first["object"]["columnDefinitions"] and second["object"]["columnDefinitions"] is None


class ShortHistoryStore(Store):
    HISTORY_EVENTS = 2


def forgetful() -> Client:
    """A server that remembers only the last few events of a resource."""
    server = DevCluster(kubelets=False)
    store = ShortHistoryStore()
    server.registry = Registry(store, server.registry.scheme, clock=server.registry.clock, random=Random(1))
    server.store, server.api = store, API(server.registry)
    namespaces = server.registry.scheme["namespaces"]
    server.registry.create(namespaces, "", namespaces.struct.read({"metadata": {"name": "default"}}, []))
    return Client(server)
