"""The JSON cached for extenders, over the life of the objects."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from random import Random
from typing import Any

import msgspec
import pytest

from core_tests.client.clocks import ManualClock
from core_tests.client.extender_settings import POD, raw_objects, settings, without_managed_fields
from core_tests.client.scripted_server import ScriptedServer, response
from core_tests.client.subscribers import RecordingSubscriber, bookmark, event
from kubestow.client.cluster_client import ClusterClient
from kubestow.client.raw_object_cache import RawObjectCache
from kubestow.client.rest.credentials import Credentials
from kubestow.scheduling.events.resources import NODES, PODS

BOUND = POD | {"spec": {"nodeName": "a", "containers": []}}


@pytest.mark.parametrize(
    ("changes", "cached"),
    [
        ({}, 3),
        ({"nodeCacheCapable": True}, 1),
        ({"preemptVerb": ""}, 2),
        ({"filterVerb": "", "prioritizeVerb": ""}, 2),
        ({"filterVerb": "", "prioritizeVerb": "", "preemptVerb": ""}, 0),
    ],
)
def test_only_objects_that_extender_arguments_contain_are_cached(changes: dict[str, Any], cached: int) -> None:
    bound = BOUND | {"metadata": {"name": "b", "namespace": "default", "uid": "uid-b"}}
    assert len(raw_objects(settings("http://x", **changes), "a", pods=(POD, bound))) == cached


def test_an_object_is_cached_without_its_managed_fields() -> None:
    cache = raw_objects(settings("http://x"))
    found = cache.pod("default", "p", "uid-p")
    assert found is not None
    assert msgspec.json.decode(found) == without_managed_fields(POD)


def test_a_pod_with_another_uid_is_not_returned() -> None:
    assert raw_objects(settings("http://x")).pod("default", "p", "uid-other") is None


def test_a_pod_is_removed_when_it_is_bound() -> None:
    assert len(raw_objects(settings("http://x", nodeCacheCapable=True), pods=(POD, BOUND))) == 0


def node(resource_version: int, name: str) -> dict[str, Any]:
    return {"metadata": {"name": name, "resourceVersion": str(resource_version)}}


async def test_the_watch_adds_and_removes_objects(server: ScriptedServer, manual_clock: ManualClock) -> None:
    cache = RawObjectCache.for_extenders([settings("http://x")])
    first = server.watch(
        event("ADDED", node(1, "a")),
        event("ADDED", node(2, "b")),
        bookmark(2, initial_end=True),
        event("DELETED", node(3, "a")),
        event("ADDED", node(4, "c")),
    )
    server.respond("GET", "/api/v1/nodes", first)
    subscriber = RecordingSubscriber()
    client = ClusterClient(Credentials(server.url), clock=manual_clock, random=Random(1), raw_objects=cache)
    async with client as cluster:
        subscribing = asyncio.create_task(cluster.subscribe([NODES], subscriber))
        await subscriber.wait_until_seen(3)
        subscribing.cancel()
        with suppress(asyncio.CancelledError):
            await subscribing
    assert [cache.node(name) is not None for name in "abc"] == [False, True, True]


async def test_a_new_list_removes_objects_that_it_does_not_contain(
    server: ScriptedServer, manual_clock: ManualClock
) -> None:
    cache = raw_objects(settings("http://x"), "deleted")
    server.respond("GET", "/api/v1/nodes", response(400), response(200, {"metadata": {"resourceVersion": "1"}}))
    subscriber = RecordingSubscriber()
    client = ClusterClient(Credentials(server.url), clock=manual_clock, random=Random(1), raw_objects=cache)
    async with client as cluster:
        subscribing = asyncio.create_task(cluster.subscribe([NODES], subscriber))
        await subscriber.wait_until_seen(1)
        subscribing.cancel()
        with suppress(asyncio.CancelledError):
            await subscribing
    assert cache.node("deleted") is None
    assert cache.pod("default", "p", "uid-p") is not None


def test_resources_that_are_not_cached_are_ignored() -> None:
    cache = RawObjectCache.for_extenders([])
    cache.delete(PODS, None)
    cache.retain(PODS, [])
    assert len(cache) == 0
