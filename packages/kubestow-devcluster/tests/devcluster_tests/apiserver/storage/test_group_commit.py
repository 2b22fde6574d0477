"""A persistent cluster resumes where it stopped; writes are acknowledged once on disk, and fail when the disk does."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from devcluster_tests.client import PODS, Client, pod
from kubestow_devcluster.apiserver.statuses import StatusError
from kubestow_devcluster.apiserver.storage.database import Database, GroupCommit, StorageFailed
from kubestow_devcluster.apiserver.storage.store import StoredObject
from kubestow_devcluster.cluster import DevCluster


def persistent(directory: Path, **options: Any) -> DevCluster:
    return DevCluster(database=Database(directory), kubelets=False, **options)


async def test_objects_are_the_same_after_a_restart(tmp_path: Path) -> None:
    async with persistent(tmp_path, nodes=2) as server:
        client = Client(server)
        await client.post(PODS, pod("gone"))
        await client.delete(f"{PODS}/gone?gracePeriodSeconds=0")
        await client.post(PODS, pod("p", labels={"app": "web"}))
        before = [(await client.get(path)).json for path in (PODS, "/api/v1/nodes", "/api/v1/namespaces")]
    async with persistent(tmp_path) as server:
        client = Client(server)
        assert [(await client.get(path)).json for path in (PODS, "/api/v1/nodes", "/api/v1/namespaces")] == before
        assert len((await client.get(f"{PODS}?labelSelector=app=web&fieldSelector=status.phase=Pending")).json["items"])


async def test_resource_versions_continue_after_a_restart(tmp_path: Path) -> None:
    async with persistent(tmp_path) as server:
        client = Client(server)
        await client.post(PODS, pod("p"))
        await client.delete(f"{PODS}/p?gracePeriodSeconds=0")
        last = server.store.resource_version
    async with persistent(tmp_path) as server:
        assert (server.store.resource_version, server.is_resumed) == (last, True)
        assert (await Client(server).post(PODS, pod("q"))).json["metadata"]["resourceVersion"] == str(last + 1)


async def test_a_watch_resumes_from_the_last_version_and_expires_from_earlier_ones(tmp_path: Path) -> None:
    async with persistent(tmp_path) as server:
        await Client(server).post(PODS, pod("p"))
        last = server.store.resource_version
    async with persistent(tmp_path) as server:
        client = Client(server)
        await client.post(PODS, pod("q"))
        resumed = await anext(client.watch(f"{PODS}?watch=1&resourceVersion={last}"))
        assert (resumed["type"], resumed["object"]["metadata"]["name"]) == ("ADDED", "q")
        expired = await anext(client.watch(f"{PODS}?watch=1&resourceVersion={last - 1}"))
        assert (expired["type"], expired["object"]["code"]) == ("ERROR", 410)


async def test_only_missing_nodes_are_created_after_a_restart(tmp_path: Path) -> None:
    async with persistent(tmp_path, nodes=3) as server:
        before = {stored.name: stored.resource_version for stored in server.store.collection("nodes").snapshot()}
    async with persistent(tmp_path, nodes=11) as server:
        after = {stored.name: stored.resource_version for stored in server.store.collection("nodes").snapshot()}
    assert len(after) == 11 and after.keys() >= {"node-0", "node-1", "node-2", "node-3", "node-10"}
    assert {name: after[name] for name in before} == before


class SlowDatabase(Database):
    """A database whose commits block until they are released."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.is_committing, self.release = threading.Event(), threading.Event()
        self.groups: list[int] = []

    def write(self, writes: Any, resource_version: int) -> None:
        self.groups.append(len(writes))
        super().write(writes, resource_version)

    def commit(self, resource_version: int) -> None:
        self.is_committing.set()
        self.release.wait()
        super().commit(resource_version)


async def test_writes_are_durable_once_on_disk_and_pending_writes_are_committed_together(tmp_path: Path) -> None:
    database = SlowDatabase(tmp_path)
    store = database.load({})
    group_commit = GroupCommit(store, database)
    group_commit.start()
    store.put("pods", StoredObject("a/0", 1, b"{}", {}))
    await asyncio.to_thread(database.is_committing.wait)
    for number in range(1, 5):
        store.put("pods", StoredObject(f"a/{number}", number + 1, b"{}", {}))
    waiting = [asyncio.ensure_future(group_commit.wait_durable()) for _ in range(3)]
    await asyncio.sleep(0)
    assert not any(one.done() for one in waiting)
    database.release.set()
    await asyncio.gather(*waiting)
    assert (database.resource_version, database.groups) == (5, [1, 4])
    await group_commit.stop()


class FullDatabase(Database):
    """A database whose disk is full after the first commit."""

    def commit(self, resource_version: int) -> None:
        if self.resource_version:
            raise sqlite3.OperationalError("database or disk is full")
        super().commit(resource_version)


async def test_requests_fail_after_a_disk_failure(tmp_path: Path) -> None:
    database = FullDatabase(tmp_path)
    store = database.load({})
    group_commit = GroupCommit(store, database)
    group_commit.start()
    store.put("pods", StoredObject("a/x", 1, b"{}", {}))
    await group_commit.wait_durable()
    store.put("pods", StoredObject("a/y", 2, b"{}", {}))
    with pytest.raises(StatusError, match="database or disk is full"):
        await group_commit.wait_durable()
    with pytest.raises(StorageFailed, match=r"kubestow.db: write failed, later writes are not persisted: database or"):
        await group_commit.wait_for_failure()
    await group_commit.stop()
    assert [one.key for one in reopened(tmp_path).collection("pods").snapshot()] == ["a/x"]


def reopened(directory: Path) -> Any:
    database = Database(directory)
    try:
        return database.load({})
    finally:
        database.close()


async def test_a_request_on_a_full_disk_gets_500(tmp_path: Path) -> None:
    cluster = DevCluster(database=FullDatabase(tmp_path), kubelets=False)
    async with cluster as server, aiohttp.ClientSession(server.url) as session:
        async with session.post(PODS, json=pod("p")) as response:
            assert response.status == 500
            assert "database or disk is full" in (await response.json())["message"]
        with pytest.raises(StorageFailed):
            await server.failed()
