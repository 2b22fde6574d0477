"""Watches: every event in order, filtered by selector."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from random import Random
from typing import Any

import pytest

from core_tests.hang_limit import HANG_LIMIT
from devcluster_tests.client import PODS, Client, pod
from kubestow.testing import virtual_time
from kubestow_devcluster.apiserver.endpoints.api_handler import APIHandler
from kubestow_devcluster.apiserver.registry.registry import Registry
from kubestow_devcluster.apiserver.security.authentication import RequestAuthenticator, ServiceAccountTokens
from kubestow_devcluster.apiserver.security.authorization import AlwaysAllow
from kubestow_devcluster.apiserver.storage.store import Store
from kubestow_devcluster.cluster import DevCluster


async def take(events: AsyncIterator[dict[str, Any]], count: int) -> list[dict[str, Any]]:
    async with asyncio.timeout(HANG_LIMIT):
        return [await anext(events) for _ in range(count)]


def types_and_names(events: list[dict[str, Any]]) -> list[tuple[str, str]]:
    return [(event["type"], event["object"]["metadata"].get("name", "")) for event in events]


async def test_a_watch_from_a_resource_version_replays_later_events(client: Client) -> None:
    version = client.server.store.resource_version
    await client.post(PODS, pod("a"))
    await client.patch(f"{PODS}/a", {"metadata": {"labels": {"x": "y"}}})
    await client.delete(f"{PODS}/a")
    events = await take(client.watch(f"{PODS}?watch=1&resourceVersion={version}"), 4)
    assert types_and_names(events) == [("ADDED", "a"), ("MODIFIED", "a"), ("MODIFIED", "a"), ("DELETED", "a")]
    versions = [int(event["object"]["metadata"]["resourceVersion"]) for event in events]
    assert versions == sorted(set(versions))


async def test_a_watch_without_a_resource_version_starts_with_the_current_state(client: Client) -> None:
    await client.post(PODS, pod("a"))
    events = client.watch(f"{PODS}?watch=1")
    assert types_and_names(await take(events, 1)) == [("ADDED", "a")]
    await client.post(PODS, pod("b"))
    assert types_and_names(await take(events, 1)) == [("ADDED", "b")]


async def test_objects_that_start_or_cease_to_match_are_added_or_deleted(client: Client) -> None:
    events = client.watch(f"{PODS}?watch=1&resourceVersion={client.server.store.resource_version}&labelSelector=in=yes")
    await client.post(PODS, pod("a"))
    for value in ("yes", "still", "yes"):
        await client.patch(f"{PODS}/a", {"metadata": {"labels": {"in": value, "seen": value}}})
    await client.delete(f"{PODS}/a")
    received = await take(events, 5)
    assert [event["type"] for event in received] == ["ADDED", "DELETED", "ADDED", "MODIFIED", "DELETED"]
    unmatched = received[1]["object"]["metadata"]
    assert unmatched["labels"]["in"] == "yes", "the event has the last state that matched"


async def test_a_field_selector_matches_a_pod_once_it_is_bound(client: Client) -> None:
    events = client.watch(
        f"{PODS}?watch=1&resourceVersion={client.server.store.resource_version}&fieldSelector=spec.nodeName=n"
    )
    await client.post(PODS, pod("a"))
    await client.post(f"{PODS}/a/binding", {"metadata": {"name": "a"}, "target": {"name": "n"}})
    assert types_and_names(await take(events, 1)) == [("ADDED", "a")]


async def test_a_streaming_list_ends_with_a_bookmark(client: Client) -> None:
    await client.post(PODS, pod("a"))
    query = "watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"
    added, bookmark = await take(client.watch(f"{PODS}?{query}"), 2)
    assert types_and_names([added, bookmark]) == [("ADDED", "a"), ("BOOKMARK", "")]
    assert bookmark["object"]["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}
    assert bookmark["object"]["metadata"]["resourceVersion"] == str(client.server.store.resource_version)


@pytest.mark.parametrize("start", ["", "&resourceVersion=0"])
def test_a_watch_without_initial_events_starts_with_later_ones(start: str) -> None:
    async def main() -> None:
        client = Client(DevCluster(kubelets=False))
        await client.post(PODS, pod("a"))
        query = f"watch=1&sendInitialEvents=false&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true{start}"
        first = asyncio.ensure_future(anext(client.watch(f"{PODS}?{query}")))
        await asyncio.sleep(1)  # in virtual time
        await client.post(PODS, pod("b"))
        assert types_and_names([await first]) == [("ADDED", "b")]

    virtual_time.run(main())


async def test_a_timeout_of_zero_is_none(client: Client) -> None:
    events = client.watch(f"{PODS}?watch=1&timeoutSeconds=0")
    for name in "abc":
        await client.post(PODS, pod(name))
        assert types_and_names(await take(events, 1)) == [("ADDED", name)]


async def test_a_watch_from_a_compacted_resource_version_expires() -> None:
    client = short_history()
    for name in "abcdefgh":
        await client.post(PODS, pod(name))
    (event,) = await take(client.watch(f"{PODS}?watch=1&resourceVersion=1"), 1)
    assert (event["type"], event["object"]["code"], event["object"]["reason"]) == ("ERROR", 410, "Expired")


async def test_a_watch_that_falls_behind_expires() -> None:
    client = short_history()
    events = client.watch(f"{PODS}?watch=1")
    await client.post(PODS, pod("a"))
    await take(events, 1)
    for name in "bcdefghi":
        await client.post(PODS, pod(name))
    assert (await take(events, 1))[0]["type"] == "ERROR"


async def test_expired_lists_and_pages_get_410() -> None:
    client = short_history()
    for name in "abcd":
        await client.post(PODS, pod(name))
    page = (await client.get(f"{PODS}?limit=2")).json["metadata"]
    for name in "efgh":
        await client.post(PODS, pod(name))
    expired = await client.get(f"{PODS}?resourceVersion={page['resourceVersion']}&resourceVersionMatch=Exact")
    assert (expired.status, expired.json["reason"]) == (410, "Expired")
    expired_page = await client.get(f"{PODS}?limit=2&continue={page['continue']}")
    assert expired_page.status == 410
    rest = await client.get(f"{PODS}?continue={expired_page.json['metadata']['continue']}")
    assert [item["metadata"]["name"] for item in rest.json["items"]] == list("cdefgh")


async def test_the_first_table_of_a_watch_has_the_column_definitions(client: Client) -> None:
    accept = "application/json;as=Table;v=v1;g=meta.k8s.io"
    for name in "ab":
        await client.post(PODS, pod(name))
    first, second = await take(client.watch(f"{PODS}?watch=1", accept=accept), 2)
    assert first["object"]["columnDefinitions"] and second["object"]["columnDefinitions"] is None


class ShortHistoryStore(Store):
    HISTORY_EVENTS = 2


def short_history() -> Client:
    """A client of a server that keeps only the last few events of a resource."""
    server = DevCluster(kubelets=False)
    store = ShortHistoryStore()
    server.registry = Registry(store, server.registry.scheme, clock=server.registry.clock, random=Random(1))
    tokens = ServiceAccountTokens(store, server.registry.clock)
    authenticator = RequestAuthenticator({}, tokens, client_certificates=False)
    server.store, server.api = store, APIHandler(server.registry, authenticator, AlwaysAllow(), tokens)
    namespaces = server.registry.scheme["namespaces"]
    server.registry.create(namespaces, "", namespaces.struct.read({"metadata": {"name": "default"}}, []))
    return Client(server)
