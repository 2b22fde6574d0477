"""A cluster kept on disk: what was answered is there after any end, and what cannot be kept is not answered."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from kubestow.devcluster.apiserver.statuses import StatusError
from kubestow.devcluster.apiserver.storage.database import Database
from kubestow.devcluster.apiserver.storage.group_commit import GroupCommit, StorageFailed
from kubestow.devcluster.apiserver.storage.store import StoredObject
from kubestow.devcluster.cluster import DevCluster
from tests.devcluster.client import PODS, Client, pod
from tests.devcluster.kills import kill_over_and_over


def kept(directory: Path, **options: Any) -> DevCluster:
    return DevCluster(database=Database(directory), kubelets=False, **options)


async def test_objects_are_the_same_after_a_restart(tmp_path: Path) -> None:
    async with kept(tmp_path, nodes=2) as server:
        client = Client(server)
        await client.post(PODS, pod("gone"))
        await client.delete(f"{PODS}/gone?gracePeriodSeconds=0")
        await client.post(PODS, pod("p", labels={"app": "web"}))
        before = [(await client.get(path)).json for path in (PODS, "/api/v1/nodes", "/api/v1/namespaces")]
    async with kept(tmp_path) as server:
        client = Client(server)
        assert [(await client.get(path)).json for path in (PODS, "/api/v1/nodes", "/api/v1/namespaces")] == before
        assert len((await client.get(f"{PODS}?labelSelector=app=web&fieldSelector=status.phase=Pending")).json["items"])


async def test_versions_go_on_where_they_were_even_after_deletions(tmp_path: Path) -> None:
    async with kept(tmp_path) as server:
        client = Client(server)
        await client.post(PODS, pod("p"))
        await client.delete(f"{PODS}/p?gracePeriodSeconds=0")
        last = server.store.resource_version
    async with kept(tmp_path) as server:
        assert (server.store.resource_version, server.is_resumed) == (last, True)
        assert (await Client(server).post(PODS, pod("q"))).json["metadata"]["resourceVersion"] == str(last + 1)


async def test_a_watch_resumes_from_the_last_version_and_begins_anew_from_earlier_ones(tmp_path: Path) -> None:
    async with kept(tmp_path) as server:
        await Client(server).post(PODS, pod("p"))
        last = server.store.resource_version
    async with kept(tmp_path) as server:
        client = Client(server)
        await client.post(PODS, pod("q"))
        resumed = await anext(client.watch(f"{PODS}?watch=1&resourceVersion={last}"))
        assert (resumed["type"], resumed["object"]["metadata"]["name"]) == ("ADDED", "q")
        refused = await anext(client.watch(f"{PODS}?watch=1&resourceVersion={last - 1}"))
        assert (refused["type"], refused["object"]["code"]) == ("ERROR", 410)


async def test_only_missing_nodes_are_made_again(tmp_path: Path) -> None:
    async with kept(tmp_path, nodes=3) as server:
        first = {stored.name: stored.resource_version for stored in server.store.collection("nodes").snapshot()}
    async with kept(tmp_path, nodes=11) as server:
        then = {stored.name: stored.resource_version for stored in server.store.collection("nodes").snapshot()}
    assert len(then) == 11 and then.keys() >= {"node-0", "node-1", "node-2", "node-03", "node-10"}
    assert {name: then[name] for name in first} == first


async def test_after_any_kill_everything_answered_is_there(tmp_path: Path) -> None:
    tally = await kill_over_and_over(tmp_path, 5, seed=3)
    assert tally.kills == 5 and tally.answered > 0


class SlowDatabase(Database):
    """One whose disk takes its time."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.is_waiting, self.may_go_on = threading.Event(), threading.Event()
        self.groups: list[int] = []

    def write(self, changes: Any, version: int) -> None:
        self.groups.append(len(changes))
        super().write(changes, version)

    def commit(self, version: int) -> None:
        self.is_waiting.set()
        self.may_go_on.wait()
        super().commit(version)


async def test_nothing_is_settled_before_it_is_on_disk_and_what_gathers_goes_together(tmp_path: Path) -> None:
    database = SlowDatabase(tmp_path)
    store = database.load({})
    durability = GroupCommit(store, database)
    durability.start()
    store.put("pods", StoredObject("a/0", 1, b"{}", {}))
    await asyncio.to_thread(database.is_waiting.wait)
    for number in range(1, 5):
        store.put("pods", StoredObject(f"a/{number}", number + 1, b"{}", {}))
    settled = [asyncio.ensure_future(durability.wait_durable()) for _ in range(3)]
    await asyncio.sleep(0)
    assert not any(one.done() for one in settled)
    database.may_go_on.set()
    await asyncio.gather(*settled)
    assert (database.resource_version, database.groups) == (5, [1, 4])
    await durability.stop()


class FullDatabase(Database):
    """One whose disk is full after the first commit."""

    def commit(self, version: int) -> None:
        if self.resource_version:
            raise sqlite3.OperationalError("database or disk is full")
        super().commit(version)


async def test_a_disk_that_fails_ends_the_answers_and_says_why(tmp_path: Path) -> None:
    database = FullDatabase(tmp_path)
    store = database.load({})
    durability = GroupCommit(store, database)
    durability.start()
    store.put("pods", StoredObject("a/x", 1, b"{}", {}))
    await durability.wait_durable()
    store.put("pods", StoredObject("a/y", 2, b"{}", {}))
    with pytest.raises(StatusError, match="database or disk is full"):
        await durability.wait_durable()
    with pytest.raises(StorageFailed, match=r"kubestow.db: write failed, later writes are not persisted: database or"):
        await durability.wait_for_failure()
    await durability.stop()
    assert [one.key for one in reopened(tmp_path).collection("pods").snapshot()] == ["a/x"]


def reopened(directory: Path) -> Any:
    database = Database(directory)
    try:
        return database.load({})
    finally:
        database.close()


async def test_a_client_of_a_full_disk_is_answered_500(tmp_path: Path) -> None:
    full = DevCluster(database=FullDatabase(tmp_path), kubelets=False)
    async with full as server, aiohttp.ClientSession(server.url) as session:
        async with session.post(PODS, json=pod("p")) as response:
            assert response.status == 500
            assert "database or disk is full" in (await response.json())["message"]
        with pytest.raises(StorageFailed):
            await server.failed()
