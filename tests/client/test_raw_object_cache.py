"""The JSON kept for extenders: as much as they may ask for, for as long as the object is there."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from random import Random
from typing import Any

import msgspec
import pytest

from kubestow.client.cluster_client import ClusterClient
from kubestow.client.raw_object_cache import RawObjectCache
from kubestow.client.rest.credentials import Credentials
from kubestow.scheduling.events.resources import NODES, PODS
from tests.client.clocks import HeldClock
from tests.client.extender_settings import POD, raw_objects, settings, without_managed_fields
from tests.client.scripted_server import ScriptedServer, answer
from tests.client.subscribers import RecordingSubscriber, bookmark, event

BOUND = POD | {"spec": {"nodeName": "a", "containers": []}}


@pytest.mark.parametrize(
    ("changed", "kept"),
    [
        ({}, 3),
        ({"nodeCacheCapable": True}, 1),
        ({"preemptVerb": ""}, 2),
        ({"filterVerb": "", "prioritizeVerb": ""}, 2),
        ({"filterVerb": "", "prioritizeVerb": "", "preemptVerb": ""}, 0),
    ],
)
def test_only_what_an_extender_may_ask_for_is_kept(changed: dict[str, Any], kept: int) -> None:
    bound = BOUND | {"metadata": {"name": "b", "namespace": "default", "uid": "uid-b"}}
    assert len(raw_objects(settings("http://x", **changed), "a", pods=(POD, bound))) == kept


def test_an_object_is_kept_whole_but_for_its_managed_fields() -> None:
    kept = raw_objects(settings("http://x"))
    found = kept.pod("default", "p", "uid-p")
    assert found is not None
    assert msgspec.json.decode(found) == without_managed_fields(POD)


def test_a_pod_of_another_uid_is_another_pod() -> None:
    assert raw_objects(settings("http://x")).pod("default", "p", "uid-other") is None


def test_a_pod_that_is_bound_is_let_go() -> None:
    assert len(raw_objects(settings("http://x", nodeCacheCapable=True), pods=(POD, BOUND))) == 0


def placed(resource_version: int, name: str) -> dict[str, Any]:
    return {"metadata": {"name": name, "resourceVersion": str(resource_version)}}


async def test_what_the_watch_brings_is_kept_and_let_go(server: ScriptedServer, held_clock: HeldClock) -> None:
    kept = RawObjectCache.wanted_by([settings("http://x")])
    first = server.watch(
        event("ADDED", placed(1, "a")),
        event("ADDED", placed(2, "b")),
        bookmark(2, initial_end=True),
        event("DELETED", placed(3, "a")),
        event("ADDED", placed(4, "c")),
    )
    server.answers("GET", "/api/v1/nodes", first)
    subscriber = RecordingSubscriber()
    remote = ClusterClient(Credentials(server.url), clock=held_clock, random=Random(1), raw_objects=kept)
    async with remote as cluster:
        subscribing = asyncio.create_task(cluster.subscribe([NODES], subscriber))
        await subscriber.until_seen(3)
        subscribing.cancel()
        with suppress(asyncio.CancelledError):
            await subscribing
    assert [kept.node(name) is not None for name in "abc"] == [False, True, True]


async def test_a_new_list_lets_go_of_what_is_not_in_it(server: ScriptedServer, held_clock: HeldClock) -> None:
    kept = raw_objects(settings("http://x"), "gone")
    server.answers("GET", "/api/v1/nodes", answer(400), answer(200, {"metadata": {"resourceVersion": "1"}}))
    subscriber = RecordingSubscriber()
    remote = ClusterClient(Credentials(server.url), clock=held_clock, random=Random(1), raw_objects=kept)
    async with remote as cluster:
        subscribing = asyncio.create_task(cluster.subscribe([NODES], subscriber))
        await subscriber.until_seen(1)
        subscribing.cancel()
        with suppress(asyncio.CancelledError):
            await subscribing
    assert kept.node("gone") is None
    assert kept.pod("default", "p", "uid-p") is not None


def test_objects_of_other_kinds_pass_by() -> None:
    kept = RawObjectCache.wanted_by([])
    kept.gone(PODS, None)
    kept.only(PODS, [])
    assert len(kept) == 0
